"""OpenVINO's IR: it runs what is written, and what its own frontend and its own operations make is read."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, SIGMOID, TANH, Cell, Clip
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.openvino import run as openvino_run
from rnnconvert.language.layout import Sizes
from tests.helpers.damage import endings
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import judge, outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import needed
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack, random_states

INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)
RNN, GRU, GRU_BEFORE, LSTM = Cell("rnn"), Cell("gru", True), Cell("gru", False), Cell("lstm")


def file_of(path: Path, stack: Recurrent, **options: Any) -> Path:
    rc.save(Checkpoint("memory", "", {"rnn": stack.replace(name="rnn")}), path, "openvino", **options)
    return path


def of(cell: Cell, layers: int = 1, ways: int = 1, more: frozenset[str] = frozenset()) -> Recurrent:
    parts = (BOTH if cell.reset_after else INPUT) | more
    return random_stack(Sizes(cell.kind, 3, 5, layers, ways, parts=parts), 5, np.float32, cell)


def ran(path: Path, x: Array = X, layers: tuple[str, ...] = (), **states: Any) -> dict[str, Any]:
    judge("openvino")
    return openvino_run.answer({"file": str(path), "layers": list(layers), "how": {}, "x": x, **states})


def ways_joined(stack: Recurrent, merge: Any) -> Recurrent:
    return stack.replace(layers=tuple(dataclasses.replace(layer, merge=merge) for layer in stack.layers))


_CELLS = (RNN, GRU, GRU_BEFORE, LSTM)
_CLIP = (Clip("gates", -0.25, 0.25),)
CASES = [
    *(of(cell, layers, ways) for cell, layers, ways in itertools.product(_CELLS, (1, 2), (1, 2))),
    *(of(cell.replace(clips=_CLIP), 1, 2) for cell in _CELLS),
    *(backwards(of(cell)) for cell in _CELLS),
    *(ways_joined(of(LSTM, 1, 2), merge) for merge in ("sum", "mul", "ave")),
    of(RNN.replace(activation=RELU), 1, 2), of(GRU.replace(activation=RELU, gate_activation=TANH)),
    of(LSTM.replace(activation=RELU, gate_activation=TANH, output_activation=SIGMOID), 1, 2),
    of(LSTM, 2, 2, frozenset({"initial_hidden", "initial_cell"})), of(GRU, 1, 2, frozenset({"initial_hidden"})),
]  # fmt: skip


def test_openvino_runs_what_is_written(tmp_path: Path) -> None:
    def check(stack: Recurrent) -> None:
        path = file_of(tmp_path / "m.xml", stack, force=True)
        assert excess(Problem(stack, X), outputs(ran(path))) <= 1
        read = rc.load(path)
        assert not read.warnings and not read.unread and set(read.batch_first.values()) == {True}
        assert [encoder.cell for encoder in read.layers.values()] == [layer.directions[0].cell for layer in stack.layers]
        layers = tuple(layer for encoder in read.layers.values() for layer in encoder.layers)
        assert [layer.merge for layer in layers] == [layer.merge for layer in stack.layers]
        assert np.abs(reference.run(stack.replace(layers=layers), X).y - reference.run(stack, X).y).max() < 1e-6
        plain = not any(part.startswith("initial") for part, _ in stack.first.arrays)
        if plain and {layer.merge for layer in layers} == {"concat"}:
            hidden, cell = random_states(Sizes.of(stack), 2, 3, np.float32)
            states: Any = (hidden, cell if stack.cell.kind == "lstm" else None)
            answer = ran(path, layers=tuple(read.layers), hidden=list(hidden), cell=list(cell) if states[1] else None)
            assert excess(Problem(stack, X, *states), outputs(answer)) <= 1

    each(drawn(CASES, 6, "openvino"), check, str)


def test_a_wrong_gate_would_be_seen(tmp_path: Path) -> None:
    stack = of(GRU)
    first = stack.first
    swapped = first.with_arrays({("input", "r"): first.arrays["input", "z"], ("input", "z"): first.arrays["input", "r"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert excess(Problem(wrong, X), outputs(ran(file_of(tmp_path / "m.xml", stack)))) > WRONG


def test_peepholes_are_refused_and_coupled_gates_written_out(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="peephole"):
        file_of(tmp_path / "m.xml", of(LSTM, more=frozenset({"peephole"})))
    assert not list(tmp_path.iterdir())
    stack = of(LSTM.replace(coupled="f"))
    assert excess(Problem(stack, X), outputs(ran(file_of(tmp_path / "m.xml", stack)))) <= 1


def test_half_precision_is_stored_as_such(tmp_path: Path) -> None:
    stack = of(LSTM)
    narrow = file_of(tmp_path / "m.xml", stack, dtype="float16")
    (read,) = rc.load(narrow).layers.values()
    assert read.dtype == np.float16
    assert np.abs(ran(narrow)["y"] - reference.run(read, X).y).max() < 1e-6


# What OpenVINO itself makes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["single", "half", "not optimized"])
@pytest.mark.parametrize("cell", _CELLS, ids=["rnn", "gru", "gru before", "lstm"])
def test_what_its_frontend_makes_of_onnx_is_read(cell: Cell, kind: str, tmp_path: Path) -> None:
    ov, narrow = needed("openvino", "openvino"), kind == "half"
    stack = of(cell, 2, 2)
    rc.save(Checkpoint("memory", "", {"rnn": stack.replace(name="rnn")}), tmp_path / "m.onnx", "onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "not optimized":  # its biases are sums of parts of one constant
            ov.serialize(ov.Core().read_model(tmp_path / "m.onnx"), tmp_path / "m.xml")
        else:
            ov.save_model(ov.convert_model(tmp_path / "m.onnx"), tmp_path / "m.xml", compress_to_fp16=narrow)
    checkpoint = rc.load(tmp_path / "m.xml")
    assert not checkpoint.unread and len(checkpoint.layers) == 2
    y = X
    for layer in checkpoint.layers.values():
        y = reference.run(layer, y).y
    assert np.abs(y - reference.run(stack, X).y).max() < (2e-3 if narrow else 1e-6)
    assert {str(encoder.dtype) for encoder in checkpoint.layers.values()} == {"float16" if narrow else "float32"}
    assert np.abs(ran(tmp_path / "m.xml", layers=tuple(checkpoint.layers))["y"] - y).max() < 1e-6
    assert rc.convert(tmp_path / "m.xml", tmp_path / "again.onnx", stack="join").exact


def _cells(ov: Any) -> Any:
    """A loop around an LSTMCell, whose weights are integers with a scale, as NNCF leaves them."""
    from openvino import opset13 as op

    rng = np.random.default_rng(4)
    x, h, c = op.parameter([1, 1, 3], np.float32), op.parameter([1, 5], np.float32), op.parameter([1, 5], np.float32)
    codes = rng.integers(-127, 128, (20, 3)).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, (20, 1)).astype(np.float32)
    weight = op.multiply(op.subtract(op.convert(op.constant(codes), "f32"), op.constant(np.float32(3))), op.constant(scales))
    recurrent, bias = rng.uniform(-1, 1, (20, 5)).astype(np.float32), rng.uniform(-1, 1, 20).astype(np.float32)
    cell = op.lstm_cell(op.squeeze(x, op.constant([0])), h, c, weight, op.constant(recurrent), op.constant(bias), 5, name="cell")
    return ov.Model([cell.output(0), cell.output(1)], [x, h, c], "m"), (codes - np.float32(3)) * scales, recurrent, bias


def test_a_cell_with_integer_weights_is_read(tmp_path: Path) -> None:
    ov = needed("openvino", "openvino")
    model, weight, recurrent, bias = _cells(ov)
    ov.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    checkpoint = rc.load(tmp_path / "m.xml")
    (stack,) = checkpoint.layers.values()
    assert any("given at run time" in warning for warning in checkpoint.warnings)
    rng = np.random.default_rng(5)
    x, h, c = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((1, 1, 3), (1, 5), (1, 5)))
    done = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x, h, c])
    expected = reference.run(stack, x, (h,), (c,))
    assert np.abs(done[0] - expected.y[0]).max() < 1e-6 and np.abs(done[1] - expected.cell[0]).max() < 1e-6
    assert np.allclose(np.asarray(stack.first.arrays["input", "f"]), weight[:5])
    assert np.array_equal(np.asarray(stack.first.arrays["recurrent", "g"]), recurrent[10:15])
    assert np.array_equal(np.asarray(stack.first.arrays["input_bias", "i"]), bias[5:10])


# Changed and damaged files ----------------------------------------------------------------------------------


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert text.count(old) >= 1, old
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [('direction="forward"', 'direction="reverse"'), ('linear_before_reset="true"', 'linear_before_reset="false"'),
     ('activations="sigmoid, tanh"', 'activations="sigmoid, relu"'), ('activations="sigmoid, tanh"', 'activations="sigmoid, hardsigmoid"'),
     ('clip="0"', 'clip="0.5"'), ('clip="0"', 'clip="x"'), ('hidden_size="5"', 'hidden_size="6"'), ('clip="0"', 'clip="0" mystery="1"'),
     ('activations_alpha=""', 'activations_alpha="0.3"'), ('type="GRUSequence"', 'type="AUGRUSequence"'),
     ('version="11"', 'version="7"'), ('element_type="f32" shape="1, 15, 3"', 'element_type="i32" shape="1, 15, 3"'),
     ('offset="48"', 'offset="56"'), ('shape="1, 15, 3"', 'shape="1, 15, 4"'), ('direction="forward"', 'direction="sideways"')],
)  # fmt: skip
def test_no_fact_is_dropped_in_silence(old: str, new: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.xml", of(GRU))
    (before,) = rc.load(path).layers.values()
    edited(path, old, new)
    try:
        checkpoint = rc.load(path)
    except UnreadableError:
        return
    if checkpoint.unread:
        return
    (after,) = checkpoint.layers.values()
    same = after.first.cell == before.first.cell and after.first.reverse == before.first.reverse and not after.unconvertible
    same = same and np.array_equal(np.asarray(after.first.arrays["input", "r"]), np.asarray(before.first.arrays["input", "r"]))
    assert not same


def test_an_unknown_attribute_refuses_a_conversion(tmp_path: Path) -> None:
    path = edited(file_of(tmp_path / "m.xml", of(GRU)), 'clip="0"', 'clip="0" mystery="1"')
    for write in (rc.convert, rc.export_model):
        with pytest.raises(RefusedError, match="mystery"):
            write(path, tmp_path / "a.onnx")


def test_weights_that_the_graph_computes_are_named(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.xml", of(LSTM))
    text = path.read_text()
    start = text.index('name="rnn/W"')
    path.write_text(text[:start] + text[start:].replace('type="Const"', 'type="ReadValue"', 1))
    checkpoint = rc.load(path)
    assert not checkpoint.layers and "computed by ReadValue" in checkpoint.unread[0]


@pytest.mark.parametrize(
    "text",
    ["", "<net", "<html/>", '<net version="11"/><net/>', "<net>" * 100, '<?xml version="1.0" encoding="x-none"?><net version="11"/>',
     '<!DOCTYPE net [<!ENTITY a "b">]><net version="11">&a;</net>', '<!DOCTYPE net SYSTEM "file:///etc/passwd"><net version="11"/>',
     '<net version="11"><layers><layer id="0"/><layer id="0"/></layers></net>',
     '<net version="11"><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>'],
)  # fmt: skip
def test_what_is_no_model_is_unreadable(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_text(text)
    with pytest.raises(UnreadableError):
        rc.load(tmp_path / "m.xml")


def test_a_model_without_its_numbers_is_unreadable(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.xml", of(LSTM))
    numbers = path.with_suffix(".bin").read_bytes()
    path.with_suffix(".bin").write_bytes(numbers[:-40])
    with pytest.raises(UnreadableError, match="checksum"):
        rc.load(path)
    path.write_text(re.sub(r' crc32="\w+"', "", path.read_text()))  # as OpenVINO itself writes it
    with pytest.raises(UnreadableError, match="has only"):
        rc.load(path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(UnreadableError, match=r"\.bin"):
        rc.load(path)


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.xml", of(GRU, 1, 2))
    ends = endings(path, letters=b'0123456789<>"/ -,abc\x00\xff')
    assert ends == {"read", "unreadable"}


def test_constants_of_float64_are_computed_in_it(tmp_path: Path) -> None:
    ov = needed("openvino", "openvino")
    from openvino import opset13 as op

    random = np.random.default_rng(3)
    shift = random.uniform(1e6, 2e6, (1, 20, 3))
    weights = random.normal(size=(1, 20, 3))
    stored = op.subtract(op.constant(weights + shift), op.constant(shift))  # of which float32 keeps no digit
    x = op.parameter([2, 6, 3], np.float32, name="x")
    state = op.constant(np.zeros((2, 1, 5), np.float32))
    lengths = op.constant(np.full(2, 6, np.int32))
    w, r, b = (op.convert(stored, "f32"), op.constant(np.zeros((1, 20, 5), np.float32)), op.constant(np.zeros((1, 20), np.float32)))
    layer = op.lstm_sequence(x, state, state, lengths, w, r, b, 5, "forward")
    ov.serialize(ov.Model([layer.output(0)], [x], "m"), str(tmp_path / "m.xml"))
    (stack,) = rc.load(tmp_path / "m.xml").layers.values()
    expected = ((weights + shift) - shift).astype(np.float32)[0]
    for number, gate in enumerate("figo"):  # OpenVINO's order: f, i, c, o
        np.testing.assert_array_equal(stack.first.get("input", gate), expected[number * 5 : number * 5 + 5])


@pytest.mark.parametrize("length", ["0", "1," * 99 + "1", "9" * 400, "-1", "x", ""], ids=lambda length: length[:8])
def test_a_shape_that_cannot_be_ends_in_an_error_of_ours(length: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.xml", of(LSTM))
    document = re.sub(r' crc32="\w+"', "", path.read_text())
    for pattern in (r'shape="[^"]*"', r"<dim>\d+</dim>", r'(?:size|offset)="\d+"'):
        for place in set(re.findall(pattern, document)):
            value = f"<dim>{length}</dim>" if place.startswith("<") else f'{place.partition("=")[0]}="{length}"'
            path.write_text(document.replace(place, value))
            with contextlib.suppress(rc.RnnConvertError):
                rc.load(path)
