"""One step of a Torch7 layer as the modules inside it compute it: their constants and their routing are facts, too.

Source: torch/nn, {Linear,CMul,CAddTable,CMulTable,SelectTable,NarrowTable,FlattenTable,Reshape,View,SplitTable,Identity,
Copy}.lua; Element-Research/rnn, SAdd.lua.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import MODULE_NESTING
from rnnconvert.core.malformed import malformed
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object, numbers_of

CONSTANTS = frozenset({"offset", "length", "index", "addend", "negate", "dimension", "nInputDims", "size", "numElements", "numInputDims"})
"""Fields of modules that their step reads, beside their weights."""
HARMLESS = frozenset(
    {
        "nelement",
        "batchMode",
        "batchsize",
        "inplace",
        "intype",
        "outtype",
        "dontCast",
        "forceBackward",
        "propagateGradInput",
        "sharedCloneId",
    }
)
"""Fields of modules that serve training, memory, or the check of a shape."""
_CLOSE = 1e-6


class UnknownModuleError(Exception):
    """A module is unknown, or what it is given does not fit it; the message says which."""


def differs(stack: Recurrent, module: Object) -> str:
    """Return how far one step of the modules is from one step of the layer, in words; "" where they agree.

    Raises UnknownModuleError.
    """
    draw = np.random.default_rng(0)
    x, h, c = (draw.uniform(-1, 1, (2, width)) for width in (stack.input_size, stack.hidden_size, stack.hidden_size))
    lstm = stack.cell.kind == "lstm"
    with malformed(lambda what: UnknownModuleError(f"its modules do not fit together ({what})")):
        outputs = _run(module, [x, h, c] if lstm else [x, h], 0)
        outputs = outputs if lstm else [outputs]
        solved = reference.run(stack, x[None], (h,), (c,) if lstm else None)
        wanted = [solved.y[0], *(solved.cell or () if lstm else ())]
        apart = max(float(np.abs(np.asarray(output) - other).max()) for output, other in zip(outputs, wanted, strict=True))
    return "" if apart <= _CLOSE else f"one step of its modules is {apart:.2g} away from its class's"


def _flat(values: Any) -> Iterator[Array]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _wide(fields: LuaTable, name: str) -> Array:
    return np.asarray(fields[name], np.float64)


def _run(module: Any, x: Any, depth: int) -> Any:
    """Return the output of a module for a tensor (batch, features) or a list of such."""
    if not isinstance(module, Object) or depth > MODULE_NESTING:
        raise UnknownModuleError("its modules contain themselves, or something else than modules")
    fields, name = module.fields, module.name.rpartition(".")[2]
    held = fields.get("modules")
    inside = held.listed() if isinstance(held, LuaTable) else []
    match name:
        case "Sequential":
            for child in inside:
                x = _run(child, x, depth + 1)
            return x
        case "ConcatTable":
            return [_run(part, x, depth + 1) for part in inside]
        case "ParallelTable":
            return [_run(part, value, depth + 1) for part, value in zip(inside, x, strict=True)]
        case "Linear" | "LinearNoBias":
            bias = fields.get("bias") if name == "Linear" else None
            product = x @ _wide(fields, "weight").T
            return product if bias is None or not np.asarray(bias).size else product + np.asarray(bias, np.float64)
        case "CMul":
            return x * _wide(fields, "weight").reshape(-1)
        case "CAddTable":
            return sum(x[1:], x[0])
        case "CMulTable":
            return np.prod(np.stack(x), axis=0)
        case "SelectTable":
            place = int(fields["index"])
            return x[place - 1 if place > 0 else place]
        case "NarrowTable":
            start, length = int(fields["offset"]) - 1, int(fields.get("length", 1))
            if not (isinstance(x, list) and start >= 0 and start + length <= len(x)):
                raise IndexError(f"{length} values from {start + 1} of a table of {len(x)}")
            return x[start : start + length]
        case "FlattenTable":
            return list(_flat(x))
        case "Reshape" | "View":
            return x.reshape(len(x), *numbers_of(fields["size"]))
        case "SplitTable":
            dimension, dims = int(fields.get("dimension", 1)), int(fields.get("nInputDims") or x.ndim - 1)
            axis = dimension - 1 + x.ndim - dims if dimension > 0 else x.ndim + dimension
            return list(np.moveaxis(x, axis, 0))
        case "SAdd":
            return -(x + fields["addend"]) if fields.get("negate") else x + fields["addend"]
        case "Identity" | "Copy":
            return x
        case "Sigmoid":
            return 1 / (1 + np.exp(-x))
        case "Tanh":
            return np.tanh(x)
    raise UnknownModuleError(f"its module {module.name} is unknown")
