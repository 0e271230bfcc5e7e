"""Quantized LSTMs of ONNX: onnxruntime's DynamicQuantizeLSTM, and matrices behind DequantizeLinear, run by onnxruntime."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.onnx_graphs import in_onnxruntime, saved
from tests.helpers.requirements import needed
from tests.helpers.stacks import BOTH, random_stack

X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)


def plain(path: Path, ways: int) -> rc.Recurrent:
    stack = random_stack(Sizes("lstm", 3, 4, 1, ways, parts=BOTH), 3, np.float32, Cell("lstm")).replace(name="rnn")
    rc.save(Checkpoint("memory", "", {"rnn": stack}), path, "onnx", force=True)
    return stack


def quantised(folder: Path, ways: int, per_channel: bool, signed: bool) -> Path:
    needed("onnxruntime", "onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain(folder / "m.onnx", ways)
    logging.disable(logging.WARNING)
    try:
        kind = QuantType.QInt8 if signed else QuantType.QUInt8
        quantize_dynamic(folder / "m.onnx", folder / "q.onnx", per_channel=per_channel, weight_type=kind, op_types_to_quantize=["LSTM"],
                         reduce_range=True)  # fmt: skip  # processors without VNNI saturate sums of products of 8 bits
    finally:
        logging.disable(logging.NOTSET)
    assert [node.op_type for node in onnx.load(folder / "q.onnx").graph.node].count("DynamicQuantizeLSTM") == 1
    return folder / "q.onnx"


def ran(path: Path) -> Array:
    """What onnxruntime gives, (time, batch, out)."""
    y = in_onnxruntime(path, X)[0]
    return np.moveaxis(y, 1, 2).reshape(*y.shape[:1], y.shape[2], -1) if y.ndim == 4 else y


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("ways", [1, 2])
def test_a_dynamically_quantized_lstm_is_read(ways: int, per_channel: bool, signed: bool, tmp_path: Path) -> None:
    path = quantised(tmp_path, ways, per_channel, signed)
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert (
        not checkpoint.unread
        and len(checkpoint.warnings) == 1
        and "also rounds its input" in checkpoint.warnings[0]
        and not any(name.startswith("rnn") for name in checkpoint.tensors)
    )
    truth, original = ran(path), ran(tmp_path / "m.onnx")
    read, lost = reference.run(stack, X).y, np.abs(truth - original).max()
    assert 1e-4 < lost < 2e-2
    # The weights are those of the kernel: what is left is the rounding of its input and its state.
    assert np.abs(read - truth).max() < 1e-2 and np.abs(read - original).max() < 2e-2
    arrays = stack.first.arrays
    swapped = stack.first.with_arrays({(part, "g"): arrays[part, "o"] for part in ("input", "recurrent")})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped, *stack.layers[0].directions[1:])),))
    assert np.abs(reference.run(wrong, X).y - truth).max() > 3e-2


def test_a_whole_model_of_one_is_written_with_the_numbers_that_its_integers_stand_for(tmp_path: Path) -> None:
    done = rc.export_model(quantised(tmp_path, 2, True, True), tmp_path / "float.onnx")
    (note,) = (note for note in done.notes if "rnn" in note)
    assert "read as the float32 numbers that these stand for" in note and "also rounds its input" in note
    truth, written = ran(tmp_path / "q.onnx"), ran(tmp_path / "float.onnx")
    assert 0 < np.abs(truth - written).max() < 0.05


def test_each_column_has_its_own_scale_and_zero_point(tmp_path: Path) -> None:
    """Against numbers made by hand: the kernel reads scale * (q - zero) in (directions, in, gates * hidden)."""
    path = quantised(tmp_path, 2, True, False)
    model = onnx.load(path)
    held = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    (node,) = (entry for entry in model.graph.node if entry.op_type == "DynamicQuantizeLSTM")
    codes, scale, zero = (held[node.input[place]] for place in (1, 8, 9))
    (stack,) = rc.load(path).layers.values()
    for gate, letter in enumerate("iofg"):
        for way in range(2):
            matrix = np.asarray(stack[0, way].arrays["input", letter])
            for row in range(4):
                column = 4 * gate + row
                expected = (codes[way, :, column].astype(np.float64) - zero[way, column]) * scale[way, column]
                np.testing.assert_allclose(matrix[row], expected, rtol=1e-6)


def changed(path: Path, change: Any) -> Path:
    model = onnx.load(path)
    (node,) = (entry for entry in model.graph.node if entry.op_type == "DynamicQuantizeLSTM")
    change(node, {entry.name: entry for entry in model.graph.initializer})
    onnx.save(model, path)
    return path


def scaled(node: Any, held: Any) -> None:
    array = numpy_helper.to_array(held[node.input[8]])
    held[node.input[8]].CopyFrom(numpy_helper.from_array(np.concatenate([array, array]), node.input[8]))


CHANGES = {
    "no scale": lambda node, held: node.input.__setitem__(8, ""),
    "scales of another number": scaled,
    "zero points of another type": lambda node, held: held[node.input[9]].CopyFrom(
        numpy_helper.from_array(np.zeros(1, np.float32), node.input[9])
    ),
    "codes of another type": lambda node, held: held[node.input[1]].CopyFrom(
        numpy_helper.from_array(np.zeros((1, 3, 16), np.int16), node.input[1])
    ),
    "scales of the caller": lambda node, held: node.input.__setitem__(8, "x"),
    "one more input": lambda node, held: node.input.append("x"),
    "an attribute": lambda node, held: node.attribute.append(helper.make_attribute("mystery", 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_known_is_refused(name: str, tmp_path: Path) -> None:
    path = changed(quantised(tmp_path, 1, False, True), CHANGES[name])
    try:
        checkpoint = rc.load(path)
    except (UnreadableError, rc.RefusedError):
        return
    assert not checkpoint.layers and checkpoint.unread


def test_another_domain_is_not_this_operator(tmp_path: Path) -> None:
    path = changed(quantised(tmp_path, 1, False, True), lambda node, held: setattr(node, "domain", "another"))
    checkpoint = rc.load(path)
    assert not checkpoint.layers and "DynamicQuantizeLSTM" in checkpoint.unread[0]


def test_a_quantized_layer_gives_its_weights_and_takes_none(tmp_path: Path) -> None:
    path = quantised(tmp_path, 1, True, True)
    before = path.read_bytes()
    with pytest.raises(RnnConvertError, match=r"integers|quantized|fits|paired"):
        rc.load_into(path, tmp_path / "m.onnx")
    assert path.read_bytes() == before


@pytest.mark.parametrize("axis", [None, 1])
def test_matrices_behind_dequantizelinear_are_read(axis: int | None, tmp_path: Path) -> None:
    """As QDQ tools leave them: a scale for all, or one for each row."""
    rng = np.random.default_rng(5)
    held: dict[str, Array] = {}
    nodes = []
    for name, width in (("W", 3), ("R", 4)):
        held[f"{name}_q"] = rng.integers(-127, 128, (1, 16, width)).astype(np.int8)
        held[f"{name}_s"] = np.asarray(rng.uniform(0.004, 0.01, () if axis is None else 16), np.float32)
        held[f"{name}_z"] = np.asarray(rng.integers(-3, 4, () if axis is None else 16), np.int8)
        how = {} if axis is None else {"axis": axis}
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name], **how))
    nodes.append(helper.make_node("LSTM", ["X", "W", "R"], ["Y"], "rnn", hidden_size=4))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("X", 1, [None, None, 3])], [helper.make_tensor_value_info("Y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "m.onnx")
    checkpoint = rc.load(tmp_path / "m.onnx")
    (stack,) = checkpoint.layers.values()
    assert np.abs(reference.run(stack, X).y - ran(tmp_path / "m.onnx")).max() < 1e-5


def test_what_a_kernel_of_integers_rounds_is_an_exception(tmp_path: Path) -> None:
    """Its outputs are others than those of the numbers that the integers stand for: no strict proof passes."""
    needed("torch", "torch")
    source = quantised(tmp_path, 1, False, True)
    rc.convert(source, tmp_path / "q.pt", target_format="pytorch")
    report = rc.verify(source, tmp_path / "q.pt", cases=["states"], explain=False, strict=True)
    assert report.verdict == "equal but for" and report.exit_code == 6, report
    assert "rounds its input and its state" in str(report.document["limits"])


# Whole models


class Frames:
    """Inputs to calibrate with, as quantize_static asks for them."""

    def __init__(self) -> None:
        self.left = [{"x": np.random.default_rng(seed).normal(size=(3, 7, 4)).astype(np.float32)} for seed in range(4)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def whole_model(folder: Path, form: str, cell: str, per_channel: bool, signed: bool) -> Path:
    """Save a model of a recurrent layer with a head, and quantize it."""
    torch = needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    torch.manual_seed(2)

    layers = torch.nn.ModuleDict({"rnn": getattr(torch.nn, cell)(4, 16), "head": torch.nn.Linear(16, 3)})
    torch.save(layers.state_dict(), folder / "m.pt")
    rc.export_model(folder / "m.pt", folder / "m.onnx", chain="rnn:tanh head" if cell == "RNN" else "rnn head")
    kind = QuantType.QInt8 if signed else QuantType.QUInt8
    words = {"per_channel": per_channel, "weight_type": kind, "reduce_range": True}
    logging.disable(logging.WARNING)
    try:
        if form == "dynamic":
            quantize_dynamic(folder / "m.onnx", folder / "q.onnx", **words)
        else:
            words |= {"quant_format": getattr(QuantFormat, form), "activation_type": QuantType.QUInt8}
            quantize_static(folder / "m.onnx", folder / "q.onnx", Frames(), **words)
    finally:
        logging.disable(logging.NOTSET)
    return folder / "q.onnx"


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("form", ["dynamic", "QDQ"])
def test_a_whole_model_of_integers_is_written_in_float(form: str, cell: str, tmp_path: Path) -> None:
    """In QDQ what is rounded, and how, is stated, and kept; what a run decides is not, and as far off as that rounding explains."""
    for number, (per_channel, signed) in enumerate([(False, True), (True, True), (False, False)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = whole_model(folder, form, cell, per_channel, signed)
        for target in ("back.onnx", "back.tflite"):
            done = rc.export_model(source, folder / target, verify=True)
            assert done.equal == (form == "QDQ"), done
            if form == "dynamic":
                assert "equal but for: its source computes with integers of 8 bits" in str(done)
                assert any("this does not" in note for note in done.notes)
        x = np.random.default_rng(9).normal(size=(2, 5, 4)).astype(np.float32)
        y, truth = in_onnxruntime(folder / "back.onnx", x)[0], in_onnxruntime(folder / "m.onnx", x)[0]
        assert 1e-7 < np.abs(y - truth).max() < 0.05


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    ("framework", "weights", "array"),
    [
        ("pytorch", "w.pt", "dtype=torch.int8), requires_grad=False"),
        ("keras", "w.keras", ', "int8", name='),
        ("flax", "w.msgpack", ', "int8"))'),
    ],
)
def test_code_of_a_model_that_rounds_is_proved_by_one_that_does_not(
    framework: str, weights: str, array: str, cell: str, tmp_path: Path
) -> None:
    package = {"pytorch": "torch"}.get(framework, framework)
    needed(package, package)
    source = whole_model(tmp_path, "dynamic", cell, True, True)
    done = rc.scaffold(source, framework, tmp_path / "code.py", weights=tmp_path / weights, verify=True)
    assert "equal but for: its source computes with integers of 8 bits" in str(done)
    strict = [proof for proof in done.proof if proof.equal]
    assert len(strict) >= 4, "the code beside the same numbers without rounding"
    text = (tmp_path / "code.py").read_text()
    assert array in text


def test_integers_taken_for_others_are_not_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof beside a source of integers is wide, and still shows a zero point that is left out, or a scale."""
    from rnnconvert.scaffolding.programs import operators

    source = whole_model(tmp_path, "dynamic", "GRU", False, False)
    rule = operators.RULES["MatMulInteger"]

    def without_zero_points(r: Any, op: Any) -> Any:
        return rule(r, replace(op, inputs=op.inputs[:2]))

    monkeypatch.setitem(operators.RULES, "MatMulInteger", without_zero_points)
    with pytest.raises(rc.NotEqualError):
        rc.export_model(source, tmp_path / "back.onnx", verify=True)


