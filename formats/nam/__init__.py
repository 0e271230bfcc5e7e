"""Neural Amp Modeler."""

FILES = {"nam": {"kinds": "json", "endings": ".nam"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
