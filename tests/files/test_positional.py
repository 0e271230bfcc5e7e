"""Files whose arrays have an order and no names: Lasagne's parameters and Equinox's .eqx."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import npy
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.positional import parse_places, placed, search
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.places import shapes
from tests import ROOT
from tests.helpers.judging import batch_first
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint, stack, uniform, write
from tests.helpers.stacks import PLAIN, random_stack

GOLDEN = ROOT / "tests" / "golden" / "lasagne"
ANSWERS = np.load(GOLDEN / "answers.npz")
CLOSE = 2e-7


def same(layer: Recurrent, other: Recurrent) -> None:
    assert layer.first.arrays.keys() == other.first.arrays.keys()
    for key, array in layer.first.arrays.items():
        np.testing.assert_array_equal(np.asarray(array), np.asarray(other.first.arrays[key]), str(key))


# Files that Lasagne wrote -----------------------------------------------------------------------------

GATED = ["activation=tanh", "recurrent_activation=sigmoid"]
LSTM = [*GATED, "output_activation=tanh"]
SETTINGS: dict[str, list[str]] = {
    "lstm": ["release=0.2", "go_backwards=false", *LSTM],
    "backwards": ["go_backwards=true", *LSTM],
    "gru": ["go_backwards=false", "arrays=gru@0,gru@10", *GATED],
    "rnn": ["nonlinearity=relu", "go_backwards=false"],
    "no_bias": ["nonlinearity=tanh", "go_backwards=false"],
    "both": ["release=0.2", "go_backwards=false", "gru_1:go_backwards=true", *LSTM],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_lasagnes_files_give_what_lasagne_gave(name: str) -> None:
    loaded = rc.load(GOLDEN / f"{name}.npz", "lasagne", settings=SETTINGS[name])
    assert not loaded.questions and not loaded.warnings
    layers = list(loaded.layers.values())
    x = [ANSWERS["x"]] * len(layers)
    if name == "gru":
        x[1] = ANSWERS["gru_0"]
    if name == "both":
        x[2] = np.concatenate([ANSWERS["both_0"], ANSWERS["both_1"]], axis=2)
    for number, (layer, inputs) in enumerate(zip(layers, x, strict=True)):
        np.testing.assert_allclose(batch_first(layer, inputs), ANSWERS[f"{name}_{number}"], rtol=0, atol=CLOSE)


def test_what_the_numbers_do_not_say_is_undecided() -> None:
    def asked(name: str) -> set[tuple[str, str]]:
        return {(question.option, question.assumed) for question in rc.load(GOLDEN / f"{name}.npz").questions}

    functions = {("activation", "tanh"), ("recurrent_activation", "sigmoid")}
    assert asked("lstm") == {("release", "0.2"), ("go_backwards", "false"), ("output_activation", "tanh"), *functions}
    assert asked("backwards") == {("go_backwards", "false"), ("output_activation", "tanh"), *functions}
    assert asked("gru") - {("arrays", "gru@0, gru@10")} == {("go_backwards", "false"), *functions}
    assert asked("rnn") == {("nonlinearity", "relu"), ("go_backwards", "false")}


def test_the_functions_of_lasagnes_gates_are_asked_for(tmp_path: Path) -> None:
    options: dict[str, Any] = {"release": "0.2", "go_backwards": False}
    with pytest.raises(rc.RefusedError, match="takes its function as an argument, which files do not hold"):
        rc.convert(GOLDEN / "backwards.npz", tmp_path / "a.npz", target_format="lasagne", strict=True, go_backwards=True)
    answered: dict[str, Any] = {"activation": "tanh", "recurrent_activation": "sigmoid", "output_activation": "tanh"}
    rc.convert(GOLDEN / "backwards.npz", tmp_path / "a.npz", target_format="lasagne", strict=True, go_backwards=True, **answered)

    cell = rc.load(GOLDEN / "lstm.npz", activation="relu", **options).layers["lstm_0"].cell
    assert (cell.activation.name, cell.gate_activation.name, cell.output_activation.name) == ("relu", "sigmoid", "tanh")
    cell = rc.load(GOLDEN / "lstm.npz", output_activation="relu", **options).layers["lstm_0"].cell
    assert (cell.activation.name, cell.output_activation.name) == ("tanh", "relu")
    cell = rc.load(GOLDEN / "gru.npz", "lasagne", recurrent_activation="hard_sigmoid").layers["gru_0"].cell
    assert (cell.activation.name, cell.gate_activation.name) == ("tanh", "hard_sigmoid")


def test_the_first_release_is_another_cell() -> None:
    path = GOLDEN / "lstm.npz"
    layer = rc.load(path, release="0.2", go_backwards=False).layers["lstm_0"]
    assert np.abs(batch_first(layer, ANSWERS["x"]) - ANSWERS["lstm_first_0"]).max() > 0.05
    with pytest.raises(rc.RefusedError, match=r"o = sigmoid\(a\) \+ w \* c"):
        rc.load(path, release="0.1")
    # Without peepholes both releases are one.
    assert "release" not in {question.option for question in rc.load(GOLDEN / "backwards.npz").questions}


def test_learned_initial_states_are_read_and_refused_elsewhere(tmp_path: Path) -> None:
    layer = rc.load(GOLDEN / "lstm.npz").layers["lstm_0"]
    np.testing.assert_array_equal(layer.first.get("initial_cell"), np.load(GOLDEN / "lstm.npz")["arr_15"][0])
    np.testing.assert_array_equal(layer.first.get("initial_hidden"), np.load(GOLDEN / "lstm.npz")["arr_16"][0])
    with pytest.raises(rc.RefusedError, match="a learned initial state"):
        rc.convert(GOLDEN / "gru.npz", tmp_path / "a.safetensors", source_format="lasagne", layers=["gru_0"])


def test_a_file_comes_back_with_its_other_layers(tmp_path: Path) -> None:
    rc.convert(GOLDEN / "gru.npz", tmp_path / "a.npz", target_format="lasagne")
    before, after = np.load(GOLDEN / "gru.npz"), np.load(tmp_path / "a.npz")
    assert before.files == after.files == [f"arr_{number}" for number in range(22)]
    for name in before.files:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_other_formats_are_written_for_lasagne(kind: str, tmp_path: Path) -> None:
    encoder = random_stack(Sizes(kind, 3, 4, parts=PLAIN | {"input_bias"}), 1, np.float32).replace(name="encoder")
    path = write(tmp_path / "a.npz", encoder, target_format="lasagne")
    loaded = rc.load(path, "lasagne", go_backwards=False, settings=["nonlinearity=tanh"] if kind == "rnn" else [])
    (layer,) = loaded.layers.values()
    start = {"lstm": 14, "gru": 10, "rnn": 4}[kind]
    assert len(np.load(path).files) == start
    assert not np.load(path)["arr_0" if kind == "rnn" else f"arr_{start - 1}"].any(), "the initial state is zero"
    x = uniform(1, 2, 5, 3)
    np.testing.assert_allclose(batch_first(layer, x), batch_first(encoder, x), rtol=0, atol=CLOSE)


# The search -------------------------------------------------------------------------------------------

LASAGNE = {layout.name.partition(".")[2]: layout for layout in registry.frameworks()["lasagne"]}


def row(kind: str, **form: Any) -> list[tuple[int, ...]]:
    layout = LASAGNE[kind]
    parts = (layout.part_names - {"peephole"}) | form.pop("more", set())
    return list(shapes(layout, Sizes(kind, **form, parts=frozenset(parts))).values())


def test_layers_are_found_between_others() -> None:
    dense = [(3, 6), (6,)]
    sizes = [*dense, *row("lstm", input_size=6, hidden_size=4, more={"peephole"}), (4, 2), (2,), *row("rnn", input_size=2, hidden_size=5)]
    runs, doubts = search(sizes, LASAGNE.values())
    assert [(run.layout.name, run.start, run.stop) for run in runs] == [("lasagne.lstm", 2, 19), ("lasagne.rnn", 21, 25)]
    assert not doubts
    assert [run.sizes.hidden_size for run in runs] == [4, 5]


def test_a_longer_run_that_holds_another_is_meant() -> None:
    # The last three gates of an LSTM and its first initial state are shaped as a GRU.
    runs, doubts = search(row("lstm", input_size=3, hidden_size=4), LASAGNE.values())
    assert [run.layout.name for run in runs] == ["lasagne.lstm"] and not doubts


def test_runs_that_overlap_are_asked_for() -> None:
    # Behind a GRU two dense layers of its width: its initial state may also be that of a RecurrentLayer.
    sizes = [*row("gru", input_size=3, hidden_size=4), (4, 4), (4,), (4, 4)]
    runs, doubts = search(sizes, LASAGNE.values())
    assert not runs and len(doubts) == 1
    assert "lasagne.gru of 3 inputs and 4 units from 0 to 9 or lasagne.rnn of 4 inputs and 4 units from 9 to 12" in doubts[0]
    assert doubts[0].endswith("--set arrays=gru@0")
    assert [run.layout.name for run in parse_places("gru@0", sizes, LASAGNE)] == ["lasagne.gru"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gru", "'gru' is not LAYOUT@PLACE"), ("gru@x", "not LAYOUT@PLACE"), ("lstm@0", "no lasagne.layers.LSTMLayer begins at array 0"),
        ("gru@0,rnn@9", "share arrays"), ("gru@99", "the arrays there are nothing"),
    ],
)  # fmt: skip
def test_places_that_do_not_fit_are_wrong_usage(text: str, message: str) -> None:
    sizes = [*row("gru", input_size=3, hidden_size=4), (4, 4), (4,), (4, 4)]
    with pytest.raises(rc.UsageError, match=message):
        parse_places(text, sizes, LASAGNE)


def test_a_row_of_very_many_arrays_is_not_searched_for_ever() -> None:
    runs, doubts = search([(1, 1)] * 200, LASAGNE.values())
    assert not runs and len(doubts) == 1 and len(doubts[0]) < 1000
    runs, doubts = search([(1, 1)] * 20_000, LASAGNE.values())
    assert not runs and "20000 arrays are more than can be searched" in doubts[0]


def test_arrays_go_back_to_their_places() -> None:
    assert placed([(1, "bc"), (None, "xy")], {0: "a", 3: "d"}) == list("abcdxy")


def test_names_are_no_places(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", W=np.ones(2))
    with pytest.raises(rc.UnreadableError, match="not called arr_0, arr_1"):
        rc.load(tmp_path / "a.npz", "lasagne")
    np.savez(tmp_path / "b.npz", arr_0=np.ones(2), arr_2=np.ones(2))
    with pytest.raises(rc.UnreadableError, match="not called arr_0, arr_1"):
        rc.load(tmp_path / "b.npz", "lasagne")


# Equinox ------------------------------------------------------------------------------------------------


def saved(path: Path, seed: int = 1) -> Any:
    """A model of Equinox's with two cells among other layers, saved by Equinox itself."""
    eqx, jax = needed("equinox", "equinox"), needed("jax", "jax")
    keys = jax.random.split(jax.random.PRNGKey(seed), 5)
    model = (
        eqx.nn.Embedding(7, 3, key=keys[0]), eqx.nn.LSTMCell(3, 4, key=keys[1]), eqx.nn.GRUCell(4, 5, key=keys[2]),
        eqx.nn.GRUCell(5, 2, use_bias=False, key=keys[3]), eqx.nn.Linear(2, 3, key=keys[4]), 0.5,
    )  # fmt: skip
    eqx.tree_serialise_leaves(path, model)
    return model


