"""Deeplearning4j."""

FILES = {"dl4j": {"kinds": "zip:coefficients.bin", "endings": ".zip"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
