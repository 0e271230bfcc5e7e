"""What operators that move elements become: the common operations, which must move them as the framework does."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.operators import Applied, Casts, Computes, Measures, Moves
from rnnconvert.graphs.program.dialect import DIALECT, OPSET
from rnnconvert.graphs.program.operations import Program
from rnnconvert.graphs.program.walk import walk
from tests.helpers import drawn
from tests.helpers.chains_tflite import _INT32, _Writer
from tests.helpers.requirements import needed


def moved(program: Program, inputs: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
    """What the operations of a program do to elements, by what the engine follows them with."""
    (scope,) = walk(program)
    values = {**{name: tensor.read() for name, tensor in scope.body.stored.items()}, **inputs}
    for node in scope.nodes:
        operator, reads = DIALECT[node.domain, node.kind], [values[name] for name in node.inputs]
        applied = Applied(("", node.kind), reads, {**(scope.values(node) or {}), OPSET: scope.opset}, len(node.outputs))
        if isinstance(operator, Casts):
            results = [reads[0].astype(operator.dtype(applied))]
        else:
            assert isinstance(operator, Moves | Measures | Computes) and operator.function is not None
            arrays = operator.function(applied)
            results = [np.asarray(arrays)] if isinstance(arrays, np.ndarray | np.generic) else list(arrays)
        values |= dict(zip(node.outputs, results, strict=False))
    return [np.asarray(values[name]) for name in wanted]


Bounds = tuple[list[int], list[int], list[int], list[int]]


def bounds_of(draw: random.Random, shape: Sequence[int]) -> Bounds:
    """Begins, ends and steps of a strided slice of an array, and its five masks: elements are left on every axis."""
    index: list[tuple[int, int, int, str]] = []
    for length in shape[: draw.randint(1, len(shape))]:
        kind = draw.choice(("range", "range", "open", "back", "single"))
        low, high = sorted(draw.sample(range(length + 1), 2))
        turn = draw.choice((0, length))
        if kind == "back":
            index.append((high - 1, low - 1 - length if low == 0 else low - 1, -draw.randint(1, 2), ""))
        elif kind == "single":
            index.append((low - turn, draw.randrange(length), 1, "single"))
        else:
            end = high - turn if high < length else high
            index.append((low - turn, end, draw.randint(1, 2), draw.choice(("begin", "end", "both")) if kind == "open" else ""))
    place = draw.randint(0, len(index))
    if len(index) < len(shape) and draw.random() < 0.5:  # LiteRT lets it stand for one axis at least
        index.insert(place, (draw.randrange(3), draw.randrange(3), 1, "others"))
    for _ in range(draw.choice((0, 0, 1))):
        index.insert(draw.randint(0, len(index)), (0, draw.randrange(3), 1, "new"))
    words = ({"begin", "both"}, {"end", "both"}, {"others"}, {"new"}, {"single"})
    masks = [sum(1 << place for place, item in enumerate(index) if item[3] in names) for names in words]
    return [item[0] for item in index], [item[1] for item in index], [item[2] for item in index], masks


class TfliteCase:
    """An operator of TFLite that moves elements, drawn, with LiteRT's classes."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.writer = draw, _Writer()
        self.shape = [draw.randint(2, 4) for _ in range(draw.randint(1, 3))]
        self.fed: dict[int, Array] = {}
        self.x = self.feed(np.arange(np.prod(self.shape), dtype=np.float32).reshape(self.shape) + 1)
        self.axis = draw.randrange(-len(self.shape), len(self.shape))
        self.outputs: list[int] = []

    def feed(self, array: Array) -> int:
        """Add an input."""
        place = self.writer.tensor(f"input {len(self.fed)}", list(array.shape), _INT32 if array.dtype == np.int32 else 0)
        self.fed[place] = array
        return place

    def integers(self, numbers: Any, stored: bool = True) -> int:
        """Add whole numbers: stored, or an input."""
        array = np.array(numbers, np.int32)
        return self.writer.constant(array) if stored else self.feed(array)

    def write(self, word: str) -> None:
        """Add an operator with drawn settings."""
        draw, axis, shape, x = self.draw, self.axis, self.shape, self.x
        length, stored = shape[axis], draw.random() < 0.5
        results, options, inputs, settings = 1, "", [x], dict[str, Any]()
        if word == "STRIDED_SLICE":
            begin, end, steps, masks = bounds_of(draw, shape)
            names = ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")
            options, settings = "StridedSliceOptions", dict(zip(names, masks, strict=True))
            inputs = [x, self.integers(begin, stored), self.integers(end, stored), self.integers(steps)]
        elif word == "SLICE":
            starts = [draw.randrange(size) for size in shape]
            count = [draw.choice((-1, draw.randint(1, size - at))) for size, at in zip(shape, starts, strict=True)]
            inputs, options = [x, self.integers(starts, stored), self.integers(count, stored)], "SliceOptions"
        elif word == "PAD":
            inputs, options = [x, self.integers([[draw.randint(0, 2), draw.randint(0, 2)] for _ in shape], stored)], "PadOptions"
        elif word == "TILE":
            inputs, options = [x, self.integers([draw.randint(1, 2) for _ in shape], stored)], "TileOptions"
        elif word == "BROADCAST_TO":
            inputs, options = [x, self.integers([draw.randint(1, 2), *shape], stored)], "BroadcastToOptions"
        elif word == "FILL":
            number = self.feed(np.array(3, np.float32)) if stored else self.writer.tensor("n", [], 0, np.array(3, np.float32))
            inputs, options = [self.integers(shape, draw.random() < 0.5), number], "FillOptions"
        elif word == "REVERSE_V2":
            inputs, options = [x, self.integers(list(range(*sorted(draw.sample(range(len(shape) + 1), 2)))))], "ReverseV2Options"
        elif word == "REVERSE_SEQUENCE":
            time, batch = draw.sample(range(len(shape)), 2) if len(shape) > 1 else (0, 0)
            inputs = [x, self.integers([draw.randint(0, shape[time]) for _ in range(shape[batch])], stored)]
            options, settings = "ReverseSequenceOptions", {"seqDim": time, "batchDim": batch}
            if time == batch:
                word, inputs, options, settings = "SHAPE", [x], "ShapeOptions", {"outType": _INT32}
        elif word == "SPLIT":
            results = draw.choice([parts for parts in range(1, length + 1) if length % parts == 0])
            inputs, options, settings = [self.integers(axis), x], "SplitOptions", {"numSplits": results}
        elif word == "SPLIT_V":
            low = draw.randint(0, length)
            sizes = draw.choice(([low, length - low], [-1, length - low], [low, -1]))
            results, options = 2, "SplitVOptions"
            inputs, settings = [x, self.integers(sizes), self.integers(axis)], {"numSplits": 2}
        elif word == "PACK":
            axis = draw.randrange(-len(shape) - 1, len(shape) + 1)
            inputs, options, settings = [x, x], "PackOptions", {"axis": axis, "valuesCount": 2}
        elif word == "UNPACK":
            results, options, settings = length, "UnpackOptions", {"axis": axis, "num": length}
        elif word == "CONCATENATION":
            inputs, options, settings = [x, x], "ConcatenationOptions", {"axis": axis}
        elif word == "GATHER":
            places = [draw.randrange(length) for _ in range(draw.randint(1, 4))]
            indices = self.integers(draw.choice((places, places[0], [places])), stored)
            inputs, options, settings = [x, indices], "GatherOptions", {"axis": axis}
        elif word == "EXPAND_DIMS":
            inputs, options = [x, self.integers(draw.randrange(-len(shape) - 1, len(shape) + 1))], "ExpandDimsOptions"
        elif word == "SQUEEZE":
            place = draw.randint(0, len(shape))
            wide = self.feed(np.expand_dims(self.fed[x], place))
            inputs, options = [wide], "SqueezeOptions"
            settings = {"squeezeDims": draw.choice(([], [place], [place - len(shape) - 1]))}
        elif word == "RESHAPE":
            new = draw.choice(([-1], [*shape, 1], [1, -1, shape[-1]]))
            inputs, options, settings = [x, self.integers(new, stored)], "ReshapeOptions", {"newShape": new}
        elif word == "TRANSPOSE":
            inputs, options = [x, self.integers(draw.sample(range(len(shape)), len(shape)), True)], "TransposeOptions"
        else:
            options, settings = {"SHAPE": ("ShapeOptions", {"outType": _INT32}), "ZEROS_LIKE": ("ZerosLikeOptions", {})}[word]
        kind = _INT32 if word == "SHAPE" else 0
        self.outputs = [self.writer.tensor(f"result {number}", [], kind) for number in range(results)]
        self.writer.operator(word, inputs, self.outputs, options, **settings)
        self.writer.model.operatorCodes[-1].version = 1 + (word == "BROADCAST_TO")
        used = [place for place in self.fed if place in inputs]
        self.fed = {place: self.fed[place] for place in used}
        self.writer.graph.inputs, self.writer.graph.outputs = used, self.outputs

    def check(self, path: Path) -> None:
        """Move elements as LiteRT does."""
        from rnnconvert.formats.tflite import graph, run
        from rnnconvert.formats.tflite.loops import Lowering

        builder = needed("litert", "flatbuffers").Builder(1024)
        builder.Finish(self.writer.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        interpreter = run._interpreter(path.read_bytes())
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), self.fed.values(), strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()  # LiteRT states the shape of an empty tensor, and does not give it out
        expected = [np.zeros(detail["shape"]) if 0 in detail["shape"] else interpreter.get_tensor(detail["index"]) for detail in details]
        program = Lowering(path, graph.read(path)).program()
        fed = {str(place): array for place, array in self.fed.items()}
        assert [array.tolist() for array in moved(program, fed, [*map(str, self.outputs)])] == [array.tolist() for array in expected]


