"""ONNX."""

FILES = {
    "onnx": {
        "kinds": "protobuf",
        "endings": ".onnx .onnxtxt .textproto .pbtxt",
        "named": ".onnx .onnxtxt .textproto .pbtxt",
        "unwritten": ".onnxtxt .textproto .pbtxt",
    }
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
