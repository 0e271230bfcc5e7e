"""Apache MXNet."""

FILES = {"mxnet": {"kinds": "", "endings": ".params", "named": ".params", "begins": ((0, b"\x12\x01\x00\x00\x00\x00\x00\x00"),)}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
