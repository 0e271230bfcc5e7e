"""Tencent's ncnn."""

FILES = {"ncnn": {"kinds": "", "endings": ".param", "named": ".param", "begins": ((0, b"7767517"),)}}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
