"""TensorFlow 1."""

FILES = {"tensorflow1": {"kinds": "bundle table hdf5 npz pickle json folder", "endings": ".index .npz", "named": ".pb"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
