"""MXNet's .params files: every header, every spelling, the graph beside them, and what is damaged."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import npz_file
from rnnconvert.core import reference
from rnnconvert.core.arrays import BFLOAT16, FLOATS, Array
from rnnconvert.core.cells import RELU, TANH
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.mxnet import mxnet_params
from rnnconvert.formats.mxnet import symbol as mxnet_symbol
from rnnconvert.running import registry
from rnnconvert.verification.verify import verify
from tests import ROOT
from tests.files.test_options import bits
from tests.helpers import corpus, ready
from tests.helpers.damage import unreadable
from tests.helpers.drawn import LONG, drawn
from tests.helpers.frameworks import found_by, mxnet
from tests.helpers.requirements import need
from tests.helpers.sources import checkpoint, stack, uniform, write
from tests.helpers.stacks import BOTH

GOLDEN = ROOT / "tests" / "golden" / "mxnet"
ANSWERS = np.load(GOLDEN / "answers.npz")
FILES = {path.name.split(".")[0].split("-")[0]: path for path in sorted(GOLDEN.glob("*.params"))}


PROJECTED = BOTH | {"projection"}


def only(path: Path, **options: Any) -> Recurrent:
    (layer,) = rc.load(path, **options).layers.values()
    return layer


# Headers --------------------------------------------------------------------------------------------

VERSIONS = ("oldest", "V1", "V2", "V3")


def file_of(arrays: Mapping[str, Array], version: str = "V2", names: bool = True, device: int = 1) -> bytes:
    """A list of float32 arrays with the header of a version, as src/ndarray/ndarray.cc has them."""
    content = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for array in arrays.values():
        axes = array.ndim
        content += {
            "oldest": struct.pack(f"<I{axes}I", axes, *array.shape),
            "V1": struct.pack(f"<Ii{axes}q", 0xF993FAC8, axes, *array.shape),
            "V2": struct.pack(f"<Iii{axes}q", 0xF993FAC9, 0, axes, *array.shape),
            "V3": struct.pack(f"<Iii{axes}q", 0xF993FACA, 0, axes, *array.shape),
        }[version]
        content += struct.pack("<iii", device, 0, 0) + array.astype("<f4").tobytes()
    encoded = [name.encode() for name in arrays] if names else []
    return content + struct.pack("<Q", len(encoded)) + b"".join(struct.pack("<Q", len(n)) + n for n in encoded)


def gru() -> dict[str, Array]:
    """Arrays of a small gluon GRU, as numpy made them."""
    return {
        "gru0_l0_i2h_weight": uniform(1, 12, 3), "gru0_l0_h2h_weight": uniform(2, 12, 4),
        "gru0_l0_i2h_bias": uniform(3, 12), "gru0_l0_h2h_bias": uniform(4, 12),
    }  # fmt: skip


@pytest.mark.parametrize("device", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_header_is_read(version: str, device: int, tmp_path: Path) -> None:
    arrays = gru()
    path = tmp_path / "a.params"
    path.write_bytes(file_of(arrays, version, device=device))
    read = mxnet_params.read(path)
    assert list(read.arrays) == list(arrays) and read.metadata["unreadable"] == {}
    for name, array in arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)
        assert not read.arrays[name].flags.owndata and not read.arrays[name].flags.writeable
    path.write_bytes(file_of(arrays, version, names=False))
    assert list(mxnet_params.read(path).arrays) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("version", VERSIONS[:3])
def test_mxnet_reads_these_headers_so(version: str, tmp_path: Path) -> None:
    mxnet("mxnet-gluon")
    path = tmp_path / "a.params"
    path.write_bytes(file_of(gru(), version))
    arrays = by_mxnet(tmp_path, "found = mxnet.nd.load('a.params')")
    assert {name: array.tobytes() for name, array in arrays.items()} == {n: a.tobytes() for n, a in gru().items()}


def by_mxnet(folder: Path, script: str) -> dict[str, Array]:
    """What a script under MXNet's own Python leaves in `found`: arrays by name."""
    return found_by("mxnet", f"import mxnet\n{script}\nfound = {{name: array.asnumpy() for name, array in found.items()}}", folder)


