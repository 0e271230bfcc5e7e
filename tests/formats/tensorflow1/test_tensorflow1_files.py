"""TensorFlow 1's checkpoints and graphs: what TensorFlow wrote, what it makes of what we write, names, and damage."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import graph_def, npz_file, sorted_table, tensor_bundle, wire
from rnnconvert.containers.crc32c import crc32c
from rnnconvert.core import reference
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.cells import Activation, Clip
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.tensorflow1.names import modern, wrappers
from rnnconvert.running import registry
from rnnconvert.verification.verify import verify
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.damage import unreadable
from tests.helpers.drawn import drawn
from tests.helpers.frameworks import found_by, tensorflow1
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint, stack, uniform, write
from tests.helpers.stacks import PLAIN
from tests.helpers.workers import running

GOLDEN = ROOT / "tests" / "golden" / "tensorflow1"
ANSWERS = np.load(GOLDEN / "answers.npz")
CELLS = GOLDEN / "cells.index"
SETTINGS = (
    "basic_lstm/rnn:forget_bias=0.5", "lstm/rnn:cell_clip=0.4", "lstm/rnn:proj_clip=0.3", "relu_lstm/rnn:activation=relu",
    "lstm_block/rnn:cell_clip=0.3", "fused:forget_bias=0.25", "coupled/rnn:forget_bias=0.5", "coupled/rnn:proj_clip=0.3",
)  # fmt: skip
"""What the graph of these files would have said."""
NAMES = (
    "basic_rnn/rnn", "basic_lstm/rnn", "lstm/rnn", "relu_lstm/rnn", "lstm_block/rnn", "gru/rnn", "gru_block/rnn",
    "gru_block_v2/rnn", "coupled/rnn", "cudnn_lstm/rnn", "cudnn_gru/rnn", "multi/rnn/multi_rnn_cell", "fused", "partitioned/rnn",
    "two/bidirectional_rnn", "deep/bidirectional_rnn", "stacked/stack_bidirectional_rnn",
)  # fmt: skip
PEEPHOLES = PLAIN | {"input_bias", "peephole"}


@pytest.fixture(scope="module")
def cells() -> Mapping[str, Recurrent]:
    return rc.load(CELLS, settings=SETTINGS).layers


def trained(folder: Path) -> Path:
    """The checkpoint with its graph beside it."""
    for name in ("trained.index", "trained.data-00000-of-00001"):
        shutil.copy(GOLDEN / name, folder)
    (folder / "trained.meta").write_bytes(gzip.decompress((GOLDEN / "trained.meta.gz").read_bytes()))
    return folder / "trained.index"


def by_tensorflow(folder: Path, script: str) -> dict[str, Array]:
    """What a script under TensorFlow 1's own Python leaves in `found`: arrays by name."""
    # TensorFlow 2 sets this where it is imported, and its loops have other graphs.
    environment = {name: value for name, value in os.environ.items() if name != "TF2_BEHAVIOR"}
    return found_by("tensorflow1", f"import tensorflow as tf\n{script}", folder, "tensorflow", **environment)


# What TensorFlow wrote ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_tensorflows_cells_give_what_tensorflow_gave(name: str, cells: Mapping[str, Recurrent]) -> None:
    y = reference.run(cells[name], ANSWERS["x"]).y
    np.testing.assert_allclose(y, ANSWERS[name.partition("/")[0]], rtol=0, atol=5e-7)


def test_a_stack_of_several_kinds_gives_what_tensorflow_gave() -> None:
    name = "mixed/rnn/multi_rnn_cell"
    recurrent = rc.load(CELLS, settings=[f"{name}:forget_bias=0.0"]).layers[name]
    assert [layer.directions[0].cell.kind for layer in recurrent.layers] == ["gru", "lstm"]
    np.testing.assert_allclose(reference.run(recurrent, ANSWERS["x"]).y, ANSWERS["mixed"], rtol=0, atol=5e-7)


def test_where_directions_meet_is_in_the_names(cells: Mapping[str, Recurrent]) -> None:
    joins = {name: cells[name].join for name in NAMES if cells[name].num_layers > 1 and cells[name].num_directions > 1}
    assert joins == {"deep/bidirectional_rnn": "end", "stacked/stack_bidirectional_rnn": "layer"}


def test_what_only_the_graph_says_is_told() -> None:
    loaded = rc.load(CELLS)
    assumed = {(entry.layer, entry.option): entry.assumed for entry in loaded.questions}
    assert assumed["lstm/rnn", "forget_bias"] == "1.0" and assumed["lstm/rnn", "proj_clip"] == "none"
    assert assumed["gru/rnn", "activation"] == "tanh"
    # The classes that cuDNN's layers are saved as, and the block cells, have no such arguments.
    assert {option for layer, option in assumed if layer in ("cudnn_gru/rnn", "cudnn_lstm/rnn", "gru_block/rnn")} <= {"cell_clip"}
    assert loaded.layers["cudnn_lstm/rnn"].cell.constants == {"f": 0.0}
    stacks = [name for name, stack in loaded.layers.items() if stack.num_layers > 1]
    assert [text.partition(": its layers are read as a plain stack")[0] for text in loaded.warnings] == stacks and not loaded.tensors
    answered = rc.load(CELLS, forget_bias=0.5, activation="relu", cell_clip="none", proj_clip="none")
    assert not answered.questions and answered.layers["deep/bidirectional_rnn"][1, 1].cell.constants == {"f": 0.5}


