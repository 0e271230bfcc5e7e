"""Chainer."""

FILES = {"chainer": {"kinds": "npz hdf5 pickle", "endings": ".npz .h5 .hdf5"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