TFLITE = (
    "STRIDED_SLICE", "STRIDED_SLICE", "STRIDED_SLICE", "SLICE", "PAD", "TILE", "BROADCAST_TO", "FILL", "REVERSE_V2", "REVERSE_SEQUENCE",
    "SPLIT", "SPLIT_V", "PACK", "UNPACK", "CONCATENATION", "GATHER", "EXPAND_DIMS", "SQUEEZE", "RESHAPE", "TRANSPOSE", "SHAPE",
    "ZEROS_LIKE",
)  # fmt: skip


def test_operators_of_tflite_move_elements_as_litert_does(tmp_path: Path) -> None:
    needed("litert", "ai_edge_litert")

    def check(item: tuple[str, int]) -> None:
        word, number = item
        case = TfliteCase(random.Random(f"{drawn.SEED} {word} {number}"))
        case.write(word)
        case.check(tmp_path / f"{word}_{number}.tflite")

    drawn.each([(word, number) for number in range(60 if drawn.LONG else 4) for word in TFLITE], check)


def tensorflow_operator(draw: random.Random, tf: Any, word: str, feed: Any) -> Any:
    """What an operator of TensorFlow that moves elements gives, one tensor or several, with drawn settings.

    feed  makes an input of numbers
    """
    shape = [draw.randint(2, 4) for _ in range(draw.randint(1, 3))]
    rank, axis = len(shape), draw.randrange(-len(shape), len(shape))
    x, length = feed(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1), shape[axis]
    stored = draw.random() < 0.5

    def integers(numbers: Any) -> Any:
        """Whole numbers: stored, or an input."""
        return tf.constant(numbers, tf.int32) if stored else feed(np.array(numbers, np.int32))

    if word == "StridedSlice":
        begin, end, steps, masks = bounds_of(draw, shape)
        names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        return tf.strided_slice(x, integers(begin), integers(end), tf.constant(steps, tf.int32), **dict(zip(names, masks, strict=True)))
    if word == "Slice":
        starts = [draw.randrange(size) for size in shape]
        count = [draw.choice((-1, draw.randint(1, size - at))) for size, at in zip(shape, starts, strict=True)]
        return tf.slice(x, integers(starts), integers(count))
    if word == "Split":
        return tf.split(x, draw.choice([parts for parts in range(1, length + 1) if length % parts == 0]), axis)
    if word == "SplitV":
        low = draw.randint(0, length)
        return tf.split(x, draw.choice(([low, length - low], [-1, length - low], [low, -1])), axis)
    if word == "ReverseSequence":
        time, batch = draw.sample(range(rank), 2) if rank > 1 else (0, 0)
        if time == batch:
            return tf.shape(x, out_type=draw.choice((tf.int32, tf.int64)))
        counts = integers([draw.randint(0, shape[time]) for _ in range(shape[batch])])
        return tf.reverse_sequence(x, counts, seq_axis=time, batch_axis=batch)
    if word == "Gather":
        places = [draw.randrange(length) for _ in range(draw.randint(1, 4))]
        return tf.gather(x, integers(draw.choice((places, places[0], [places]))), axis=axis)
    if word == "Squeeze":
        place = draw.randint(0, rank)
        wide = feed(np.zeros([*shape[:place], 1, *shape[place:]], np.float32) + draw.random())
        return tf.squeeze(wide, draw.choice((None, [place], [place - rank - 1])))
    return {
        "Reshape": lambda: tf.reshape(x, integers(draw.choice(([-1], [*shape, 1], [1, -1, shape[-1]])))),
        "Transpose": lambda: tf.transpose(x, draw.sample(range(rank), rank)),
        "ExpandDims": lambda: tf.expand_dims(x, draw.randrange(-rank - 1, rank + 1)),
        "ConcatV2": lambda: tf.concat([x, x], axis),
        "Pack": lambda: tf.stack([x, x], draw.randrange(-rank - 1, rank + 1)),
        "Unpack": lambda: tf.unstack(x, axis=axis),
        "ReverseV2": lambda: tf.reverse(x, draw.sample(range(rank), draw.randint(1, rank))),
        "Tile": lambda: tf.tile(x, integers([draw.randint(1, 2) for _ in shape])),
        "BroadcastTo": lambda: tf.broadcast_to(x, integers([draw.randint(1, 2), *shape])),
        "Fill": lambda: tf.fill(integers(shape), feed(np.array(3, np.float32))),
        "Prod": lambda: tf.reduce_prod(tf.cast(x, tf.int64), draw.sample(range(rank), draw.randint(1, rank)), keepdims=draw.random() < 0.5),
        "Cast": lambda: tf.cast(x, draw.choice((tf.float16, tf.int32, tf.float64))),
        "ZerosLike": lambda: tf.raw_ops.ZerosLike(x=x),
    }[word]()


