"""A graph of OpenVINO's IR under construction, and its two files: MODEL.xml and MODEL.bin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import ChecksumWriter
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.formats.openvino.net import TYPES
from rnnconvert.formats.openvino.xml_file import attribute

_PRECISIONS = {
    "f32": "FP32", "f16": "FP16", "bf16": "BF16", "f64": "FP64", "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "u8": "U8",
    "boolean": "BOOL",
}  # fmt: skip
_SEQUENCES = {"lstm": "LSTMSequence", "gru": "GRUSequence", "rnn": "RNNSequence"}
_VERSIONS = {
    **dict.fromkeys(("ShapeOf", "Broadcast", "CumSum", "ScatterElementsUpdate"), 3),
    **dict.fromkeys(("Acosh", "Asinh", "Atanh", "HSwish", "Range", "ReduceL2", "SoftPlus"), 4),
    **dict.fromkeys(("LSTMSequence", "GRUSequence", "RNNSequence", "LogSoftmax", "Loop", "Round"), 5),
    **dict.fromkeys(("GatherElements", "MVN"), 6),
    **dict.fromkeys(("Einsum", "Gelu"), 7),
    **dict.fromkeys(("Gather", "GatherND", "MaxPool", "Slice", "SoftMax"), 8),
    **dict.fromkeys(("SoftSign",), 9),
    **dict.fromkeys(("IsInf", "IsNaN"), 10),
    **dict.fromkeys(("TopK",), 11),
    **dict.fromkeys(("Pad",), 12),
}
"""The sets of operations that operations are of; the first set for others."""

Out = tuple[int, int]
"""An operation's number, and which of its ports."""


def companions(path: Path) -> tuple[Path, ...]:
    """Return the file of the numbers."""
    return (path.with_suffix(".bin"),)


