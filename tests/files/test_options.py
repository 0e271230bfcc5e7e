"""Options: what each decides, and element types through every pair of formats that holds them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

import rnnconvert as rc
from rnnconvert import convert
from rnnconvert.core import reference
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.cells import Cell, Clip, Kind
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests import ROOT
from tests.helpers import native_files
from tests.helpers.drawn import looped
from tests.helpers.requirements import need
from tests.helpers.sources import checkpoint, keras_lstm_h5, legacy_h5, onnx_arrays, onnx_node, sequential, stack, uniform, write
from tests.helpers.stacks import BOTH, random_stack

ENDINGS = {"pytorch": "out.pt", "keras": "out.keras", "onnx": "out.onnx", "cudnn": "out.bin", "mxnet": "out.params"}


def x(width: int = 3, dtype: Any = np.float32) -> Array:
    return np.asarray(uniform(5, 6, 2, width) * 3, dtype)


def only(path: Path | str, **options: Any) -> Recurrent:
    (layer,) = rc.load(path, **options).layers.values()
    return layer


def same(y: Array, layer: Recurrent) -> None:
    """The output is the reference's, up to single precision."""
    np.testing.assert_allclose(y, reference.run(layer, x()).y, rtol=0, atol=3e-6)


def onnx_run(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


# Element types --------------------------------------------------------------------------------------


def bits(recurrent: Recurrent) -> dict[Any, bytes]:
    """Every number of a stack, by its place."""
    return {
        (layer, number, *key): np.ascontiguousarray(np.asarray(source)).tobytes()
        for layer, number, direction in recurrent.directions()
        for key, source in direction.arrays.items()
    }


@looped(30, source=ENDINGS, target=ENDINGS, dtype=FLOATS)
def test_an_element_type_goes_through_every_pair_unchanged(source: str, target: str, dtype: str, tmp_path: Path) -> None:
    """A GRU with its reset gate after the product is every format's own: not a bit may differ."""
    layer = stack("gru", dtype=FLOATS[dtype], name="gru")
    first = write(tmp_path / f"first.{ENDINGS[source]}", layer)
    summary = convert(first, tmp_path / ENDINGS[target], strict=True)
    assert summary.exact
    read = only(tmp_path / ENDINGS[target])
    assert read.dtype.newbyteorder("=") == FLOATS[dtype]
    assert bits(read) == bits(layer)


@looped(30, target=ENDINGS, dtype=FLOATS, to=FLOATS)
def test_an_element_type_changes_where_it_is_asked_for(dtype: str, to: str, target: str, tmp_path: Path) -> None:
    layer = stack("gru", dtype=FLOATS[dtype], name="gru")
    path = tmp_path / ENDINGS[target]
    summary = rc.save(checkpoint(layer), path, dtype=to)
    read = only(path)
    assert read.dtype.newbyteorder("=") == FLOATS[to]
    expected = np.asarray(layer.first.get("recurrent", "z")).astype(FLOATS[to])
    np.testing.assert_array_equal(read.first.get("recurrent", "z"), expected)
    widened = np.can_cast(FLOATS[dtype], FLOATS[to], "safe")
    assert summary.exact == widened
    if not widened:
        with pytest.raises(rc.RefusedError, match="--strict"):
            rc.save(checkpoint(layer), path, dtype=to, strict=True, force=True)


# ONNX -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("opset", range(7, 23))
def test_every_opset_is_what_onnxruntime_runs(opset: int, kind: str, tmp_path: Path) -> None:
    need("onnxruntime", "")
    layer = stack(kind, num_layers=2, num_directions=2)
    path = write(tmp_path / "out.onnx", layer, opset=opset)
    model = onnx.load(path)
    assert [entry.version for entry in model.opset_import] == [opset]
    onnx.checker.check_model(model, full_check=True)
    same(onnx_run(path, {"x": x()})["y"], layer)


@pytest.mark.parametrize("opset", [6, 23, 0])
def test_other_opsets_are_wrong_usage(opset: int, tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="7 to 22"):
        write(tmp_path / "out.onnx", opset=opset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("layer", "options", "words"),
    [
        (stack("gru", dtype=FLOATS["bfloat16"]), {"opset": 21}, "opset=22"),
        (stack(parts=frozenset({"input", "recurrent", "initial_hidden"})), {"opset": 7}, "opset=8"),
    ],
)
def test_what_an_opset_lacks_is_refused_for_a_dry_run_too(layer: Recurrent, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    for dry in (False, True):
        with pytest.raises(rc.RefusedError, match=words):
            write(tmp_path / "out.onnx", layer, dry_run=dry, **options)
    assert list(tmp_path.iterdir()) == []


def test_lengths_of_sequences_are_an_input_where_they_are_asked_for(tmp_path: Path) -> None:
    need("onnxruntime", "")
    layer = stack("gru", num_directions=2)
    path = write(tmp_path / "out.onnx", layer, sequence_lens=True)
    lengths = np.array([4, 6])
    y = onnx_run(path, {"x": x(), "sequence_lens": lengths.astype(np.int32)})["y"]
    np.testing.assert_allclose(y, reference.run(layer, x(), lengths=lengths).y, rtol=0, atol=3e-6)
    plain = write(tmp_path / "plain.onnx", layer, sequence_lens=False)
    assert "sequence_lens" not in {value.name for value in onnx.load(plain).graph.input}


def test_external_data_lie_beside_the_model(tmp_path: Path) -> None:
    need("onnxruntime", "")
    layer = stack("lstm", hidden_size=16)
    path = write(tmp_path / "out.onnx", layer, external_data=True)
    (data,) = tmp_path.glob("out.onnx.*.data")
    assert data.stat().st_size > 4000
    same(onnx_run(path, {"x": x()})["y"], layer)
    assert bits(only(path)) == bits(layer)
    write(tmp_path / "inside.onnx", layer, external_data=False)
    assert not list(tmp_path.glob("inside.onnx.*"))


def test_input_forget_decides_which_gate_is_derived(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "in.onnx", "LSTM", onnx_arrays("LSTM"), input_forget=1)
    by_default, f, i = (only(path, **options).cell.coupled for options in ({}, {"input_forget": "f"}, {"input_forget": "i"}))
    assert (by_default, f, i) == ("f", "f", "i")
    assert [question.option for question in rc.load(path).questions] == ["input_forget"]
    assert rc.load(path, input_forget="i").questions == ()


def test_clips_are_dropped_where_the_caller_says_that_they_are_not_reached(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "in.onnx", "GRU", onnx_arrays("GRU"), linear_before_reset=1, clip=50.0)
    with pytest.raises(rc.RefusedError, match="clip=none"):
        convert(path, tmp_path / "out.pt")
    assert convert(path, tmp_path / "out.pt", clip="none").written


# Layers, stacks, directions -------------------------------------------------------------------------


def three(folder: Path) -> Path:
    layers = [stack("lstm", 1, name="a"), stack("lstm", 2, name="b", input_size=4), stack("gru", 3, name="c")]
    return write(folder / "three.safetensors", *layers, target_format="cudnn")


def test_layers_are_taken_by_name_and_in_that_order(tmp_path: Path) -> None:
    source = three(tmp_path)
    assert list(rc.load(source).layers) == ["a", "b", "c"]
    summary = convert(source, tmp_path / "out.onnx", layers=["c", "a"])
    assert list(summary.layers) == ["c", "a"]
    assert list(rc.load(tmp_path / "out.onnx").layers) == ["c", "a"]
    assert {value.name.partition("/")[0] for value in onnx.load(tmp_path / "out.onnx").graph.input} == {"a", "c"}
    with pytest.raises(rc.UsageError, match=r"'d'.*'a', 'b', 'c'"):
        convert(source, tmp_path / "none.onnx", layers=["d"])


def test_layers_that_read_one_another_are_joined(tmp_path: Path) -> None:
    need("torch", "")
    source = three(tmp_path)
    summary = convert(source, tmp_path / "out.pt", layers=["a", "b"], stack="join")
    assert any("num_layers=2" in line for line in summary.recipe)
    layers = rc.load(source).layers
    expected = reference.run(layers["b"], reference.run(layers["a"], x()).y).y
    np.testing.assert_allclose(native_files.run(summary, x()), expected, rtol=0, atol=3e-6)
    with pytest.raises(rc.UsageError, match="cannot be joined"):
        convert(source, tmp_path / "bad.pt", layers=["b", "a"], stack="join")
    with pytest.raises(rc.RefusedError, match="different kinds"):
        convert(three_of_kinds(tmp_path), tmp_path / "bad.pt", stack="join")


def three_of_kinds(folder: Path) -> Path:
    layers = [stack("lstm", 1, name="a"), stack("gru", 2, name="b", input_size=4)]
    return write(folder / "kinds.safetensors", *layers, target_format="cudnn")


def test_layers_of_two_kinds_are_joined_where_a_format_can(tmp_path: Path) -> None:
    need("onnxruntime", "")
    source = three_of_kinds(tmp_path)
    convert(source, tmp_path / "out.onnx", stack="join")
    layers = rc.load(source).layers
    expected = reference.run(layers["b"], reference.run(layers["a"], x()).y).y
    np.testing.assert_allclose(onnx_run(tmp_path / "out.onnx", {"x": x()})["y"], expected, rtol=0, atol=3e-6)


def test_a_learned_cell_state_behind_another_kind_of_layer_is_kept(tmp_path: Path) -> None:
    need("onnxruntime", "")
    lstm = stack("lstm", name="b", input_size=4, parts=BOTH | {"initial_cell"})
    gru = stack("gru", name="a")
    write(tmp_path / "out.onnx", gru, lstm, stack="join")
    expected = reference.run(lstm, reference.run(gru, x()).y).y
    np.testing.assert_allclose(onnx_run(tmp_path / "out.onnx", {"x": x()})["y"], expected, rtol=0, atol=3e-6)


def test_a_stack_is_split_into_layers(tmp_path: Path) -> None:
    deep = stack("gru", num_layers=3, num_directions=2, name="deep")
    write(tmp_path / "out.safetensors", deep, stack="split")
    layers = rc.load(tmp_path / "out.safetensors").layers
    assert list(layers) == ["deep_l0", "deep_l1", "deep_l2"]
    y = x()
    for layer in layers.values():
        y = reference.run(layer, y).y
    np.testing.assert_array_equal(y, reference.run(deep, x()).y)


def test_directions_are_split_into_two_layers(tmp_path: Path) -> None:
    layer = stack("lstm", num_directions=2, name="both")
    with pytest.raises(rc.RefusedError, match="reverse=flipped"):
        write(tmp_path / "out.safetensors", layer, directions="split")
    write(tmp_path / "out.safetensors", layer, directions="split", reverse="flipped")
    layers = rc.load(tmp_path / "out.safetensors").layers
    assert list(layers) == ["both_forward", "both_backward"]
    forward = reference.run(layers["both_forward"], x()).y
    backward = reference.run(layers["both_backward"], x()[::-1]).y[::-1]
    np.testing.assert_array_equal(np.concatenate([forward, backward], -1), reference.run(layer, x()).y)
    with pytest.raises(rc.UsageError, match="meet at every layer"):
        write(tmp_path / "deep.onnx", stack(num_layers=2, num_directions=2), directions="split")


# PyTorch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [("rnn", "RNNCell"), ("gru", "GRUCell"), ("lstm", "LSTMCell")])
def test_cells_load_into_torchs_cell_modules(kind: str, name: str, tmp_path: Path) -> None:
    need("torch", "")
    import torch

    layer = stack(kind)
    path = tmp_path / "out.pt"
    summary = rc.save(checkpoint(layer), path, module="cell")
    made_of: dict[str, Any] = {}
    exec("\n".join(summary.recipe), made_of)
    module = made_of["random"]
    assert type(module).__name__ == name
    state, steps = None, []
    with torch.no_grad():
        for step in torch.from_numpy(x()):
            state = module(step, state)
            steps.append((state[0] if isinstance(state, tuple) else state).numpy())
    same(np.stack(steps), layer)


def test_a_prefix_is_what_the_names_begin_with(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    for prefix in ("encoder.rnn", "encoder.rnn."):
        path = write(tmp_path / "out.safetensors", prefix=prefix, force=True)
        assert "encoder.rnn.weight_ih_l0" in load_file(path)
    two = [stack(name="a"), stack(name="b", seed=2)]
    path = write(tmp_path / "two.safetensors", *two, settings=["a:prefix=first", "b:prefix=second.part"])
    assert list(rc.load(path).layers) == ["first", "second.part"]
    with pytest.raises(rc.UsageError, match=r"LAYER:prefix"):
        write(tmp_path / "clash.safetensors", *two, prefix="same")


def test_a_setting_of_one_layer_is_that_layers_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "in.safetensors", stack("rnn", name="a"), stack("rnn", name="b", seed=2))
    layers = rc.load(path, settings=["b:nonlinearity=relu"]).layers
    assert [layer.cell.activation.name for layer in layers.values()] == ["tanh", "relu"]
    assert {layer.cell.activation.name for layer in rc.load(path, nonlinearity="relu").layers.values()} == {"relu"}


# cuDNN ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["double", "none", "single_inp", "single_rec"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_a_bias_mode_is_written_or_refused(kind: Kind, mode: Literal["double", "none", "single_inp", "single_rec"], tmp_path: Path) -> None:
    parts = frozenset({"input", "recurrent", *(["input_bias"] if mode.startswith("single") else [])})
    parts |= {"input_bias", "recurrent_bias"} if mode == "double" else set()
    layer = stack(kind, parts=parts)
    path = tmp_path / "out.bin"
    if mode == "single_rec":
        with pytest.raises(rc.RefusedError, match="bias_mode=double"):
            rc.save(checkpoint(layer), path, bias_mode=mode)
        return
    rc.save(checkpoint(layer), path, bias_mode=mode)
    described = json.loads(path.with_name("out.bin.json").read_text())["layers"][0]
    assert described["bias_mode"] == mode
    assert bits(only(path)) == bits(layer)


def test_a_single_recurrent_bias_of_a_gru_stays_inside_the_reset_product(tmp_path: Path) -> None:
    one_bias = stack("gru", parts=frozenset({"input", "recurrent", "recurrent_bias"}))
    path = write(tmp_path / "a.bin", one_bias, bias_mode="single_rec")
    assert bits(only(path)) == bits(one_bias)
    path.with_name("a.bin.json").unlink()
    sizes: dict[str, Any] = {"source_format": "cudnn", "cell": "gru", "input_size": 3, "hidden_size": 4, "bias_mode": "single_rec"}
    assert bits(only(path, **sizes)) == bits(one_bias)
    x = uniform(1, 5, 2, 3)
    expected = reference.run(one_bias, x).y
    for name in ("a.pt", "a.keras"):
        rc.save(checkpoint(one_bias), tmp_path / name)
        layer = only(tmp_path / name)
        rewritten, original = (np.asarray(encoder.first.arrays["recurrent_bias", "n"]) for encoder in (layer, one_bias))
        np.testing.assert_array_equal(rewritten, original)
        assert not np.any(np.asarray(layer.first.arrays["input_bias", "n"]))
        np.testing.assert_array_equal(reference.run(layer, x).y, expected)
    with pytest.raises(rc.RefusedError, match="candidate bias inside the reset product"):
        write(tmp_path / "b.bin", one_bias, bias_mode="single_inp")


def test_a_raw_buffer_is_read_by_the_sizes_that_are_said(tmp_path: Path) -> None:
    layers = stack("lstm", num_layers=2, num_directions=2, projection_size=2,
                 parts=frozenset({"input", "recurrent", "projection"}), dtype=np.float16)  # fmt: skip
    path = write(tmp_path / "raw.bin", layers, bias_mode="none")
    path.with_name("raw.bin.json").unlink()
    options: dict[str, Any] = {
        "cell": "lstm", "input_size": 3, "hidden_size": 4, "num_layers": 2, "bidirectional": True,
        "projection_size": 2, "bias_mode": "none", "dtype": "float16", "input_mode": "linear",
    }  # fmt: skip
    assert bits(only(path, source_format="cudnn", **options)) == bits(layers)
    with pytest.raises(rc.UnreadableError, match="numbers"):
        rc.load(path, "cudnn", **{**options, "hidden_size": 5})


def saved_buffer(folder: Path, ending: str, buffer: Array) -> Path:
    """One vector as people keep it: raw, by numpy.save, alone in an archive."""
    path = folder / f"buffer{ending}"
    if ending == ".bin":
        buffer.tofile(path)
    elif ending == ".npy":
        np.save(path, buffer)
    elif ending == ".npz":
        np.savez(path, buffer)
    else:
        save_file({"weights": buffer}, path)
    return path


@looped(12, number=range(40), ending=[".bin", ".npy", ".npz", ".safetensors"])
def test_the_length_of_a_buffer_gives_its_input_size_in_any_file(number: int, ending: str, tmp_path: Path) -> None:
    random = np.random.default_rng([*b"buffer", number])
    kind: Kind = ("lstm", "gru", "rnn")[number % 3]
    width, hidden, layers, directions = (int(random.integers(1, most)) for most in (9, 7, 4, 3))
    cell, reset_after = "rnn_tanh" if kind == "rnn" else kind, True if kind == "gru" else None
    layers_of = random_stack(Sizes(kind, width, hidden, layers, directions, 0, BOTH), number, np.float32, Cell(kind, reset_after))
    buffer = rc.pack(layers_of, "cudnn")
    path = saved_buffer(tmp_path, ending, buffer)
    sizes: dict[str, Any] = {"cell": cell, "hidden_size": hidden, "num_layers": layers, "bidirectional": directions == 2}
    assert bits(only(path, source_format="cudnn", **sizes)) == bits(layers_of)
    with pytest.raises((rc.UnreadableError, rc.UsageError), match="numbers"):
        rc.load(path, "cudnn", **sizes, input_size=width + 1)
    with pytest.raises(rc.UsageError, match="no input_size"):
        rc.load(path, "cudnn", **{**sizes, "hidden_size": 500})


def test_sizes_that_a_buffer_may_have_are_listed(tmp_path: Path) -> None:
    buffer = rc.pack(random_stack(Sizes("lstm", 50, 4, 1, 1, 0, BOTH), 1, np.float32), "cudnn")
    path = saved_buffer(tmp_path, ".npy", buffer)
    with pytest.raises(
        rc.UsageError, match=r"fit several sizes: input_size=50, num_layers=1, bidirectional=false; .*--set input_size="
    ) as error:
        rc.load(path, "cudnn", cell="lstm", hidden_size=4)
    assert "num_layers=2" in str(error.value)


def test_an_archive_of_several_arrays_is_no_buffer(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(40, np.float32), b=np.zeros(3, np.float32))
    with pytest.raises(rc.UnreadableError, match="one vector of floating-point numbers, but it has 2 arrays"):
        rc.load(tmp_path / "two.npz", "cudnn", cell="lstm", hidden_size=2)


# Keras ----------------------------------------------------------------------------------------------


def test_a_keras_model_gives_its_final_states_where_they_are_asked_for(tmp_path: Path) -> None:
    need("keras", "")
    import keras

    layer = stack("lstm")
    path = write(tmp_path / "out.keras", layer, return_state=True)
    with warnings.catch_warnings():
        # TensorFlow and Keras warn of their own future.
        warnings.simplefilter("ignore")
        model = keras.models.load_model(path, compile=False)
        results = [np.asarray(keras.ops.convert_to_numpy(value)) for value in model(x().swapaxes(0, 1))]
    expected = reference.run(layer, x())
    np.testing.assert_allclose(results[0].swapaxes(0, 1), expected.y, rtol=0, atol=3e-6)
    np.testing.assert_allclose(results[1], expected.hidden[0], rtol=0, atol=3e-6)
    np.testing.assert_allclose(results[2], expected.cell[0], rtol=0, atol=3e-6)


def bare(folder: Path, *arrays: tuple[str, tuple[int, ...]]) -> Path:
    """Keras weights without a configuration."""
    pairs = [(f"layer/{name}:0", uniform(number, *shape)) for number, (name, shape) in enumerate(arrays)]
    return legacy_h5(folder / "weights.h5", {"layer": pairs}, None, "2.3.1")


LSTM_ARRAYS = (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)), ("bias", (16,)))


