"""What stands in an ONNX file: read lazily, folded, in scopes, written back."""