def test_a_graph_says_what_its_cells_compute(tmp_path: Path) -> None:
    loaded = rc.load(trained(tmp_path))
    assert loaded.questions == () and loaded.warnings == ()
    first, second = (layer.directions[0].cell for layer in loaded.layers["rnn/multi_rnn_cell"].layers)
    bounds = [(clip.kind, round(clip.high, 6)) for clip in first.clips]
    assert first.constants == {"f": 0.5} and bounds == [("cell", 0.4), ("projection", 0.3)]
    assert second.constants == {"f": 2.0} and second.clips == (Clip("cell", -0.5, 0.5),)
    assert loaded.layers["linear/rnn"].cell.activation == Activation("softsign")
    # What the optimizer keeps beside each variable is no cell's.
    assert sum("/Adam" in name for name in loaded.tensors) == 20


def test_a_frozen_graph_gives_what_tensorflow_gave() -> None:
    loaded = rc.load(GOLDEN / "frozen.pb")
    assert loaded.questions == () and list(loaded.layers) == ["rnn"]
    np.testing.assert_allclose(reference.run(loaded.layers["rnn"], ANSWERS["x"]).y, ANSWERS["frozen"], rtol=0, atol=5e-7)


def test_loops_of_a_frozen_graph_give_what_keras_gave() -> None:
    for name in ("gru_while", "stack_frames"):
        loaded = rc.load(GOLDEN.parent / "frozen" / f"{name}.pb")
        assert not loaded.unread and not loaded.tensors
        with np.load(GOLDEN.parent / "frozen" / f"{name}.npz") as stored:
            x, truth = stored["x"].swapaxes(0, 1), stored["y"]
        for layer in loaded.layers.values():
            result = reference.run(layer, x)
            x = result.y
        y = x.swapaxes(0, 1) if truth.ndim == 3 else result.hidden[0]
        np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-6)
    masked = rc.load(GOLDEN.parent / "frozen" / "masked_while.pb")
    with np.load(GOLDEN.parent / "frozen" / "masked_while.npz") as stored:
        result = reference.run(masked.layers["sequential_2_1/simple_rnn_1"], stored["x"].swapaxes(0, 1))
        np.testing.assert_allclose(result.hidden[0], stored["y"], rtol=1e-5, atol=1e-6)
    assert not masked.unread and "pass the lengths" in masked.warnings[0]


def test_a_frozen_classifier_gives_what_tensorflow_gave() -> None:
    need("corpus", corpus.absent())
    path = corpus.FOLDER / "tf2onnx-fixtures" / "lstm_frozen.pb"
    loaded = rc.load(path)
    assert loaded.questions == () and loaded.layers["rnn"].cell.constants == {"f": 1.0}
    with np.load(path.with_name("lstm_frozen.ref.npz")) as stored:
        x = stored["in__X:0"].reshape(-1, 28, 28).swapaxes(0, 1)
        h = reference.run(loaded.layers["rnn"], x).y[-1]
        y = h @ loaded.tensors["model/w1"] + loaded.tensors["model/b1"]
        np.testing.assert_allclose(y, stored["out__output:0"], rtol=0, atol=1e-5)


def test_a_keras_checkpoint_is_still_keras() -> None:
    assert wrappers(["lstm/lstm_cell/kernel", "lstm/lstm_cell/recurrent_kernel", "lstm/lstm_cell/bias"]) == []


# The framework itself -------------------------------------------------------------------------------------


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["tensorflow1-cpu", "tensorflow1-block"])
def test_a_checkpoint_is_verified_by_tensorflow_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = tensorflow1(name)
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), name: executor})
    # The coupled cell is written out as LSTMCell, as today's code has it.
    layers = drawn([scope for scope in NAMES if scope != "coupled/rnn"], 4, name)
    report = verify(CELLS, on=[name], layers=layers, settings=SETTINGS)
    assert report.equal, str(report)
    assert all(run["own_file"] for layer in report.document["layers"] for run in layer["runs"])


@pytest.mark.parametrize("name", ["lstm/rnn", "fused"])
@pytest.mark.parametrize("state", ["hidden", "cell"])
def test_the_state_that_an_lstm_is_not_given_is_zero(state: str, name: str, cells: Mapping[str, Recurrent]) -> None:
    layer, rng = cells[name], np.random.default_rng(3)
    how = {"forget_bias": [0.0], "activation": ["tanh"], "cell_clip": [None], "proj_clip": [None]}
    widths = {"hidden": layer.first.output_size, "cell": layer.first.hidden_size}
    states = {part: [rng.normal(size=(2, width)).astype(np.float32)] for part, width in widths.items()}
    other = {part: [np.zeros_like(states[part][0])] for part in states if part != state}
    asked = {"file": str(CELLS), "layers": [name], "how": how, "x": rng.normal(size=(4, 2, layer.input_size)).astype(np.float32)}
    with running(tensorflow1()) as process:
        answers = [process.ask(**asked, lengths=None, **{**states, **others})["y"] for others in (dict.fromkeys(other), other, {})]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert np.abs(answers[2] - answers[0]).max() > 1e-4


