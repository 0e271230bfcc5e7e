"""Recurrent layers that other operators of an ONNX model compute are read as layers, and only with the numbers that are there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError, RnnConvertError
from rnnconvert.core.weights import Directly, Recurrent
from rnnconvert.formats.onnx.node import ReadModel
from rnnconvert.models.readers import model_of
from tests import corpus
from tests.requirements import need, needed
from tests.test_fuse import (
    CASES,
    CELLS,
    EXPORTED,
    GOLDEN,
    HIDDEN,
    LIMITS,
    UNPROVED,
    Body,
    feed,
    gru,
    loop,
    model,
    run,
    save,
    value,
    weights,
)


def stack_of(path: Path) -> Recurrent:
    (stack,) = rc.load(path).layers.values()
    return stack


@pytest.mark.drawn(7)
@pytest.mark.parametrize("name", EXPORTED)
def test_what_an_exporter_wrote_out_is_read(name: str) -> None:
    """The layer, run by the reference, gives what the framework gave; a dense layer stands behind it in most models."""
    found = rc.load(GOLDEN / f"{name}.onnx")
    assert not found.unread
    graph = onnx.load(GOLDEN / f"{name}.onnx").graph
    stacks = list(found.layers.values())
    assert [stack.cell.kind for stack in stacks] == [EXPORTED[name].lower()] * (2 if "bilstm" in name else 1)
    with np.load(GOLDEN / f"{name}.npz") as kept:
        given = [kept[f"x{n}"] for n in range(len(graph.input))]
        truth = kept["y0"]
    if name.startswith(("jax", "dynamo_scan")):  # nothing stands behind the layer
        x, *h = given
        y = reference.run(stacks[0], x, (h[0],) if h else None, (h[1],) if len(h) > 1 else None).y
    elif "own" in name or name.endswith("gru_cell"):  # steps whose first state is given
        x, h = given
        y = reference.run(stacks[0], x.swapaxes(0, 1) if x.ndim == 3 else x[None], (h,)).hidden[0]
    else:
        batch_first = "keras" in name or "gru_cells" in name
        outputs = [reference.run(stack, given[0].swapaxes(0, 1) if batch_first else given[0]) for stack in stacks]
        sequences = truth.ndim == 3
        y = np.concatenate([one.y if sequences else one.hidden[0] for one in outputs], -1)
        kernel = max((one for one in found.tensors.values() if one.ndim == 2), key=lambda one: one.size)
        bias = next(one for one in found.tensors.values() if one.shape == (3,))
        y = y @ (kernel if kernel.shape[1] == 3 else kernel.T) + bias
        y = y.swapaxes(0, 1) if sequences and batch_first else y
    np.testing.assert_allclose(y, truth, rtol=2e-5, atol=2e-6)


@pytest.mark.drawn(7)
@pytest.mark.parametrize(("cell", "form", "change"), CASES)
def test_every_form_of_a_cell_is_read(cell: str, form: str, change: str, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", cell, form, change)
    stack = stack_of(path)
    given = feed(CELLS[cell][2])
    found = reference.run(stack, given["x"], (given["first0"],), (given["first1"],) if cell == "lstm" else None)
    for new, old in zip([found.y, *found.hidden, *found.cell], run(path, given), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_scan_from_the_end_is_a_layer_from_the_end(batch_first: bool, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", "gru", "scan", reverse=True, batch_first=batch_first)
    given = feed(1)
    found = reference.run(stack_of(path), given["x"], (given["first0"],)).y
    if batch_first:
        given["x"], found = given["x"].swapaxes(0, 1), found.swapaxes(0, 1)
    np.testing.assert_allclose(found, run(path, given)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("cell", "form", "extra", "reason"), UNPROVED, ids=lambda one: str(one)[:30])
def test_what_is_no_layer_is_refused_with_the_reason(cell: str, form: str, extra: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", cell, form, **extra)
    assert not rc.load(path).layers
    with pytest.raises(RefusedError, match=reason):
        rc.convert(path, tmp_path / "out.safetensors")


@pytest.mark.parametrize("stop", LIMITS)
def test_a_loop_that_ends_before_a_long_sequence_is_refused(stop: str, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", "gru", "loop", stop=stop)
    with pytest.raises(RefusedError, match=r"the number 20 .* has a part in when it ends"):
        rc.convert(path, tmp_path / "out.safetensors")


def test_a_mask_in_written_out_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"lengths of sequences alone|step by step"):
        rc.convert(GOLDEN / "keras_torch_masked.onnx", tmp_path / "out.safetensors")


@pytest.mark.parametrize("part", ["recurrent", "input", "input_bias"])
def test_a_fault_of_the_recognition_is_found(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rnnconvert.recognition import loops as fuse_loops
    from rnnconvert.recognition import recognised

    found = recognised.weights

    def wrong(*given: Any) -> Any:
        made = found(*given)
        arrays = dict(made.arrays)
        arrays[part, "z"], arrays[part, "r"] = arrays[part, "r"], arrays[part, "z"]
        return recognised.Weights(arrays, made.origins)

    monkeypatch.setattr(fuse_loops, "weights", wrong)
    path, _ = model(tmp_path / "model.onnx", "gru", "scan")
    with pytest.raises(RefusedError, match=r"recognized as GRU, but .* is off by"):
        rc.convert(path, tmp_path / "out.safetensors")


def test_a_stack_says_what_its_layers_read(tmp_path: Path) -> None:
    """Two layers as loops: the second one reads what the first one gives."""
    first, second = weights(3), weights(3)
    second = (np.concatenate([second[0], second[0][:1]])[:HIDDEN], *second[1:])
    nodes, arrays = loop(lambda b, x, names: gru(b, x, names, first), 1)
    below, more = loop(lambda b, x, names: gru(b, x, names, second), 1)
    inner = onnx.NodeProto()
    inner.CopyFrom(below[-1])
    inner.name, inner.output[0], inner.output[1] = "above", "last1", "z"
    for attribute in inner.attribute:
        for node in attribute.g.node:
            node.input[:] = ["y" if name == "x" else name for name in node.input]
    path = save(tmp_path / "model.onnx", ([*nodes, inner], {**arrays, **more}), 1)
    kept = onnx.load(path)
    kept.graph.output.append(value("z", None))
    onnx.save(kept, path)
    found = rc.load(path)
    assert list(found.layers) == ["looped", "above"]
    reads = found.layers["above"].reads
    assert reads == Directly(("looped",))


def test_a_converted_layer_computes_what_the_loop_does(tmp_path: Path) -> None:
    rc.convert(GOLDEN / "keras_gru.onnx", tmp_path / "layer.keras")
    (stack,) = rc.load(tmp_path / "layer.keras").layers.values()
    x = np.random.default_rng(0).normal(size=(5, 2, 6))
    truth = reference.run(stack_of(GOLDEN / "keras_gru.onnx"), x).y
    np.testing.assert_array_equal(reference.run(stack, x).y, truth)


def test_what_a_layer_reads_turned_is_there_for_other_operators(tmp_path: Path) -> None:
    """tf2onnx turns what a loop reads; where two layers follow one another, what stands between them is read as it stands, too."""
    needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    source = onnx.load(GOLDEN / "keras_gru.onnx")
    turned = next(node for node in source.graph.node if node.op_type == "Transpose" and node.input[0] == source.graph.input[0].name)
    source.graph.node.append(helper.make_node("Abs", [turned.output[0]], ["also"]))
    source.graph.output.append(helper.make_tensor_value_info("also", TensorProto.FLOAT, [None, None, None]))
    onnx.save(source, tmp_path / "a.onnx")
    assert rc.scaffold(tmp_path / "a.onnx", "pytorch", verify=True).equal


def test_its_arrays_fill_another_model_and_are_not_written_in_place(tmp_path: Path) -> None:
    source, target = GOLDEN / "keras_gru.onnx", tmp_path / "fast.onnx"
    fused = model_of(source)
    assert [unit.name for unit in fused.units if unit.stack is not None] == list(rc.load(source).layers)
    other = onnx.load(source)
    for tensor in other.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * 2, tensor.name))
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(RnnConvertError, match="rnnconvert fuse"):
        rc.transplant_file(tmp_path / "other.onnx", source, target)


def test_single_steps_of_a_real_model(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    found = rc.load(corpus.FOLDER / "dtln-base" / "model_2.onnx")
    assert [one.describe()[:4] for one in found.layers.values()] == ["LSTM", "LSTM"] and not found.unread
    reads = [one.reads for one in found.layers.values()]
    assert reads[1] is not None and reads[1].layers == (next(iter(found.layers)),)


def test_a_loop_without_end_takes_no_time(tmp_path: Path) -> None:
    """A hostile trip count, and a body whose numbers double."""
    w = weights(3)
    nodes, arrays = loop(lambda b, x, names: gru(b, x, names, w), 1)
    nodes[-1].input[0] = "most"
    arrays["most"] = np.array(2**62, np.int64)
    path = save(tmp_path / "model.onnx", (nodes, arrays), 1)
    found = rc.load(path)
    assert not found.layers and found.unread


def test_nothing_is_taken_for_a_layer_that_repeats_without_a_cell(tmp_path: Path) -> None:
    body = Body()
    square = body.constant(np.eye(HIDDEN) * 0.5)
    h = "first0"
    for _ in range(4):
        h = body("Add", body("MatMul", h, square), "first0")
    ends = [helper.make_node("Identity", [h], ["last0"]), helper.make_node("Identity", ["x"], ["y"])]
    path = save(tmp_path / "model.onnx", ([*body.nodes, *ends], body.arrays), 1)
    assert not rc.load(path).layers


_OTHERS = {
    "Add": ("Sub", "Mul"), "Mul": ("Add", "Sub"), "Sub": ("Add", "Mul"), "Tanh": ("Sigmoid", "Relu", "Softsign"),
    "Sigmoid": ("Tanh", "HardSigmoid"), "Identity": ("Neg",), "Neg": ("Identity",), "Relu": ("Tanh", "Abs"),
}  # fmt: skip


def changed(path: Path, random: np.random.Generator) -> None:
    """Change one node of the steps: its operator, the order of its inputs, an attribute, or one input."""
    made = onnx.load(path)
    nodes = [inner for node in made.graph.node for one in node.attribute if one.HasField("g") for inner in one.g.node]
    nodes = nodes or list(made.graph.node)
    while True:
        node = nodes[random.integers(len(nodes))]
        way = random.integers(3)
        if way == 0 and node.op_type in _OTHERS:
            node.op_type = str(random.choice(_OTHERS[node.op_type]))
            break
        if way == 1 and len(node.input) == 2 and node.op_type in ("Sub", "Div", "Concat", "MatMul"):
            node.input[:] = list(node.input)[::-1]
            break
        if way == 1 and node.op_type in ("Split", "Gather", "Transpose", "Gemm") and node.attribute:
            one = node.attribute[random.integers(len(node.attribute))]
            if one.ints:
                one.ints[:] = list(one.ints)[::-1]
            elif one.name in ("axis", "transA", "transB"):
                one.i = 1 - one.i
            else:
                one.f = 1.0 - one.f
            break
        if way == 2 and node.op_type in ("Add", "Mul", "Sub", "Tanh", "Sigmoid"):
            before = [name for other in nodes[: nodes.index(node)] for name in other.output]
            if before:
                node.input[random.integers(len(node.input))] = str(random.choice(before))
                break
    onnx.save(made, path)


@pytest.mark.drawn(30)
@pytest.mark.parametrize("seed", range(600))
def test_a_changed_step_is_never_another_layer(seed: int, tmp_path: Path) -> None:
    """Whatever a step computes: what is read of it gives the model's own numbers."""
    random = np.random.default_rng(seed)
    path = tmp_path / "model.onnx"
    if seed % 3:
        cell, form, change = CASES[random.integers(len(CASES))]
        given = feed(CELLS[cell][2])
        model(path, cell, form, change)
    else:
        name = str(random.choice([one for one in EXPORTED if one.startswith(("jax", "dynamo_scan")) and "backwards" not in one]))
        shutil.copy(GOLDEN / f"{name}.onnx", path)
        with np.load(GOLDEN / f"{name}.npz") as kept:
            given = {one.name: kept[f"x{n}"] for n, one in enumerate(onnx.load(path).graph.input)}
    for _ in range(random.integers(1, 3)):
        changed(path, random)
    checkpoint = rc.load(path)
    kept = onnx.load(path)
    there = {one.name for one in (*kept.graph.input, *kept.graph.output)}
    for one in checkpoint.read_as(ReadModel).computed.values():
        names = {*(use.value for use in one.recognised.uses), *one.reads, *one.recognised.states.values()}
        kept.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - there))
        there |= names
    onnx.save(kept, path)
    try:
        values = {**given, **dict(zip([one.name for one in kept.graph.output], run(path, given), strict=True))}
    except Exception:  # onnxruntime refuses what is not a model any more
        return
    for name, one in checkpoint.read_as(ReadModel).computed.items():
        parts = [np.stack([values[step] for step in read.steps]) if read.steps else values[read.value].swapaxes(0, read.axis)
                 for read in one.recognised.reads]  # fmt: skip
        parts = [part[slice(*read.window)] if read.window else part for read, part in zip(one.recognised.reads, parts, strict=True)]
        h, c = ((values[one.recognised.states[letter]],) if letter in one.recognised.states else None for letter in "hc")
        found = reference.run(checkpoint.layers[name], np.concatenate(parts, -1), h, c)
        for use in one.recognised.uses:
            truth = values[use.value]
            new = {"sequence": found.y, "hidden": found.hidden[0], "cell": (found.cell or (None,))[0]}.get(use.kind)
            new = found.y[use.step] if new is None else new
            np.testing.assert_allclose(new, truth.swapaxes(0, use.axis) if use.kind == "sequence" else truth, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter, about itself
@pytest.mark.parametrize("taken", ["index", "slice", "unbind"])
def test_a_cell_whose_states_are_parts_of_one_input_is_read(taken: str, tmp_path: Path) -> None:
    """A streaming model takes both states in one array and gives both back: one step, whose states are elements of an input."""
    torch = needed("torch", "torch")
    torch.manual_seed(3)

    class Streaming(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = torch.nn.LSTMCell(6, 6), torch.nn.Linear(6, 2)

        def forward(self, x: Any, state: Any) -> Any:
            x = torch.relu(x)
            if taken == "slice":
                h, c = state[0:1].squeeze(0), state[1:2].squeeze(0)
            else:
                h, c = (state[0], state[1]) if taken == "index" else state.unbind(0)
            h, c = self.rnn(x, (h, c))
            return self.head(torch.relu(h)), torch.stack([h, c])

    torch.onnx.export(
        Streaming().eval(), (torch.zeros(1, 6), torch.zeros(2, 1, 6)), path := tmp_path / "model.onnx", dynamo=False,
        input_names=["x", "state"], output_names=["y", "next"],
    )  # fmt: skip
    found = rc.load(path)
    assert not found.unread
    (stack,) = found.layers.values()
    draw = np.random.default_rng(5)
    x, state = (draw.normal(size=shape).astype(np.float32) for shape in ((1, 6), (2, 1, 6)))
    import onnxruntime

    _, after = onnxruntime.InferenceSession(path).run(None, {"x": x, "state": state})
    given = reference.run(stack, np.maximum(x, 0)[None], [state[0]], [state[1]])
    np.testing.assert_allclose(np.stack([given.hidden[0], given.cell[0]]), after, rtol=0, atol=1e-6)
    assert sum("is given at run time" in text for text in found.warnings) == 2
