"""Burn."""

FILES = {
    "burn": {
        "kinds": "safetensors msgpack json",
        "endings": ".safetensors .mpk .bpk",
        "unwritten": ".mpk .bpk",
        "named": ".mpk .bpk",
        "begins": ((0, b"NRUB"),),
    }
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