def test_tensorflow_2_beside_it_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = tensorflow1()
    monkeypatch.setenv("TF2_BEHAVIOR", "1")  # as TensorFlow 2 sets it when it is imported
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "tensorflow1-cpu": executor})
    report = verify(CELLS, on=["tensorflow1-cpu"], layers=["cudnn_gru/rnn"])
    assert report.equal and report.document["layers"][0]["runs"][0]["own_file"], str(report)


RAW = ("basic_lstm/rnn", "lstm_block/rnn", "gru/rnn", "gru_block/rnn", "gru_block_v2/rnn", "cudnn_lstm/rnn", "fused",
       "multi/rnn/multi_rnn_cell", "partitioned/rnn", "two/bidirectional_rnn", "deep/bidirectional_rnn",
       "stacked/stack_bidirectional_rnn")  # fmt: skip
"""The layers that are made of operations which the TensorFlow of today has."""


def test_a_checkpoint_is_verified_by_todays_operations() -> None:
    need("keras", registry.built_in()["tensorflow2-raw"].absent)
    report = verify(CELLS, on=["tensorflow2-raw"], layers=drawn(RAW, 5, "raw"), settings=SETTINGS)
    assert report.equal, str(report)
    assert all(run["own_file"] for layer in report.document["layers"] for run in layer["runs"])


def test_the_real_file_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    need("corpus", corpus.absent())
    executor = tensorflow1()
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "tensorflow1-cpu": executor})
    path = corpus.FOLDER / "tf-char-rnn-shakespeare" / "best_model" / "model-85340.index"
    report = verify(path, on=["tensorflow1-cpu"], settings=["forget_bias=0.0"])
    assert report.equal, str(report)
    assert report.document["layers"][0]["runs"][0]["own_file"]


FORMS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn"}, "gru": {"kind": "gru"}, "lstm": {}, "stack": {"num_layers": 3},
    "two": {"num_directions": 2}, "deep": {"num_layers": 2, "num_directions": 2},
    "projected": {"projection_size": 2, "parts": PEEPHOLES | {"projection"}, "num_layers": 2},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_what_tensorflow_restores(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = tensorflow1()
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "tensorflow1-cpu": executor})
    path = write(tmp_path / "a.index", stack(**{"name": "a", **FORMS[form]}))
    report = verify(path, on=["tensorflow1-cpu"])
    assert report.equal, str(report)
    assert report.document["layers"][0]["runs"][0]["own_file"]


def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {
        str(np.dtype(kind)): np.arange(6).reshape(2, 3).astype(kind) for kind in ("f2", "f4", "f8", "u1", "i4", "i8", "?")
    }
    arrays |= {"scalar": np.array(2, "f4"), "none": np.zeros((0, 2), "f4"), "ü": np.ones(3, "f4")}
    arrays |= {f"many/{number}": np.full(number, number, "f4") for number in range(200)}
    tensor_bundle.write(tmp_path / "a.index", arrays)
    script = "reader = tf.train.load_checkpoint('a')\n"
    script += "found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}"
    read = by_tensorflow(tmp_path, script)
    assert {name: (array.dtype, array.shape, array.tobytes()) for name, array in read.items()} == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()
    }


def test_the_tensorflow_of_today_reads_what_is_written(tmp_path: Path) -> None:
    tensorflow = needed("keras", "tensorflow")
    arrays = {"half": np.array([1.5, -3], BFLOAT16), "rnn/lstm_cell/kernel": uniform(1, 7, 16)}
    tensor_bundle.write(tmp_path / "a.index", arrays)
    reader = tensorflow.train.load_checkpoint(str(tmp_path / "a"))
    for name, array in arrays.items():
        assert np.asarray(reader.get_tensor(name)).tobytes() == array.tobytes()


@pytest.mark.parametrize("path", [CELLS, GOLDEN / "trained.index"], ids=["cells", "trained"])
def test_tensorflow_and_we_read_the_same(path: Path) -> None:
    tensorflow = needed("keras", "tensorflow")
    reader = tensorflow.train.load_checkpoint(str(path.with_suffix("")))
    bundle = tensor_bundle.read(path)
    assert set(bundle.arrays) == set(reader.get_variable_to_shape_map())
    for name, array in bundle.arrays.items():
        np.testing.assert_array_equal(array, reader.get_tensor(name), name)


# Files that we write ---------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_as_it_was(tmp_path: Path) -> None:
    rc.convert(CELLS, tmp_path / "a.index", settings=SETTINGS)
    was, now = (tensor_bundle.read(path).arrays for path in (CELLS, tmp_path / "a.index"))
    # GRUBlockCell's variables become GRUCell's, the coupled cell's LSTMCell's; a forget_bias stays what it was said to be.
    same = set(was) & set(now)
    other = {"gru_block/rnn/gru_cell", "coupled/rnn/coupled_input_forget_gate_lstm_cell"}
    assert {name.rpartition("/")[0] for name in set(was) - same} == other
    assert "coupled/rnn/lstm_cell/projection/kernel" in now and "gru_block/rnn/gru_cell/gates/kernel" in now
    assert all(was[name].tobytes() == now[name].tobytes() for name in same)


