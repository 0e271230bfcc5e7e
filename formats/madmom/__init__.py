"""Madmom."""

FILES = {"madmom": {"kinds": "pickle", "endings": ".pkl", "unwritten": ".pkl"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