def test_equinoxs_rows_are_read_as_its_models(tmp_path: Path) -> None:
    model = saved(tmp_path / "a.eqx")
    loaded = rc.load(tmp_path / "a.eqx")
    assert list(loaded.layers) == ["lstm_0", "gru_1", "gru_2"] and not loaded.warnings
    for layer, cell in zip(loaded.layers.values(), model[1:4], strict=True):
        (expected,) = rc.from_jax(cell).values()
        same(layer, expected)
    assert len(loaded.tensors) == 4


def test_what_is_written_is_what_equinox_reads(tmp_path: Path) -> None:
    eqx = needed("equinox", "equinox")
    model = saved(tmp_path / "a.eqx")
    rc.convert(tmp_path / "a.eqx", tmp_path / "b.eqx")
    assert (tmp_path / "a.eqx").read_bytes() == (tmp_path / "b.eqx").read_bytes()
    other = saved(tmp_path / "c.eqx", seed=2)
    again = eqx.tree_deserialise_leaves(tmp_path / "b.eqx", other)
    assert eqx.tree_equal(again, model)
    rc.save(checkpoint(stack("lstm", parts=PLAIN | {"input_bias"})), tmp_path / "d.eqx")
    cell = eqx.tree_deserialise_leaves(tmp_path / "d.eqx", eqx.nn.LSTMCell(3, 4, key=needed("jax", "jax").random.PRNGKey(0)))
    with (tmp_path / "d.eqx").open("rb") as file:
        np.testing.assert_array_equal(np.asarray(cell.weight_ih), np.load(file))


