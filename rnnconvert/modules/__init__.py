"""Layers of our own for the cells that a framework lacks: one module a framework, imported only where it is asked for.

equations  one time step, for any framework's tensors
outline    a stack without its numbers, as text, and where its numbers lie in a module
limits     what these layers compute, and what is left to their caller
torch      modules, with torch_stack, torch_script and torch_onnx behind them
keras      layers, on any backend
"""
