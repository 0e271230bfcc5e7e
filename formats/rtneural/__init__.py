"""RTNeural, and AIDA-X, which runs on it."""

FILES = {"rtneural": {"kinds": "json", "endings": ".json .aidax", "usual": ".json"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