def test_weights_without_a_configuration_ask_for_what_they_do_not_say(tmp_path: Path) -> None:
    path = bare(tmp_path, *LSTM_ARRAYS)
    asked = {question.option for question in rc.load(path).questions}
    assert {"activation", "recurrent_activation"} <= asked
    cell = only(path, activation="relu", recurrent_activation="hard_sigmoid").cell
    assert (str(cell.activation), str(cell.gate_activation)) == ("relu", "hard_sigmoid(0.2, 0.5)")
    assert str(only(path, recurrent_activation="hard_sigmoid", hard_sigmoid="keras3!").cell.gate_activation).startswith(
        "hard_sigmoid(0.1666"
    )
    assert only(path, go_backwards=True).first.reverse and not only(path).first.reverse


def test_the_reset_gate_of_a_gru_without_biases_must_be_said(tmp_path: Path) -> None:
    path = bare(tmp_path, ("kernel", (3, 12)), ("recurrent_kernel", (4, 12)))
    assert [only(path, reset_after=value).cell.reset_after for value in (True, False)] == [True, False]
    assert "reset_after" in {question.option for question in rc.load(path).questions}


def test_the_merge_mode_of_bare_directions_must_be_said(tmp_path: Path) -> None:
    pairs = [
        (f"both/{way}_lstm/{name}:0", uniform(number, *shape))
        for way in ("forward", "backward")
        for number, (name, shape) in enumerate(LSTM_ARRAYS)
    ]
    path = legacy_h5(tmp_path / "weights.h5", {"both": pairs}, None, "2.3.1")
    assert "merge_mode" in {question.option for question in rc.load(path).questions}
    assert only(path, merge_mode="ave").layers[-1].merge == "ave"


