"""Frozen graphs and TFLite models that are changed: the layer that is read computes what TensorFlow computes, or none is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.containers import graph_def
from rnnconvert.core.arrays import Array
from rnnconvert.formats.tensorflow1 import loops
from rnnconvert.recognition import computed
from rnnconvert.recognition.computed import RecognisedLayers
from tests import ROOT
from tests.helpers.requirements import needed

GOLDEN = ROOT / "tests" / "golden" / "frozen"
GROUPS = (
    ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum"), ("Sigmoid", "Tanh", "Relu", "Elu", "Softsign", "Neg", "Identity"),
    ("Less", "LessEqual", "Greater", "GreaterEqual", "NotEqual"), ("LogicalAnd", "LogicalOr"), ("Any", "All"),
)  # fmt: skip
"""Operations that take each other's places."""

Fetch = Callable[[str], "Array | None"]


def agrees(looked: RecognisedLayers, fetch: Fetch) -> int:
    """Check the layers of a graph against the values that its framework computes; return how many were compared."""
    compared = 0
    for loop in looked.layers.values():
        recognised = loop.recognised
        names = [name for read in recognised.reads for name in (read.steps or (read.value,))]
        names += [recognised.mask.value] if recognised.mask is not None else []
        trial = {name: _behind(looked, fetch, name) for name in (*names, *recognised.states.values())}
        if any(trial[name] is None for name in names):
            continue
        values = {name: value for name, value in trial.items() if value is not None}
        # Where TensorFlow fails on a graph, there is nothing to compare.
        truths = [_before(looked, fetch, use.value) for use in recognised.uses]
        assert looked.scope is not None  # it has layers
        outputs = computed._reference_outputs(looked.scope, recognised, values)
        for use, truth in zip(recognised.uses, truths, strict=True):
            new = computed._form(use, outputs if recognised.mask is None else computed._spread(recognised, use, outputs, values))
            if truth is not None and np.isfinite(truth).all():
                np.testing.assert_allclose(np.reshape(truth, new.shape), new, rtol=1e-3, atol=1e-4)
                compared += 1
    return compared


def _behind(looked: RecognisedLayers, fetch: Fetch, name: str) -> Array | None:
    """Return a value, or where it is a list of tensors the tensor that it was made of."""
    assert looked.scope is not None
    while (value := fetch(name)) is None:
        producer = looked.scope.producer(name)
        if producer is None or producer[0].kind != "Identity":
            return None
        name = producer[0].inputs[0]
    return value


def _before(looked: RecognisedLayers, fetch: Fetch, name: str) -> Array | None:
    """Return a value, or where it is a list of tensors the tensor that is made of it."""
    assert looked.scope is not None
    waiting = [name]
    while waiting:
        value = waiting.pop()
        fetched = fetch(value)
        if fetched is not None:
            return fetched
        readers = [node for node in looked.scope.nodes if value in node.inputs and node.kind in ("Identity", "Unsqueeze")]
        waiting += [out for node in readers for out in node.outputs]
    return None


def changed(graph: Any, random: np.random.Generator) -> None:
    """Change one thing in a graph: an operation, a stored number, an attribute, or the order of inputs."""
    from tensorflow import make_ndarray, make_tensor_proto

    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    while True:
        node = nodes[int(random.integers(len(nodes)))]
        group = next((entry for entry in GROUPS if node.op in entry), ())
        way = int(random.integers(4))
        inputs = [n for n, name in enumerate(node.input) if not name.startswith("^")]
        keys = sorted(key for key, entry in node.attr.items() if entry.WhichOneof("value") == "b" or key.endswith("_mask"))
        if way == 0 and group:
            node.op = str(random.choice([entry for entry in group if entry != node.op]))
        elif way == 1 and node.op == "Const":
            tensor = node.attr["value"].tensor
            array = make_ndarray(tensor)
            if array.dtype.kind not in "if" or not array.size:
                continue
            array = np.roll(array, 1) + (np.asarray(random.choice([-1, 1])) if array.size == 1 else 0)
            tensor.CopyFrom(make_tensor_proto(array.astype(make_ndarray(tensor).dtype), shape=array.shape))
        elif way == 2 and keys:
            entry = node.attr[str(random.choice(keys))]
            if entry.WhichOneof("value") == "b":
                entry.b = not entry.b
            else:
                entry.i ^= 1
        elif way == 3 and len(inputs) > 1:
            first, second = random.choice(inputs, 2, replace=False)
            node.input[first], node.input[second] = node.input[second], node.input[first]
        else:
            continue
        return