@pytest.mark.parametrize("suffix", [".index", ".npz"])
@pytest.mark.parametrize("form", FORMS)
def test_files_come_and_go(form: str, suffix: str, tmp_path: Path) -> None:
    layer = stack(**{"name": "a", **FORMS[form]})
    path = tmp_path / f"a{suffix}"
    rc.save(checkpoint(layer), path, "tensorflow1")
    (read,) = rc.load(path).layers.values()
    x = np.random.default_rng(0).uniform(-1, 1, (4, 2, layer.input_size))
    np.testing.assert_allclose(reference.run(read, x).y, reference.run(layer, x).y, rtol=0, atol=1e-6)
    assert (read.num_layers, read.num_directions) == (layer.num_layers, layer.num_directions)


def test_a_note_says_what_loads_a_layer(tmp_path: Path) -> None:
    joined = rc.save(checkpoint(stack(num_layers=2, name="a")), tmp_path / "a.index").notes
    assert joined == (
        "the file itself loads into tf.nn.dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(4, forget_bias=1), "
        "tf.nn.rnn_cell.LSTMCell(4, forget_bias=1)]), x)",
    )
    loaded = rc.load(CELLS, settings=SETTINGS)
    notes = rc.save(loaded, tmp_path / "b.index", layers=["lstm/rnn"]).notes
    assert notes == (
        "lstm/rnn loads into tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(5, use_peepholes=True, num_proj=2, cell_clip=0.4, "
        "proj_clip=0.3, forget_bias=1), x)",
    )


def test_a_file_beside_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.data-00000-of-00001").write_bytes(b"mine")
    with pytest.raises(rc.UsageError, match="already exists"):
        write(tmp_path / "a.index", stack(name="a"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.data-00000-of-00001"]


# Names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RNN/MultiRNNCell/Cell0/BasicLSTMCell/Linear/Matrix", "RNN/multi_rnn_cell/cell_0/basic_lstm_cell/kernel"),
        ("a/LSTMCell/W_0", "a/lstm_cell/kernel"), ("a/LSTMCell/B", "a/lstm_cell/bias"),
        ("a/LSTMCell/W_F_diag", "a/lstm_cell/w_f_diag"), ("GRUCell/Gates/Linear/Bias", "gru_cell/gates/bias"),
        ("rnn/gru_cell/candidate/weights", "rnn/gru_cell/candidate/kernel"), ("dense/weights", "dense/weights"),
        ("BiRNN/FW/BasicLSTMCell/Linear/Bias", "bidirectional_rnn/fw/basic_lstm_cell/bias"),
    ],
)  # fmt: skip
def test_older_names_are_todays(old: str, new: str) -> None:
    assert modern(old) == new


def renamed(tmp_path: Path, change: Mapping[str, str], drop: str = "") -> rc.Checkpoint:
    """The variables of the golden checkpoint's stack of two layers, under other names."""
    arrays = {name: array for name, array in tensor_bundle.read(CELLS).arrays.items() if name.startswith("multi/")}
    for old, new in change.items():
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    npz_file.write(tmp_path / "a.npz", {name: array for name, array in arrays.items() if not drop or drop not in name})
    return rc.load(tmp_path / "a.npz", "tensorflow1")


def test_a_stack_with_a_gap_is_not_read(tmp_path: Path) -> None:
    loaded = renamed(tmp_path, {"cell_1": "cell_2"})
    assert not loaded.layers and "no layer or direction may be missing" in loaded.warnings[0]
    loaded = renamed(tmp_path, {"multi/rnn/multi_rnn_cell/cell_0": "a/bidirectional_rnn/bw"}, "cell_1")
    assert not loaded.layers and "it has only cell 0 backward" in loaded.warnings[0]
    loaded = renamed(tmp_path, {}, "cell_1/basic_lstm_cell/bias")
    assert not loaded.layers and "do not fit together" in loaded.warnings[0]


def test_a_scope_of_the_callers_own_has_two_directions(tmp_path: Path) -> None:
    cells = ("cell_0", "cell_1")
    loaded = renamed(tmp_path, {f"multi/rnn/multi_rnn_cell/{cell}": f"mine/{way}" for cell, way in zip(cells, ("fw", "bw"), strict=True)})
    # One cell reads what the other gives: neither is taken for a layer of its own that reads forward.
    assert not loaded.layers and "its two directions read 3 and 4 values per step" in loaded.warnings[0]
    arrays = {name.replace("multi/rnn/multi_rnn_cell/cell_0", f"mine/{way}"): array
              for name, array in tensor_bundle.read(CELLS).arrays.items() if name.startswith("multi/") and "cell_0" in name
              for way in ("fw", "bw")}  # fmt: skip
    npz_file.write(tmp_path / "b.npz", arrays)
    (layer,) = rc.load(tmp_path / "b.npz").layers.values()
    assert [direction.reverse for direction in layer.layers[0].directions] == [False, True]