def test_what_is_written_is_what_mxnet_reads(tmp_path: Path) -> None:
    arrays = {str(dtype): np.arange(6).reshape(2, 3).astype(dtype) for dtype in ("f2", "f4", "f8", "u1", "i4", "i1", "i8")}
    mxnet_params.write(tmp_path / "a.params", arrays | {"arg:ü": np.ones(3, "f4")})
    read = by_mxnet(tmp_path, "found = mxnet.nd.load('a.params')")
    assert {name: (array.dtype, array.tobytes()) for name, array in read.items()} == {
        name: (array.dtype, array.tobytes()) for name, array in (arrays | {"arg:ü": np.ones(3, "f4")}).items()
    }
    scalars = {"scalar": np.array(2, "f4"), "none": np.zeros((0, 2), "f4")}
    mxnet_params.write(tmp_path / "a.params", scalars)
    read = by_mxnet(tmp_path, "mxnet.util.set_np_shape(True)\nfound = mxnet.nd.load('a.params')")
    assert {name: array.shape for name, array in read.items()} == {"scalar": (), "none": (0, 2)}
    mxnet_params.write(tmp_path / "a.params", {"half": np.array([1.5, -3], BFLOAT16)})
    read = by_mxnet(tmp_path, "found = {'half': mxnet.nd.load('a.params')['half'].astype('float32')}")
    np.testing.assert_array_equal(read["half"], [1.5, -3])


def test_element_types_come_and_go(tmp_path: Path) -> None:
    types = mxnet_params.read(FILES["types"])
    for name, array in types.arrays.items():
        if name != "last":
            assert str(array.dtype) == name
            np.testing.assert_array_equal(array.astype("f4")[0, ::2], [1 if "int" in name else 1.5, 3])
    assert types.arrays["last"].tolist() == [1, 1]
    assert set(types.metadata["unreadable"]) == {"csr", "rows"} and "sparse (csr)" in types.metadata["unreadable"]["csr"]
    mxnet_params.write(tmp_path / "a.params", types.arrays)
    again = mxnet_params.read(tmp_path / "a.params")
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in again.arrays.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in types.arrays.items()
    }
    assert {name: array.shape for name, array in mxnet_params.read(FILES["scalar"]).arrays.items()} == {
        "scalar": (), "none": (0, 2),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["saved", "collected", "fused", "scalar"])
def test_equal_arrays_give_mxnets_own_bytes(name: str, tmp_path: Path) -> None:
    mxnet_params.write(tmp_path / "a.params", mxnet_params.read(FILES[name]).arrays)
    assert (tmp_path / "a.params").read_bytes() == FILES[name].read_bytes()


def test_what_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="cannot hold 'a' of type complex64"):
        mxnet_params.write(tmp_path / "a.params", {"a": np.ones(2, "c8")})
    with pytest.raises(rc.UsageError, match="not valid text"):
        mxnet_params.write(tmp_path / "a.params", {"\ud800": np.ones(2)})
    assert list(tmp_path.iterdir()) == []


# Damage ---------------------------------------------------------------------------------------------


