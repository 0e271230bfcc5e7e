"""Layers of our own for the cells that a framework lacks: one module a framework, imported only where it is asked for.

equations  one time step, for any framework's tensors
outline    a stack without its numbers, as text, and where its numbers lie in a module
torch      torch.nn modules, with torch_stack, torch_script and torch_onnx behind them
keras      Keras layers, on any backend
"""
