"""Files of Flax's msgpack and .npz archives of trees: what the libraries write is read, what is written they run."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import msgpack_file, npz_file
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, SIGMOID, TANH
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.language.layout import Sizes
from tests.formats.jax.test_jax_trees import packages
from tests.formats.jax.test_live_jax import bits, haiku_model, linen_model, nnx_model, x
from tests.helpers.sources import checkpoint, uniform
from tests.helpers.stacks import PLAIN, random_stack

INPUT = PLAIN | {"input_bias"}
LIBRARIES = ["flax", "nnx", "haiku", "equinox"]
TREE: dict[str, Any] = {
    "a": {"b": np.ones((2, 3), np.float32), "empty": np.zeros((1, 2, 0)), "scalar": np.zeros(())},
    **{f"k{number:02d}": np.full((number, 300), number, np.float64) for number in range(20)},
    "lstm/linear": {"n" * 40: np.arange(70000, dtype=np.int16), "w": np.arange(3).astype(ml_dtypes.bfloat16)},
}
"""In the order that flax writes it in, which is that of the names."""


def layer(name: str = "a", kind: str = "lstm", dtype: str = "float32") -> Recurrent:
    """A layer of 3 inputs and 4 units with one bias."""
    return random_stack(Sizes(kind, 3, 4, parts=INPUT), 3, dtype).replace(name=name)


def flat(tree: Any, above: str = "") -> dict[str, Array]:
    """The arrays of dictionaries in dictionaries, by their paths."""
    arrays: dict[str, Array] = {}
    for key, value in tree.items():
        arrays |= flat(value, f"{above}{key}/") if isinstance(value, dict) else {f"{above}{key}": value}
    return arrays


def assert_same(actual: dict[str, Array], expected: dict[str, Array]) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert (actual[name].shape, actual[name].dtype) == (array.shape, array.dtype), name
        assert np.ascontiguousarray(actual[name]).tobytes() == array.tobytes(), name


# Containers -----------------------------------------------------------------------------------------


def test_a_msgpack_file_is_what_flax_writes(tmp_path: Path) -> None:
    packages("flax")
    from flax import serialization

    path = tmp_path / "a.msgpack"
    msgpack_file.write(path, TREE)
    assert path.read_bytes() == serialization.msgpack_serialize(TREE)
    assert_same(flat(serialization.msgpack_restore(path.read_bytes())), flat(TREE))
    assert_same(msgpack_file.read(path).arrays, flat(TREE))


def test_what_flax_writes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages("jax", "flax")
    import jax
    from flax import serialization

    path = tmp_path / "a.msgpack"
    tree = {"list": [jax.numpy.ones(2), np.float32(3)], "step": 7, "negative": -70000, "text": "x" * 300, "none": None,
            "half": 0.5, "yes": True, "complex": 1j, "empty": {}, "tuple": (np.ones(1, np.uint8),)}  # fmt: skip
    path.write_bytes(serialization.to_bytes(tree))
    assert {name: array.shape for name, array in msgpack_file.read(path).arrays.items()} == {
        "list/0": (2,), "list/1": (), "tuple/0": (1,)
    }  # fmt: skip
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 64)
    path.write_bytes(serialization.msgpack_serialize({"x": np.arange(100.0).reshape(4, 25)}))
    np.testing.assert_array_equal(msgpack_file.read(path).arrays["x"], np.arange(100.0).reshape(4, 25))


def test_what_flax_writes_is_read_in_place(tmp_path: Path) -> None:
    msgpack_file.write(tmp_path / "a.msgpack", TREE)
    npz_file.write(tmp_path / "a.npz", flat(TREE))
    for read in (msgpack_file.read(tmp_path / "a.msgpack"), npz_file.read(tmp_path / "a.npz")):
        assert not any(array.flags.owndata or array.flags.writeable for array in read.arrays.values() if array.size)


def array(shape: bytes = b"\x91\x02", dtype: bytes = b"\xa5uint8", data: bytes = b"\xc4\x02ab") -> bytes:
    packed = b"\x93" + shape + dtype + data
    return b"\xc7" + bytes([len(packed), 1]) + packed


HOSTILE = {
    "a map that promises more": b"\xdf\xff\xff\xff\xff\xa1a\x01",
    "text that promises more": b"\x81\xdb\xff\xff\xff\xffa",
    "an array that promises more": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01\x93",
    "bytes that promise more": b"\x81\xa1a" + array(data=b"\xc6\xff\xff\xff\xffab"),
    "a shape that promises more": b"\x81\xa1a" + array(shape=b"\x91\xcf" + b"\x7f" * 8),
    "a shape with more": b"\x81\xa1a" + array(shape=b"\x91\x01"),
    "a negative shape": b"\x81\xa1a" + array(shape=b"\x92\xff\xfe"),
    "a shape of text": b"\x81\xa1a" + array(shape=b"\x91\xa1a"),
    "an array of two": b"\x81\xa1a\xc7\x03\x01\x92\x01\x02",
    "an array with something behind": b"\x81\xa1a\xc7\x0e\x01" + array()[3:] + b"\x00",
    "a value of no kind": b"\x81\xa1a\xc1",
    "text that is none": b"\x81\xa2\xff\xff\x01",
    "a key that is a list": b"\x81\x90\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x01",
    "a path twice": b"\x82\xa3a/b" + array() + b"\xa1a\x81\xa1b" + array(),
    "one in another without end": b"\x81\xa1a" * 5000 + b"\x01",
    "lists in lists": b"\x81\xa1a" + b"\x91" * 5000,
    "more behind it": b"\x81\xa1a\x01\x00",
    "no dictionary": b"\x01",
    "chunks that are none": b"\x81\xa1a\x81\xb9__msgpack_chunked_array__\xc3",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_damaged_msgpack_file_is_unreadable(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(rc.UnreadableError):
        msgpack_file.read(path)


def test_every_cut_of_a_msgpack_file_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    msgpack_file.write(path, {"a": {"b": np.ones((2, 3), np.float32)}, "c": np.ones(2)})
    content = path.read_bytes()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError):
            msgpack_file.read(path)


def test_elements_that_are_not_known_are_said(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    path.write_bytes(b"\x82\xa1a" + array(dtype=b"\xa6float8") + b"\xa1b" + array())
    read = msgpack_file.read(path)
    assert list(read.arrays) == ["b"]
    assert list(read.metadata["unreadable"].values()) == ["elements of type float8 are not supported"]
    np.savez(tmp_path / "a.npz", text=np.array(["x"]), fine=np.ones(2), objects=np.array([{}], object))
    other = npz_file.read(tmp_path / "a.npz")
    assert list(other.arrays) == ["fine"] and set(other.metadata["unreadable"]) == {"text", "objects"}


def test_what_cannot_be_written_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rc.UsageError, match="cannot hold 'a/b' of type"):
        msgpack_file.write(tmp_path / "a.msgpack", {"a": {"b": np.ones(2, ml_dtypes.float8_e5m2)}})
    monkeypatch.setattr(msgpack_file, "MAX_ARRAY", 7)
    with pytest.raises(rc.UsageError, match=r"Write a \.npz"):
        msgpack_file.write(tmp_path / "a.msgpack", {"a": np.ones(2)})
    assert list(tmp_path.iterdir()) == []


def test_an_npz_file_is_what_numpy_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    arrays = {name: array for name, array in flat(TREE).items() if array.dtype != ml_dtypes.bfloat16}
    npz_file.write(path, flat(TREE))
    with np.load(path) as read:
        assert_same({name: read[name] for name in arrays}, arrays)
    assert_same(npz_file.read(path).arrays, flat(TREE))
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    pair: dict[str, Any] = {"a/b": columns, "half": np.ones(3, ml_dtypes.bfloat16)}
    for save in (np.savez, np.savez_compressed):
        save(path, **pair)
        read = npz_file.read(path).arrays
        np.testing.assert_array_equal(read["a/b"], columns)
        assert read["half"].dtype == ml_dtypes.bfloat16
    assert npz_file.is_npz(path) and not npz_file.is_npz(tmp_path / "none.npz")


def test_a_damaged_npz_file_is_unreadable(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "a.npz"
    for content in (
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x03\x00" + bytes(9),
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}",
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 60) + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}     ",
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", content)
        with pytest.raises(rc.UnreadableError):
            npz_file.read(path)


# Formats --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "suffix"), [(name, suffix) for name in LIBRARIES for suffix in adapters()[name].SUFFIXES if suffix != ".eqx"]
)
def test_files_come_and_go(name: str, suffix: str, dtype: str, tmp_path: Path) -> None:
    random_layer = layer(dtype=dtype)
    source = random_layer if name != "haiku" else rc.unpack(rc.pack(random_layer, "haiku"), "haiku").replace(name="a")
    path = tmp_path / f"out{suffix}"
    rc.save(checkpoint(source), path, name)
    loaded = rc.load(path)
    assert loaded.format == name
    ((key, read),) = loaded.layers.items()
    assert key == ("lstm" if name == "haiku" else "")
    assert bits(read) == bits(source) and read.cell == source.cell
    again = rc.save(checkpoint(source, source.replace(name="b")), path, name, force=True)
    assert list(again.layers) == ["a", "b"]
    assert list(rc.load(path).layers) == (["a/lstm", "b/lstm"] if name == "haiku" else ["a", "b"])


def test_a_linen_file_runs_in_flax(tmp_path: Path) -> None:
    packages("jax", "flax")
    from flax import linen as nn
    from flax import serialization

    encoder = layer(kind="gru")
    notes = rc.save(checkpoint(encoder), tmp_path / "a.msgpack").notes
    assert notes == ("the file holds the parameters of flax.linen.GRUCell(4)",)
    cell = serialization.msgpack_restore((tmp_path / "a.msgpack").read_bytes())
    y = np.asarray(nn.RNN(nn.GRUCell(4)).apply({"params": {"cell": cell}}, x()))
    np.testing.assert_allclose(y.swapaxes(0, 1), reference.run(encoder, x().swapaxes(0, 1)).y, rtol=0, atol=3e-6)


def test_a_haiku_file_runs_in_haiku(tmp_path: Path) -> None:
    packages("jax", "haiku")
    import haiku as hk

    encoder = layer()
    rc.save(checkpoint(encoder), tmp_path / "a.npz", "haiku")
    with np.load(tmp_path / "a.npz") as file:
        parameters: dict[str, dict[str, Array]] = {}
        for name in file:
            module, _, local = name.rpartition("/")
            parameters.setdefault(module, {})[local] = file[name]

    def model(x: Any) -> Any:
        core = hk.LSTM(4)
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    y = hk.without_apply_rng(hk.transform(model)).apply(parameters, x().swapaxes(0, 1))
    np.testing.assert_allclose(np.asarray(y), reference.run(encoder, x().swapaxes(0, 1)).y, rtol=0, atol=3e-6)


def test_whole_models_files_are_read_as_their_trees_are(tmp_path: Path) -> None:
    packages("jax", "flax", "haiku")
    from flax import nnx, serialization

    path = tmp_path / "a.msgpack"
    for format, tree in (
        ("flax", linen_model()[1]), ("haiku", haiku_model()[1]), ("nnx", nnx.to_pure_dict(nnx.state(nnx_model(), nnx.Param))),
    ):  # fmt: skip
        path.write_bytes(serialization.to_bytes(tree))
        loaded = rc.load(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rc.AssumptionWarning)
            live = rc.from_jax(tree)
        assert loaded.format == format and loaded.layers.keys() == live.keys()
        for name, recurrent in loaded.layers.items():
            assert bits(recurrent) == bits(live[name]) and recurrent.cell == live[name].cell
        plain = [entry.layer for entry in loaded.questions if entry.option == "nonlinearity"]
        assert plain == [name for name, recurrent in live.items() if recurrent.cell.kind == "rnn" and format != "haiku"]
        assert loaded.tensors
        same = rc.convert(path, tmp_path / "b.msgpack", target_format=format, force=True)
        assert same.carried == len(loaded.tensors)
        written = msgpack_file.read(tmp_path / "b.msgpack").arrays
        if format == "haiku":  # linen's MGUCell becomes a GRUCell, nnx's OptimizedLSTMCell an LSTMCell
            assert_same(written, msgpack_file.read(path).arrays)
        assert {name: bits(recurrent) for name, recurrent in rc.load(tmp_path / "b.msgpack").layers.items()} == {
            name: bits(recurrent) for name, recurrent in loaded.layers.items()
        }


@pytest.mark.parametrize("sign", ["/", ",", "."])
def test_a_flattened_tree_is_read_by_the_words_of_its_names(sign: str, tmp_path: Path) -> None:
    packages("jax", "flax", "torch")
    from flax.traverse_util import flatten_dict
    from safetensors.flax import save_file

    variables = linen_model()[1]
    arrays = flatten_dict(variables, sep=sign)
    save_file(arrays, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", **arrays)
    live = rc.from_jax(variables, nonlinearity="tanh")
    for name in ("a.safetensors", "a.npz"):
        loaded = rc.load(tmp_path / name)
        assert loaded.format == "flax"
        assert {path: bits(layer) for path, layer in loaded.layers.items()} == {path: bits(layer) for path, layer in live.items()}
    report = rc.convert(tmp_path / "a.safetensors", tmp_path / "a.pt", verify=True, layers=["params/OptimizedLSTMCell_0"]).report
    assert report is not None and report.equal and "flax-cpu" in str(report)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("name", ["flax", "nnx"])
def test_the_functions_that_a_file_does_not_hold_are_asked_for(name: str, kind: str, tmp_path: Path) -> None:
    encoder = layer(kind=kind)
    path = tmp_path / "a.npz"
    rc.save(checkpoint(encoder), path, name)
    loaded = rc.load(path)
    assert [(entry.option, entry.assumed) for entry in loaded.questions] == [("activation", "tanh"), ("recurrent_activation", "sigmoid")]
    assert loaded.layers[""].cell == encoder.cell

    with pytest.raises(rc.RefusedError, match="takes its function as an argument, which files do not hold"):
        rc.convert(path, tmp_path / "b.keras", strict=True)
    rc.convert(path, tmp_path / "b.keras", strict=True, activation="tanh", recurrent_activation="sigmoid")

    answered = rc.load(path, activation="relu", recurrent_activation="sigmoid")
    cell = answered.layers[""].cell
    assert not answered.questions
    assert cell.activation == RELU and cell.gate_activation == SIGMOID
    assert cell.output_activation == (RELU if kind == "lstm" else TANH)
    rc.convert(path, tmp_path / "c.keras", activation="relu", recurrent_activation="sigmoid")
    (converted,) = rc.load(tmp_path / "c.keras").layers.values()
    assert converted.cell.activation == RELU


def test_nnxs_optimized_cell_is_asked_for(tmp_path: Path) -> None:
    rc.save(checkpoint(layer()), tmp_path / "a.npz", "nnx", module="optimized")
    assert set(npz_file.read(tmp_path / "a.npz").arrays) == {"dense_i/kernel", "dense_h/kernel", "dense_h/bias"}
    rc.save(checkpoint(layer(kind="gru")), tmp_path / "a.npz", "nnx", module="optimized", force=True)


def test_what_is_not_settled_in_a_file_is_passed_over_and_said(tmp_path: Path) -> None:
    gru = {"w_i": uniform(1, 3, 12), "w_h": uniform(2, 4, 12), "b": uniform(3, 12)}
    linear = {"w": uniform(4, 7, 16), "b": uniform(5, 16)}
    msgpack_file.write(
        tmp_path / "a.msgpack", {"a": {**gru, "c": uniform(4, 2)}, "b": gru, "encoder/linear": linear, "d": {**gru, "b": uniform(1, 3)}}
    )  # fmt: skip
    loaded = rc.load(tmp_path / "a.msgpack")
    assert list(loaded.layers) == ["b"]
    text = " ".join(loaded.warnings)
    assert "plus 'a/c'" in text and "or cells of other names: 'encoder'" in text and "do not fit together" in text


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    msgpack_file.write(tmp_path / "dense", {"Dense_0": {"kernel": uniform(1, 3, 2), "bias": uniform(2, 2)}})
    loaded = rc.load(tmp_path / "dense")
    assert loaded.format == "flax" and not loaded.layers and len(loaded.tensors) == 2
    np.savez(tmp_path / "any.npz", weights=np.ones(2))
    with pytest.raises(rc.UnreadableError, match="without arrays named as those of a recurrent layer"):
        rc.load(tmp_path / "any.npz")
    with pytest.raises(rc.UsageError, match=r"written for .*equinox, flax, .*haiku, .*nnx.*\. Choose one with --to"):
        rc.save(checkpoint(layer()), tmp_path / "a.npz")
    with pytest.raises(rc.UsageError, match=r"ends in one of \.npz, \.eqx"):
        rc.save(checkpoint(layer()), tmp_path / "a.pt", "equinox")


def test_other_files_of_these_libraries_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "orbax").mkdir()
    (tmp_path / "orbax" / "_METADATA").write_text("{}")
    with pytest.raises(rc.UnreadableError, match="tree_metadata"):
        rc.load(tmp_path / "orbax")
