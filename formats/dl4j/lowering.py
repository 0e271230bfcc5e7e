"""A network as a program of the common operations, one rule for each class of layers and vertices.

Sequences are (batch, features, time). A dense layer reads the steps of all sequences as rows, which preprocessors make of them and
sequences again of these: here such rows keep their axes, (batch, time, features). A mask is an input of a run, never of a file: every
step counts.

Source: deeplearning4j-nn, org/deeplearning4j/nn/layers and nn/graph/vertex/impl, the class of each name; nn/conf/preprocessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import Entries, Fields
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.dl4j.config import HARMLESS, RESHAPING, ConfiguredNetwork, Vertex, content_of, without_wrappers
from rnnconvert.graphs.graph import PLAIN, CallSizes
from rnnconvert.graphs.program.lowering import END, OPSET, Block, CheckedRule
from rnnconvert.graphs.program.operations import Body, Declared, Program
from rnnconvert.recognition.flow import RecurrentCall

DOMAIN = "dl4j"
_SEQUENCE, _ROWS, _STEP, _NUMBERS = "bft", "btf", "bf", "bt"
"""The axes of values: sequences, their steps as rows, one step, and whole numbers."""
_READ = {
    "rnnoutput": _SEQUENCE, "rnnloss": _SEQUENCE, "globalpooling": _SEQUENCE, "lasttimestepvertex": _SEQUENCE,
    "reversetimeseriesvertex": _SEQUENCE, "dense": _STEP, "output": _STEP, "loss": _STEP, "embedding": _NUMBERS,
    "embeddingsequence": _NUMBERS, "duplicatetotimeseriesvertex": _STEP,
}  # fmt: skip
"""The axes of what layers read, where their class shows them."""
_TRAINED = frozenset({
    *HARMLESS, "@class", "layerName", "layername", "nin", "nout", "nIn", "nOut", "hasBias", "lossFn", "lossFunction", "customLossFunction",
})  # fmt: skip
"""Keys of a layer that serve training, or that its arrays show."""
_FUNCTIONS = {
    "identity": "Identity", "tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "softplus": "Softplus",
    "selu": "Selu",
}  # fmt: skip
"""ND4J's functions that are a common operation and state nothing else."""
_COMBINED = {"add": "Add", "subtract": "Sub", "product": "Mul", "max": "Max", "average": "Add"}


class NetworkLowering:
    """A network on its way into a program.

    layers  its recurrent layers, by name
    arrays  the arrays of its other layers, by the layer's name and their own
    axes    the axes of its values
    """

    def __init__(self, network: ConfiguredNetwork, layers: Mapping[str, Recurrent], arrays: Mapping[str, Array]) -> None:
        self.network, self.layers, self.arrays = network, layers, arrays
        self.axes: dict[str, str] = {}

    def calls(self) -> dict[str, RecurrentCall]:
        """Return the calls of the recurrent layers, by their names."""
        return {vertex.name: self._call(vertex) for vertex in self.network.vertices if vertex.name in self.layers}

    def _call(self, vertex: Vertex) -> RecurrentCall:
        stack, part = self.layers[vertex.name], vertex.part
        assert part is not None
        sizes = CallSizes(stack.layers[-1].output_size, dtype=stack.dtype, width=stack.input_size)
        mask = f"by the values of what {vertex.name!r} reads" if part.masked else ""
        sequence, gives = f"{vertex.name}, read", f"{vertex.name}, every step"
        return RecurrentCall((sequence, _SEQUENCE.replace("f", "i")), {gives: "but"}, sizes, {}, besides=replace(PLAIN, mask=mask))

    def program(self, path: Path, size: int) -> Program:
        """Return the network as a program.

        size  how many bytes the file has
        """
        block = Block(" ", {})
        declared = [self._declared(name) for name in self.network.inputs]
        for vertex in self.network.vertices:
            VertexRule(self, vertex, block).write()
        read = {name for vertex in self.network.vertices for name in vertex.inputs}
        stated, outputs = self.network.outputs, list[str]()
        for name in stated or [vertex.name for vertex in self.network.vertices if vertex.name not in read]:
            rows = self.axes.get(name) == _ROWS
            block.operator = f"{name!r}, which " + ("gives the steps of all sequences as rows" if rows else "is not stated as an output")
            outputs.append(block.add("Output", [name], [f"{name}, given"], name, DOMAIN) if rows or not stated else name)
        return Program(path, Body(block.nodes, list(self.network.inputs), outputs, block.stored, declared), {"": OPSET}, size=size)

    def _declared(self, name: str) -> Declared:
        """Return the axes and the element type of an input, as the first of its readers that shows them asks for them."""
        waiting, width = [name], 0
        for value in waiting:  # it grows
            for vertex in self.network.vertices:
                if value not in vertex.inputs:
                    continue
                kind, _, _ = without_wrappers(vertex.kind, vertex.stated)
                before, _ = vertex.before
                axes = _SEQUENCE if before.startswith("rnn") or vertex.name in self.layers else _READ.get(kind, "")
                axes = _ROWS if before.startswith("feedforward") else axes
                if not axes:
                    waiting += [] if vertex.name in waiting else [vertex.name]
                    continue
                width = vertex.part.inputs if vertex.part is not None and value == name else 0
                self.axes[name] = axes
                words: dict[str, int | str | None] = {"b": "batch", "t": "time", "f": width or None}
                dims: list[int | str | None] = ["batch", 1] if kind == "embedding" else [words[axis] for axis in axes]
                return Declared(name, np.dtype(np.int32 if axes == _NUMBERS else np.float32), dims)
        return Declared(name, np.dtype(np.float32))


