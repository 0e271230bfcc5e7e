"""The common form of the graphs of frameworks: operations of one set, in which layers are recognized, folded and computed.

Its operations are ONNX's, with the names and attributes that they have there (onnx/docs/Operators.md). A room writes its graph in them;
an operation without equivalent belongs to the room's own domain, which nothing looks into.
"""
