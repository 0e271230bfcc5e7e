"""C headers."""

FILES = {"c_header": {"kinds": "", "endings": ".h .c", "named": ".h .c", "unwritten": ".c"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