def test_the_era_of_a_hard_sigmoid_can_be_said(tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "model.h5", recurrent_activation="hard_sigmoid")
    assert str(only(path).cell.gate_activation) == "hard_sigmoid(0.2, 0.5)"
    assert only(path, hard_sigmoid="keras3!").cell.gate_activation.alpha == pytest.approx(1 / 6)


# What the caller takes over -------------------------------------------------------------------------


def test_what_the_caller_takes_over_is_left_to_it(tmp_path: Path) -> None:
    backwards = sequential(("LSTM", {"name": "lstm", "units": 4, "go_backwards": True}))
    pairs = [(f"lstm/{name}:0", uniform(number, *shape)) for number, (name, shape) in enumerate(LSTM_ARRAYS)]
    path = legacy_h5(tmp_path / "back.h5", {"lstm": pairs}, backwards, "2.3.1")
    with pytest.raises(rc.RefusedError, match="output_order=time"):
        convert(path, tmp_path / "out.pt")
    summary = convert(path, tmp_path / "out.pt", output_order="time")
    np.testing.assert_allclose(reference.run(only(tmp_path / "out.pt"), x()[::-1]).y, reference.run(only(path), x()).y, rtol=0, atol=1e-6)
    assert any("left to the caller" in step.detail for step in summary.steps)
    summed = stack("lstm", num_directions=2)
    summed = summed.replace(layers=(rc.Layer(summed.layers[0].directions, "sum"),))
    with pytest.raises(rc.RefusedError, match="merge=concat"):
        write(tmp_path / "sum.pt", summed)
    write(tmp_path / "sum.pt", summed, merge="concat")
    halves = reference.run(only(tmp_path / "sum.pt"), x()).y
    np.testing.assert_allclose(halves[..., :4] + halves[..., 4:], reference.run(summed, x()).y, rtol=1e-12)


