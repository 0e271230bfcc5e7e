"""Functions of numbers as PyTorch calls them. Sources: torch 2.13 torch/nn/functional.py and torch/_torch_docs.py."""

from __future__ import annotations

FUNCTIONS = {
    "relu": "torch.relu({x})", "sigmoid": "torch.sigmoid({x})", "tanh": "torch.tanh({x})", "exponential": "torch.exp({x})",
    "softmax": "torch.softmax({x}, dim={axis})", "log_softmax": "torch.log_softmax({x}, dim={axis})", "elu": "F.elu({x}, {alpha})",
    "selu": "F.selu({x})", "softplus": "F.softplus({x})", "softsign": "F.softsign({x})", "hard_sigmoid": "F.hardsigmoid({x})",
    "leaky_relu": "F.leaky_relu({x}, {alpha})", "silu": "F.silu({x})", "gelu": "F.gelu({x})", "relu6": "F.relu6({x})",
    "gelu_tanh": 'F.gelu({x}, approximate="tanh")', "hard_swish": "F.hardswish({x})", "mish": "F.mish({x})", "celu": "F.celu({x}, {alpha})",
    **{name: f"torch.{name}({{x}})" for name in ("abs", "sqrt", "log", "square", "neg")},
}  # fmt: skip
"""The functions by their names. F.hardsigmoid is relu6(x + 3) / 6, Keras 3's."""
