"""Haste."""

FILES = {"haste": {"kinds": "npz hdf5 safetensors msgpack pickle", "endings": ""}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
