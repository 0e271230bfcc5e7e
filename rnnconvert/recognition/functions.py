"""Functions of numbers that formulas are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import FUNCTIONS


def _named(name: str) -> Callable[..., Array]:
    return lambda x, a=None, b=None: np.asarray(FUNCTIONS[name](np, x, a, b))


UNARY: Mapping[str, Callable[..., Array]] = {
    "Sigmoid": _named("sigmoid"), "Tanh": _named("tanh"), "Relu": _named("relu"), "Softsign": _named("softsign"),
    "Softplus": _named("softplus"), "Elu": _named("elu"), "LeakyRelu": _named("leaky_relu"), "Selu": _named("selu"),
    "ThresholdedRelu": _named("thresholded_relu"), "HardSigmoid": _named("hard_sigmoid"), "Exp": np.exp,
    "Neg": np.negative, "Abs": np.abs, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal, "Clip": np.clip,
}  # fmt: skip
"""Operators of one value that work on each unit, with their constants as further arguments."""


TWO: Mapping[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Min": np.minimum,
    "Max": np.maximum,
    "Pow": np.power,
}


PAIRS: Sequence[str] = tuple(TWO)
"""Operators of two values that work on each unit."""
