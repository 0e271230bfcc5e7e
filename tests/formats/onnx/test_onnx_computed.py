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
from rnnconvert.core.weights import Directly, Recurrent, Through
from rnnconvert.formats.onnx.node import ReadModel
from rnnconvert.models.readers import model_of
from tests.formats.onnx.test_fuse import (
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
from tests.helpers import corpus
from tests.helpers.requirements import need, needed


def stack_of(path: Path) -> Recurrent:
    (stack,) = rc.load(path).layers.values()
    return stack


@pytest.mark.drawn(7)
@pytest.mark.parametrize("name", EXPORTED)
def test_what_an_exporter_wrote_out_is_read(name: str) -> None:
    """The layer, run by the reference, gives what the framework gave; a dense layer stands behind it in most models."""
    checkpoint = rc.load(GOLDEN / f"{name}.onnx")
    assert not checkpoint.unread
    graph = onnx.load(GOLDEN / f"{name}.onnx").graph
    stacks = list(checkpoint.layers.values())
    assert [stack.cell.kind for stack in stacks] == [EXPORTED[name].lower()] * (2 if "bilstm" in name else 1)
    with np.load(GOLDEN / f"{name}.npz") as stored:
        inputs = [stored[f"x{n}"] for n in range(len(graph.input))]
        truth = stored["y0"]
    if name.startswith(("jax", "dynamo_scan")):  # nothing stands behind the layer
        x, *h = inputs
        y = reference.run(stacks[0], x, (h[0],) if h else None, (h[1],) if len(h) > 1 else None).y
    elif "own" in name or name.endswith("gru_cell"):  # steps whose first state is given
        x, h = inputs
        y = reference.run(stacks[0], x.swapaxes(0, 1) if x.ndim == 3 else x[None], (h,)).hidden[0]
    else:
        batch_first = "keras" in name or "gru_cells" in name
        outputs = [reference.run(stack, inputs[0].swapaxes(0, 1) if batch_first else inputs[0]) for stack in stacks]
        sequences = truth.ndim == 3
        y = np.concatenate([result.y if sequences else result.hidden[0] for result in outputs], -1)
        kernel = max((array for array in checkpoint.tensors.values() if array.ndim == 2), key=lambda array: array.size)
        bias = next(array for array in checkpoint.tensors.values() if array.shape == (3,))
        y = y @ (kernel if kernel.shape[1] == 3 else kernel.T) + bias
        y = y.swapaxes(0, 1) if sequences and batch_first else y
    np.testing.assert_allclose(y, truth, rtol=2e-5, atol=2e-6)


@pytest.mark.drawn(7)
@pytest.mark.parametrize(("cell", "form", "change"), CASES)
def test_every_form_of_a_cell_is_read(cell: str, form: str, change: str, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", cell, form, change)
    stack = stack_of(path)
    inputs = feed(CELLS[cell][2])
    result = reference.run(stack, inputs["x"], (inputs["first0"],), (inputs["first1"],) if cell == "lstm" else None)
    for new, old in zip([result.y, *result.hidden, *result.cell], run(path, inputs), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_scan_from_the_end_is_a_layer_from_the_end(batch_first: bool, tmp_path: Path) -> None:
    path, _ = model(tmp_path / "model.onnx", "gru", "scan", reverse=True, batch_first=batch_first)
    inputs = feed(1)
    y = reference.run(stack_of(path), inputs["x"], (inputs["first0"],)).y
    if batch_first:
        inputs["x"], y = inputs["x"].swapaxes(0, 1), y.swapaxes(0, 1)
    np.testing.assert_allclose(y, run(path, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("cell", "form", "extra", "reason"), UNPROVED, ids=lambda case: str(case)[:30])
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

    read_weights = recognised.weights

    def wrong(*arguments: Any) -> Any:
        read = read_weights(*arguments)
        arrays = dict(read.arrays)
        arrays[part, "z"], arrays[part, "r"] = arrays[part, "r"], arrays[part, "z"]
        return recognised.Weights(arrays, read.origins)

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
    proto = onnx.load(path)
    proto.graph.output.append(value("z", None))
    onnx.save(proto, path)
    checkpoint = rc.load(path)
    assert list(checkpoint.layers) == ["looped", "above"]
    reads = checkpoint.layers["above"].reads
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
    checkpoint = rc.load(corpus.FOLDER / "dtln-base" / "model_2.onnx")
    assert [layer.describe()[:4] for layer in checkpoint.layers.values()] == ["LSTM", "LSTM"] and not checkpoint.unread
    reads = [layer.reads for layer in checkpoint.layers.values()]
    assert isinstance(reads[1], Directly | Through) and reads[1].layers == (next(iter(checkpoint.layers)),)


def test_a_loop_without_end_takes_no_time(tmp_path: Path) -> None:
    """A hostile trip count, and a body whose numbers double."""
    w = weights(3)
    nodes, arrays = loop(lambda b, x, names: gru(b, x, names, w), 1)
    nodes[-1].input[0] = "most"
    arrays["most"] = np.array(2**62, np.int64)
    path = save(tmp_path / "model.onnx", (nodes, arrays), 1)
    checkpoint = rc.load(path)
    assert not checkpoint.layers and checkpoint.unread


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
    proto = onnx.load(path)
    nodes = [inner for node in proto.graph.node for attribute in node.attribute if attribute.HasField("g") for inner in attribute.g.node]
    nodes = nodes or list(proto.graph.node)
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
            attribute = node.attribute[random.integers(len(node.attribute))]
            if attribute.ints:
                attribute.ints[:] = list(attribute.ints)[::-1]
            elif attribute.name in ("axis", "transA", "transB"):
                attribute.i = 1 - attribute.i
            else:
                attribute.f = 1.0 - attribute.f
            break
        if way == 2 and node.op_type in ("Add", "Mul", "Sub", "Tanh", "Sigmoid"):
            before = [name for other in nodes[: nodes.index(node)] for name in other.output]
            if before:
                node.input[random.integers(len(node.input))] = str(random.choice(before))
                break
    onnx.save(proto, path)


@pytest.mark.drawn(30)
@pytest.mark.parametrize("seed", range(600))
def test_a_changed_step_is_never_another_layer(seed: int, tmp_path: Path) -> None:
    """Whatever a step computes: what is read of it gives the model's own numbers."""
    random = np.random.default_rng(seed)
    path = tmp_path / "model.onnx"
    if seed % 3:
        cell, form, change = CASES[random.integers(len(CASES))]
        inputs = feed(CELLS[cell][2])
        model(path, cell, form, change)
    else:
        name = str(random.choice([entry for entry in EXPORTED if entry.startswith(("jax", "dynamo_scan")) and "backwards" not in entry]))
        shutil.copy(GOLDEN / f"{name}.onnx", path)
        with np.load(GOLDEN / f"{name}.npz") as stored:
            inputs = {entry.name: stored[f"x{n}"] for n, entry in enumerate(onnx.load(path).graph.input)}
    for _ in range(random.integers(1, 3)):
        changed(path, random)
    checkpoint = rc.load(path)
    proto = onnx.load(path)
    there = {entry.name for entry in (*proto.graph.input, *proto.graph.output)}
    for entry in checkpoint.read_as(ReadModel).computed.values():
        names = {*(use.value for use in entry.recognised.uses), *entry.reads, *entry.recognised.states.values()}
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - there))
        there |= names
    onnx.save(proto, path)
    try:
        values = {**inputs, **dict(zip([entry.name for entry in proto.graph.output], run(path, inputs), strict=True))}
    except Exception:  # onnxruntime refuses what is not a model any more
        return
    for name, entry in checkpoint.read_as(ReadModel).computed.items():
        parts = [np.stack([values[step] for step in read.steps]) if read.steps else values[read.value].swapaxes(0, read.axis)
                 for read in entry.recognised.reads]  # fmt: skip
        parts = [part[slice(*read.window)] if read.window else part for read, part in zip(entry.recognised.reads, parts, strict=True)]
        h, c = ((values[entry.recognised.states[letter]],) if letter in entry.recognised.states else None for letter in "hc")
        result = reference.run(checkpoint.layers[name], np.concatenate(parts, -1), h, c)
        for use in entry.recognised.uses:
            truth = values[use.value]
            new = {"sequence": result.y, "hidden": result.hidden[0], "cell": (result.cell or (None,))[0]}.get(use.kind)
            new = result.y[use.step] if new is None else new
            np.testing.assert_allclose(new, truth.swapaxes(0, use.axis) if use.kind == "sequence" else truth, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter, about itself
@pytest.mark.parametrize("split", ["index", "slice", "unbind"])
def test_a_cell_whose_states_are_parts_of_one_input_is_read(split: str, tmp_path: Path) -> None:
    """A streaming model takes both states in one array and gives both back: one step, whose states are elements of an input."""
    torch = needed("torch", "torch")
    torch.manual_seed(3)

    class Streaming(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = torch.nn.LSTMCell(6, 6), torch.nn.Linear(6, 2)

        def forward(self, x: Any, state: Any) -> Any:
            x = torch.relu(x)
            if split == "slice":
                h, c = state[0:1].squeeze(0), state[1:2].squeeze(0)
            else:
                h, c = (state[0], state[1]) if split == "index" else state.unbind(0)
            h, c = self.rnn(x, (h, c))
            return self.head(torch.relu(h)), torch.stack([h, c])

    torch.onnx.export(
        Streaming().eval(), (torch.zeros(1, 6), torch.zeros(2, 1, 6)), path := tmp_path / "model.onnx", dynamo=False,
        input_names=["x", "state"], output_names=["y", "next"],
    )  # fmt: skip
    checkpoint = rc.load(path)
    assert not checkpoint.unread
    (stack,) = checkpoint.layers.values()
    draw = np.random.default_rng(5)
    x, state = (draw.normal(size=shape).astype(np.float32) for shape in ((1, 6), (2, 1, 6)))
    import onnxruntime

    _, after = onnxruntime.InferenceSession(path).run(None, {"x": x, "state": state})
    result = reference.run(stack, np.maximum(x, 0)[None], [state[0]], [state[1]])
    np.testing.assert_allclose(np.stack([result.hidden[0], result.cell[0]]), after, rtol=0, atol=1e-6)
    assert sum("is given at run time" in text for text in checkpoint.warnings) == 2
