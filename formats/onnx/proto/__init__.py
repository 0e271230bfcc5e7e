"""The contents of an ONNX file: read lazily, folded, in scopes, written back."""
