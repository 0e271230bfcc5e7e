"""Files that are damaged, hostile or of something else, and targets that cannot be written: an error, and nothing more."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import struct
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
from onnx import helper
from safetensors.numpy import load_file, save_file

import rnnconvert as rc
from rnnconvert.containers.files import shaped, view
from rnnconvert.core.arrays import Array
from rnnconvert.files.adapter import adapters
from rnnconvert.files.finder import ArrayFiles
from tests import ROOT
from tests.cli.test_cli import files
from tests.helpers import ready
from tests.helpers.commands import call
from tests.helpers.drawn import each
from tests.helpers.sources import keras_lstm_h5, legacy_h5, onnx_arrays, onnx_node, sequential, stack, uniform, write

pytestmark = pytest.mark.reads_apart

TARGETS = ["out.pt", "out.safetensors", "out.onnx", "out.bin", "out.keras", "out.weights.h5", "out.h5", "out.msgpack"]
SETTINGS = {"out.onnx": [[], ["external_data=true"]]}
WAYS = [(name, settings) for name in TARGETS for settings in SETTINGS.get(name, [[]])]


def fails(path: Path, code: int = 3, *words: str) -> str:
    """A whole conversion ends with that code, says these words, and leaves no other file."""
    folder = path.parent
    before = sorted(folder.iterdir())
    result = call("convert", path, folder / "made.onnx")
    assert result.exit_code == code, result.output
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert sorted(folder.iterdir()) == before
    for word in words:
        assert word in result.stderr, result.stderr
    return result.stderr


def sources(folder: Path) -> dict[str, Path]:
    """A readable file of every kind that can be made without a framework."""
    folder.mkdir(exist_ok=True)
    paths = {
        "zip checkpoint": write(folder / "a.pt"),
        "safetensors": write(folder / "a.safetensors"),
        "onnx": write(folder / "a.onnx"),
        "onnx by hand": onnx_node(folder / "hand.onnx", "GRU", onnx_arrays("GRU")),
        "legacy keras": keras_lstm_h5(folder / "a.h5"),
        "cudnn": write(folder / "a.bin"),
        "flax": write(folder / "a.msgpack"),
        "haiku": write(folder / "a.npz", target_format="haiku"),
        "mxnet": write(folder / "a.params"),
    }
    external = write(folder / "external.onnx", stack(hidden_size=16), settings=["external_data=true"])
    return {**paths, "external": external}


KINDS = ["zip checkpoint", "safetensors", "onnx", "onnx by hand", "legacy keras", "cudnn", "flax", "haiku", "mxnet", "external"]
TREES = {"flax", "nnx", "haiku", "equinox"}
"""Formats of the same files: as another one of them, a file is read, and has none of its cells."""


@pytest.fixture
def every(tmp_path: Path) -> dict[str, Path]:
    return sources(tmp_path / "sources")


def test_every_kind_is_listed_and_readable(every: dict[str, Path]) -> None:
    assert list(every) == KINDS
    for path in every.values():
        assert len(rc.load(path).layers) == 1


# Damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_unreadable(kind: str, every: dict[str, Path], tmp_path: Path) -> None:
    content = every[kind].read_bytes()
    for length in (1, 7, 9, 60, len(content) // 2, len(content) - 1):
        folder = tmp_path / str(length)
        shutil.copytree(every[kind].parent, folder)
        path = folder / every[kind].name
        path.write_bytes(content[:length])
        fails(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_no_bytes_is_unreadable(kind: str, every: dict[str, Path]) -> None:
    every[kind].write_bytes(b"")
    fails(every[kind], 3, "empty")


def test_external_data_that_are_cut_or_gone_are_unreadable(every: dict[str, Path]) -> None:
    (data,) = every["external"].parent.glob("external.onnx.*.data")
    data.write_bytes(data.read_bytes()[:-1])
    fails(every["external"], 3, data.name)
    data.unlink()
    fails(every["external"], 3, data.name)


ARRAYS = {".npy", ".npz", ".safetensors", ".h5", *(f"pickle {protocol}" for protocol in (2, 3, 4, 5))}


def foreign(folder: Path, numbers: Array) -> dict[str, bytes]:
    """Files of other kinds in which these numbers lie, by what they are."""
    folder.mkdir()
    content = numbers.tobytes()
    np.save(folder / "a.npy", numbers)
    np.savez(folder / "a.npz", numbers)
    save_file({"a": numbers}, folder / "a.safetensors")
    with h5py.File(folder / "a.h5", "w") as file:
        file["a"] = numbers
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.add(folder / "a.npy", "a.npy")
    graph = helper.make_graph([], "g", [], [], [helper.make_tensor("a", 1, numbers.shape, content, raw=True)])
    onnx.save(helper.make_model(graph), folder / "a.onnx")
    files = {path.suffix: path.read_bytes() for path in folder.iterdir()}
    packed = {"gzip": gzip.compress(content), "bzip2": bz2.compress(content), "xz": lzma.compress(content)}
    pickles = {f"pickle {protocol}": pickle.dumps({"a": numbers}, protocol) for protocol in (2, 3, 4, 5)}
    return {**files, **packed, **pickles, "text": b"weights of the layer, one by one: 0.125 0.25 0.5 1.0"}


def test_a_file_of_another_kind_is_never_read_as_bare_numbers(tmp_path: Path) -> None:
    """By no reader of bare numbers: neither a buffer, with its sizes, nor what lies next to a model."""
    numbers = uniform(1, 4096)
    kinds = foreign(tmp_path / "kinds", numbers)
    large = stack(hidden_size=16)
    described = write(tmp_path / "described.bin", large)
    entries = json.loads((tmp_path / "described.bin.json").read_text())
    del entries["layers"][0]["crc32"]
    (tmp_path / "described.bin.json").write_text(json.dumps(entries))
    data_file = tmp_path / "beside.onnx"
    onnx.save(
        onnx.load(write(tmp_path / "plain.onnx", large)), data_file, save_as_external_data=True, location="beside.data", size_threshold=0
    )
    net = write(tmp_path / "net.param", large)
    model = write(tmp_path / "model.json", large, target_format="tfjs")
    (shard,) = (tmp_path / entry for entry in json.loads(model.read_text())["weightsManifest"][0]["paths"])
    places = {described: described, tmp_path / "beside.data": data_file, net.with_suffix(".bin"): net, shard: model}

    def check(kind: str) -> None:
        lone = tmp_path / "lone.bin"
        lone.write_bytes(kinds[kind])
        sizes: dict[str, Any] = {"cell": "rnn_tanh", "hidden_size": 1, "num_layers": 1, "bidirectional": False}
        if kind in ARRAYS:  # read as what it is
            layer = rc.load(lone, "cudnn", **sizes).layers["lone"]
            assert sum(np.size(array) for array in layer.first.arrays.values()) == numbers.size
        else:
            with pytest.raises(rc.UnreadableError, match="bare numbers are expected"):
                rc.load(lone, "cudnn", **sizes)
        for place, opened in places.items():
            before = place.read_bytes()
            assert rc.load(opened).layers
            place.write_bytes(kinds[kind])
            try:
                with pytest.raises(rc.UnreadableError, match="bare numbers are expected"):
                    rc.load(opened, "cudnn" if opened == described else None)
            finally:
                place.write_bytes(before)

    each(kinds, check)


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".h5", ".keras", ".bin", ".safetensors", ".txt", ""])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("cudnn", "external")])
def test_a_wrong_ending_is_looked_through_or_said(kind: str, suffix: str, every: dict[str, Path], tmp_path: Path) -> None:
    """What a file is, its first bytes say; only a raw buffer has none."""
    path = tmp_path / f"renamed{suffix}"
    shutil.copy(every[kind], path)
    expected, layer = (next(iter(rc.load(p).layers.values())) for p in (every[kind], path))
    assert expected.describe() == layer.describe()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_read_as_another_format_is_an_error_or_has_none_of_its_cells(kind: str, every: dict[str, Path]) -> None:
    own_format = rc.load(every[kind]).format
    for name in set(adapters()) - (TREES if own_format in TREES else {own_format}):
        try:
            checkpoint = rc.load(every[kind], name, cell="lstm", input_size=3, hidden_size=4)
        except rc.RnnConvertError:
            continue
        # Any archive of arrays by name can be read as one of these, and has none of its cells.
        assert isinstance(adapters()[name], ArrayFiles) and not checkpoint.layers, name


def test_a_folder_is_unreadable(tmp_path: Path) -> None:
    for name in ("folder", "folder.onnx", "folder.h5", "folder.keras", "folder.pt", "folder.bin", "folder.safetensors"):
        (tmp_path / name).mkdir()
        with pytest.raises(rc.UnreadableError):
            rc.load(tmp_path / name)
        for format in adapters():
            with pytest.raises(rc.RnnConvertError):
                rc.load(tmp_path / name, format)


# Shapes, names, biases ------------------------------------------------------------------------------


def torch_arrays() -> dict[str, Array]:
    return {
        "rnn.weight_ih_l0": uniform(1, 16, 3), "rnn.weight_hh_l0": uniform(2, 16, 4),
        "rnn.bias_ih_l0": uniform(3, 16), "rnn.bias_hh_l0": uniform(4, 16),
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"rnn.weight_hh_l0": uniform(1, 16, 5)},
        {"rnn.weight_hh_l0": uniform(1, 12, 4)},
        {"rnn.weight_ih_l0": uniform(1, 16, 3, 1)},
        {"rnn.weight_ih_l0": uniform(1, 16)},
        {"rnn.weight_ih_l0": uniform(1, 0, 3)},
        {"rnn.bias_hh_l0": uniform(1, 15)},
        {"rnn.bias_hh_l0": None},
        {"rnn.bias_ih_l0": None},
        {"rnn.weight_hh_l0": None},
        {"rnn.weight_ih_l2": uniform(1, 16, 4)},
        {"rnn.weight_ih_l1": uniform(1, 16, 4)},
        {"rnn.weight_hh_l0_reverse": uniform(1, 16, 4)},
        {"rnn.weight_hr_l0": uniform(1, 2, 5)},
    ],
    ids=lambda change: ",".join(f"{k}={None if v is None else v.shape}" for k, v in change.items()),
)
def test_parameters_that_do_not_go_together_are_named(change: dict[str, Array | None], tmp_path: Path) -> None:
    arrays = {key: value for key, value in {**torch_arrays(), **change}.items() if value is not None}
    path = tmp_path / "model.safetensors"
    save_file(arrays, path)
    fails(path, 3, "rnn.")


def test_parameters_that_are_no_floats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({name: array.astype(np.int8) for name, array in torch_arrays().items()}, path)
    fails(path, 4, "int8", "rnn.")


def test_a_keras_layer_of_other_shapes_is_named(tmp_path: Path) -> None:
    arrays = [("lstm/kernel:0", uniform(1, 3, 16)), ("lstm/recurrent_kernel:0", uniform(2, 5, 16))]
    fails(legacy_h5(tmp_path / "m.h5", {"lstm": arrays}, sequential(("LSTM", {"name": "lstm"}))), 3, "'lstm'")


@pytest.mark.parametrize("change", [{"W": uniform(1, 2, 16, 3)}, {"B": uniform(1, 1, 31)}, {"R": uniform(1, 1, 16, 5)}])
def test_an_onnx_node_of_other_shapes_is_named(change: dict[str, Array], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = onnx.load(onnx_node(path, "LSTM", onnx_arrays("LSTM")))
    for tensor in model.graph.initializer:
        if tensor.name in change:
            tensor.CopyFrom(onnx.numpy_helper.from_array(change[tensor.name], tensor.name))
    path.write_bytes(model.SerializeToString())
    fails(path, 3, "'rnn'")


def test_two_buffers_of_one_name_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "two.safetensors", stack(name="a"), stack(name="b", seed=2), target_format="cudnn")
    arrays = load_file(path)
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    text = json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["rnnconvert.cudnn"]
    description = json.loads(text)
    description["layers"][1]["name"] = "a"
    description["layers"][1]["tensor"] = "b"
    save_file(arrays, path, {"rnnconvert.cudnn": json.dumps(description)})
    fails(path, 3, "'a'")


def test_two_initializers_of_one_name_are_an_error(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "model.onnx", "GRU", onnx_arrays("GRU"))
    model = onnx.load(path)
    model.graph.initializer.append(model.graph.initializer[0])
    path.write_bytes(model.SerializeToString())
    fails(path, 3, "'W'")


def test_layers_that_would_be_written_under_one_name_are_an_error(tmp_path: Path) -> None:
    deep = stack(num_layers=2, name="a")
    path = write(tmp_path / "source.onnx", stack(name="a_l0"), stack(name="b", input_size=4))
    checkpoint = rc.load(path)
    clash = checkpoint.replace(layers={"a": deep, "a_l0": stack(name="a_l0")})
    for target in TARGETS:
        with pytest.raises(rc.UsageError, match="a_l0"):
            rc.save(clash, tmp_path / target, stack="split")
    assert sorted(files(tmp_path)) == ["source.onnx"]


# Numbers --------------------------------------------------------------------------------------------


def with_numbers(*values: float) -> rc.Recurrent:
    layer = stack()
    weight = np.array(layer.first.get("recurrent", "f"))
    weight[0, : len(values)] = values
    arrays = {("recurrent", "f"): weight}
    return layer.replace(layers=(rc.Layer((layer.first.with_arrays(arrays),)),))


@pytest.mark.parametrize("target", TARGETS)
def test_weights_that_are_not_finite_are_carried_with_a_warning(target: str, tmp_path: Path) -> None:
    values = (np.nan, np.inf, -np.inf)
    summary = rc.save(_in_memory(with_numbers(*values)), tmp_path / target)
    assert any("NaN or infinite" in warning for warning in summary.warnings)
    (layer,) = rc.load(tmp_path / target).layers.values()
    np.testing.assert_array_equal(np.asarray(layer.first.get("recurrent", "f"))[0, :3], values)
    finite = rc.save(_in_memory(with_numbers(3e38, -3e38)), tmp_path / target, force=True)
    assert finite.warnings == ()


@pytest.mark.parametrize("target", ["out.pt", "out.onnx", "out.bin", "out.keras"])
def test_weights_that_overflow_a_smaller_type_are_said_to(target: str, tmp_path: Path) -> None:
    summary = rc.save(_in_memory(with_numbers(1e6)), tmp_path / target, dtype="float16")
    assert any("float16" in warning and "infinite" in warning for warning in summary.warnings), summary.warnings
    assert not any("as they are" in warning for warning in summary.warnings)


def _in_memory(layer: rc.Recurrent) -> rc.Checkpoint:
    return rc.Checkpoint("(made)", "canonical", {layer.name: layer})


# Claims ---------------------------------------------------------------------------------------------


def test_a_header_that_promises_terabytes_is_unreadable(tmp_path: Path) -> None:
    shape = [1 << 22, 1 << 20]
    names = {"weight_ih_l0": shape, "weight_hh_l0": shape}
    header: dict[str, Any] = {}
    start = 0
    for name, dims in names.items():
        size = 4 * dims[0] * dims[1]
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [start, start + size]}
        start += size
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    fails(path)
    path.write_bytes(struct.pack("<Q", 1 << 45) + text)
    fails(path)


def test_a_description_that_promises_terabytes_is_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path / "model.bin")
    sidecar = tmp_path / "model.bin.json"
    description = json.loads(sidecar.read_text())
    description["layers"][0].update(hidden_size=1 << 24, num_layers=4096)
    sidecar.write_text(json.dumps(description))
    fails(path)


def test_an_onnx_tensor_that_promises_terabytes_is_unreadable(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "model.onnx", "GRU", onnx_arrays("GRU"))
    model = onnx.load(path)
    model.graph.initializer[0].dims[:] = [1, 1 << 21, 1 << 21]
    path.write_bytes(model.SerializeToString())
    fails(path)


def test_constants_that_promise_terabytes_are_not_made(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "model.onnx", "GRU", onnx_arrays("GRU"))
    model = onnx.load(path)
    del model.graph.initializer[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1 << 20, 1 << 20]), "shape"))
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["W"]))
    path.write_bytes(model.SerializeToString())
    assert call("convert", path, tmp_path / "out.pt").exit_code == 3
    assert not (tmp_path / "out.pt").exists()


def test_an_hdf5_dataset_that_promises_terabytes_is_unreadable(tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("model_weights/lstm/bomb", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip")
    fails(path)


# Archives -------------------------------------------------------------------------------------------


def keras_archive(path: Path, members: dict[str, bytes | int], compression: int = zipfile.ZIP_STORED) -> Path:
    """An archive with other members, or with as many spaces in place of one."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for number, shape in enumerate(((3, 16), (4, 16), (16,))):
            file[f"layers/lstm/cell/vars/{number}"] = uniform(number, *shape)
    contents: dict[str, bytes | int] = {
        "config.json": json.dumps(sequential(("LSTM", {"name": "lstm", "units": 4}))).encode(),
        "metadata.json": b'{"keras_version": "3.4.1"}',
        "model.weights.h5": weights.getvalue(),
    }
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in {**contents, **members}.items():
            if isinstance(data, bytes):
                archive.writestr(name, data)
                continue
            with archive.open(name, "w") as member:
                for _ in range(0, data, 1 << 20):
                    member.write(b" " * (1 << 20))
    return path


