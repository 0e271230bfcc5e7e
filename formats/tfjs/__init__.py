"""TensorFlow.js."""

FILES = {"tfjs": {"kinds": "json folder", "endings": ".json", "named": "model.json"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
