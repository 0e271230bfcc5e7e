"""cuDNN."""

FILES = {"cudnn": {"kinds": "described safetensors", "endings": ".bin .cudnn .safetensors", "usual": ".bin"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
