"""The common form of the graphs of frameworks: operations of one set, in which layers are recognized, folded and computed.

Its operations are those of ONNX, by their names and attributes there (onnx/docs/Operators.md). A room writes its graph in them;
an operation that has no equivalent is one of a domain of the room's, which nothing looks into.
"""