def test_a_row_of_records_is_told_from_others(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(rc.UnreadableError, match="bare array of numpy's"):
        rc.load(tmp_path / "a.npy")
    with pytest.raises(rc.UsageError, match="no names, and the order"):
        rc.save(
            rc.load(write(tmp_path / "b.npz", stack("gru"), target_format="equinox"), "equinox").replace(tensors={"x": np.ones(2)}),
            tmp_path / "c.eqx",
        )


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", BFLOAT16, "i8", "u1", "?", "c8"], ids=str)
def test_records_come_back(dtype: Any, tmp_path: Path) -> None:
    arrays = [np.arange(6).reshape(2, 3).astype(dtype), np.ones((), dtype), np.zeros((0, 2), dtype)]
    npy.write_row(tmp_path / "a", arrays)
    read = npy.read_row(tmp_path / "a").arrays
    assert [(array.dtype, array.tobytes(), array.shape) for array in read.values()] == [
        (array.dtype, array.tobytes(), array.shape) for array in arrays
    ]


def test_every_truncation_of_a_row_is_unreadable(tmp_path: Path) -> None:
    npy.write_row(tmp_path / "a", [np.ones((2, 3), "f4"), np.asfortranarray(np.ones((2, 3), "f4"))])
    content = (tmp_path / "a").read_bytes()
    for length in range(len(content)):
        if length == len(content) // 2:
            continue  # a row of one
        (tmp_path / "a").write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError):
            npy.read_row(tmp_path / "a")


