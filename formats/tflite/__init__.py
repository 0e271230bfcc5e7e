"""TFLite, which is LiteRT today."""

FILES = {"tflite": {"kinds": "", "endings": ".tflite", "named": ".tflite", "begins": ((4, b"TFL3"),)}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
