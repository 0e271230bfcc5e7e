"""C headers."""

FILES = {"c_header": {"kinds": "", "endings": ".h .c", "named": ".h .c", "unwritten": ".c", "begins": ((0, b"rnnoise-nu model file"),)}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
