"""Live objects: arrays by name, torch modules, Keras layers, ONNX models, JAX's trees, to the canonical form and back.

One module a framework, which is imported only where its own object is handed in or asked for.
"""
