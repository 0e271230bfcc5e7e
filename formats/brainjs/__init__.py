"""brain.js."""

FILES = {"brainjs": {"kinds": "json", "endings": ""}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
