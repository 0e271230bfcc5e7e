"""Torch7 (Lua)."""

FILES = {
    "torch7": {
        "kinds": "",
        "endings": ".t7",
        "begins": ((0, b"\x03\x00\x00\x00\x01\x00\x00\x00"), (0, b"\x04\x00\x00\x00\x01\x00\x00\x00")),
    }
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