class XmlGraph:
    """A graph under construction: its operations and edges as XML, and the arrays of its .bin.

    around  the graph in whose operation it is, which has the arrays
    """

    def __init__(self, around: XmlGraph | None = None) -> None:
        self.layers: list[str] = []
        self.edges: list[str] = []
        self.arrays: list[Array | PiecewiseArray] = []
        self.size = 0
        self.names: set[str] = set() if around is None else around.names
        self.types: dict[Out, str] = {}
        self._files: XmlGraph = self if around is None else around._files

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Out],
        outputs: Sequence[Sequence[int]],
        data: Mapping[str, Any],
        types: Sequence[str] = (),
        inside: str = "",
    ) -> Out:
        """Add an operation; return its first output.

        inside  what else stands in it: a graph
        """
        number = len(self.layers)
        version = 14 if data.get("rounding_type") == "ceil_torch" else _VERSIONS.get(kind, 1)
        name = unique(name, self.names)
        self.names.add(name)
        lines = [f'<layer id="{number}" name={attribute(name)} type="{kind}" version="opset{version}">']
        if data:
            lines.append("<data " + " ".join(f"{key}={attribute(str(value))}" for key, value in data.items()) + "/>")
        if inputs:
            lines.append("<input>" + "".join(f'<port id="{port}"/>' for port in range(len(inputs))) + "</input>")
        for port, (source, out) in enumerate(inputs):
            self.edges.append(f'<edge from-layer="{source}" from-port="{out}" to-layer="{number}" to-port="{port}"/>')
        first = len(inputs)
        ports = []
        for port, shape in enumerate(outputs, first):
            code = types[port - first] if types else "f32"
            self.types[number, port] = code
            dims = "".join(f"<dim>{length}</dim>" for length in shape)
            listed = name.replace(",", r"\,")  # a comma separates the names of one value
            label = f" names={attribute(listed)}" if port == first else ""
            ports.append(f'<port id="{port}" precision="{_PRECISIONS[code]}"{label}>{dims}</port>')
        if ports:
            lines.append(f"<output>{''.join(ports)}</output>")
        self.layers.append("".join(lines) + inside + "</layer>")
        return number, first

    def constant(self, name: str, array: Array | PiecewiseArray) -> Out:
        """Add a constant; float16 weights become float32 in the graph, as the runtime's own compression has it."""
        code = code_of(array.dtype)
        shape = tuple(array.shape)
        files = self._files
        data = {"element_type": code, "shape": ", ".join(map(str, shape)), "offset": files.size, "size": nbytes(array)}
        files.arrays.append(array)
        files.size += nbytes(array) + -nbytes(array) % 8
        constant = self.add("Const", name, [], [shape], data, [code])
        if code != "f16":
            return constant
        return self.add("Convert", f"{name}/float32", [constant], [shape], {"destination_type": "f32"})

    def integers(self, name: str, *numbers: int) -> Out:
        """Add a constant of whole numbers; of one, a scalar."""
        return self.constant(name, np.array(numbers if len(numbers) > 1 else numbers[0], np.int64))

    def result(self, name: str, value: Out, shape: tuple[int, ...]) -> None:
        """Add an output of the model; the value goes through an operation that has the output's name."""
        same = self.add("Convert", name, [value], [shape], {"destination_type": "f32"})
        self.add("Result", f"{name}/result", [same], [], {})

    def sequence(
        self, name: str, single: Recurrent, packed: Mapping[str, Array | PiecewiseArray], x: Out, states: Sequence[Out], lengths: Out
    ) -> Out:
        """Add a recurrent operation; return its outputs (batch, directions, time, units), which its last states follow."""
        (pair,) = single.layers
        count, units = len(pair.directions), single.hidden_size
        weights = [self.constant(f"{name}/{local}", packed[local]) for local in ("W", "R", "B")]
        final = (-1, count, units)
        outputs = [(-1, count, -1, units), final, *([final] if single.cell.kind == "lstm" else [])]
        return self.add(_SEQUENCES[single.cell.kind], name, [x, *states, lengths, *weights], outputs, self._data(single))

    def _data(self, single: Recurrent) -> dict[str, Any]:
        (pair,) = single.layers
        cell = single.cell
        functions = [cell.gate_activation, cell.activation, cell.output_activation][: {"lstm": 3, "gru": 2}.get(cell.kind, 0)]
        if len(pair.directions) == 2:
            way = "bidirectional"
        elif pair.directions[0].reverse:
            way = "reverse"
        else:
            way = "forward"
        data = {
            "direction": way,
            "hidden_size": single.hidden_size,
            "activations": ", ".join(function.name for function in functions or [cell.activation]),
            "activations_alpha": "",
            "activations_beta": "",
            "clip": cell.clips[0].high if cell.clips else 0,
        }
        return data | ({"linear_before_reset": str(bool(cell.reset_after)).lower()} if cell.kind == "gru" else {})

    def text(self) -> str:
        """Return its operations and edges."""
        layers, edges = "\n".join(self.layers), "\n".join(self.edges)
        return f"<layers>\n{layers}\n</layers>\n<edges>\n{edges}\n</edges>"

    def parameter(self, name: str, dims: Sequence[int], code: str) -> Out:
        """Add what is handed to the graph; -1 are the lengths of axes that are open."""
        data = {"shape": ",".join("?" if length < 0 else str(length) for length in dims), "element_type": code}
        return self.add("Parameter", name, [], [dims], data, [code])

    def write(self, path: Path) -> None:
        """Write the two files."""
        with replacing_both(path, *companions(path)) as (file, data):
            numbers = ChecksumWriter(data)
            for array in self.arrays:
                numbers.pieces(array)
                numbers.write(bytes(-nbytes(array) % 8))
            file.write(self._text(numbers.value).encode())

    def _text(self, checksum: int) -> str:
        """Return the .xml, which knows the numbers by their checksum.

        OpenVINO leaves it out when it saves the model again, as it does any attribute of `info` that it does not know.
        """
        return (
            f'<?xml version="1.0"?>\n<net name="recurrent" version="11">\n{self.text()}\n'
            f'<rt_info><info name="written by" value="rnnconvert" crc32="{checksum:08x}"/></rt_info>\n</net>\n'
        )


def code_of(dtype: np.dtype[Any]) -> str:
    """Return the IR's word for an element type."""
    return next(code for code, other in TYPES.items() if other == dtype.newbyteorder("<"))