def test_variables_of_a_saved_model_without_its_graph_are_read(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    for part in CELLS.parent.glob(f"{CELLS.stem}.*"):
        (tmp_path / "variables" / part.name.replace(CELLS.stem, "variables")).write_bytes(part.read_bytes())
    assert list(rc.load(tmp_path).layers) == list(rc.load(CELLS).layers)
    (tmp_path / "saved_model.pb").write_bytes(b"")  # which would say what the layers compute
    with pytest.raises(rc.UnreadableError):
        rc.load(tmp_path, "tensorflow1")


def test_a_checkpoint_whose_name_is_its_endings_is_read(tmp_path: Path) -> None:
    """As model.save_weights("models/") writes it."""
    for part in CELLS.parent.glob(f"{CELLS.stem}.*"):
        (tmp_path / part.name.removeprefix(CELLS.stem)).write_bytes(part.read_bytes())
    for name in (".index", ".data-00000-of-00001", ""):
        assert list(rc.load(tmp_path / name).layers) == list(rc.load(CELLS).layers)


def test_what_a_wrapper_computes_is_told_of(tmp_path: Path) -> None:
    loaded = renamed(tmp_path, {"multi/rnn": "a/attention_wrapper"})
    assert loaded.warnings[0] == "a/attention_wrapper/multi_rnn_cell: the computation of attention_wrapper around its cells is not read"


def test_a_highway_around_a_cell_is_told_of(tmp_path: Path) -> None:
    arrays = {name: array for name, array in tensor_bundle.read(CELLS).arrays.items() if name.startswith("gru/")}
    npz_file.write(tmp_path / "a.npz", {**arrays, "gru/rnn/carry_w": np.zeros((3, 4), "f"), "b": np.zeros(3, "f")})
    assert "HighwayWrapper mixes what a cell reads" in rc.load(tmp_path / "a.npz", "tensorflow1").warnings[0]


def test_half_of_two_directions_is_not_read(tmp_path: Path) -> None:
    loaded = renamed(tmp_path, {"multi/rnn/multi_rnn_cell/cell_0": "a/bidirectional_rnn/fw"}, "cell_1")
    assert not loaded.layers and "it has only forward cells" in loaded.warnings[0]


def test_a_cell_beside_a_scope_called_bw_is_read(tmp_path: Path) -> None:
    cells = {"multi/rnn/multi_rnn_cell/cell_0": "a/bw", "multi/rnn/multi_rnn_cell/cell_1": "a"}
    loaded = renamed(tmp_path, cells)
    assert list(loaded.layers) == ["a/basic_lstm_cell"] and "it has only cell 0 backward" in loaded.warnings[0]


AROUND = """
import re
cells = tf.nn.rnn_cell
x = np.linspace(-2, 2, 6 * 2 * 4).reshape(6, 2, 4).astype('f')
def run(cell, x=x): return tf.nn.dynamic_rnn(cell, tf.convert_to_tensor(x), dtype=tf.float32, time_major=True)[0]
makers = dict(
    residual=lambda: run(cells.MultiRNNCell([cells.LSTMCell(4), cells.ResidualWrapper(cells.GRUCell(4))])),
    again=lambda: run(cells.MultiRNNCell([cells.LSTMCell(4)] * 2)),
    turned=lambda: run(cells.GRUCell(4), tf.reverse(x, [0])),
    two=lambda: tf.concat(tf.nn.bidirectional_dynamic_rnn(
        cells.GRUCell(4), cells.GRUCell(4), tf.constant(x), dtype=tf.float32, time_major=True)[0], -1),
    dropout=lambda: run(cells.DropoutWrapper(cells.GRUCell(4), output_keep_prob=0.5)),
    leaky=lambda: run(cells.LSTMCell(4, activation=tf.nn.leaky_relu, cell_clip=0.4, forget_bias=0.3)),
    linear=lambda: run(cells.LSTMCell(4, activation=tf.identity, cell_clip=0.4, forget_bias=0.3)),
    named_lstm=lambda: run(cells.LSTMCell(4, use_peepholes=True, name='mine')),
    named_gru=lambda: run(cells.GRUCell(4, name='mine')),
    named_stack=lambda: run(cells.MultiRNNCell([cells.BasicRNNCell(5, name='a'), cells.BasicRNNCell(5, name='b')])),
    scoped=lambda: run(cells.MultiRNNCell([cells.LSTMCell(4), cells.LSTMCell(4)])),
    scoped_residual=lambda: run(cells.MultiRNNCell([cells.LSTMCell(4), cells.ResidualWrapper(cells.LSTMCell(4))])),
)
found = {}
for name, make in makers.items():
    with tf.Graph().as_default(), tf.Session() as session:
        y = make()
        session.run(tf.global_variables_initializer())
        found[name] = session.run(y)
        tf.train.Saver().save(session, './' + name)

# TensorFlow 1.0 and 1.1 have a scope of its own around the product in that of the cell.
def inner(name): return re.sub(r'(lstm_cell)/(MatMul|concat)\\b', r'\\1/\\1/\\2', name)
for name in ('scoped', 'scoped_residual'):
    graph = tf.MetaGraphDef.FromString(open(name + '.meta', 'rb').read())
    for node in graph.graph_def.node:
        node.name = inner(node.name)
        node.input[:] = [inner(one) for one in node.input]
    open(name + '.meta', 'wb').write(graph.SerializeToString())
"""


def test_what_a_graph_computes_around_its_cells_is_told(tmp_path: Path) -> None:
    y = by_tensorflow(tmp_path, AROUND)
    loaded = {name: rc.load(tmp_path / f"{name}.index") for name in y}
    assert "as ResidualWrapper does" in loaded["residual"].warnings[0]
    assert "computes a cell of it 2 times in each step" in loaded["again"].warnings[0]
    assert "reverses a sequence (ReverseV2)" in loaded["turned"].warnings[0]
    assert "as ResidualWrapper does" in loaded["scoped_residual"].warnings[0]
    assert loaded["two"].warnings == loaded["dropout"].warnings == loaded["scoped"].warnings == ()
    x = np.linspace(-2, 2, 6 * 2 * 4).reshape(6, 2, 4).astype("f")
    for name in ("two", "leaky", "linear", "scoped"):
        (layer,) = loaded[name].layers.values()
        assert loaded[name].questions == ()
        np.testing.assert_allclose(reference.run(layer, x).y, y[name], rtol=0, atol=5e-7)

    # A cell whose scope is the user's word: which class it is of is asked, among those that its shapes allow.
    named: dict[str, tuple[Literal["lstm", "gru", "rnn_tanh", "rnn_relu"], ...]] = {
        "named_lstm": ("lstm",),
        "named_gru": ("gru",),
        "named_stack": ("rnn_tanh", "rnn_relu"),
    }
    for name, kinds in named.items():
        path = tmp_path / f"{name}.index"
        assert [question.choices for question in rc.load(path).questions if question.common] == [kinds]
        with pytest.raises(rc.RefusedError, match="does not state what its layers compute"):
            rc.convert(path, tmp_path / "a.onnx")
        (layer,) = rc.load(path, cell=kinds[0]).layers.values()
        np.testing.assert_allclose(reference.run(layer, x).y, y[name], rtol=0, atol=5e-7)


def test_a_cell_of_other_equations_is_not_read(tmp_path: Path) -> None:
    loaded = renamed(tmp_path, {"cell_1/basic_lstm_cell": "cell_1/ugrnn_cell"})
    assert not loaded.layers and "names no class with known equations" in loaded.warnings[0]
    # Nothing but a cell's own scope, or a word of the user's, makes a matrix and a bias a cell.
    loaded = renamed(tmp_path, {"cell_1/basic_lstm_cell": "cell_1/coupled_input_forget_gate_lstm_cell"})
    assert not loaded.layers and "do not fit together" in loaded.warnings[0]
    with pytest.raises(rc.UnreadableError, match="no arrays in it are named as the variables"):
        renamed(tmp_path, {"multi/rnn/multi_rnn_cell/cell_0/basic_lstm_cell": "dense"}, "cell_1")
    answered = rc.load(tmp_path / "a.npz", "tensorflow1", settings=["dense:cell=lstm"])
    assert answered.layers["dense"].hidden_size == 4


def test_a_scope_called_as_a_cell_that_holds_other_layers_alone_is_none(tmp_path: Path) -> None:
    """A caller's own tf.variable_scope("gru_cell") around a decoder: the memory of its attention is a dense layer there."""
    arrays = {name: array for name, array in tensor_bundle.read(CELLS).arrays.items() if name.startswith("gru/")}
    npz_file.write(tmp_path / "a.npz", {**arrays, "decoder/gru_cell/memory_layer/kernel": np.ones((4, 4), "f")})
    read = rc.load(tmp_path / "a.npz", "tensorflow1")
    assert len(read.layers) == 1 and not read.warnings and not read.unread
    assert "decoder/gru_cell/memory_layer/kernel" in read.tensors


def test_wrong_options_are_said(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="option activation cannot be 'sine' here"):
        rc.load(CELLS, activation="sine")
    with pytest.raises(rc.UsageError, match="option forget_bias is a number, not 'nan'"):
        rc.load(CELLS, forget_bias="nan")


def test_an_opaque_vector_is_cudnns(tmp_path: Path) -> None:
    layers = stack("gru", num_layers=2, num_directions=2)
    vector = rc.pack(layers, "cudnn")
    assert isinstance(vector, np.ndarray)
    tensor_bundle.write(tmp_path / "a.index", {"cudnn_gru/opaque_kernel": vector})
    silent = rc.load(tmp_path / "a.index")
    assert not silent.layers and "Give --set cell=... and --set hidden_size=" in silent.warnings[0]
    loaded = rc.load(tmp_path / "a.index", cell="gru", hidden_size=4, num_layers=2, bidirectional=True)
    np.testing.assert_array_equal(rc.pack(loaded.layers["cudnn_gru"], "cudnn"), vector)
    with pytest.raises(rc.UsageError, match="for each input after the first"):
        rc.load(tmp_path / "a.index", cell="gru", hidden_size=5, num_layers=2, bidirectional=True)


# Damage ---------------------------------------------------------------------------------------------------


def test_checksums_are_the_standards() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    content = np.random.default_rng(1).bytes(70_001)
    state = 0xFFFFFFFF
    for byte in content:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c(content) == state ^ 0xFFFFFFFF == crc32c(content[33:], crc32c(content[:33]))


def damaged(folder: Path, index: bytes, data: bytes) -> bool:
    (folder / "a.index").write_bytes(index)
    (folder / "a.data-00000-of-00001").write_bytes(data)
    return unreadable(tensor_bundle.read, folder / "a.index", 4_000_000)


SMALL = {"a": np.ones((2, 3), "f4"), "b": np.ones(2, "f4")}


def test_every_truncation_and_changed_byte_is_unreadable(tmp_path: Path) -> None:
    tensor_bundle.write(tmp_path / "s.index", SMALL)
    index, data = (tmp_path / "s.index").read_bytes(), (tmp_path / "s.data-00000-of-00001").read_bytes()
    assert not damaged(tmp_path, index, data)
    for length in range(1, len(index)):
        assert damaged(tmp_path, index[:length], data), length
    for length in range(1, len(data)):
        assert damaged(tmp_path, index, data[:length]), length
    for at in range(len(data)):
        assert damaged(tmp_path, index, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]), at
    for at in range(len(index)):
        noticed = damaged(tmp_path, index[:at] + bytes([index[at] ^ 1]) + index[at + 1 :], data)
        # The footer's padding says nothing.
        assert noticed or len(index) - 48 <= at < len(index) - 8, at


