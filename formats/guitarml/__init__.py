"""GuitarML and CoreAudioML: a state dictionary of torch as JSON."""

FILES = {"guitarml": {"kinds": "json", "endings": ".json"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
