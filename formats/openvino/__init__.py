"""OpenVINO."""

FILES = {"openvino": {"kinds": "", "endings": ".xml", "named": ".xml"}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