def check(graph: Any, path: Path) -> int:
    """Check what is read of a graph against TensorFlow; return how much was compared."""
    tensorflow = needed("keras", "tensorflow")
    v1 = tensorflow.compat.v1
    path.write_bytes(graph.SerializeToString())
    looked = loops.read(path, graph_def.read(path))
    compared = 0
    if not looked.layers:
        return 0
    try:
        with tensorflow.Graph().as_default() as imported:
            tensorflow.import_graph_def(graph, name="")
    except ValueError:
        return 0
    with v1.Session(graph=imported) as session:
        for steps, batch in ((5, 2), (2, 4)):
            x = np.random.default_rng(steps).normal(size=(batch, steps, 3)).astype(np.float32)
            x[0, 1] = 0

            def fetch(name: str, x: Array = x) -> Array | None:
                try:
                    tensor = imported.get_tensor_by_name(name)
                    if tensor.dtype in (tensorflow.variant, tensorflow.resource):
                        return None
                    return np.asarray(session.run(tensor, {"x:0": x}))
                except (KeyError, ValueError):
                    return None

            try:
                compared += agrees(looked, fetch)
            except tensorflow.errors.OpError:
                return compared
    return compared


@pytest.mark.drawn(3)
@pytest.mark.parametrize("seed", range(200))
def test_a_changed_graph_gives_its_own_numbers_or_no_layer(seed: int, tmp_path: Path) -> None:
    needed("keras", "tensorflow")
    from tensorflow.core.framework import graph_pb2

    random = np.random.default_rng(seed)
    source = GOLDEN / f"{random.choice(['gru_while', 'stack_frames', 'masked_while'])}.pb"
    graph = graph_pb2.GraphDef.FromString(source.read_bytes())
    changed(graph, random)
    check(graph, tmp_path / "model.pb")


@pytest.mark.parametrize("name", ["gru_while", "stack_frames", "masked_while"])
def test_the_graphs_themselves_are_compared(name: str, tmp_path: Path) -> None:
    needed("keras", "tensorflow")
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString((GOLDEN / f"{name}.pb").read_bytes())
    assert check(graph, tmp_path / "model.pb")


def test_a_state_that_is_given_again_at_each_step_is_no_layer(tmp_path: Path) -> None:
    """What the changes found: TensorFlow gives a constant Enter to every step."""
    needed("keras", "tensorflow")
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString((GOLDEN / "stack_frames.pb").read_bytes())
    for node in graph.node:
        if node.op == "Enter":
            node.attr["is_constant"].b = True
    path = tmp_path / "model.pb"
    path.write_bytes(graph.SerializeToString())
    assert not loops.read(path, graph_def.read(path)).layers


def test_a_list_that_grows_is_no_sequence(tmp_path: Path) -> None:
    """What the changes found in a TFLite model: the elements behind the new one stay, so that the list becomes longer."""
    from rnnconvert.formats.tflite import graph as tflite_graph
    from rnnconvert.formats.tflite import loops as tflite_loops

    model = tflite_graph.read(GOLDEN / "gru.tflite")
    assert tflite_loops.read(GOLDEN / "gru.tflite", model).layers
    (body,) = (entry for entry in model.graphs[1:] if any(operator.code == 2 for operator in entry.operators))
    joined = next(entry for entry in body.operators if entry.code == 2 and len(entry.inputs) == 3)
    behind = body.producer(joined.inputs[2])
    assert behind is not None
    begin = body.producer(behind.input(1))
    assert begin is not None
    stored = body.tensors[begin.inputs[1]].stored
    assert stored is not None
    object.__setattr__(body.tensors[begin.inputs[1]], "stored", stored + 1)
    assert not tflite_loops.read(GOLDEN / "gru.tflite", model).layers
