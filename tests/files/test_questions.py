"""What a caller decides: used where a file leaves it open, and refused where nothing asks or the file says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import rnnconvert as rc
from rnnconvert.core.errors import MissingFileError, UndecidedError
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Sizes
from tests.helpers.drawn import looped
from tests.helpers.sources import stack
from tests.helpers.stacks import random_stack

# A value for each option that decides a fact of a source.
READING = {
    "nonlinearity": "relu", "activation": "relu", "forget_bias": "0", "cell_clip": "3", "proj_clip": "3",
    "recurrent_activation": "hard_sigmoid", "output_activation": "relu", "reset_after": "true", "merge_mode": "sum",
    "go_backwards": "true", "hard_sigmoid": "keras2", "input_forget": "i", "cell": "gru", "input_size": "5",
    "hidden_size": "5", "num_layers": "2", "bidirectional": "true", "bias_mode": "none",
    "projection_size": "2", "input_mode": "skip", "dtype": "float16", "layout": "keras.lstm", "init_state": "ones",
    "arrays": "lstm@0", "release": "0.1", "fc": "fc_0", "origin_mode": "true", "clip": "none", "unaccounted": "harmless",
    "input_scale": "0.5", "reparametrised": "weight_norm", "config": "model.json",
}  # fmt: skip


def lstm(path: Path) -> Path:
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"a": stack("lstm", name="a")}), path, prefix="a")
    return path


def test_every_option_of_a_source_is_tried() -> None:
    assert sorted(READING) == sorted(name for name, option in OPTIONS.items() if option.side != "write")


@looped(40, suffix=[".pt", ".safetensors", ".onnx", ".keras", ".params"], option=READING)
def test_an_option_that_nothing_asks_for_is_an_error(suffix: str, option: str, tmp_path: Path) -> None:
    path = lstm(tmp_path / f"m{suffix}") if suffix in (".pt", ".safetensors", ".params") else tmp_path / f"m{suffix}"
    if not path.exists():
        rc.save(rc.Checkpoint("(in memory)", "canonical", {"a": stack("lstm", name="a")}), path)
    target = tmp_path / "out.npz"
    # A Keras file's own kind looks for the other file first.
    with pytest.raises((rc.UsageError, MissingFileError), match=r"decides nothing|contradicts|model\.json: No such file"):
        rc.convert(path, target, target_format="flax", settings=[f"{option}={READING[option]}"])
    assert not target.exists()


@pytest.mark.parametrize(
    ("setting", "suffix"),
    [("opset=14", ".pt"), ("module=cell", ".onnx"), ("merge=concat", ".pt"), ("initial_state=call", ".pt"),
     ("reverse=flipped", ".onnx"), ("return_state=true", ".safetensors"), ("prefix=x", ".onnx"), ("layout=flux.lstm", ".pt")],
)  # fmt: skip
def test_an_option_of_a_target_that_nothing_asks_for_is_an_error(setting: str, suffix: str, tmp_path: Path) -> None:
    source = lstm(tmp_path / "source.safetensors")
    target = tmp_path / f"m{suffix}"
    with pytest.raises(rc.UsageError, match="decides nothing"):
        rc.convert(source, target, settings=[setting])
    assert not target.exists()


def test_a_setting_for_a_layer_that_does_not_ask_names_the_layer_that_does(tmp_path: Path) -> None:
    layers = {"a": stack("rnn", name="a"), "b": stack("lstm", name="b")}
    rc.save(rc.Checkpoint("(in memory)", "canonical", layers), path := tmp_path / "m.pt")
    assert rc.load(path, settings=["nonlinearity=relu"]).layers["a"].cell.activation.name == "relu"
    with pytest.raises(rc.UsageError, match="It would decide something about 'a'"):
        rc.load(path, settings=["b:nonlinearity=relu"])


def test_what_contradicts_a_file_must_be_insisted_on() -> None:
    options = Options(settings=["activation=relu"])
    with pytest.raises(rc.UsageError, match=r"contradicts its configuration, which states tanh for a.*activation=relu!"):
        options.stated("activation", "a", "tanh", "its configuration")
    options = Options(settings=["activation=relu!"])
    assert options.stated("activation", "a", "tanh", "its configuration") == "relu"
    assert options.ledger.notes == ["a: activation=relu was taken as you insist; its configuration states tanh"]
    options = Options(settings=["forget_bias=1"])
    assert options.stated("forget_bias", "a", "1.0", "the graph") == "1.0" and not options.ledger.unused() and not options.ledger.notes
    options = Options(settings=["forget_bias=0.7", "hidden_size=16777217"])  # 0.7 in single precision, and no length
    assert options.stated("forget_bias", "a", "0.699999988", "the graph") == "0.699999988"
    with pytest.raises(rc.UsageError, match="contradicts"):
        options.stated("hidden_size", "a", "16777216", "the file")


def test_strict_refuses_while_a_question_is_open(tmp_path: Path) -> None:
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"": stack("rnn")}), path := tmp_path / "m.pt")
    with pytest.raises(rc.RefusedError, match="nonlinearity"):
        rc.convert(path, tmp_path / "m.onnx", strict=True)
    assert not (tmp_path / "m.onnx").exists()
    assert rc.convert(path, tmp_path / "m.onnx", strict=True, settings=["nonlinearity=tanh"]).exact


def test_a_setting_for_two_files_has_to_decide_something_in_one(tmp_path: Path) -> None:
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"": stack("rnn")}), a := tmp_path / "a.pt")
    rc.convert(a, b := tmp_path / "b.onnx", settings=["nonlinearity=relu"])
    from rnnconvert.files.load import load_pair

    first, second = load_pair((a, b), settings=["nonlinearity=relu"])
    assert first.layers[""].cell == next(iter(second.layers.values())).cell
    with pytest.raises(rc.UsageError, match=r"decides nothing in .*b\.onnx"):
        load_pair((a, b), own_settings=((), ["nonlinearity=relu"]))
    with pytest.raises(rc.UsageError, match=r"cell_clip=3 decides nothing"):
        load_pair((a, b), settings=["cell_clip=3"])


def test_a_vector_that_nothing_describes_asks_for_all_it_lacks(tmp_path: Path) -> None:
    np.arange(4 * (3 * 5 + 5 * 5 + 10), dtype=np.float32).tofile(path := tmp_path / "v.bin")
    options: dict[str, Any] = {"cell": "lstm", "hidden_size": 5, "input_size": 3}
    asked = {question.option: question.assumed for question in rc.load(path, "cudnn", **options).questions}
    assert asked == {
        "num_layers": "1", "bidirectional": "false", "bias_mode": "double", "input_mode": "linear",
        "dtype": "float32", "projection_size": "0",
    }  # fmt: skip


def test_what_nothing_accounts_for_refuses_a_conversion_until_the_caller_says_that_it_is_harmless(tmp_path: Path) -> None:
    import torch

    class Gated(torch.nn.LSTM):
        """A module that only looks like torch's own."""

    module = torch.nn.ModuleDict({"lstm": Gated(3, 4)})
    module["lstm"].register_buffer("alpha", torch.ones(4))
    torch.save(module.state_dict(), path := tmp_path / "m.pt")
    assert "lstm.alpha" in rc.load(path).layers["lstm"].describe()
    with pytest.raises(rc.RefusedError, match=r"'lstm\.alpha' of its module.*--set unaccounted=harmless"):
        rc.convert(path, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    assert rc.convert(path, tmp_path / "m.onnx", settings=["lstm:unaccounted=harmless"]).exact
    assert not rc.load(path, unaccounted="harmless").layers["lstm"].unconvertible


def test_sizes_that_no_buffer_has_are_refused() -> None:
    with pytest.raises(rc.UsageError, match="skip_input"):
        rc.unpack(np.zeros(4 * (3 * 5 + 5 * 5 + 10), np.float32), "cudnn", "lstm", input_size=3, hidden_size=5, skip_input=False)


def test_arrays_in_memory_do_not_say_their_functions() -> None:
    arrays = rc.pack(random_stack(Sizes("rnn", 3, 4), 1), "pytorch")
    with pytest.warns(rc.AssumptionWarning, match=r"nonlinearity=tanh is assumed; the arrays of torch.nn.RNN do not show its function"):
        assert rc.unpack(arrays, "pytorch").cell.activation.name == "tanh"
    relu = rc.Cell("rnn", activation=rc.Activation("relu"))
    assert rc.unpack(arrays, "pytorch", relu).cell.activation.name == "relu"


@looped(24, scope=["words", "chars/0", ""], word=["backward", "backwards", "bw", "bwd", "reverse", "Reversed"], kind=["tutorials", "keras"])
def test_a_layer_whose_name_says_that_it_reads_from_the_end_is_asked_for(scope: str, word: str, kind: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    back = f"{scope}_{word}" if scope else word
    if kind == "tutorials":
        shapes, path = {"W": (3, 20), "U": (5, 20), "b": (20,)}, tmp_path / "w.npz"
    else:
        shapes, path = {"kernel": (3, 20), "recurrent_kernel": (5, 20), "bias": (20,)}, tmp_path / "w.safetensors"
    joint = "_" if kind == "tutorials" else "/"
    arrays: dict[str, Any] = {
        f"{layer}{joint}{part}": draw.normal(size=shape).astype("f") for layer in (back, "ahead") for part, shape in shapes.items()
    }
    if kind == "tutorials":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    functions = [] if kind == "tutorials" else ["activation=tanh", "recurrent_activation=sigmoid"]
    (named,) = [name for name in rc.load(path, settings=functions).layers if name != "ahead"]
    with pytest.raises(UndecidedError, match=f"{named}:go_backwards=") as refused:
        rc.convert(path, tmp_path / "w.onnx", settings=functions)
    assert "of ahead" not in str(refused.value)
    rc.convert(path, tmp_path / "w.onnx", settings=[*functions, f"{named}:go_backwards=true"])
    ways = {name: layer.first.reverse for name, layer in rc.load(tmp_path / "w.onnx").layers.items()}
    assert sorted(ways.values()) == [False, True] and ways["ahead"] is False


def test_a_name_that_only_holds_such_letters_is_not_asked_for(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        f"bwdata_{part}": np.ones(shape, np.float32) for part, shape in {"W": (3, 20), "U": (5, 20), "b": (20,)}.items()
    }
    np.savez(path := tmp_path / "w.npz", **arrays)
    assert rc.convert(path, tmp_path / "w.onnx").exact
