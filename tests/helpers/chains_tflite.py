"""Two LSTMs of TFLite with operators drawn between them: see tests.helpers.chains.

They read the time first: LiteRT 2.3 computes two directions wrongly from the third sequence of a batch on where the batch comes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from tests.helpers.chains import BATCH, TIME, UNITS, WIDTH, Case, Room, weights
from tests.helpers.requirements import needed

_FLOAT, _HALF, _INT32, _DOUBLE = 0, 1, 2, 10


class _Writer:
    """A model in LiteRT's own classes."""

    def __init__(self) -> None:
        self.schema = needed("litert", "ai_edge_litert.schema_py_generated")
        self.model = self.schema.ModelT()
        self.model.version, self.model.buffers, self.model.operatorCodes = 3, [self.schema.BufferT()], []
        self.graph = self.schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.name = [], [], b"main"
        self.model.subgraphs = [self.graph]

    def tensor(self, name: str, shape: list[int], kind: int = _FLOAT, array: Array | None = None) -> int:
        """Add a tensor; return its place."""
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), [abs(size) for size in shape], kind, 0
        if -1 in shape:
            tensor.shapeSignature = shape
        if array is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(array.tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, array: Array) -> int:
        """Add numbers."""
        kind = _INT32 if array.dtype == np.int32 else _FLOAT
        return self.tensor(f"constant {len(self.graph.tensors)}", list(array.shape), kind, array)

    def integers(self, *numbers: int) -> int:
        """Add whole numbers."""
        return self.constant(np.array(numbers, np.int32))

    def operator(self, word: str, inputs: list[int], outputs: list[int], options: str = "", **settings: Any) -> int:
        """Add an operator; return its first output."""
        number = getattr(self.schema.BuiltinOperator, word)
        code, operator = self.schema.OperatorCodeT(), self.schema.OperatorT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        self.model.operatorCodes.append(code)
        operator.opcodeIndex, operator.inputs, operator.outputs = len(self.model.operatorCodes) - 1, inputs, outputs
        if options:
            operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(self.schema, f"{options}T")()
            for key, value in settings.items():
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)
        return outputs[0]

    def lstm(self, below: int, width: int, two: bool, name: str, shape: list[int], seed: int, merge: bool) -> list[int]:
        """Add a recurrent operator; return its outputs."""
        ways = 1 + two
        arrays = iter(weights(seed, *(((UNITS, width),) * 4 + ((UNITS, UNITS),) * 4 + ((UNITS,),) * 4) * ways))
        inputs = [below]
        for _ in range(ways):
            inputs += [self.constant(next(arrays)) for _ in range(8)] + [-1] * 3
            inputs += [self.constant(next(arrays)) for _ in range(4)] + [-1] * 2
        for _ in range(2 * ways):
            inputs.append(self.tensor(f"{name} state {len(inputs)}", [BATCH, UNITS]))
            self.graph.tensors[-1].isVariable = True
        inputs += [-1] * (9 if two else 4)
        count = 1 if merge else 2
        width = UNITS * (ways if merge else 1)
        outputs = [self.tensor(f"{name}{' backwards' * place}", [*shape[:2], width]) for place in range(count)]
        settings: dict[str, Any] = {"fusedActivationFunction": 4, "timeMajor": True}
        if two:
            settings["mergeOutputs"] = merge
            self.operator("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, "BidirectionalSequenceLSTMOptions", **settings)
        else:
            self.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, "UnidirectionalSequenceLSTMOptions", **settings)
        return outputs

    def step(self, value: int, shape: list[int], word: str, *arguments: Any) -> int:
        """Add what one step of a chain is; return its result."""

        def result(kind: int = _FLOAT) -> list[int]:
            return [self.tensor(f"value {len(self.graph.tensors)}", shape, kind)]

        if word in ("half", "double", "int"):
            other = {"half": _HALF, "double": _DOUBLE, "int": _INT32}[word]
            between = self.operator("CAST", [value], result(other), "CastOptions", inDataType=_FLOAT, outDataType=other)
            return self.operator("CAST", [between], result(), "CastOptions", inDataType=other, outDataType=_FLOAT)
        if word == "joined":
            axis, parts, order = arguments
            outputs = [result()[0] for _ in range(parts)]
            self.operator("SPLIT", [self.integers(axis), value], outputs, "SplitOptions", numSplits=parts)
            return self.operator("CONCATENATION", [outputs[n] for n in order], result(), "ConcatenationOptions", axis=axis)
        if word == "squeeze":
            return self.operator("SQUEEZE", [value], result(), "SqueezeOptions", squeezeDims=[arguments[0]])
        if word == "reshape":
            return self.operator("RESHAPE", [value, self.integers(*arguments[0])], result(), "ReshapeOptions", newShape=list(arguments[0]))
        if word == "gather":
            return self.operator("GATHER", [value, self.integers(*arguments[1])], result(), "GatherOptions", axis=arguments[0])
        if word == "add":
            number = self.constant(np.array([arguments[0]], np.float32))
            return self.operator("ADD", [value, number], result(), "AddOptions")
        if word == "relu":
            return self.operator("RELU", [value], result())
        numbers = arguments[0] if word == "transpose" else arguments[:1]
        kind, options = {
            "transpose": ("TRANSPOSE", "TransposeOptions"), "reverse": ("REVERSE_V2", "ReverseV2Options"),
            "unsqueeze": ("EXPAND_DIMS", "ExpandDimsOptions"),
        }[word]  # fmt: skip
        return self.operator(kind, [value, self.integers(*numbers)], result(), options)


