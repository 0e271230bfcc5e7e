"""Lasagne (Theano)."""

FILES = {"lasagne": {"kinds": "npz pickle", "endings": ".npz"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
