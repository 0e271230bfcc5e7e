"""ggml: the Silero VAD of whisper.cpp."""

FILES = {"ggml": {"kinds": "", "endings": "", "begins": ((0, b"lmgg"),)}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