def unreadable_or_read(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    return unreadable(mxnet_params.read, path, 200_000)


SMALL = {"a": np.ones((2, 3), "f4"), "b": np.ones(2, "f4")}


@pytest.mark.parametrize("source", [*VERSIONS, "types"])
def test_every_truncation_is_unreadable(source: str, tmp_path: Path) -> None:
    content = FILES["types"].read_bytes() if source == "types" else file_of(SMALL, source)
    for length in range(len(content)):
        assert unreadable_or_read(tmp_path / "a.params", content[:length]), length
    assert unreadable_or_read(tmp_path / "a.params", content + b"\0")


@pytest.mark.parametrize("source", [*VERSIONS, "types"])
def test_a_changed_byte_is_unreadable_or_another_number(source: str, tmp_path: Path) -> None:
    content = FILES["types"].read_bytes() if source == "types" else file_of(SMALL, source)
    changes = [(at, value) for at in range(len(content)) for value in {0, 1, 0x7F, 0x80, 0xFF, content[at] ^ 1} - {content[at]}]
    tried = drawn(changes, 500, source)
    refused = 0
    for at, value in tried:
        refused += unreadable_or_read(tmp_path / "a.params", content[:at] + bytes([value]) + content[at + 1 :])
    assert refused > len(tried) / 6


def test_random_damage_is_unreadable_or_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    wholes = [file_of(SMALL, version) for version in VERSIONS] + [FILES["types"].read_bytes()]
    for _ in range(2000 if LONG else 500):
        content = np.frombuffer(wholes[rng.integers(len(wholes))], np.uint8).copy()
        places = rng.integers(8, content.size, rng.integers(1, 9))
        content[places] = rng.integers(0, 256, places.size)
        unreadable_or_read(tmp_path / "a.params", content.tobytes()[: rng.integers(8, content.size + 1)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<QQQ", 0x112, 0, 1 << 60), "in the middle"),
        (struct.pack("<QQQIiiqq", 0x112, 0, 1, 0xF993FAC9, 0, 2, 1 << 40, 1 << 40), "has the shape"),
        (struct.pack("<QQQIiiqq", 0x112, 0, 1, 0xF993FAC9, 0, 2, 0, -1), "has the shape"),
        (struct.pack("<QQQIii", 0x112, 0, 1, 0xF993FAC9, 0, 1 << 30), "axes"),
        (struct.pack("<QQQIiiqiii", 0x112, 0, 1, 0xF993FAC9, 0, 1, 1 << 40, 1, 0, 0), "only"),
        (struct.pack("<QQQIiiqiii", 0x112, 0, 1, 0xF993FAC9, 0, 1, 2, 1, 0, 13), "unknown type 13"),
        (struct.pack("<QQQIi", 0x112, 0, 1, 0xF993FAC9, 3), "stored as the unknown type 3"),
        (struct.pack("<QQQQQ", 0x112, 0, 0, 1, 1 << 50), "0 arrays and 1 names"),
        (file_of({"a": np.ones(2)})[:-1] + b"\xff", "not valid text"),
        (file_of({"a": np.ones(2), "b": np.ones(2)})[:-1] + b"a", "two things in it have the name 'a'"),
        (b"\x12\x02" + bytes(40), "does not begin"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.params").write_bytes(content)
    with pytest.raises(rc.UnreadableError, match=message):
        rc.load(tmp_path / "a.params", "mxnet")


def test_an_array_without_a_shape_is_said(tmp_path: Path) -> None:
    names = struct.pack("<QQ", 1, 1) + b"a"
    for array in (struct.pack("<Iii", 0xF993FAC9, 0, 0), struct.pack("<I", 0), struct.pack("<Iii", 0xF993FACA, 0, -1)):
        (tmp_path / "a.params").write_bytes(struct.pack("<QQQ", 0x112, 0, 1) + array + names)
        assert rc.load(tmp_path / "a.params").warnings == ("a: it was saved before it had a shape",)


# Files that MXNet wrote -------------------------------------------------------------------------------

NAMES = {"saved": "", "collected": "lstm0", "exported": "rnn0", "cells": "", "fused": "gru", "unpacked": "lstm"}


@pytest.mark.parametrize("name", NAMES)
def test_mxnets_files_give_what_mxnet_gave(name: str, tmp_path: Path) -> None:
    loaded = rc.load(FILES[name])
    assert list(loaded.layers) == [NAMES[name]] and not loaded.tensors and not loaded.questions and not loaded.warnings
    y = reference.run(loaded.layers[NAMES[name]], ANSWERS["x"]).y
    np.testing.assert_allclose(y, ANSWERS[name], rtol=0, atol=1e-6)
    # Without the graph the sizes of a vector and the function of an RNN are not there.
    shutil.copy(FILES[name], tmp_path / "a.params")
    alone = rc.load(tmp_path / "a.params")
    assert [entry.assumed for entry in alone.questions] == (["relu"] if name == "exported" else [])
    if name == "fused":
        assert not alone.layers
        with pytest.raises(rc.RefusedError, match=r"no description was found\. Give --set cell="):
            rc.convert(tmp_path / "a.params", tmp_path / "a.pt")
        options: dict[str, Any] = {"cell": "gru", "hidden_size": 4, "num_layers": 2, "bidirectional": True}
        assert bits(only(tmp_path / "a.params", **options)) == bits(loaded.layers["gru"])
        with pytest.raises(rc.UsageError, match="for each input after the first"):
            rc.load(tmp_path / "a.params", **{**options, "hidden_size": 5})
        with pytest.raises(rc.UsageError, match="for each input after the first"):
            rc.load(tmp_path / "a.params", **options, input_size=4)


@pytest.mark.parametrize("name", NAMES)
def test_mxnets_files_are_written_as_they_were(name: str, tmp_path: Path) -> None:
    module = {"fused": "flat", "unpacked": "gates"}.get(name, "stack")
    rc.convert(FILES[name], tmp_path / "a.params", settings=[f"module={module}"])
    was, now = (mxnet_params.read(path).arrays for path in (FILES[name], tmp_path / "a.params"))
    assert {n: a.tobytes() for n, a in now.items()} == {n: a.tobytes() for n, a in was.items()}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fused"])
def test_a_file_is_verified_by_gluon_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = mxnet("mxnet-gluon")
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "mxnet-gluon": executor})
    report = verify(FILES[name], on=["mxnet-gluon"])
    assert report.equal, str(report)
    assert all(run["own_file"] for layer in report.document["layers"] for run in layer["runs"])


def test_a_flat_vector_is_verified_as_gluons_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = mxnet("mxnet-gluon")
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "mxnet-gluon": executor})
    report = verify(FILES["fused"], on=["mxnet-gluon"])
    assert report.equal, str(report)
    (run,) = report.document["layers"][0]["runs"]
    assert not run["own_file"]