@pytest.mark.parametrize("what", ["an output", "another product", "the scale twice", "no scale"])
def test_integers_that_are_used_otherwise_are_refused(what: str, tmp_path: Path) -> None:
    source = whole_model(tmp_path, "dynamic", "GRU", False, True)
    model = onnx.load(source)
    (quantized,) = (node for node in model.graph.node if node.op_type == "DynamicQuantizeLinear")
    codes, scale, _ = quantized.output
    product = next(node for node in model.graph.node if node.op_type == "MatMulInteger").output[0]
    cast = next(node for node in model.graph.node if product in node.input).output[0]
    last = next(node for node in model.graph.node if cast in node.input)
    factor = next(node for node in model.graph.node if scale in node.input)
    if what == "an output":
        model.graph.output.append(helper.make_tensor_value_info(codes, 2, None))
    elif what == "another product":
        model.graph.node.append(helper.make_node("Cast", [codes], ["more"], to=1))
        model.graph.output.append(helper.make_tensor_value_info("more", 1, None))
    elif what == "the scale twice":
        factor.input[list(factor.input).index(scale) - 1] = scale
    else:
        other = next(name for name in factor.input if name != scale)
        last.input[list(last.input).index(factor.output[0])] = other
    onnx.save(model, source)
    with pytest.raises(rc.RefusedError):
        rc.export_model(source, tmp_path / "back.onnx")


