"""Core ML: its ML programs, and the neural networks of its earlier versions."""

FILES = {
    "coreml": {"kinds": "folder protobuf", "endings": ".mlpackage", "named": ".mlpackage"},
    "coreml_nn": {"kinds": "folder protobuf", "endings": ".mlmodel", "named": ".mlmodel .mlpackage"},
}
"""Which kinds of file its formats may be in, and what they write: rnnconvert.language.registry.Card."""
