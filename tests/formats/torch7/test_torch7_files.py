"""Torch7's .t7 files: every class against a second reading of its source, real files, trees that are not what they claim, damage."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.torch7 import torch7_file, torch7_write
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from tests.helpers.damage import unreadable
from tests.helpers.drawn import drawn
from tests.helpers.sources import checkpoint, stack, write
from tests.helpers.stacks import PLAIN
from tests.helpers.torch7_modules import fast_lstm, gru, loop, lstm, make, numbers, sequence, steps

X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3))


def saved(path: Path, root: Any) -> Path:
    torch7_write.write(path, root)
    return path


def only(path: Path, **options: Any) -> Recurrent:
    loaded = rc.load(path, **options)
    assert not loaded.warnings, loaded.warnings
    (layer,) = loaded.layers.values()
    return layer


# Every class -----------------------------------------------------------------------------------------------

MODULES: dict[str, Callable[[], Object]] = {
    "LSTM": lambda: lstm(3, 4), "LSTM without peepholes": lambda: lstm(3, 4, False), "FastLSTM": lambda: fast_lstm(3, 4),
    "GRU": lambda: gru(3, 4),
}  # fmt: skip
LOOPS: dict[str, Callable[[], Object]] = {
    "SeqLSTM": lambda: make("SeqLSTM", weight=numbers(7, 16), bias=numbers(16)),
    "SeqLSTMP": lambda: make("SeqLSTMP", weight=numbers(5, 16), bias=numbers(16), weightO=numbers(4, 2)),
    "SeqGRU": lambda: make("SeqGRU", weight=numbers(7, 12), bias=numbers(12)),
    "VanillaRNN": lambda: make("VanillaRNN", weight=numbers(7, 4), bias=numbers(4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_tree_of_modules_computes_what_is_read(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.t7", {"model": sequence(make("LookupTable", weight=numbers(9, 3)), MODULES[name]())})
    module = torch7_file.read(path)["model"].fields["modules"][2]
    np.testing.assert_allclose(reference.run(only(path), X).y, steps(module, X), rtol=0, atol=1e-12)
    assert list(rc.load(path).layers) == ["model/modules/2"]
    assert [place for place in rc.load(path).tensors] == ["model/modules/1/weight"]


@pytest.mark.parametrize("name", LOOPS)
def test_a_layer_of_sequences_computes_what_is_read(name: str, tmp_path: Path) -> None:
    module = LOOPS[name]()
    np.testing.assert_allclose(reference.run(only(saved(tmp_path / "a.t7", module)), X).y, loop(module, X), rtol=0, atol=1e-12)


def cudnn(name: str, weight: Array, **fields: Any) -> Object:
    settings = {"inputSize": 3, "hiddenSize": 4, "numLayers": 2, "inputMode": "CUDNN_LINEAR_INPUT", "weight": weight, **fields}
    return Object(f"cudnn.{name}", LuaTable(settings))


@pytest.mark.parametrize(
    ("name", "mode", "kind", "ways"),
    [
        ("LSTM", "CUDNN_LSTM", "lstm", 1), ("BLSTM", "CUDNN_LSTM", "lstm", 2), ("GRU", "CUDNN_GRU", "gru", 1),
        ("BGRU", "CUDNN_GRU", "gru", 2), ("RNN", "CUDNN_RNN_RELU", "rnn", 1), ("RNNTanh", "CUDNN_RNN_TANH", "rnn", 1),
    ],
)  # fmt: skip
def test_a_flat_vector_is_cudnns(name: str, mode: str, kind: str, ways: int, tmp_path: Path) -> None:
    layers = stack(kind, num_layers=2, num_directions=ways)
    two = "CUDNN_BIDIRECTIONAL" if ways == 2 else "CUDNN_UNIDIRECTIONAL"
    vector = rc.pack(layers, "cudnn")
    assert isinstance(vector, np.ndarray)
    path = saved(tmp_path / "a.t7", cudnn(name, vector, mode=mode, bidirectional=two))
    read = only(path)
    assert read.cell.activation.name == ("relu" if mode.endswith("RELU") else "tanh")
    np.testing.assert_array_equal(rc.pack(read, "cudnn"), vector)
    wrong = cudnn(name, vector[:-1], mode=mode, bidirectional=two)
    assert "but its sizes need" in rc.load(saved(tmp_path / "b.t7", wrong)).warnings[0]


@pytest.mark.parametrize(("merge", "how"), [("CAddTable", "sum"), ("JoinTable", "concat")])
def test_two_directions_are_one_layer(merge: str, how: str, tmp_path: Path) -> None:
    pair = LOOPS["SeqLSTM"](), LOOPS["SeqLSTM"]()
    turn = make("SeqReverseSequence", dim=1)
    inner = sequence(make("ConcatTable", pair[0], sequence(turn, pair[1], turn)), make(merge))
    module = make("SeqBRNN", inner, forwardModule=pair[0], backwardModule=pair[1], merge=make(merge), module=inner)
    read = only(saved(tmp_path / "a.t7", module))
    halves = loop(pair[0], X), loop(pair[1], X[::-1])[::-1]
    joined = halves[0] + halves[1] if how == "sum" else np.concatenate(halves, 2)
    assert read.layers[0].merge == how
    np.testing.assert_allclose(reference.run(read, X).y, joined, rtol=0, atol=1e-12)
    other = make("BiSequencer", inner, forwardModule=pair[0], backwardModule=pair[1], mergeModule=make("CMaxTable"))
    found_other = rc.load(saved(tmp_path / "b.t7", other))
    assert not found_other.layers and "merged by something other" in found_other.warnings[0]


def test_a_layer_that_is_turned_round_by_hand_is_told_of(tmp_path: Path) -> None:
    turn = make("SeqReverseSequence", dim=1)
    loaded = rc.load(saved(tmp_path / "a.t7", sequence(turn, LOOPS["SeqGRU"](), turn)))
    assert "modules/1 (nn.SeqReverseSequence) reverses the order of a sequence" in loaded.warnings[0]


# What is not what its class is known for ---------------------------------------------------------------------


def refused(path: Path, module: Object) -> str:
    loaded = rc.load(saved(path, module))
    assert not loaded.layers
    return loaded.warnings[0]


def test_a_tree_that_is_another_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.t7"
    early = lstm(3, 4)  # the first nn.LSTM had no function at its hidden layer
    early.fields["hiddenLayer"].fields["modules"].pop(4)
    assert "hiddenLayer is made of Linear, Linear, CAddTable, but its class" in refused(path, early)
    dropping = fast_lstm(3, 4)
    dropping.fields["p"] = 0.25
    assert "drops values inside the cell (p = 0.25)" in refused(path, dropping)
    normed = fast_lstm(3, 4)
    normed.fields["recurrentModule"].fields["modules"][2] = make("BatchNormalization", weight=numbers(4))
    assert "is made of Linear" in refused(path, normed)
    biased = lstm(3, 4)
    parallel = biased.fields["inputGate"].fields["modules"][1].fields["modules"]
    parallel[2] = make("Linear", weight=numbers(4, 4), bias=numbers(4))
    assert "1 of its four gates have a second bias" in refused(path, biased)
    apart = gru(3, 4)
    apart.fields["i2g"] = make("Linear", weight=numbers(8, 3), bias=numbers(8))
    assert "its gates are not those that its module uses" in refused(path, apart)
    fork = make("GRU", weight=numbers(7, 12), bias=numbers(12))
    assert "as forks have under this name" in refused(path, fork)
    assert only(path, layout="torch7.seq_gru").cell.reset_after is False
    assert "equations are unknown" in refused(path, make("SeqLSTM_WN", weight=numbers(7, 16)))
    assert "do not fit together" in refused(path, make("SeqLSTM", weight=numbers(7, 16), bias=numbers(15)))
    assert "of the types" in refused(path, make("SeqGRU", weight=np.zeros((7, 12), "i8"), bias=np.zeros(12, "i8")))


# Files that we write -----------------------------------------------------------------------------------------

FORMS: dict[str, dict[str, Any]] = {
    "lstm": {}, "gru": {"kind": "gru"}, "rnn": {"kind": "rnn"}, "two layers": {"num_layers": 2},
    "projected": {"projection_size": 2, "parts": PLAIN | {"input_bias", "projection"}},
    "both ways": {"num_layers": 2, "num_directions": 2, "layout": "torch7.cudnn_lstm"},
    "relu": {"kind": "rnn", "layout": "torch7.cudnn_rnn"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_files_come_and_go(form: str, tmp_path: Path) -> None:
    settings = dict(FORMS[form])
    options = {"layout": settings.pop("layout")} if "layout" in settings else {}
    source = stack(**{"name": "a", **settings})
    if form == "relu":
        source = rc.Recurrent("a", (rc.Layer((source.first.replace(cell=source.cell.replace(activation=RELU)),)),))
    if form == "gru":
        source = rc.Recurrent("a", (rc.Layer((source.first.replace(cell=source.cell.replace(reset_after=False)),)),))
        source = source.replace(layers=(rc.Layer((source.first.with_arrays({("recurrent_bias", "n"): np.zeros(4, "f4")}),)),))
    path = write(tmp_path / "a.t7", source, **options)
    loaded = rc.load(path)
    y = np.asarray(X)
    for layer in loaded.layers.values():
        y = reference.run(layer, y).y
    np.testing.assert_allclose(y, reference.run(source, X).y, rtol=0, atol=1e-6)


def test_a_note_says_what_a_file_needs(tmp_path: Path) -> None:
    (note,) = rc.save(checkpoint(stack(name="a")), tmp_path / "a.t7").notes
    assert note.endswith("is an nn.SeqLSTM; torch.load needs the package rnn of Element-Research; its gradients are empty tensors")
    root = torch7_file.read(tmp_path / "a.t7")
    assert isinstance(root, Object) and root.fields["inputsize"] == 3 and root.fields["weight"].shape == (7, 16)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    shared = np.arange(6, dtype="f4").reshape(2, 3)
    values = {
        "numbers": [1, 2.5, -3, float("inf")], "text": "ü", "truth": [True, False], "nothing": LuaTable(), "one": shared, "same": shared,
        "half": np.ones(2, "f2"), "long": np.array([1 << 40]), "empty": np.zeros((0, 3)), "object": make("Linear", weight=shared),
    }  # fmt: skip
    read = torch7_file.read(saved(tmp_path / "a.t7", values))
    assert read["numbers"].listed() == [1, 2.5, -3, float("inf")] and read["text"] == "ü"
    assert read["truth"].listed() == [True, False] and read["empty"].size == 0 and read["long"].tolist() == [1 << 40]
    assert read["one"] is read["same"] is read["object"].fields["weight"]
    assert not read["one"].flags.writeable and read["half"].dtype == np.float16
    with pytest.raises(rc.UsageError, match="cannot hold complex"):
        torch7_write.write(tmp_path / "b.t7", {"a": 1j})
    assert not (tmp_path / "b.t7").exists()


# Bytes by hand ----------------------------------------------------------------------------------------------


def tensor(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, values: Array, long: str = "q") -> bytes:
    """A FloatTensor as generic/Tensor.c writes one, of the number 1, with a storage of the number 2."""
    out = struct.pack("<iii", 4, 1, 3) + b"V 1" + struct.pack("<i", 17) + b"torch.FloatTensor" + struct.pack("<i", len(shape))
    out += struct.pack(f"<{len(shape)}{long}", *shape) + struct.pack(f"<{len(strides)}{long}", *strides)
    out += struct.pack(f"<{long}", offset) + struct.pack("<iii", 4, 2, 3) + b"V 1"
    out += struct.pack("<i", 18) + b"torch.FloatStorage" + struct.pack(f"<{long}", values.size) + values.astype("<f4").tobytes()
    return out


def test_a_tensor_is_a_view_of_its_storage(tmp_path: Path) -> None:
    path = tmp_path / "a.t7"
    for long in "qi":
        path.write_bytes(tensor((3, 2), (1, 4), 2, np.arange(8), long))
        np.testing.assert_array_equal(torch7_file.read(path), [[1, 5], [2, 6], [3, 7]])


def test_functions_are_stepped_over(tmp_path: Path) -> None:
    text = struct.pack("<ii", 2, 1) + b"f"
    for kind, number in ((6, b""), (7, struct.pack("<i", 2)), (8, struct.pack("<i", 2))):
        body = struct.pack("<i", kind) + number + struct.pack("<i", 5) + b"\x1bLuaR" + struct.pack("<iii", 3, 9, 0)
        (tmp_path / "a.t7").write_bytes(struct.pack("<iii", 3, 1, 1) + text + body)
        assert torch7_file.read(tmp_path / "a.t7")["f"].name == "function"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"4\n1\n3\n", "ASCII mode"),
        (struct.pack("<iii", 3, 1, 1 << 28), "a table of 268435456 entries"),
        (struct.pack("<iii", 3, 1, -1), "a table of -1 entries"),
        (struct.pack("<iii", 3, 1, 0) + b"x", "1 bytes follow the object"),
        (struct.pack("<i", 99), "unknown type 99"),
        (struct.pack("<ii", 2, 1 << 30), "bytes should follow"),
        (struct.pack("<iii", 4, 1, 3) + b"V 1" + struct.pack("<i", 8) + b"tds.Hash", "serializes itself in its own way"),
        (struct.pack("<iii", 4, 1, 3) + b"V 1" + struct.pack("<i", 4) + b"nn.A" + struct.pack("<ii", 2, 65), "bytes should follow"),
        (struct.pack("<iii", 4, 1, 3) + b"V 1" + struct.pack("<i", 4) + b"nn.A" + struct.pack("<ii", 5, 1), "fields are not a table"),
        (tensor((3, 3), (3, 1), 1, np.arange(8)), "reaches beyond its 8 numbers"),
        (tensor((3, 3), (-3, 1), 1, np.arange(9)), "no memory could be allocated"),
        (tensor((3, -3), (3, 1), 1, np.arange(9)), "no memory could be allocated"),
        (tensor((3, 3), (3, 1), 0, np.arange(9)), "no memory could be allocated"),
        (tensor((1 << 60, 1 << 60), (0, 0), 1, np.arange(9)), "no memory could be allocated"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.t7").write_bytes(content)
    with pytest.raises(rc.UnreadableError, match=message):
        torch7_file.read(tmp_path / "a.t7")


def test_damage_is_unreadable_or_another_number(tmp_path: Path) -> None:
    full = saved(tmp_path / "a.t7", {"m": LOOPS["SeqGRU"](), "t": [1, "x", True]}).read_bytes()
    for number in drawn(range(3000), 500, "damage"):
        rng = np.random.default_rng(number)
        content = np.frombuffer(full, np.uint8).copy()
        if number < len(full):
            content = content[:number]
        else:
            places = rng.integers(0, content.size, rng.integers(1, 5))
            content[places] = rng.integers(0, 256, places.size)
        (tmp_path / "b.t7").write_bytes(content.tobytes() or b"\0")
        assert unreadable(torch7_file.read, tmp_path / "b.t7", 400_000) or number >= len(full)


def test_a_chain_of_objects_takes_no_memory(tmp_path: Path) -> None:
    chain = b"".join(struct.pack("<4i", torch7_file.TABLE, number, 1, torch7_file.NUMBER) + struct.pack("<d", 1)
                     for number in range(1, 30_000))  # fmt: skip
    (tmp_path / "a.t7").write_bytes(chain + struct.pack("<i", torch7_file.NIL))
    tracemalloc.start()
    try:
        with pytest.raises(rc.UnreadableError, match="are nested too deep"):
            rc.load(tmp_path / "a.t7")
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


def test_what_many_objects_share_is_walked_once(tmp_path: Path) -> None:
    shared = LuaTable({number: LuaTable() for number in range(1, 2001)})
    root = LuaTable({number: make("GRU", shared=shared) for number in range(1, 1001)})
    root[0] = shared
    loaded = rc.load(saved(tmp_path / "a.t7", root))
    seen: set[int] = set()
    assert len(loaded.warnings) == 1000
    assert len(list(torch7_file.walk(root, seen=seen))) > 3000 and not list(torch7_file.walk(root[1], seen=seen))


def test_an_empty_tensor_of_enormous_lengths_is_unreadable(tmp_path: Path) -> None:
    content = tensor((0, 1 << 30, 1 << 31), (1, 1, 1), 1, np.zeros(0, "f4"))
    (tmp_path / "a.t7").write_bytes(content)
    with pytest.raises(rc.UnreadableError, match="for which no memory could be allocated"):
        torch7_file.read(tmp_path / "a.t7")
