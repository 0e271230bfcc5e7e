"""The recurrent layers of a Core ML neural network: messages whose fields are its weights.

Source: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array, as_written
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import MESSAGE_NESTING
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Unconvertible
from rnnconvert.files.adapter import unique
from rnnconvert.formats.coreml import contents
from rnnconvert.formats.coreml.contents import Network, StatedSettings, UnknownError, handed
from rnnconvert.formats.coreml.lowering_network import CONSTANTS, LOOPS, Ends, NetworkCall, NetworkLayer, program
from rnnconvert.formats.coreml.message import Message
from rnnconvert.graphs.program.operations import Declared
from rnnconvert.recognition.lowered import recognise_in

NAME = "coreml_nn"
INT32 = 131104
"""The element type of whole numbers among inputs: ArrayFeatureType.ArrayDataType."""
LAYERS = {400: "simpleRecurrent", 410: "gru", 420: "uniDirectionalLSTM", 430: "biDirectionalLSTM"}
"""The recurrent layers by the numbers of their fields."""
LSTM_FIELDS = {
    "inputGateWeightMatrix": 1,
    "forgetGateWeightMatrix": 2,
    "blockInputWeightMatrix": 3,
    "outputGateWeightMatrix": 4,
    "inputGateRecursionMatrix": 20,
    "forgetGateRecursionMatrix": 21,
    "blockInputRecursionMatrix": 22,
    "outputGateRecursionMatrix": 23,
    "inputGateBiasVector": 40,
    "forgetGateBiasVector": 41,
    "blockInputBiasVector": 42,
    "outputGateBiasVector": 43,
    "inputGatePeepholeVector": 60,
    "forgetGatePeepholeVector": 61,
    "outputGatePeepholeVector": 62,
}
GRU_FIELDS = {
    "updateGateWeightMatrix": 30,
    "resetGateWeightMatrix": 31,
    "outputGateWeightMatrix": 32,
    "updateGateRecursionMatrix": 50,
    "resetGateRecursionMatrix": 51,
    "outputGateRecursionMatrix": 52,
    "updateGateBiasVector": 70,
    "resetGateBiasVector": 71,
    "outputGateBiasVector": 72,
}
RNN_FIELDS = {"weightMatrix": 30, "recursionMatrix": 31, "biasVector": 32}
FUNCTIONS = {5: "affine", 10: "relu", 30: "tanh", 31: "scaled_tanh", 40: "sigmoid", 41: "hard_sigmoid"}
"""The functions of recurrent layers by the numbers of their fields."""
WITH_CONSTANTS = (5, 31, 41)
_SCALED_TANH = 31
_FLAT = ("tanh", "sigmoid", "hard_sigmoid", "scaled_tanh")
_BOUND = 50.0
_SPREAD = {
    300: "reshape", 301: "flatten", 310: "permute", 600: "copy", 985: "transpose", 1120: "squeeze", 1125: "expandDims",
    1130: "flattenTo2D", 1135: "reshapeLike", 1140: "reshapeStatic", 1145: "reshapeDynamic", 1150: "rankPreservingReshape",
    975: "splitND", 330: "split", 350: "slice", 995: "sliceStatic", 1000: "sliceDynamic", 1470: "sliceBySize",
}  # fmt: skip
"""What may stand between an initial state and a layer: splitND takes the directions apart, and Create ML's classifiers pass all
states as one input of the model, of which each is a slice."""
_PLAIN = {
    100: {"weights": 90, "bias": 91},
    140: {"weights": 20, "bias": 21},
    150: {"weights": 20, "bias": 21},
    1040: {"weights": 20, "bias": 21},
    1045: {"weights": 8, "bias": 9},
    245: {"scale": 2, "bias": 5},
    250: {"scale": 2},
    160: {"gamma": 15, "beta": 16, "mean": 17, "variance": 18},
}
"""The weights of layers without recurrence by the numbers of their fields."""
_CUSTOM = 500
_LOOP = 615
_LATER = re.compile(r"(?!)")
_NAMES = {100: "convolution", 140: "innerProduct", 150: "embedding", 160: "batchnorm"}


def read(path: Path, message: Message, network: Network, ends: Ends | None = None, depth: int = 0) -> None:
    """Add the recurrent layers of a network to what was found.

    ends  what the model states of its inputs, and the names of its outputs; None for a network in another one

    Raises UnreadableError for a damaged message.
    """
    if depth > MESSAGE_NESTING:
        raise UnreadableError(path, f"networks are nested more than {MESSAGE_NESTING} deep")
    rows: list[NetworkLayer] = []
    recurrent: dict[str, NetworkCall] = {}
    makers: dict[str, tuple[int, Message]] = {}
    for layer in message.every(1):
        number = next((field_ for field_ in layer.fields if field_ >= 100), 0)
        inputs, outputs = layer.texts(2), layer.texts(3)
        custom = layer.submessage(_CUSTOM)
        label = f"custom {custom.text(10)}" if custom is not None else ""
        content = layer.submessage(number) or Message(memoryview(b""), path)
        weights = _plain(path, layer.text(1), number, content, network) if number in _PLAIN else {}
        if number in LOOPS:
            before = len(network.layers) + len(network.unread)
            within = list[Message]()
            for body in filter(None, map(content.submessage, LOOPS[number])):
                read(path, body, network, None, depth + 1)
                within += body.every(1)
            outputs += [name for inner in within for name in inner.texts(3)]
            # What they read is a value of this network, unless one of them gives it first.
            inputs += [name for inner in within for name in inner.texts(2) if name in makers or name not in outputs]
            if number == _LOOP and before == len(network.layers) + len(network.unread):
                made_of = "as coremltools makes it of recurrent layers of TensorFlow 2"
                network.unread.append(LayerNote(layer.text(1) or "loop", f"a loop, {made_of}; what it computes is not read", UNREAD))
        makers |= dict.fromkeys(outputs, (number, layer))
        rows.append(NetworkLayer(number, content, inputs, [*dict.fromkeys(outputs)], label, layer.text(1), weights))
        if number not in LAYERS or not outputs:
            continue
        name = unique(layer.text(1) or LAYERS[number], network.layers)
        try:
            stated, arrays, stored = _layer(path, name, number, content, network.warnings)
        except UnknownError as error:
            network.unread.append(LayerNote(name, str(error), UNREAD))
            continue
        odd = _states(inputs[1:], makers)
        stack = contents.assembled(path, name, NAME, arrays, stated)
        network.layers[name] = stack.replace(unconvertible=odd)
        recurrent[name] = NetworkCall(rows[-1], stack, _gives_sequences(number, content))
        network.arrays |= {f"{name}/{local}": array for local, array in arrays.items()}
        network.evidence.append(f"{name}: a layer {LAYERS[number]}")
        if stored:
            network.warnings.append(
                LayerNote(name, f"its weights are stored as {stored}, and are read as the float32 numbers that these stand for")
            )
    lowered = partial(program, path, rows, [*recurrent.values()], ends or _around(rows))
    homes = {name: call.call for name, call in recurrent.items()}
    looked, calls = recognise_in(lowered, _LATER, homes.items())
    for name, received in calls.items():
        network.layers[name] = network.layers[name].replace(calls=handed(received, depth > 0, "layer"))
    if ends is not None:
        network.add_program(looked, homes)


def _around(rows: Sequence[NetworkLayer]) -> Ends:
    """Return the values that a network takes from around it."""
    inside = {name for row in rows for name in row.outputs}
    return [Declared(name) for name in dict.fromkeys(name for row in rows for name in row.inputs) if name not in inside], []


def ends_of(description: Message, exact: bool) -> Ends:
    """Return what a model states of its inputs, and the names of its outputs.

    exact  whether a network's values have the axes that are stated: otherwise (time, batch, channels, height, width)
    """
    inputs = []
    for feature in description.every(1):
        name, array = feature.text(1), feature.within(3, 5)
        if array is None:
            inputs.append(Declared(name))
            continue
        lengths, bounds = array.integers(1), array.submessage(31)
        ranges = [(axis.number(1), axis.number(2)) for axis in bounds.every(1)] if bounds is not None else []
        several = array.submessage(21)
        shapes = [shape.integers(1) for shape in several.every(1)] if several is not None else []
        lengths = lengths or [0] * len(ranges)
        for axis in range(len(lengths)):
            choices = {shape[axis] for shape in shapes if axis < len(shape)}.union(*ranges[axis : axis + 1])
            lengths[axis] = 0 if len(choices) > 1 else lengths[axis]
        if not exact:
            lengths = {1: [0, 0, *lengths, 1, 1], 3: [0, 0, *lengths]}.get(len(lengths), lengths)
        dims = [length if length > 0 else f"{name} {axis}" for axis, length in enumerate(lengths)]
        dtype = np.dtype(np.int32 if array.number(2) == INT32 else np.float32)
        inputs.append(Declared(name, dtype, dims if exact or len(dims) == 5 else None))
    # The class that a classifier names is a number or a text, which is chosen behind the network.
    return inputs, [feature.text(1) for feature in description.every(10) if not {1, 3} & {*(feature.submessage(3) or feature).fields}]


def _gives_sequences(number: int, content: Message) -> bool:
    """Return whether a recurrent layer gives its outputs at all steps."""
    settings = content if number in (400, 410) else content.submessage(15)
    return bool(settings is not None and settings.number(15 if number in (400, 410) else 10))


def _plain(path: object, name: str, number: int, content: Message, network: Network) -> dict[int, tuple[str, Array]]:
    """Add the weights of a layer without recurrence; return their names and numbers by their fields. A warning names what is not read."""
    # Scales and biases have a shape in the place of sizes.
    first, second = (0, 0) if number in (245, 250) else (content.number(1), content.number(2))
    shape: tuple[int, ...] = (second, first)
    outputs = first if number in (100, 160) else second  # for each of which there is one bias
    if number == 100:
        kernel = content.integers(20) or [3, 3]  # what the format takes where nothing is said
        groups = max(1, content.number(10))
        shape = (second, first // groups, *kernel) if content.number(60) else (first, second, *kernel)
    elif number == 1045:
        shape, outputs = (content.number(6), content.number(5)), content.number(6)  # its columns, one behind the other
    elif number in (245, 250):
        shape = tuple(content.integers(1))
    label = unique(name or _NAMES.get(number, "layer"), network.labels)
    bias = tuple(content.integers(4)) if number == 245 else (outputs,)
    weights = NetworkWeights(path, label, lambda local: shape if local in ("weights", "scale") else bias)
    arrays = dict[int, tuple[str, Array]]()
    for local, field in _PLAIN[number].items():
        weight = content.submessage(field)
        if weight is None or not weight.fields:
            continue
        try:
            values = weights.values(weight, local)
        except (UnknownError, UnreadableError) as error:
            network.warnings.append(LayerNote(label, f"its {local} are not read: {error}"))
            continue
        dims = weights.shape(local)
        fits = len(dims) <= 4 and min(dims, default=0) > 0 and values.size == int(np.prod(dims, dtype=object))
        network.labels.add(label)
        arrays[field] = f"{label}/{local}", values.reshape(dims) if fits else values
    network.others |= dict(arrays.values())
    return arrays


def _states(inputs: list[str], makers: Mapping[str, tuple[int, Message]]) -> tuple[Unconvertible, ...]:
    """Return initial states that have no canonical form; zeros are the usual ones, as are those that a caller may give."""
    odd: dict[str, None] = {}
    for value in inputs:
        number, layer = makers.get(value, (0, None))
        for _ in range(len(makers)):
            if number not in _SPREAD or layer is None:
                break
            number, layer = makers.get(next(iter(layer.texts(2)), ""), (0, None))
        if layer is None:
            continue
        if number not in CONSTANTS:
            odd[f"it is made by layer {layer.text(1)!r}"] = None
        else:
            content = layer.submessage(number)
            data = None if content is None else content.submessage(2)
            if data is None or set(data.fields) - {1} or data.reals(1).any():
                odd[f"layer {layer.text(1)!r} holds it, and it is not zero"] = None
    return tuple(Unconvertible("initial_state", "an initial state made in the network", reason) for reason in odd)


def _layer(path: object, name: str, number: int, content: Message, warnings: list[str]) -> tuple[StatedSettings, dict[str, Array], str]:
    """Return a layer's statements, its arrays, and how they are stored if that is not float32."""
    width, units = content.number(1), content.number(2)
    if not (0 < width < 1 << 31 and 0 < units < 1 << 31):
        raise UnreadableError(path, f"{name!r} has {width} inputs and {units} units")
    reverse = bool(content.number(100))
    shape = _shapes(width, units)
    if number == 400:
        function = _function(content.submessage(10))
        weights = NetworkWeights(path, name, shape)
        arrays = weights.every(content, RNN_FIELDS, bool(content.number(20)), False)
        stated = StatedSettings("rnn", (_clipped(Cell("rnn", activation=function)),), reverse)
        return stated, arrays, weights.stored
    if number == 410:
        gate, candidate = _functions(content, 10, 2)
        weights = NetworkWeights(path, name, shape)
        arrays = weights.every(content, GRU_FIELDS, bool(content.number(20)), False)
        cell = _clipped(Cell("gru", False, activation=candidate, gate_activation=gate))
        return StatedSettings("gru", (cell,), reverse), arrays, weights.stored
    settings = content.submessage(15) or Message(memoryview(b""), path)
    bound = settings.real(60) or _BOUND
    more = contents.cell_clips(path, name, bound, warnings)
    both = number == 430
    cells = []
    for field in (10, 11)[: 1 + both]:
        gate, candidate, output = _functions(content, field, 3)
        coupled = "f" if settings.number(50) else ""
        constants = {"f": 1.0} if settings.number(30) else {}
        cells.append(_clipped(Cell("lstm", None, candidate, gate, output, coupled, constants, more)))  # type: ignore[arg-type]
    messages = [*content.every(20)]
    if len(messages) != len(cells):
        raise UnreadableError(path, f"{name!r} has the weights of {len(messages)} directions, not {len(cells)}")
    weights = NetworkWeights(path, name, shape)
    arrays = {}
    for way, message in zip(("forward/", "backward/") if both else ("",), messages, strict=True):
        direction_arrays = weights.every(message, LSTM_FIELDS, bool(settings.number(20)), bool(settings.number(40)))
        arrays |= {way + local: array for local, array in direction_arrays.items()}
    return StatedSettings("lstm", tuple(cells), reverse and not both), arrays, weights.stored