def test_the_real_file_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    need("corpus", corpus.absent())
    executor = mxnet("mxnet-gluon")
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), "mxnet-gluon": executor})
    path = corpus.FOLDER / "mxnet-ner-bilstm" / "model.params"
    report = verify(path, on=["mxnet-gluon"])
    assert report.equal, str(report)
    assert report.document["layers"][0]["runs"][0]["own_file"]
    with np.load(path.with_name("fused_flat.ref.npz")) as stored:
        packed = rc.pack(only(path), "mxnet", module="flat")
        vector = packed if isinstance(packed, np.ndarray) else np.asarray(packed["parameters"])
        np.testing.assert_array_equal(vector, stored["flat"])


# Files that we write ------------------------------------------------------------------------------------


LOADED = {
    "stack": "layer = made()\nlayer.load_parameters('a.params')\ny = layer(x)",
    "cell": "cell = made()\ncell.load_parameters('a.params')\ny = cell.unroll(5, x, layout='TNC', merge_outputs=True)[0]",
    "flat": "y = made(data=x, **mxnet.nd.load('a.params'), **begun)",
    "gates": """cell = made(prefix='')
vector = cell.pack_weights(mxnet.nd.load('a.params'))
start = [mxnet.sym.Variable(name) for name in begun]
graph = cell.unroll(5, mxnet.sym.Variable('x'), start, 'TNC', True)[0]
y = graph.eval(x=x, **begun, **vector)[0]""",
}
"""How each spelling goes into what the note of a written file names."""


@pytest.mark.drawn(2)
@pytest.mark.parametrize("module", LOADED)
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_note_says_what_loads_a_file(kind: str, module: Any, tmp_path: Path) -> None:
    size = (1, 1) if module == "cell" else (2, 2)
    layer = stack(kind, num_layers=size[0], num_directions=size[1], name="encoder")
    (note,) = rc.save(checkpoint(layer), tmp_path / "a.params", module=module).notes
    where, _, call = note.partition(" loads into ")
    assert where == "the file itself"
    np.save(tmp_path / "x.npy", ANSWERS["x"])
    states = ("state", "state_cell") if kind == "lstm" else ("state",)
    script = f"x = mxnet.nd.array(np.load('x.npy'))\nbegun = {{name: mxnet.nd.zeros((4, 2, 4)) for name in {states}}}\n"
    script += f"made = lambda **more: {call[:-1]}, **more)\n"
    # A plain RNN has one gate: its arrays of single gates are gluon's.
    script += LOADED["stack" if (kind, module) == ("rnn", "gates") else module]
    result = by_mxnet(tmp_path, script + "\nfound = {'y': y}")
    np.testing.assert_allclose(result["y"], reference.run(layer, ANSWERS["x"]).y, rtol=0, atol=3e-6)