def test_a_record_that_claims_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    )
    with pytest.raises(rc.UnreadableError, match="only"):
        npy.read_row(tmp_path / "a")
    np.save(tmp_path / "b.npy", np.array([{}], object))
    assert "never unpickled" in npy.read_row(tmp_path / "b.npy").metadata["unreadable"]["0"]


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


HOSTILE = {
    "a length below zero": header("|S1", (-len(header("|S1", (5,))),)),
    "an empty array with a length beyond all bounds": header("<f4", (0, 10**30)),
    "more axes than there are": header("<f4", (0,) * 99),
    "brackets without end": npy.MAGIC + b"\x01\x00" + (5000).to_bytes(2, "little") + b"(" * 5000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_a_record_that_no_array_has_is_unreadable(data: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "model.eqx").write_bytes(data)
    with pytest.raises(UnreadableError):
        npy.read_row(path)


def test_rows_of_many_arrays_are_searched_and_told_in_a_line() -> None:
    layouts = registry.frameworks()["equinox"]
    clear, _ = search([(192, 64), (192, 64), (192,), (64,)] * 50, layouts)
    assert [run.start for run in clear] == list(range(0, 200, 4))
    _, (doubt,) = search([(4, 1)] * 150, layouts)
    assert len(doubt) < 500 and doubt.endswith("Choose with --set arrays=lstm@0")


def filed(path: Path, suffix: str, *others: Array) -> Path:
    """A file with two LSTMs that read one another, and other arrays behind them, as Equinox or Lasagne has them."""
    layers = [
        stack("lstm", name=name, input_size=width, hidden_size=4, parts=PLAIN | {"input_bias"}) for name, width in (("a", 3), ("b", 4))
    ]
    file = path / f"row{suffix}"
    format = {".eqx": "equinox", ".npz": "lasagne"}[suffix]
    rc.save(checkpoint(*layers), file, format)
    if suffix == ".eqx":
        with file.open("ab") as end:
            for array in others:
                np.save(end, array)
    else:
        with np.load(file) as before:
            layer_arrays = list(before.values())
        np.savez(file, *layer_arrays, *others)
    return file


@pytest.mark.parametrize("suffix", [".eqx", ".npz"])
def test_a_row_whose_layers_have_no_place_in_it_is_not_written(suffix: str, tmp_path: Path) -> None:
    path, out = filed(tmp_path, suffix, np.ones((7, 2), np.float32)), tmp_path / f"out{suffix}"
    format = {".eqx": "equinox", ".npz": "lasagne"}[suffix]
    assert rc.convert(path, out, source_format=format, target_format=format, force=True).carried == 1
    with pytest.raises(rc.UsageError, match="these layers were not in it in this form"):
        rc.convert(path, out, source_format=format, target_format=format, force=True, stack="join")


@pytest.mark.parametrize("suffix", [".eqx", ".npz"])
def test_arrays_of_a_row_that_cannot_be_read_are_told(suffix: str, tmp_path: Path) -> None:
    path, out = filed(tmp_path, suffix, np.ones((7, 2), np.float32), np.array([{}], object)), tmp_path / f"out{suffix}"
    format = {".eqx": "equinox", ".npz": "lasagne"}[suffix]
    loaded = rc.load(path, format)
    assert len(loaded.layers) == 2
    assert any("its elements are pickled Python objects" in warning for warning in loaded.warnings)
    with pytest.raises(rc.UsageError, match="not all arrays of the source could be read"):
        rc.save(loaded, out, format)


def test_an_array_whose_name_is_no_place_does_not_go_into_a_row(tmp_path: Path) -> None:
    layer = random_stack(Sizes("lstm", 3, 2, parts=PLAIN | {"input_bias"}), 1, np.float32)
    rc.save(checkpoint(layer), tmp_path / "a.eqx", "equinox")
    read = rc.load(tmp_path / "a.eqx")
    named = read.replace(tensors={**read.tensors, "head.weight": np.ones((2, 2), np.float32)})
    with pytest.raises(rc.UsageError, match=r"'head\.weight' does not count a place in a row"):
        rc.save(named, tmp_path / "b.eqx")
    assert not (tmp_path / "b.eqx").exists()