def test_a_table_that_lies_is_unreadable(tmp_path: Path) -> None:
    """Blocks whose checksums are right and whose entries are not."""
    header = b"\x08\x01\x1a\x02\x08\x01"

    def entry(**changed: bytes) -> bytes:
        parts = {"dtype": b"\x08\x01", "shape": b"\x12\x04\x12\x02\x08\x02", "size": b"\x28\x08", **changed}
        return b"".join(parts.values())

    cases: list[tuple[dict[bytes, bytes], str]] = [
        ({b"a": entry()}, "has no header"),
        ({b"": b"\x08\x00", b"a": entry()}, "claims 0 data files"),
        ({b"": header + b"\x10\x01", b"a": entry()}, "big-endian"),
        ({b"": header, b"a": entry(size=b"\x28\x09")}, "has the shape"),
        ({b"": header, b"a": entry(shape=b"\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01")}, "has the shape"),
        ({b"": header, b"a": entry(offset=b"\x20\xff\xff\x03")}, "should be 8 bytes at byte 65535"),
        ({b"": header, b"a": entry(shard=b"\x18\x07")}, "data file 7 of 1"),
        ({b"": header, b"\xff": entry()}, "not valid text"),
        ({b"": header, b"a": entry(slices=b"\x3a\x02\x0a\x00")}, "do not fit together"),
    ]
    (tmp_path / "a.data-00000-of-00001").write_bytes(bytes(8))
    for entries, message in cases:
        (tmp_path / "a.index").write_bytes(sorted_table.build(sorted(entries.items())))
        with pytest.raises(rc.UnreadableError, match=message):
            tensor_bundle.read(tmp_path / "a.index")