def test_integers_throughout_are_refused_with_a_way_out(tmp_path: Path) -> None:
    source = whole_model(tmp_path, "QOperator", "GRU", False, True)
    with pytest.raises(rc.RefusedError, match="QLinearMatMul: it computes in integers throughout"):
        rc.export_model(source, tmp_path / "back.onnx")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("widths", [(4, 3), (64, 64, 10)])
def test_a_model_of_dense_layers_alone_is_written_and_proved(widths: tuple[int, ...], per_channel: bool, tmp_path: Path) -> None:
    """No layer but those of integers: their matrices are filled, however large, and their rounding is what the proof allows."""
    needed("onnxruntime", "onnxruntime")
    from onnxruntime.quantization import quantize_dynamic

    rng, nodes, arrays, x = np.random.default_rng(3), list[Any](), dict[str, Array](), "x"
    for number, (width, units) in enumerate(itertools.pairwise(widths)):
        arrays[f"W{number}"] = (rng.normal(size=(width, units)) / np.sqrt(width)).astype(np.float32)
        nodes += [helper.make_node("MatMul", [x, f"W{number}"], [f"m{number}"]), helper.make_node("Tanh", [f"m{number}"], [f"y{number}"])]
        x = f"y{number}"
    plain = saved(tmp_path / "m.onnx", nodes, {"x": [None, widths[0]]}, [x], arrays)
    quantize_dynamic(plain, tmp_path / "q.onnx", per_channel=per_channel, extra_options={"WeightSymmetric": False})
    for target in ("back.onnx", "back.tflite"):
        assert "equal but for" in str(rc.export_model(tmp_path / "q.onnx", tmp_path / target, verify=True))
    inputs = rng.normal(size=(5, widths[0])).astype(np.float32)
    gives, truth = (in_onnxruntime(tmp_path / name, inputs)[0] for name in ("back.onnx", "m.onnx"))
    assert 1e-7 < np.abs(gives - truth).max() < 0.05


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "output"])
def test_what_computes_with_codes_computes_in_their_type(operator: str, tmp_path: Path) -> None:
    """Numbers of 8 bits begin anew behind the last one, and their quotients are whole."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"])]
    if operator != "output":
        nodes += [helper.make_node(operator, ["q", "by"], ["c"]), helper.make_node("DequantizeLinear", ["c", "scale", "zero"], ["y"])]
    arrays = {"scale": np.array(0.5, np.float32), "zero": np.array(3, np.uint8), "by": np.array(100, np.uint8)}
    gives = "q" if operator == "output" else "y"
    source = saved(tmp_path / "m.onnx", nodes, {"x": [None, 4]}, [gives], arrays, types={"q": 2})
    rc.export_model(source, tmp_path / "back.onnx")
    x = np.random.default_rng(4).normal(scale=60, size=(9, 4)).astype(np.float32)
    y, truth = (in_onnxruntime(path, x)[0] for path in (tmp_path / "back.onnx", source))
    assert y.dtype == truth.dtype
    np.testing.assert_array_equal(y, truth)


@pytest.mark.parametrize("second", [["q", "z", ""], ["q", "z", "z"], ["W", "z", "z"]])
def test_a_product_of_codes_with_themselves_is_refused(second: list[str], tmp_path: Path) -> None:
    """Its scale would be a square, and the zero point of a matrix is not that of the codes."""
    matrix, *zeros = second
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", matrix, *zeros], ["p"]),
        helper.make_node("Cast", ["p"], ["real"], to=1),
        helper.make_node("Mul", ["real", "s"], ["y"]),
    ]
    source = saved(tmp_path / "m.onnx", nodes, {"x": [None, 4]}, ["y"], {"W": np.arange(16, dtype=np.uint8).reshape(4, 4)})
    with pytest.raises(rc.RefusedError):
        rc.export_model(source, tmp_path / "back.onnx")


def test_only_what_is_stated_is_rounded_where_a_model_is_proved(tmp_path: Path) -> None:
    """Matrices behind DequantizeLinear, with nothing quantized before them: onnxruntime would round what they are multiplied with, too."""
    rng = np.random.default_rng(6)
    nodes = [helper.make_node("DequantizeLinear", ["W", "scale"], ["real"]), helper.make_node("MatMul", ["x", "real"], ["y"])]
    arrays = {"W": rng.integers(-127, 128, (40, 50)).astype(np.int8), "scale": np.array(0.02, np.float32)}
    source = saved(tmp_path / "m.onnx", nodes, {"x": [None, 40]}, ["y"], arrays)
    assert rc.export_model(source, tmp_path / "back.onnx", verify=True).equal


def test_integers_for_one_sequence_are_compared_on_one(tmp_path: Path) -> None:
    """Stored states are for one sequence, although the batch is open: no other size runs, and the proof takes that one."""
    source = whole_model(tmp_path, "dynamic", "LSTM", False, True)
    model = onnx.load(source)
    node = next(node for node in model.graph.node if node.op_type == "DynamicQuantizeLSTM")
    units = next(attribute.i for attribute in node.attribute if attribute.name == "hidden_size")
    state = np.random.default_rng(3).normal(size=(1, 1, units)).astype(np.float32)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(state, name) for name in ("h", "c"))
    node.input[5:7] = ["h", "c"]
    onnx.save(model, source)
    done = rc.export_model(source, tmp_path / "again.onnx", verify=True)
    notes = {note for proof in done.proof for note in proof.notes}
    assert notes == {f"the source does not run on {batch} sequences at a time, so one was compared" for batch in (2, 3)}
    assert "equal but for: its source computes with integers of 8 bits" in str(done)