def test_every_option_is_tested() -> None:
    text = Path(__file__).read_text() + (ROOT / "tests" / "rewrites" / "test_rewrites.py").read_text()
    text += "".join(
        (ROOT / "tests" / name).read_text()
        for name in (
            "formats/test_hard_set.py",
            "files/test_array_files.py",
            "formats/tensorflow1/test_tensorflow1_files.py",
            "formats/julia/test_julia_files.py",
            "formats/paddle/test_fluid_files.py",
            "files/test_positional.py",
            "formats/c_header/test_c_header_files.py",
            "files/test_questions.py",
            "formats/keras/test_keras_architecture.py",
            "formats/rtneural/test_stream_files.py",
            "formats/ncnn/test_whole_ncnn.py",
        )
    )
    assert [name for name in OPTIONS if f"{name}=" not in text and f'"{name}"' not in text] == []


def test_a_clip_is_left_out_for_the_layer_named_and_said_so(tmp_path: Path) -> None:
    clipped = Cell("lstm", clips=(Clip("gates", -0.5, 0.5),))
    stacks = {name: random_stack(Sizes("lstm", 3, 4), 0, np.float32, clipped).replace(name=name) for name in ("a", "b")}
    rc.save(Checkpoint("(in memory)", "canonical", stacks), tmp_path / "clipped.onnx")
    loaded = rc.load(tmp_path / "clipped.onnx", settings=["a:clip=none"])
    assert [bool(stack.cell.clips) for stack in loaded.layers.values()] == [False, True]
    assert loaded.warnings == ("a: its clip is left out, as asked",)
