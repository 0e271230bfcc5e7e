"""The Python interface: what a caller sees, and that nothing is imported that a file does not need."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.language import registry
from tests import ROOT
from tests.files.test_options import bits, onnx_run, x
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint, keras_lstm_h5, onnx_arrays, onnx_node, stack, uniform, write
from tests.helpers.stacks import BOTH

# Names ----------------------------------------------------------------------------------------------


def test_every_name_is_there_and_stays_what_it_is_once_its_module_is_imported() -> None:
    assert dir(rc) == rc.__all__ == sorted(set(rc.__all__))
    for module in ("files.convert", "rewrites", "verification.verify", "models.load", "core.cells", "core.errors"):
        importlib.import_module(f"rnnconvert.{module}")
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    for name in ("load", "save", "convert", "targets", "pack", "unpack", "from_torch", "to_keras", "join_stack"):
        assert callable(getattr(rc, name)), name
    with pytest.raises(AttributeError, match="nonsense"):
        rc.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_errors_are_value_errors_with_exit_codes() -> None:
    kinds = (rc.RnnConvertError, rc.UsageError, rc.UnreadableError, rc.RefusedError, rc.MissingPackageError)
    assert all(issubclass(kind, ValueError) and issubclass(kind, rc.RnnConvertError) for kind in kinds)
    assert [kind.exit_code for kind in kinds] == [70, 2, 3, 4, 5]


def test_reprs_say_what_a_thing_is(tmp_path: Path) -> None:
    encoder = stack("gru", num_layers=2, num_directions=2, name="encoder")
    assert repr(encoder) == ("<Recurrent 'encoder': GRU (reset after), 2 layers, bidirectional, 3 -> 4, two biases, float32>")
    assert repr(encoder[1, 0]) == "<Direction GRU (reset after), 8 -> 4, two biases, float32>"
    assert repr(encoder[0, 1].gates["z"]) == ("<Gate z: input(4, 3), recurrent(4, 4), input_bias(4,), recurrent_bias(4,)>")
    checkpoint = rc.load(write(tmp_path / "a.safetensors", encoder))
    assert repr(checkpoint) == f"<Checkpoint {tmp_path / 'a.safetensors'} (pytorch): 1 layer>"
    assert str(checkpoint).splitlines()[1].endswith("two biases, float32")


def test_gates_are_reached_by_their_letters() -> None:
    layer = stack("lstm", name="one")
    assert list(layer.gates) == ["i", "f", "g", "o"]
    np.testing.assert_array_equal(layer.gates["f"].recurrent, layer.first.get("recurrent", "f"))
    assert layer.gates["f"].peephole is None
    with pytest.raises(ValueError, match=r"stack\[0, 1\]"):
        stack("lstm", num_directions=2).gates  # noqa: B018


# Files ----------------------------------------------------------------------------------------------


def test_a_checkpoint_is_a_mapping_of_its_layers_and_a_stack_has_a_length() -> None:
    checkpoint = rc.load(ROOT / "examples" / "encoder.keras")
    assert isinstance(checkpoint, Mapping) and list(checkpoint) == [*checkpoint.layers] and len(checkpoint) == len(checkpoint.layers)
    assert checkpoint["encoder"] is checkpoint.layers["encoder"] and "encoder" in checkpoint and "absent" not in checkpoint
    assert dict(checkpoint.items()) == dict(checkpoint.layers) and checkpoint.get("absent") is None
    with pytest.raises(KeyError, match="Did you mean 'encoder'"):
        checkpoint["encodr"]
    assert checkpoint == checkpoint and checkpoint != rc.load(ROOT / "examples" / "encoder.keras") and len({checkpoint}) == 1
    stack = checkpoint["encoder"]
    assert len(stack) == stack.num_layers == 1 and [*stack] == [*stack.layers]
    with pytest.raises(rc.UsageError, match="not a Checkpoint"):
        rc.load(checkpoint)  # what a mapping of arrays may be, a checkpoint is not


def test_a_conversion_is_summed_up_as_a_document(tmp_path: Path) -> None:
    source = write(tmp_path / "a.safetensors", stack("rnn", name="encoder"), stack("gru", name="other"))
    seen: list[tuple[int, int]] = []
    summary = rc.convert(
        source, tmp_path / "b.onnx", layers=["encoder"], assume_defaults=True, progress=lambda done, total: seen.append((done, total))
    )
    assert (summary.source_format, summary.target_format, summary.written, summary.exact) == ("pytorch", "onnx", True, True)
    assert list(summary.layers) == ["encoder"]
    assert [question.option for question in summary.questions] == ["nonlinearity"]
    assert seen[-1][0] == seen[-1][1] == (4 * 3 + 4 * 4 + 8) * 4
    assert json.loads(json.dumps(summary.as_dict(), default=str))["exact"] is True


def test_a_checkpoint_can_be_changed_and_saved(tmp_path: Path) -> None:
    loaded = rc.load(write(tmp_path / "a.safetensors", stack(num_layers=2, name="a"), prefix="a"))
    parts = {part.name: part for part in rc.split_stack(loaded.layers["a"])}
    summary = rc.save(loaded.replace(layers=parts), tmp_path / "b.safetensors")
    assert list(summary.layers) == ["a_l0", "a_l1"]
    joined = rc.join_stack(list(rc.load(tmp_path / "b.safetensors").layers.values()), "a")
    assert bits(joined) == bits(loaded.layers["a"])


def test_other_tensors_are_carried_within_a_format_and_left_out_elsewhere(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    lstm = {f"rnn.{name}": array for name, array in dict_of(stack()).items()}
    dense = {"dense.weight": uniform(1, 2, 4), "dense.count": np.array(3, np.int64)}
    path = tmp_path / "a.safetensors"
    save_file({**lstm, **dense}, path)
    same = rc.convert(path, tmp_path / "b.safetensors")
    assert (same.carried, same.left_out) == (2, 0)
    for name, array in {**lstm, **dense}.items():
        np.testing.assert_array_equal(load_file(tmp_path / "b.safetensors")[name], array)
    other = rc.convert(path, tmp_path / "b.onnx")
    assert (other.carried, other.left_out) == (0, 2)


def dict_of(layer: rc.Recurrent) -> dict[str, Array]:
    packed = rc.pack(layer, "pytorch")
    assert isinstance(packed, dict)
    return packed


def test_verdicts_hold(tmp_path: Path) -> None:
    """What `targets` says of a layer is what a conversion does."""
    path = onnx_node(tmp_path / "a.onnx", "GRU", onnx_arrays("GRU"))
    for verdict in rc.targets(rc.load(path)):
        target = tmp_path / f"{verdict.target}{registry.endings(verdict.target)[0]}"
        if verdict.verdict == "refused":
            with pytest.raises(rc.RefusedError) as caught:
                rc.convert(path, target, target_format=verdict.target)
            assert str(caught.value) == verdict.detail
        else:
            assert rc.convert(path, target, target_format=verdict.target).exact == (verdict.verdict == "exact")


# Arrays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("name", ["pytorch", "keras", "onnx", "cudnn"])
def test_what_is_packed_is_unpacked(name: str, kind: str) -> None:
    parts = BOTH if (name, kind) != ("keras", "lstm") and (name, kind) != ("keras", "rnn") else BOTH - {"recurrent_bias"}
    layer = stack(kind, parts=parts, name="a")
    arrays = rc.pack(layer, name)
    if name == "cudnn":
        cell = "rnn_tanh" if kind == "rnn" else kind
        unpacked = rc.unpack(arrays, name, cell, "a", input_size=3, hidden_size=4)
    else:
        open_: dict[str, Any] = {"go_backwards": False} if name in ("keras", "onnx") else {}
        unpacked = rc.unpack(arrays, name, layer.cell, "a", **open_)
    assert bits(unpacked) == bits(layer)
    assert repr(unpacked) == repr(layer)


def test_packing_in_another_type_and_of_too_much() -> None:
    layer = stack("lstm", num_layers=2)
    assert dict_of(layer)["weight_hh_l1"].dtype == np.float32
    wide = rc.pack(layer, "cudnn", "float64")
    assert wide.dtype == np.float64
    with pytest.raises(rc.UsageError, match="split_stack"):
        rc.pack(layer, "keras")
    with pytest.raises(rc.UsageError, match="Unknown format 'caffe'"):
        rc.pack(layer, "caffe")
    with pytest.raises(rc.RefusedError):
        rc.pack(stack(parts=BOTH | {"peephole"}), "pytorch")


def test_arrays_that_do_not_go_together_are_wrong_usage() -> None:
    arrays = dict_of(stack("gru"))
    with pytest.raises(rc.UsageError, match="missing"):
        rc.unpack({name: array for name, array in arrays.items() if name != "weight_hh_l0"}, "pytorch")
    with pytest.raises(rc.UsageError, match="Unknown format 'caffe'"):
        rc.unpack(arrays, "caffe")
    with pytest.raises(rc.UsageError, match="Choose with"):
        rc.unpack({"kernel": uniform(1, 3, 12), "recurrent_kernel": uniform(1, 4, 12)}, "keras")
    with pytest.raises(rc.UsageError, match="cudnn"):
        rc.unpack(uniform(1, 10), "pytorch")
    with pytest.raises(rc.UsageError, match="numbers"):
        rc.unpack(uniform(1, 10), "cudnn", "lstm", input_size=3, hidden_size=4)
    with pytest.raises(rc.UsageError, match="Unknown cuDNN cell"):
        rc.unpack(uniform(1, 10), "cudnn", "mlp", input_size=3, hidden_size=4)


# Live objects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_torch_modules_come_and_go(kind: str, dtype: str) -> None:
    need("torch", "")
    import torch

    layer = stack(kind, num_layers=2, num_directions=2, dtype=BFLOAT16 if dtype == "bfloat16" else dtype, name="m")
    module = rc.to_torch(layer)
    assert type(module).__name__ == kind.upper() and next(module.parameters()).dtype == getattr(torch, dtype)
    assert bits(rc.from_torch(module, "m")) == bits(layer)
    if dtype == "float32":
        with torch.no_grad():
            y = module(torch.from_numpy(x()))[0].numpy()
        np.testing.assert_allclose(y, reference.run(layer, x()).y, rtol=0, atol=3e-6)


def test_torch_cells_and_other_modules() -> None:
    need("torch", "")
    import torch

    cell = rc.to_torch(stack("lstm"), module="cell")
    assert type(cell) is torch.nn.LSTMCell
    assert bits(rc.from_torch(cell)) == bits(stack("lstm"))
    projected = rc.to_torch(stack("lstm", parts=BOTH | {"projection"}, projection_size=2))
    assert projected.proj_size == 2
    relu = rc.from_torch(torch.nn.RNN(3, 4, nonlinearity="relu", bias=False))
    assert relu.cell.activation.name == "relu" and relu.first.biases == "none"
    assert rc.to_torch(relu).nonlinearity == "relu"
    with pytest.raises(rc.UsageError, match="Linear"):
        rc.from_torch(torch.nn.Linear(2, 2))
    with pytest.raises(rc.RefusedError, match="peepholes"):
        rc.to_torch(stack(parts=BOTH | {"peephole"}), own=False)
    with pytest.raises(rc.UsageError, match="split_stack"):
        rc.to_torch(stack(num_layers=2), module="cell")


def test_a_torch_module_is_not_copied() -> None:
    need("torch", "")
    import torch

    module = torch.nn.GRU(3, 4)
    layer = rc.from_torch(module)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] = 42.0
    assert layer.gates["r"].recurrent[0, 0] == 42.0


def test_keras_layers_come_and_go() -> None:
    need("keras", "")
    import keras

    with warnings.catch_warnings():
        # TensorFlow and Keras warn of their own future.
        warnings.simplefilter("ignore")
        for layer in (
            keras.layers.LSTM(4, return_sequences=True, name="a"),
            keras.layers.GRU(4, return_sequences=True, reset_after=False, name="a"),
            keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True), merge_mode="sum", name="a"),
        ):
            layer.build((None, None, 3))
            recurrent = rc.from_keras(layer)
            assert recurrent.name == "a"
            y = keras.ops.convert_to_numpy(layer(x().swapaxes(0, 1))).swapaxes(0, 1)
            np.testing.assert_allclose(y, reference.run(recurrent, x()).y, rtol=0, atol=3e-6)
            model = rc.to_keras(recurrent)
            again = keras.ops.convert_to_numpy(model(x().swapaxes(0, 1))).swapaxes(0, 1)
            np.testing.assert_array_equal(again, y)
        with pytest.raises(rc.UsageError, match="not built"):
            rc.from_keras(keras.layers.LSTM(4))
        dense = keras.layers.Dense(4)
        dense.build((None, 3))
        with pytest.raises(rc.UsageError, match="Dense"):
            rc.from_keras(dense)


def test_onnx_models_come_and_go(tmp_path: Path) -> None:
    need("onnxruntime", "")
    layer = stack("lstm", num_directions=2, parts=BOTH | {"peephole"}, name="a")
    model = rc.to_onnx(layer, opset=14)
    onnx.checker.check_model(model, full_check=True)
    (back,) = rc.from_onnx(model).values()
    assert bits(back) == bits(layer)
    onnx.save(model, tmp_path / "a.onnx")
    np.testing.assert_allclose(onnx_run(tmp_path / "a.onnx", {"x": x()})["y"], reference.run(layer, x()).y, rtol=0, atol=3e-6)
    (widened,) = rc.from_onnx(rc.to_onnx(layer, "float64")).values()
    assert widened.dtype == np.float64


def test_models_of_onnx_ir_come_and_go(tmp_path: Path) -> None:
    ir = needed("onnxruntime", "onnx_ir")
    layer = stack("gru", num_directions=2, name="a")
    model = rc.to_onnx(layer, ir=True)
    assert isinstance(model, ir.Model)
    (back,) = rc.from_onnx(model).values()
    assert bits(back) == bits(layer)
    # A model that was opened has its weights in a file beside it.
    ir.save(model, tmp_path / "a.onnx", external_data="a.data")
    opened = ir.load(tmp_path / "a.onnx")
    assert any(isinstance(value.const_value, ir.ExternalTensor) for value in opened.graph.initializers.values())
    (back,) = rc.from_onnx(opened).values()
    assert bits(back) == bits(layer)
    assert any(isinstance(value.const_value, ir.ExternalTensor) for value in opened.graph.initializers.values())


# Imports --------------------------------------------------------------------------------------------

CONVERT = textwrap.dedent(
    """
    import sys
    import rnnconvert as rc
    heavy = {"torch", "tensorflow", "keras", "jax", "onnxruntime"}
    assert not heavy & set(sys.modules) and not {"numpy", "onnx", "h5py"} & set(sys.modules), "at import"
    for target in sys.argv[2:]:
        summary = rc.convert(sys.argv[1], target, assume_defaults=True)
        rc.targets(rc.load(target))
        assert summary.written
    print(sorted(heavy & set(sys.modules)))
    """
)


def torch_files(folder: Path) -> dict[str, Path]:
    need("torch", "")
    import torch

    module = torch.nn.LSTM(3, 4)
    torch.save(module.state_dict(), folder / "zip.pt")
    torch.save(module.state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Sequential(module), folder / "whole.pt")
    with warnings.catch_warnings():
        # TorchScript is deprecated, and its files are still about.
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module), folder / "scripted.pt")
    return {path.name: path for path in folder.iterdir()}


WRITERS: dict[str, Any] = {
    "safetensors": lambda folder: write(folder / "a.safetensors"),
    "onnx": lambda folder: write(folder / "a.onnx"),
    "cudnn": lambda folder: write(folder / "a.bin"),
    "keras": lambda folder: write(folder / "a.keras"),
    "weights": lambda folder: write(folder / "a.weights.h5"),
    "flax": lambda folder: write(folder / "a.msgpack"),
    "haiku": lambda folder: write(folder / "a.npz", target_format="haiku"),
    "mxnet": lambda folder: write(folder / "a.params"),
    "legacy keras": lambda folder: keras_lstm_h5(folder / "a.h5", recurrent_activation="sigmoid"),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", [*WRITERS, "zip.pt", "legacy.pt", "whole.pt", "scripted.pt"])
def test_a_conversion_imports_no_framework(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    source = WRITERS[kind](folder) if kind in WRITERS else torch_files(folder)[kind]
    targets = [tmp_path / name for name in ("out.pt", "out.keras", "out.onnx", "out.bin", "out.h5", "out.msgpack", "out.params")]
    process = subprocess.run(
        [sys.executable, "-c", CONVERT, str(source), *map(str, targets)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout == "[]\n"
    assert all(path.is_file() for path in targets)


def test_a_checkpoint_made_in_memory_is_saved(tmp_path: Path) -> None:
    summary = rc.save(checkpoint(stack(name="a")), tmp_path / "out.onnx")
    assert summary.source == "(made)" and summary.source_format == "canonical"


def test_save_says_what_it_takes(tmp_path: Path) -> None:
    layer = rc.load("examples/encoder.keras").layers["summary"]
    with pytest.raises(rc.UsageError, match=r"is a Recurrent, expected a Checkpoint.*rnnconvert\.pack"):
        rc.save(layer, tmp_path / "out.pt")  # type: ignore[arg-type]


@pytest.mark.parametrize(("old", "name"), [("torch", "ForeignLSTM"), ("keras", "OwnRecurrent")])
def test_the_old_names_of_our_own_modules_stay_for_one_release(old: str, name: str) -> None:
    needed(old, old)
    sys.modules.pop(f"rnnconvert.modules.{old}", None)
    with pytest.warns(DeprecationWarning, match="the old name goes with the next release"):
        assert hasattr(importlib.import_module(f"rnnconvert.modules.{old}"), name)