def _clipped(cell: Cell) -> Cell:
    """Return the cell with the clip of what goes into its gates, where one of its functions is not flat there."""
    functions = [cell.activation] + ([cell.gate_activation] if cell.kind != "rnn" else [])
    if all(function.name in _FLAT for function in functions):
        return cell
    return cell.replace(clips=(*cell.clips, Clip("gates", -_BOUND, _BOUND)))


def _functions(content: Message, field: int, count: int) -> list[Activation]:
    functions = [_function(entry) for entry in content.every(field)]
    if len(functions) != count:
        raise UnreadableError(content.path, f"a recurrent layer has {len(functions)} functions, expected {count}")
    return functions


def _function(message: Message | None) -> Activation:
    """Return a function. Raises UnknownError for one that recurrent layers do not have."""
    numbers = sorted(message.fields) if message is not None else []
    if len(numbers) != 1 or numbers[0] not in FUNCTIONS:
        raise UnknownError(f"its function has the field {numbers} of ActivationParams, which recurrent layers do not have")
    (number,) = numbers
    inner = message.submessage(number) if message is not None else None
    if number not in WITH_CONSTANTS or inner is None:
        return Activation(FUNCTIONS[number])
    if inner.real(1) == inner.real(2) == 0:  # coremltools leaves the constants out
        if number == _SCALED_TANH:
            raise UnknownError("its function is a scaled tanh whose constants the file leaves out")
        return HARD_SIGMOID_KERAS_2 if FUNCTIONS[number] == "hard_sigmoid" else Activation("linear")
    return Activation(FUNCTIONS[number], as_written(inner.real(1)), as_written(inner.real(2)))