def write(folder: Path, case: Case, seed: int) -> Path:
    """A model of two LSTMs, by the classes of TFLite's schema."""
    flatbuffers = needed("litert", "flatbuffers")
    writer = _Writer()
    lengths = [TIME if case.fixed else -1, BATCH]
    x = writer.tensor("x", [*lengths, WIDTH])
    # The directions are two outputs where something joins them first, and one otherwise.
    merge = not (case.two and case.chain[:1] and case.chain[0][:2] == ("joined", 2))
    low = writer.lstm(x, WIDTH, case.two, case.names[0], lengths, seed, merge)
    value, chain = low[0], case.chain
    if not merge:
        shape = [*lengths, 2 * UNITS]
        joined = [writer.tensor("joined", shape)]
        value = writer.operator("CONCATENATION", [low[n] for n in chain[0][3]], joined, "ConcatenationOptions", axis=2)
        chain = chain[1:]
    for step in chain:
        value = writer.step(value, [], *step)
    (y,) = writer.lstm(value, UNITS * (1 + case.two), False, case.names[1], lengths, seed + 1, True)
    writer.graph.inputs, writer.graph.outputs = [x], [y]
    builder = flatbuffers.Builder(1024)
    builder.Finish(writer.model.Pack(builder), b"TFL3")
    path = folder / "m.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


def run(path: Path, case: Case, x: Array) -> Array:
    """What the whole model gives."""
    needed("litert", "ai_edge_litert")
    from rnnconvert.formats.tflite import run as executor

    interpreter = executor._interpreter(path.read_bytes())
    (fed,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(fed["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.reset_all_variables()
    interpreter.set_tensor(fed["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(output["index"]))


ROOM = Room(
    ("transpose", "reshape", "unsqueeze", "squeeze", "gather", "reverse", "joined", "half", "double", "int", "relu", "add"),
    lambda y: y.reshape(*y.shape[:2], -1), lambda x: x,
    ([()], [(), (("joined", 2, 2, (0, 1)),), (("joined", 2, 2, (1, 0)),), (("joined", 2, 2, (0, 0)),)]),
    write, run, open_sizes=((6, BATCH),),
)  # fmt: skip
