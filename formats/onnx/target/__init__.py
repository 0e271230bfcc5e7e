"""Described models as ONNX graphs."""