def test_several_layers_go_under_their_names(tmp_path: Path) -> None:
    layers = (stack(name="encoder.rnn", projection_size=2, parts=PROJECTED), stack("gru", name="decoder", num_directions=2))
    notes = rc.save(checkpoint(*layers), tmp_path / "a.params").notes
    np.save(tmp_path / "x.npy", ANSWERS["x"])
    script = "x = mxnet.nd.array(np.load('x.npy'))\nfound = {}\n"
    for note in notes:
        where, _, call = note.partition(" loads into ")
        script += f"layer = {call}\nlayer.collect_params().load('a.params', ignore_extra=True)\n"
        script += f"found[{where!r}] = layer(x)\n"
    results = by_mxnet(tmp_path, script)
    assert list(results) == ["encoder_rnn", "decoder"]
    for layer, y in zip(layers, results.values(), strict=True):
        np.testing.assert_allclose(y, reference.run(layer, ANSWERS["x"]).y, rtol=0, atol=3e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("module", ["stack", "flat", "gates"])
def test_files_come_and_go(module: str, dtype: str, tmp_path: Path) -> None:
    for kind in ("rnn", "gru", "lstm"):
        layer = stack(kind, dtype=FLOATS[dtype], num_layers=2, num_directions=2, name="a")
        path = write(tmp_path / f"{kind}.params", layer, module=module)
        cell = "rnn_tanh" if kind == "rnn" else kind
        options = {"cell": cell, "hidden_size": 4, "num_layers": 2, "bidirectional": True} if module == "flat" else {}
        function = {"nonlinearity": "tanh"} if kind == "rnn" else {}
        read = only(path, **function, **options)
        assert bits(read) == bits(layer) and read.cell == layer.cell


def test_a_stack_is_written_as_cells(tmp_path: Path) -> None:
    path = write(tmp_path / "a.params", stack("rnn", num_layers=2, name="a"), module="cell")
    loaded = rc.load(path)
    # Cells of these names are what gluon and mx.rnn unfuse a layer into: together they are the layer.
    assert loaded.layers["a"].num_layers == 2
    cells = write(tmp_path / "one.params", stack("rnn", name="a"), module="cell")
    assert [entry.assumed for entry in rc.load(cells).questions] == ["tanh"]
    assert only(write(tmp_path / "b.params", stack(projection_size=2, parts=PROJECTED), module="cell")).first.projection_size == 2


def test_a_prefix_is_the_users(tmp_path: Path) -> None:
    path = write(tmp_path / "a.params", stack(name="a"), prefix="mine")
    assert all(name.startswith("mine_l0_") for name in mxnet_params.read(path).arrays)
    with pytest.raises(rc.UsageError, match="two layers would both be written as 'mine_l0_i2h_weight'"):
        write(tmp_path / "b.params", stack(name="a"), stack(name="b"), prefix="mine")


def test_what_stands_beside_the_layers_is_carried(tmp_path: Path) -> None:
    arrays = {f"arg:{name}": array for name, array in gru().items()} | {
        "arg:dense0_weight": uniform(5, 2, 4), "aux:norm_moving_mean": uniform(6, 2),
    }  # fmt: skip
    mxnet_params.write(tmp_path / "a.params", arrays)
    rc.convert(tmp_path / "a.params", tmp_path / "b.params")
    carried = mxnet_params.read(tmp_path / "b.params").arrays
    assert {name: array.tobytes() for name, array in carried.items()} == {n: a.tobytes() for n, a in arrays.items()}
    rc.convert(tmp_path / "a.params", tmp_path / "c.params", settings=["module=gates"])
    assert "arg:gru0_l0_i2h_o_weight" in mxnet_params.read(tmp_path / "c.params").arrays


# Names --------------------------------------------------------------------------------------------------


def named(path: Path, **renamed: str) -> Path:
    """The arrays of a GRU under other names: what stands before and what stands after."""
    start, end = renamed.get("start", ""), renamed.get("end", "l0_")
    mxnet_params.write(path, {name.replace("gru0_l0_", start + end): array for name, array in gru().items()})
    return path


@pytest.mark.parametrize(
    ("start", "end", "name"),
    [
        ("", "l0_", ""), ("model0_gru0_", "l0_", "model0_gru0"), ("arg:a_", "l0_", "a"), ("a.b.", "l0_", "a.b"),
        ("a.", "_unfused.0.", "a"), ("", "_unfused.0.", ""), ("0.", "", "0"), ("model0_", "", "model0"), ("", "", ""),
    ],
)  # fmt: skip
def test_a_layers_name_is_what_stands_before(start: str, end: str, name: str, tmp_path: Path) -> None:
    loaded = rc.load(named(tmp_path / "a.params", start=start, end=end))
    assert list(loaded.layers) == [name] and not loaded.warnings and not loaded.tensors


def test_two_cells_that_may_be_one_layers_directions_are_said(tmp_path: Path) -> None:
    arrays = {name.replace("gru0_l0_", start): array for start in ("encl0_", "encr0_") for name, array in gru().items()}
    mxnet_params.write(tmp_path / "a.params", arrays)
    loaded = rc.load(tmp_path / "a.params")
    assert list(loaded.layers) == ["encl0", "encr0"]
    assert "two directions of one layer, 'encr0_' reads from the end" in loaded.warnings[0]


def test_what_is_no_layer_is_left_among_the_tensors(tmp_path: Path) -> None:
    arrays = gru() | {"gru0_l0_h2h_bias": uniform(1, 11), "conv_i2h_weight": uniform(2, 8, 3, 1, 1)}
    arrays |= {"conv_h2h_weight": uniform(2, 8, 2, 1, 1), "parameters": uniform(1, 2, 2)}
    arrays |= {f"b_{name}": array.astype("i4") for name, array in gru().items()}
    mxnet_params.write(tmp_path / "a.params", arrays)
    loaded = rc.load(tmp_path / "a.params")
    assert not loaded.layers and len(loaded.tensors) == len(arrays)
    assert [text.split(":")[0] for text in loaded.warnings] == ["gru0", "conv", "b_gru0"]
    assert "do not fit together" in loaded.warnings[0] and "int32" in loaded.warnings[2]


def test_gluon_of_mxnet_2_is_read(tmp_path: Path) -> None:
    """Its flat `rnn_param`, in the .npz archives that it writes under numpy's semantics."""
    (vector,) = mxnet_params.read(FILES["fused"]).arrays.values()
    npz_file.write(tmp_path / "a.npz", {"encoder.rnn_param": vector, "dense.weight": uniform(1, 2, 8)})
    (tmp_path / "a.npz").rename(tmp_path / "a.params")
    options: dict[str, Any] = {"source_format": "mxnet", "cell": "gru", "hidden_size": 4, "num_layers": 2, "bidirectional": True}
    loaded = rc.load(tmp_path / "a.params", **options)
    assert bits(loaded.layers["encoder"]) == bits(only(FILES["fused"]))
    npz_file.write(tmp_path / "b.params", {"dense.weight": uniform(1, 2, 8)})
    with pytest.raises(rc.UnreadableError, match="named as those of gluon's"):
        rc.load(tmp_path / "b.params", "mxnet")


# The graph ----------------------------------------------------------------------------------------------


def graph(attributes: Mapping[str, Any], key: str = "attrs") -> str:
    """An RNN operator that reads a GRU's arrays through a concatenation."""
    arrays = [{"op": "null", "name": name, "inputs": []} for name in gru()]
    joined = {"op": "_rnn_param_concat", "name": "all", "inputs": [[index, 0, 0] for index in range(len(arrays))]}
    data = {"op": "null", "name": "data", "inputs": []}
    operator = {"op": "RNN", "name": "rnn", key: {"state_size": "4", "num_layers": "1", **attributes}, "inputs": [[5, 0, 0], [4, 0, 0]]}
    return json.dumps({"nodes": [*arrays, joined, data, operator]})


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
@pytest.mark.parametrize("file", ["model-0012.params", "model.params"])
def test_the_graph_says_the_function(file: str, key: str, tmp_path: Path) -> None:
    mxnet_params.write(tmp_path / file, {name: array[:4] for name, array in gru().items()})
    (entry,) = rc.load(tmp_path / file).questions
    assert (entry.option, entry.assumed, entry.layer) == ("nonlinearity", "relu", "gru0")
    for mode, function in (("rnn_tanh", TANH), ("rnn_relu", RELU)):
        (tmp_path / "model-symbol.json").write_text(graph({"mode": mode}, key))
        loaded = rc.load(tmp_path / file)
        assert loaded.layers["gru0"].cell.activation == function and not loaded.questions


def test_the_graph_says_a_clip(tmp_path: Path) -> None:
    arrays = {name: np.concatenate([array, array[:4]]) for name, array in gru().items()}
    mxnet_params.write(tmp_path / "a.params", arrays)
    bounds = {"lstm_state_clip_min": "-0.5", "lstm_state_clip_max": "2"}
    (tmp_path / "a-symbol.json").write_text(graph({"mode": "lstm", **bounds}))
    (clip,) = only(tmp_path / "a.params").cell.clips
    assert (clip.kind, clip.low, clip.high) == ("state", -0.5, 2)
    with pytest.raises(rc.RefusedError, match="clip"):
        rc.convert(tmp_path / "a.params", tmp_path / "b.params")
    for wrong, message in (("None", "expected two numbers"), ("-3", "lower bound first")):
        (tmp_path / "a-symbol.json").write_text(graph({"mode": "lstm", **bounds, "lstm_state_clip_max": wrong}))
        with pytest.raises(rc.UnreadableError, match=message):
            rc.load(tmp_path / "a.params")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (graph({"mode": "lstm"}), "arrays of a gru there, but mode=lstm"),
        ("{", "not a graph of MXNet's"),
        ("[]", "not a graph"),
        ('{"nodes": 3}', "not a graph"),
        ('{"nodes": [{"op": "RNN", "inputs": []}]}', "not a graph"),
        ('{"nodes": [{"op": "RNN", "inputs": [[0], ["x"]]}]}', "not a graph"),
        ('{"nodes": [{"op": "RNN", "attrs": [1], "inputs": [[0], [0]]}]}', "not a graph"),
        ("[" * 100_000, "not a graph"),
    ],
)
def test_a_damaged_graph_is_unreadable(text: str, message: str, tmp_path: Path) -> None:
    mxnet_params.write(tmp_path / "a.params", gru())
    (tmp_path / "a-symbol.json").write_text(text)
    with pytest.raises(rc.UnreadableError, match=message):
        rc.load(tmp_path / "a.params")


