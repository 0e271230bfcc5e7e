"""Whole Keras models as ONNX graphs."""