def test_a_checkpoint_of_version_1_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_bytes(bytes(60) + sorted_table.MAGIC)
    with pytest.raises(rc.UnreadableError, match="a TensorFlow checkpoint of version 1"):
        rc.load(tmp_path / "model.ckpt")


def test_a_damaged_graph_is_unreadable_or_read(tmp_path: Path) -> None:
    frozen = (GOLDEN / "frozen.pb").read_bytes()
    rng = np.random.default_rng(1)
    for number in range(300):
        content = np.frombuffer(frozen, np.uint8).copy()
        places = rng.integers(0, content.size, rng.integers(1, 9))
        content[places] = rng.integers(0, 256, places.size)
        cut = int(rng.integers(1, content.size + 1)) if number % 2 else content.size
        (tmp_path / "a.pb").write_bytes(content.tobytes()[:cut])
        with contextlib.suppress(rc.UnreadableError):
            rc.load(tmp_path / "a.pb", "tensorflow1")
    (tmp_path / "a.pb").write_bytes(b"\x08\x07")
    with pytest.raises(rc.UnreadableError, match="its graph has no nodes"):
        graph_def.read(tmp_path / "a.pb")
    (tmp_path / "a.meta").write_bytes(b"\x08\x07")
    with pytest.raises(rc.UnreadableError, match="holds no graph"):
        graph_def.read(tmp_path / "a.meta")


def constant(name: str, shape: tuple[int, ...], numbers: bytes) -> bytes:
    """A node of a graph: a constant of one number, or of none, for all of a shape."""
    lengths = b"".join(wire.field(2, wire.varint(8) + wire.varint(length)) for length in shape)
    value = wire.varint(8) + wire.varint(1) + wire.field(2, lengths) + numbers
    entry = wire.field(1, b"value") + wire.field(2, wire.field(8, value))
    return wire.field(1, wire.field(1, name.encode()) + wire.field(2, b"Const") + wire.field(5, entry))