def test_a_graph_that_goes_round_ends(tmp_path: Path) -> None:
    nodes = [{"op": "RNN", "inputs": [[0], [1]]}, {"op": "Reshape", "name": "a", "inputs": [[1], [99], [-1]]}]
    (tmp_path / "a-symbol.json").write_text(json.dumps({"nodes": nodes}))
    assert mxnet_symbol.read(tmp_path / "a-symbol.json") == {}


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "gru", "state_size": "5"}, {"mode": "mlp", "state_size": "4"}, {"mode": "gru", "state_size": "999999999"},
        {"mode": "gru", "state_size": "4", "projection_size": "2"}, {"mode": "gru", "state_size": "4", "num_layers": "99999"},
        {"mode": "lstm", "state_size": "4", "projection_size": "5"},
    ],
)  # fmt: skip
def test_sizes_that_a_vector_has_not_are_unreadable(attributes: dict[str, str], tmp_path: Path) -> None:
    mxnet_params.write(tmp_path / "a.params", {"gru_parameters": uniform(1, 601)})
    (tmp_path / "a-symbol.json").write_text(graph(attributes).replace("gru0_l0_i2h_weight", "gru_parameters"))
    with pytest.raises(rc.UnreadableError):
        rc.load(tmp_path / "a.params")


# What the steps of a graph state ------------------------------------------------------------------------