class VertexRule(CheckedRule):
    """One layer or vertex, and the program that it is written into."""

    def __init__(self, lowering: NetworkLowering, vertex: Vertex, block: Block) -> None:
        self.lowering, self.vertex = lowering, vertex
        self.kind, self.stated, self.wrappers = without_wrappers(vertex.kind, vertex.stated)
        self._read: set[str] = set()
        self.axes = lowering.axes.get(next(iter(vertex.inputs), ""), "")
        super().__init__(block, Entries(vertex.inputs), [vertex.name], vertex.name)

    def write(self) -> None:
        """Write the layer; as one of another domain where it has no equivalent, or states what is not read."""
        self._prepare()
        self.block.operator = self.vertex.label
        recurrent = self.vertex.name in self.lowering.layers
        if recurrent and not self.recurrent():
            self.block.add(self.kind, [f"{self.vertex.name}, every step"], self.outputs, self.label, DOMAIN)
        elif not recurrent:
            self.write_checked(_RULES.get(self.kind), self.vertex.label, self.inputs, DOMAIN)
        self.lowering.axes[self.vertex.name] = self.axes

    def unread(self) -> Mapping[str, object]:
        read = self._read | _TRAINED
        return {key: value for key, value in self._around() if key not in read and (value or isinstance(value, bool | int | float))}

    def _around(self) -> Iterator[tuple[str, object]]:
        """Yield what the layer and the wrappers around it state."""
        kind, content = self.vertex.kind, self.vertex.stated
        for _ in self.wrappers:
            inside = "layer" if kind.removesuffix("layer") == "frozen" else "underlying"
            yield from ((key, value) for key, value in content.items() if key != inside)
            kind, content = content_of(content[inside])
        yield from self.stated.items()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting."""
        self._read.add(key)
        value = self.stated.get(key)
        return default if value is None else value

    def number(self, key: str) -> float:
        """Return a setting that is a number. Raises ValueError for another one, and for none."""
        value = self.get(key)
        if type(value) not in (int, float):
            raise ValueError(f"{key} is {value!r}")
        return float(value)

    def _prepare(self) -> None:
        """Write the preprocessor before the layer."""
        kind, content = self.vertex.before
        if not kind:
            return
        self.block.operator = kind
        wanted = {RESHAPING[0]: _SEQUENCE, RESHAPING[1]: _ROWS}.get(kind.removesuffix("preprocessor"))
        stated = {key: value for key, value in content.items() if key not in ("@class", "rnnDataFormat") or value == "NWC"}
        if wanted and self.axes == wanted and not stated:
            self.inputs = Entries(map(self._turned, self.inputs))
            self.axes = _ROWS if wanted == _SEQUENCE else _SEQUENCE
        else:
            self.inputs, self.axes = Entries(self.block.add(kind, [value], domain=DOMAIN) for value in self.inputs), ""

    def _turned(self, value: str) -> str:
        """Return a sequence with its time before the features, or behind them again."""
        return self.block.add("Transpose", [value], perm=[0, 2, 1])

    @property
    def features(self) -> int:
        """The axis of the features."""
        return self.axes.index("f")

    # Layers

    def recurrent(self) -> bool:
        """Write a recurrent layer, and its last step where a wrapper takes that alone."""
        part, stack = self.vertex.part, self.lowering.layers[self.vertex.name]
        assert part is not None
        call = f"{self.vertex.name}, every step"
        lasts = "lasttimestep" in self.wrappers
        within = [content_of(self.stated[side]) for side in ("fwd", "bwd")] if self.kind == "bidirectional" else []
        inner = ["lasttimestep" in without_wrappers(*side)[2] for side in within]
        self.block.operator = None  # what it reads and gives goes by names of its own alone
        self.block.add("Identity", [next(iter(self.inputs), "")], [f"{self.vertex.name}, read"])
        self.block.operator = self.vertex.label
        self.block.add(self.kind, [f"{self.vertex.name}, read"], [call], self.label, DOMAIN)
        unlike, self.axes = self.axes != _SEQUENCE, _STEP if lasts or any(inner) else _SEQUENCE
        if part.masked or unlike:
            return False
        if any(inner):  # each direction gives the last step that it computes
            if not all(inner) or part.merge != "concat" or lasts:
                return False
            units = stack.first.output_size
            ends = ([0, -1], [units, END]), ([units, 0], [END, 1])
            parts = [self.block.add("Slice", [call], axes=[1, 2], starts=low, ends=high) for low, high in ends]
            return self.add("Concat", [self.block.add("Squeeze", [value], axes=[2]) for value in parts], axis=1)
        if lasts:
            return self._last(call)
        self.block.operator = None
        return self.add("Identity", [call])

    def _last(self, value: str) -> bool:
        self.axes = _STEP
        return self.add("Gather", [value, self.block.constant(np.array(-1, np.int64))], axis=2)

    def _array(self, name: str) -> str:
        full = f"{self.vertex.name}/{name}"
        return self.block.constant(self.lowering.arrays[full], f" {full}", full)

    def _biased(self, value: str) -> str:
        has_bias = f"{self.vertex.name}/b" in self.lowering.arrays
        return self.block.add("Add", [value, self._array("b")]) if has_bias else value

    def dense(self) -> bool:
        """Write a dense layer, of the steps of a sequence each by itself."""
        if self.get("hasLayerNorm", False) or not self.axes or (self.axes == _SEQUENCE) != (self.kind == "rnnoutput"):
            return False
        return self._by_step(lambda x: self._biased(self.block.add("MatMul", [x, self._array("W")], name=self.label)))

    def function(self) -> bool:
        """Write a function."""
        if not self.axes:
            return False
        if self.axes == _SEQUENCE and self.kind == "activation":
            over_features = "softmax" in str(self.get("activationFn", self.get("activationFunction"))).lower()
            return not over_features and self.add("Identity", [self._activated(self.inputs[0])])
        return self._by_step(lambda x: x)

    def _by_step(self, compute: Callable[[str], str]) -> bool:
        """Write what is computed of each step, with the features last, and the layer's function of it."""
        x = self._turned(self.inputs[0]) if self.axes == _SEQUENCE else self.inputs[0]
        y = self._activated(compute(x))
        return self.add("Transpose", [y], perm=[0, 2, 1]) if self.axes == _SEQUENCE else self.add("Identity", [y])

    def _activated(self, value: str) -> str:
        """Return the layer's function of a value. Raises ValueError for one that has no equivalent."""
        stated = self.get("activationFn", self.get("activationFunction"))
        if not isinstance(stated, str | dict):
            raise ValueError(f"its function is {stated!r}")
        kind, details = (stated, dict[str, Any]()) if isinstance(stated, str) else content_of(stated)
        if not isinstance(details, dict):
            raise ValueError(f"its function is {stated!r}")
        name = kind.lower().removeprefix("activation")
        constants = {key: number for key, number in details.items() if key != "@class" and number not in (None, 0, 0.0)}
        add = self.block.add
        if name in ("elu", "lrelu") and set(constants) <= {"alpha"}:
            alpha = details.get("alpha", {"elu": 1.0, "lrelu": 0.01}[name])
            if type(alpha) not in (int, float):
                raise ValueError(f"{kind} has the alpha {alpha!r}")
            return add("Elu" if name == "elu" else "LeakyRelu", [value], alpha=float(alpha))
        if constants:
            raise ValueError(f"{kind} with {constants}")
        if name in ("softmax", "logsoftmax"):
            return add("Softmax" if name == "softmax" else "LogSoftmax", [value], axis=-1)
        if name == "hardsigmoid":
            return add("HardSigmoid", [value], alpha=0.2, beta=0.5)
        if name == "hardtanh":
            return add("Clip", [value], min=-1.0, max=1.0)
        if name == "swish":
            return add("Mul", [value, add("Sigmoid", [value])])
        return value if name == "identity" else add(Fields(_FUNCTIONS)[name], [value])

    def embedded(self, sequence: bool) -> bool:
        """Write rows of a matrix by their numbers: one for a sequence, or one for each of its steps."""
        self._read |= {"inputLength", "inferInputLength"}  # how many steps there are is seen
        if self.get("outputFormat", self.get("outputDataFormat", "NCW")) not in ("NCW", "RNNFormat.NCW") or self.axes != _NUMBERS:
            return False
        places = self.inputs[0] if sequence else self.block.add("Squeeze", self.inputs[:1], axes=[1])
        rows = self.block.add("Gather", [self._array("W"), places], name=self.label, axis=0)
        y = self._activated(self._biased(rows))
        self.axes = _SEQUENCE if sequence else _STEP
        return self.add("Transpose", [y], perm=[0, 2, 1]) if sequence else self.add("Identity", [y])

    def pooled(self) -> bool:
        """Write the largest number, the mean, the sum or the norm of each feature over all steps."""
        kind, power = str(self.get("poolingType")), self.get("pnorm", 2)
        norm = "ReduceL1" if power == 1 else "ReduceL2" if power == 2 else ""
        reduction = {"MAX": "ReduceMax", "AVG": "ReduceMean", "SUM": "ReduceSum"}.get(kind, norm)
        collapsed = self.get("collapseDimensions", True)
        if self.axes != _SEQUENCE or self.get("poolingDimensions", [2]) != [2] or kind not in ("MAX", "AVG", "SUM", "PNORM"):
            return False
        self.axes = _STEP if collapsed else _SEQUENCE
        return bool(reduction) and self.reduced(reduction, [2], int(not collapsed))

    def same(self) -> bool:
        """Write what training alone changes."""
        return self.add("Identity", self.inputs[:1])

    # Vertices

    def _alike(self) -> bool:
        return len({self.lowering.axes.get(name) for name in self.vertex.inputs}) == 1

    def merged(self) -> bool:
        """Write the features of several values side by side."""
        return self.get("mergeAxis", 1) == 1 and self._alike() and self.add("Concat", self.inputs, axis=self.features)

    def combined(self) -> bool:
        """Write the sum of values, or another operation on each of their numbers."""
        word = str(self.get("op")).lower()
        kind, value = Fields(_COMBINED)[word], self.inputs[0]
        for other in self.inputs[1:]:
            value = self.block.add(kind, [value, other])
        value = self.affine(value, 1 / len(self.inputs), 0.0) if word == "average" else value
        return self._alike() and self.add("Identity", [value])

    def part(self) -> bool:
        """Write a range of the features."""
        first, last = self.get("from"), self.get("to")
        if type(first) is not int or type(last) is not int:
            return False
        return 0 <= first <= last and self.add("Slice", self.inputs[:1], axes=[self.features], starts=[first], ends=[last + 1])

    def reversed(self) -> bool:
        """Write a sequence turned around."""
        self._read.add("maskArrayInputName")
        return self.axes == _SEQUENCE and self.flip([2])

    def last(self) -> bool:
        """Write the last step of a sequence."""
        self._read.add("maskArrayInputName")
        return self.axes == _SEQUENCE and self._last(self.inputs[0])

    def repeated_for(self) -> bool:
        """Write a step as often as another input has steps."""
        like = str(self.get("inputName"))
        if self.axes != _STEP or self.lowering.axes.get(like) != _SEQUENCE:
            return False
        time = self.block.add("Slice", [self.block.add("Shape", [like])], axes=[0], starts=[2], ends=[3])
        shape = self.block.add("Concat", [self.whole_numbers([1, 1]), time], axis=0)
        self.axes = _SEQUENCE
        return self.add("Expand", [self.block.add("Unsqueeze", self.inputs[:1], axes=[2]), shape])

    def scaled(self, key: str) -> bool:
        """Write a value times a number, or plus one."""
        return self.add("Mul" if key == "scaleFactor" else "Add", [self.inputs[0], self.constant(self.number(key))])


_RULES: Mapping[str, Callable[[VertexRule], bool]] = {
    **dict.fromkeys(("dense", "output", "rnnoutput"), VertexRule.dense),
    **dict.fromkeys(("activation", "loss", "rnnloss"), VertexRule.function),
    "dropout": VertexRule.same,
    "embedding": lambda rule: rule.embedded(False),
    "embeddingsequence": lambda rule: rule.embedded(True),
    "globalpooling": VertexRule.pooled,
    "mergevertex": VertexRule.merged,
    "elementwisevertex": VertexRule.combined,
    "subsetvertex": VertexRule.part,
    "reversetimeseriesvertex": VertexRule.reversed,
    "lasttimestepvertex": VertexRule.last,
    "duplicatetotimeseriesvertex": VertexRule.repeated_for,
    "scalevertex": lambda rule: rule.scaled("scaleFactor"),
    "shiftvertex": lambda rule: rule.scaled("shiftFactor"),
}
"""The classes that are known."""
