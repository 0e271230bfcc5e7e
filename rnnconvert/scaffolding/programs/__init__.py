"""Whole ONNX models as rnnconvert.scaffolding describes models."""