STEPS = """
import sys, mxnet as mx, numpy as np
from mxnet.gluon import rnn
import mxnet.rnn as old
folder = sys.argv[1]
X = np.random.RandomState(1).uniform(-1, 1, (5, 2, 3)).astype("float32")

def of_gluon(name, cell):
    cell.initialize(mx.init.Uniform(0.7))
    y = cell.unroll(5, mx.nd.array(X), layout="TNC", merge_outputs=True)[0]
    graph = cell.unroll(5, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)[0]
    graph.save(f"{folder}/{name}-symbol.json")
    mx.nd.save(f"{folder}/{name}-0000.params", {f"arg:{k}": v.data() for k, v in cell.collect_params().items()})
    np.save(f"{folder}/{name}.npy", y.asnumpy())

def of_rnn(name, cell):
    graph = cell.unroll(5, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)[0]
    bound = graph.simple_bind(mx.cpu(), data=X.shape)
    random = np.random.RandomState(3)
    for own, array in bound.arg_dict.items():
        array[:] = X if own == "data" else random.uniform(-0.7, 0.7, array.shape)
    np.save(f"{folder}/{name}.npy", bound.forward()[0].asnumpy())
    graph.save(f"{folder}/{name}-symbol.json")
    mx.nd.save(f"{folder}/{name}-0000.params", {f"arg:{k}": v for k, v in bound.arg_dict.items() if k != "data"})

for number, functions in enumerate([{}, dict(activation="relu", recurrent_activation="tanh"), dict(activation="softsign")]):
    of_gluon(f"lstm{number}", rnn.LSTMCell(4, input_size=3, **functions))
of_gluon("gru", rnn.GRUCell(4, input_size=3))
for function in ("tanh", "relu", "sigmoid"):
    of_gluon(f"rnn_{function}", rnn.RNNCell(4, input_size=3, activation=function))
    of_rnn(f"old_rnn_{function}", old.RNNCell(4, activation=function, prefix="rnn_"))
of_rnn("old_lstm", old.LSTMCell(4, prefix="lstm_"))
of_rnn("old_gru", old.GRUCell(4, prefix="gru_"))
of_gluon("around_zoneout", rnn.ZoneoutCell(rnn.LSTMCell(4, input_size=3), 0.3, 0.3))
of_gluon("around_residual", rnn.ResidualCell(rnn.GRUCell(3, input_size=3)))
of_rnn("around_old_zoneout", old.ZoneoutCell(old.LSTMCell(4, prefix="lstm_"), 0.3, 0.3))
of_rnn("around_old_residual", old.ResidualCell(old.LSTMCell(3, prefix="lstm_")))
both = rnn.SequentialRNNCell()
both.add(rnn.LSTMCell(4, input_size=3)); both.add(rnn.DropoutCell(0.5)); both.add(rnn.ResidualCell(rnn.LSTMCell(4, input_size=4)))
of_gluon("two", both)
"""