def _shapes(width: int, units: int) -> Callable[[str], tuple[int, ...]]:
    def shape(local: str) -> tuple[int, ...]:
        if local.endswith("Vector"):
            return (units,)
        return (units, width) if local.lower().endswith("weightmatrix") else (units, units)

    return shape


# The weights of a layer of a Core ML neural network: numbers as stored, or dequantized.


class NetworkWeights:
    """The weights of one layer; `stored` says how they are stored if that is not float32."""

    def __init__(self, path: object, name: str, shape: Callable[[str], tuple[int, ...]]) -> None:
        self.path, self.name, self.shape, self.stored = path, name, shape, ""

    def every(self, message: Message, fields: dict[str, int], biases: bool, peepholes: bool) -> dict[str, Array]:
        """Return the arrays of a message of weights by their names."""
        arrays = {}
        for local, number in fields.items():
            if (local.lower().endswith("biasvector") and not biases) or (local.endswith("PeepholeVector") and not peepholes):
                continue
            weight = message.submessage(number)
            if weight is None:
                raise UnreadableError(self.path, f"{self.name!r} has no {local}")
            arrays[local] = self._array(weight, local)
        return arrays

    def _array(self, weight: Message, local: str) -> Array:
        shape = self.shape(local)
        values = self.values(weight, local)
        if values.size != int(np.prod(shape, dtype=object)):
            raise UnreadableError(self.path, f"{local} of {self.name!r} has {values.size} numbers, expected those of {shape}")
        return values.reshape(shape)

    def values(self, weight: Message, local: str) -> Array:
        """Return the numbers of one array, in a row."""
        ways = [number for number in (1, 2, 30, 31) if weight.fields.get(number)]
        if len(ways) != 1:
            raise UnreadableError(self.path, f"{local} of {self.name!r} is stored in {len(ways)} ways, expected one")
        if ways == [1]:
            return weight.reals(1)
        content = weight.content(ways[0]) or memoryview(b"")
        if ways == [2]:
            if len(content) % 2:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has {len(content)} bytes, which are not float16 numbers")
            return np.frombuffer(content, "<f2")
        quantization = weight.submessage(40)
        if ways == [31] or quantization is None:
            raise UnknownError(f"its {local} is stored as integers without what they stand for")
        return self._dequantised(content, quantization, local, self.shape(local))

    def _dequantised(self, content: memoryview, quantisation: Message, local: str, shape: tuple[int, ...]) -> Array:
        """Return the numbers that unsigned integers of a few bits stand for: scale * q + bias, or the entries of a table."""
        bits, count = quantisation.number(1), int(np.prod(shape, dtype=object))
        if not 1 <= bits <= 8 or len(content) != -(-count * bits // 8):
            raise UnreadableError(self.path, f"{local} of {self.name!r} has {len(content)} bytes for {count} numbers of {bits} bits")
        charging(len(content)).memory(16 * count, self.path)
        if bits == 8:
            codes = np.frombuffer(content, np.uint8)
        else:
            lying = np.unpackbits(np.frombuffer(content, np.uint8), count=count * bits).reshape(count, bits)
            codes = lying @ (1 << np.arange(bits)[::-1]).astype(np.uint8)
        self.stored = f"integers of {bits} bits"
        linear, table = quantisation.submessage(101), quantisation.submessage(102)
        if linear is not None:
            scale, bias = (linear.reals(number).astype(np.float64) for number in (1, 2))
            bias = bias if bias.size else np.zeros(1)
            if not {scale.size, bias.size} <= {1, shape[0]}:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has {scale.size} scales and {bias.size} biases")
            rows = codes.reshape(shape[0], -1)
            with np.errstate(all="ignore"):
                return (rows * scale[:, None] + bias[:, None]).astype(np.float32).reshape(-1)
        if table is not None:
            values = table.reals(1)
            if values.size != 1 << bits:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has a table of {values.size} numbers, not {1 << bits}")
            return values[codes]
        raise UnknownError(f"its {local} is quantized in a way that is unknown here")