@pytest.mark.parametrize("shape", [(1 << 33, 1 << 33), (0, 1 << 62, 1 << 62)])
def test_a_constant_of_enormous_lengths_is_unreadable(shape: tuple[int, ...], tmp_path: Path) -> None:
    numbers = b"" if 0 in shape else wire.field(5, bytes(4))
    (tmp_path / "a.pb").write_bytes(constant("rnn/lstm_cell/kernel", shape, numbers))
    with pytest.raises(rc.UnreadableError, match="larger than any constant"):
        rc.load(tmp_path / "a.pb")


ONE_CELL = """
cells = tf.nn.rnn_cell
x = tf.placeholder(tf.float32, [None, 2, 3], "x")
cell = {cell}
outputs, _ = tf.nn.bidirectional_dynamic_rnn(cell, cell, x, dtype=tf.float32, time_major=True)
y = tf.concat(outputs, 2, "y")
again = {again}
random = np.random.RandomState(1)
with tf.Session() as session:
    for variable in tf.global_variables():
        variable.load(random.uniform(-0.7, 0.7, variable.shape.as_list()).astype("float32"), session)
    tf.train.Saver().save(session, "one.ckpt")
    fed = random.uniform(-1, 1, (5, 2, 3)).astype("float32")
    found = {{"x": fed, "y": session.run(y, {{x: fed}})}}
"""


@pytest.mark.parametrize(
    "cell",
    [
        "cells.GRUCell(4)",
        "cells.BasicLSTMCell(4, forget_bias=0.5)",
        "cells.MultiRNNCell([cells.LSTMCell(4, forget_bias=0.0) for _ in range(2)])",
    ],
)
def test_one_cell_for_both_directions_is_read_where_the_graph_shows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cell: str) -> None:
    answers = by_tensorflow(tmp_path, ONE_CELL.format(cell=cell, again=None))
    (stack,) = rc.load(tmp_path / "one.ckpt.index").layers.values()
    assert stack.num_directions == 2
    np.testing.assert_allclose(reference.run(stack, answers["x"]).y, answers["y"], rtol=0, atol=5e-7)
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "tensorflow1-cpu": tensorflow1()})
    report = verify(tmp_path / "one.ckpt.index", on=["tensorflow1-cpu", "tensorflow2-raw"])
    assert report.equal and all(run["own_file"] for run in report.document["layers"][0]["runs"]), str(report)
    (tmp_path / "one.ckpt.meta").unlink()
    loaded = rc.load(tmp_path / "one.ckpt.index")
    assert not loaded.layers and "it has only forward cells" in loaded.warnings[0]


def test_one_cell_that_a_third_loop_calls_is_not_taken_for_two_directions(tmp_path: Path) -> None:
    again = "tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, time_major=True, scope='bidirectional_rnn/fw')"
    by_tensorflow(tmp_path, ONE_CELL.format(cell="cells.GRUCell(4)", again=again))
    loaded = rc.load(tmp_path / "one.ckpt.index")
    assert not loaded.layers and "it has only forward cells" in loaded.warnings[0]


DECODER = """
cells, seq2seq = tf.nn.rnn_cell, tf.contrib.seq2seq
x = tf.placeholder(tf.float32, [2, 5, 3], "x")
state = cells.LSTMStateTuple(*(tf.placeholder(tf.float32, [2, 4]) for _ in "ch"))
cell = cells.BasicLSTMCell(4, forget_bias=0.25)
decoder = seq2seq.BasicDecoder(cell, seq2seq.TrainingHelper(x, [5, 5]), {state})
outputs, _, _ = seq2seq.dynamic_decode(decoder)
with tf.Session() as session:
    random = np.random.RandomState(1)
    for variable in tf.global_variables():
        variable.load(random.uniform(-0.7, 0.7, variable.shape.as_list()).astype("float32"), session)
    tf.train.Saver().save(session, "decoder.ckpt")
    fed = random.uniform(-1, 1, (2, 5, 3)).astype("float32")
    feeds = {{x: fed, **{{each: np.zeros((2, 4), "f") for each in state}}}}
    found = {{"x": fed, "y": session.run(outputs.rnn_output, feeds)}}
"""


@pytest.mark.parametrize("state", ["state", "cell.zero_state(2, tf.float32)"])
def test_the_cell_of_a_decoder_whose_steps_have_conditions_is_read(tmp_path: Path, state: str) -> None:
    answers = by_tensorflow(tmp_path, DECODER.format(state=state))
    loaded = rc.load(tmp_path / "decoder.ckpt.index")
    (stack,) = loaded.layers.values()
    assert not loaded.questions and stack.cell.constants["f"] == 0.25
    assert any("pass it at every call" in warning for warning in loaded.warnings) == (state == "state")
    np.testing.assert_allclose(reference.run(stack, answers["x"].swapaxes(0, 1)).y.swapaxes(0, 1), answers["y"], rtol=0, atol=5e-7)
