"""DyNet."""

FILES = {"dynet": {"kinds": "", "endings": ".dynet", "begins": ((0, b"#Parameter# "), (0, b"#LookupParameter# "))}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
