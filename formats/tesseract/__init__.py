"""Tesseract."""

FILES = {"tesseract": {"kinds": "", "endings": ".traineddata .lstm", "unwritten": ".traineddata .lstm", "named": ".traineddata .lstm"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