def test_the_steps_of_a_graph_state_their_functions_and_what_is_around_them(tmp_path: Path) -> None:
    python = mxnet().python
    done = ready.run([python, "-c", STEPS, tmp_path], ready="mxnet")
    assert done.returncode == 0, done.stderr
    x = np.random.RandomState(1).uniform(-1, 1, (5, 2, 3)).astype("float32")
    names = {path.name.removesuffix("-0000.params") for path in tmp_path.glob("*.params")}
    assert len(names) == 17
    for name in sorted(names):
        path = tmp_path / f"{name}-0000.params"
        loaded = rc.load(path)
        assert not loaded.questions, name
        if name.startswith("around_"):
            (stack_,) = loaded.layers.values()
            assert "followed at each step by" in stack_.wrapped and stack_.wrapped in loaded.warnings[0], name
            continue
        if name == "two":
            first, second = loaded.layers.values()
            assert not first.wrapped and "elemwise_add" in second.wrapped
            with pytest.raises(rc.RefusedError, match="something between"):
                rc.save(loaded, tmp_path / "out.pt", stack="join")
            continue
        (stack_,) = loaded.layers.values()
        assert not stack_.unconvertible and not stack_.wrapped, name
        np.testing.assert_allclose(reference.run(stack_, x).y, np.load(tmp_path / f"{name}.npy"), rtol=0, atol=2e-7)
    with pytest.raises(rc.UsageError, match="contradicts the graph"):
        rc.load(tmp_path / "lstm1-0000.params", activation="tanh")
    (tmp_path / "lstm1-symbol.json").unlink()
    alone = rc.load(tmp_path / "lstm1-0000.params")
    assert [question.option for question in alone.questions] == ["activation", "recurrent_activation"]
    (stack_,) = rc.load(tmp_path / "lstm1-0000.params", activation="relu", recurrent_activation="tanh").layers.values()
    np.testing.assert_allclose(reference.run(stack_, x).y, np.load(tmp_path / "lstm1.npy"), rtol=0, atol=2e-7)


def test_an_operator_that_no_cell_has_is_named(tmp_path: Path) -> None:
    graph = {"nodes": [{"op": "erf", "name": "lstm_t0_c", "inputs": []}, {"op": "null", "name": "data", "inputs": []}]}
    shapes = {"i2h_weight": (16, 3), "h2h_weight": (16, 4), "i2h_bias": (16,), "h2h_bias": (16,)}
    arrays = {f"arg:lstm_{name}": uniform(1, *shape) for name, shape in shapes.items()}
    mxnet_params.write(tmp_path / "m.params", arrays)
    (tmp_path / "m-symbol.json").write_text(json.dumps(graph))
    with pytest.raises(rc.RefusedError, match="operator lstm_t0_c"):
        rc.convert(tmp_path / "m.params", tmp_path / "m.onnx")
