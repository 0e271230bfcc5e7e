"""The effects of the common operations on the numbers and shapes that they read: the one table for all code that follows values.

Source: onnx/docs/Operators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# fmt: off
SAME = ("Identity", "Dropout")
"""Operations that give what they read: Dropout does where nothing is trained."""
CUTTING = ("Slice", "Gather", "Squeeze", "Unsqueeze", "Transpose")
RESHAPING = ("Reshape", "Flatten", "Split", "Concat")
MOVING = ("Identity", *CUTTING, *RESHAPING)
"""Operations that move numbers and change none."""
REPEATING = ("Expand", "Tile")
MEASURING = ("Shape", "Size")
"""Operations that give numbers of a shape."""
EACH = (
    "Abs", "Affine", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log",
    "Mish", "Neg", "Not", "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tanh", "ThresholdedRelu",
)
"""Operations that are a function of each number of their first input."""
ALIKE = (
    *SAME, "Cast", *EACH, "BatchNormalization", "CumSum", "DequantizeLinear", "LayerNormalization", "LogSoftmax", "QuantizeLinear",
    "ReverseSequence", "ReverseV2", "Softmax",
)
"""Operations whose first output has the shape of their first input."""
COMPARED: Mapping[str, Callable[..., Any]] = {
    "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}
"""Operations that compare."""
SPREAD = (
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "And", "Or", "Xor", "Mod", "Where", *COMPARED,
)
"""Operations whose inputs are spread over one another."""
# fmt: on
