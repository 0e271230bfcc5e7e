"""Cells that people write themselves, by the names that tutorials gave their arrays."""

FILES = {"tutorials": {"kinds": "npz safetensors msgpack pickle json", "endings": ".npz"}}
"""Which kinds of file its formats may be in, and what they write. HDF5 is left out: Keras 1 has arrays of the same names in it."""