TENSORFLOW = (
    "StridedSlice", "StridedSlice", "StridedSlice", "Slice", "Split", "SplitV", "ReverseSequence", "Gather", "Squeeze", "Reshape",
    "Transpose", "ExpandDims", "ConcatV2", "Pack", "Unpack", "ReverseV2", "Tile", "BroadcastTo", "Fill", "Prod", "Cast", "ZerosLike",
)  # fmt: skip


def test_operations_of_tensorflow_move_elements_as_tensorflow_does(tmp_path: Path) -> None:
    tf = needed("keras", "tensorflow")
    from rnnconvert.containers import graph_def
    from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering

    def check(item: tuple[str, int]) -> None:
        word, number = item
        fed: dict[Any, Array] = {}

        def feed(array: Array) -> Any:
            """Add an input."""
            tensor = tf.compat.v1.placeholder(array.dtype, array.shape, f"input_{len(fed)}")
            fed[tensor] = array
            return tensor

        path = tmp_path / f"{word}_{number}.pb"
        with tf.Graph().as_default() as graph:
            outputs = tensorflow_operator(random.Random(f"{drawn.SEED} {word} {number}"), tf, word, feed)
            results = outputs if isinstance(outputs, list) else [outputs]
            path.write_bytes(graph.as_graph_def().SerializeToString())
            with tf.compat.v1.Session(graph=graph) as session:
                expected = session.run(results, fed)
        program = GraphDefLowering(graph_def.read(path)).program(path)
        inputs = {tensor.name: array for tensor, array in fed.items()}
        elements = moved(program, inputs, [tensor.name for tensor in results])
        assert [array.tolist() for array in elements] == [array.tolist() for array in expected]

    drawn.each([(word, number) for number in range(60 if drawn.LONG else 4) for word in TENSORFLOW], check)