def test_an_archive_made_by_hand_is_read(tmp_path: Path) -> None:
    assert rc.load(keras_archive(tmp_path / "good.keras", {})).layers["lstm"].hidden_size == 4


@pytest.mark.parametrize("name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt"])
def test_a_member_that_leads_out_of_the_archive_is_an_error(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    fails(keras_archive(folder / "evil.keras", {name: b"evil"}), 3, "evil.txt")
    assert sorted(tmp_path.rglob("*evil.txt")) == []


def test_a_zip_bomb_is_unreadable(tmp_path: Path) -> None:
    path = keras_archive(tmp_path / "bomb.keras", {"config.json": 1 << 28}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 19
    fails(path)


@pytest.mark.parametrize("config", [b"[]", b"null", b'"LSTM"', b"{" * 10_000, b"\xff", b'{"config": 3, "class_name": 4}'])
def test_a_configuration_that_is_none_is_an_error_or_not_used(config: bytes, tmp_path: Path) -> None:
    path = keras_archive(tmp_path / "model.keras", {"config.json": config})
    try:
        checkpoint = rc.load(path)
    except rc.UnreadableError:
        return
    assert checkpoint.questions


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "link.bin"])
def test_external_data_that_lead_elsewhere_are_unreadable(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = onnx_node(folder / "model.onnx", "GRU", onnx_arrays("GRU"))
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path.write_bytes(model.SerializeToString())
    fails(path)


# Code -----------------------------------------------------------------------------------------------


class Attack:
    """What a pickle runs when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def zip_checkpoint(path: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    return path


def test_a_pickle_with_code_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    attack = pickle.dumps({"weight_ih_l0": Attack(marker), "weight_hh_l0": [1]}, 2)
    fails(zip_checkpoint(tmp_path / "model.pt", attack))
    bare = tmp_path / "bare.pt"
    bare.write_bytes(attack)
    fails(bare, 3, "pickle")
    legacy = tmp_path / "legacy.pt"
    head = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    legacy.write_bytes(head + attack)
    fails(legacy)
    assert not marker.exists()
    pickle.loads(attack)
    assert marker.exists()  # the attack is one


def test_a_lambda_layer_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    code = ["4wEAAAAAAAAAAAAAAAEAAAACAAAAQwAAAHMEAAAAfABTACkBTqkA", None, None]
    config = sequential(
        ("Lambda", {"name": "lambda", "function": {"class_name": "__lambda__", "config": {"code": code}}}),
        ("LSTM", {"name": "lstm", "units": 4}),
    )
    path = keras_archive(tmp_path / "model.keras", {"config.json": json.dumps(config).encode()})
    assert list(rc.load(path).layers) == ["lstm"]
    assert not marker.exists()


def test_an_hdf5_file_with_cycles_is_read_once(tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        file["model_weights/lstm/again"] = file["model_weights"]
        file["model_weights/root"] = file["/"]
    checkpoint = rc.load(path)
    assert list(checkpoint.layers) == ["lstm"]
    assert rc.convert(path, tmp_path / "out.onnx").layers


# Targets that cannot be written ---------------------------------------------------------------------

CHILD = textwrap.dedent(
    """
    import os, resource, signal, sys
    from rnnconvert.language import packing
    from rnnconvert.cli.main import main

    # A shell that runs this in the background has its children ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1] == "full":
        # the limit holds for every file that the process writes
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    else:
        pieces = packing.Packed.pieces
        def interrupted(self):
            yield from pieces(self)
            os.kill(os.getpid(), signal.SIGINT)
        packing.Packed.pieces = interrupted
    main(sys.argv[2:])
    """
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose copies are larger than the limit."""
    return write(tmp_path_factory.mktemp("large") / "large.safetensors", stack(hidden_size=64))


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("how", ["full", "interrupted"])
@pytest.mark.parametrize(("target", "settings"), WAYS, ids=lambda value: "".join(value))
def test_a_target_that_fails_half_way_is_as_it_was(
    target: str, settings: list[str], how: str, existing: bool, large: Path, tmp_path: Path
) -> None:
    path = tmp_path / target
    if existing:
        path.write_bytes(b"precious")
        (tmp_path / f"{target}.json").write_bytes(b"precious")
        (tmp_path / f"{target}.data").write_bytes(b"precious")
    before = files(tmp_path)
    options = [word for setting in settings for word in ("--set", setting)]
    to = ["--to", "pytorch"] if target.endswith(".safetensors") else []
    command = [sys.executable, "-c", CHILD, how, "convert", large, path, "--force", *to, *options]
    process = ready.run(command, ready.OURS, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.returncode == {"full": 74, "interrupted": 130}[how], process.stderr
    assert "Traceback" not in process.stderr and process.stdout == ""
    assert len(process.stderr.splitlines()) == 1
    assert {"full": "cannot write", "interrupted": "interrupted"}[how] in process.stderr
    assert files(tmp_path) == before


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_inside_a_file_is_wrong_usage(target: str, tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors")
    (tmp_path / "file").write_bytes(b"precious")
    before = files(tmp_path)
    result = call("convert", source, tmp_path / "file" / target)
    assert result.exit_code == 2 and "cannot write" in result.stderr, result.output
    assert files(tmp_path) == before


@pytest.mark.parametrize(("target", "settings"), WAYS, ids=lambda value: "".join(value))
def test_a_target_that_is_a_folder_is_wrong_usage(target: str, settings: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors")
    (tmp_path / target).mkdir()
    before = sorted(tmp_path.rglob("*"))
    options = [word for setting in settings for word in ("--set", setting)]
    result = call("convert", source, tmp_path / target, "--force", *options)
    assert result.exit_code == 2 and target in result.stderr, result.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is read-only for root")
def test_a_read_only_folder_cannot_be_written(tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors")
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    result = call("convert", source, folder / "out.onnx")
    assert result.exit_code == 74 and "cannot write" in result.stderr


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), lambda path: path.symlink_to(path)], ids=["pipe", "loop"])
def test_what_is_no_file_is_unreadable_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "source.pt"
    make(path)
    fails(path)


@pytest.mark.parametrize(
    "shape", [(1,) * 100, (0,) * 100, (0, 1 << 62), (0, 1 << 70), (1 << 40, 0, 1 << 40)], ids=lambda axes: f"{len(axes)} axes, {axes[-1]}"
)
def test_a_shape_that_numpy_does_not_have_is_unreadable(shape: tuple[int, ...]) -> None:
    numbers = np.zeros(0 if 0 in shape else 1, np.float32)
    for make in (lambda: shaped(numbers, shape, "m", "w"), lambda: view(numbers.view(np.uint8), 0, shape, numbers.dtype, "m", "w")):
        with pytest.raises(rc.UnreadableError, match="shape"):
            make()


def test_weights_in_a_second_file_are_named(tmp_path: Path) -> None:
    """As darts saves a forecasting model: the object in `m.pt`, the network in `m.pt.ckpt`."""
    save_file({"scale": np.ones((2, 3), np.float32)}, tmp_path / "m.safetensors")
    without = fails(tmp_path / "m.safetensors", 3, "it has no recurrent layer")
    assert "next to it" not in without
    (tmp_path / "m.safetensors.ckpt").write_bytes(b"")
    fails(tmp_path / "m.safetensors", 3, "'m.safetensors.ckpt' is next to it", "give the path of that file")
