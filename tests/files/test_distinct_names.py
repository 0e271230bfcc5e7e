"""Two arrays of a file whose names are read as one name: the file is refused with both, and neither array replaces the other."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import bson
import h5py
import msgpack
import numpy as np
import onnx
import pytest
from bson import raw_bson

from rnnconvert.containers import archives
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.core.names import renamed
from rnnconvert.files.load import load
from rnnconvert.formats.julia import julia_bson_write
from rnnconvert.formats.torch7 import torch7_write
from rnnconvert.language import registry
from tests.formats.ggml import test_ggml_files as ggml
from tests.helpers import sources
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import needed

RENAMINGS = {
    "stripped": (lambda name: name.strip("/._"), ("a", "a/", ".a", "_a_")),
    "folded": (str.lower, ("a", "A")),
    "joined": (lambda name: name.replace("\\", "/"), ("a/b", "a\\b")),
    "without an end": (lambda name: name.removesuffix(":0"), ("a", "a:0")),
}


@pytest.mark.parametrize("renaming", RENAMINGS)
def test_renaming_keeps_every_array_or_refuses(renaming: str) -> None:
    new_name, names = RENAMINGS[renaming]
    for first, second in itertools.permutations(names, 2):
        with pytest.raises(UnreadableError) as caught:
            renamed({first: 1, "between": 2, second: 3}, new_name, "x.npz")
        assert repr(first) in str(caught.value) and repr(second) in str(caught.value)
    assert renamed({names[0]: 1, "between": 2}, new_name, "x.npz") == {new_name(names[0]): 1, "between": 2}


def write(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def keras_layer(scope: str, end: str = "") -> dict[str, np.ndarray]:
    shapes = {"kernel": (3, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
    draw = np.random.default_rng(len(scope))
    return {f"{scope}{local}{end}": draw.normal(size=shape).astype(np.float32) for local, shape in shapes.items()}


@pytest.mark.parametrize("ending", [".msgpack", ".bson"])
@pytest.mark.parametrize("names", [("a/b", "a"), ("a", "a/b"), ("a/b/c", "a/b")])
def test_a_tree_has_no_array_in_the_place_of_another_one(names: tuple[str, str], ending: str, tmp_path: Path) -> None:
    write = archives.write if ending == ".msgpack" else julia_bson_write.write
    with pytest.raises(UsageError, match="one tree cannot hold"):
        write(tmp_path / f"tree{ending}", dict.fromkeys(names, np.ones(2, np.float32)))
    assert not list(tmp_path.iterdir())


def test_scopes_of_variables_that_are_read_as_one_layer(tmp_path: Path) -> None:
    def check(scopes: tuple[str, str]) -> None:
        path = write(tmp_path / "variables.npz", keras_layer(scopes[0]) | keras_layer(scopes[1]))
        with pytest.raises(UnreadableError, match="are both read as 'a/") as caught:
            load(path)
        assert all(f"'{scope}kernel'" in str(caught.value) for scope in scopes)

    each(itertools.permutations(("a/", "a.", "a_", "/a/"), 2), check, str)


def mxnet_layer(start: str) -> dict[str, np.ndarray]:
    shapes = {"i2h_weight": (8, 3), "h2h_weight": (8, 2), "i2h_bias": (8,), "h2h_bias": (8,)}
    return {f"{start}lstm0_l0_{local}": np.full(shape, len(start), np.float32) for local, shape in shapes.items()}


def test_arrays_of_mxnet_with_and_without_a_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "both.npz", mxnet_layer("arg:") | mxnet_layer(""))
    with pytest.raises(UnreadableError, match="are both read as 'lstm0_l0_i2h_weight'"):
        load(path, "mxnet")


def test_names_of_hdf5_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        for name in (b"\xff", b"\\xff"):
            group = h5py.h5g.create(file.id, name)
            h5py.Group(group).create_dataset("kernel", data=np.zeros((3, 8), np.float32))
    with pytest.raises(UnreadableError, match="two names in it are both read as"):
        load(path)


class Pairs(tuple[tuple[Any, Any], ...]):
    """An object of JSON or MessagePack: its keys and values."""


def text_of(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {text_of(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return json.dumps(value)


def places(value: Any, above: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the places of the objects in a value that have keys."""
    if isinstance(value, Pairs) and value:
        yield above
    for number, inner in enumerate(value if isinstance(value, Pairs | list) else ()):
        yield from places(inner[1] if isinstance(value, Pairs) else inner, (*above, number))


def with_key_twice(value: Any, place: tuple[int, ...]) -> Any:
    """Return a value in which the object at a place has its first key again, of another value."""
    if not place:
        return Pairs((*value, (value[0][0], None)))
    new, at = [*value], place[0]
    if isinstance(value, Pairs):
        new[at] = new[at][0], with_key_twice(new[at][1], place[1:])
    else:
        new[at] = with_key_twice(new[at], place[1:])
    return type(value)(new)


def doubled_json(text: str, random: Random) -> str:
    value = json.loads(text, object_pairs_hook=Pairs)
    return text_of(with_key_twice(value, random.choice([*places(value)])))


def doubled_in_json(data: bytes, random: Random) -> bytes:
    return doubled_json(data.decode(), random).encode()


def doubled_in_safetensors(data: bytes, random: Random) -> bytes:
    stop = 8 + int.from_bytes(data[:8], "little")
    header = doubled_json(data[8:stop].decode(), random).encode()
    return len(header).to_bytes(8, "little") + header + data[stop:]


def doubled_in_zip(data: bytes, random: Random) -> bytes:
    """Return an archive with a member of a name that is there, or with a key of JSON twice."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = {name: old.read(name) for name in old.namelist()}
        documents = [name for name, content in members.items() if content[:1] == b"{"]
        doubled = random.choice(documents) if documents and random.random() < 0.5 else ""
        for name, content in members.items():
            new.writestr(name, doubled_in_json(content, random) if name == doubled else content)
        if not doubled:
            name = random.choice([*members])
            new.writestr(name, members[random.choice([*members])])
    return result.getvalue()


def doubled_in_msgpack(data: bytes, random: Random) -> bytes:
    def packed(value: Any) -> bytes:
        if isinstance(value, Pairs):
            return bytes(msgpack.Packer().pack_map_header(len(value))) + b"".join(msgpack.packb(k) + packed(v) for k, v in value)
        return bytes(msgpack.packb(value))

    value = msgpack.unpackb(data, object_pairs_hook=Pairs)
    return packed(with_key_twice(value, random.choice([*places(value)])))


def doubled_in_bson(data: bytes, random: Random) -> bytes:
    """Return a document in which the first key of one inside it stands twice."""
    raw = bson.CodecOptions(document_class=raw_bson.RawBSONDocument)
    documents = [data, *(inner.raw for inner in bson.decode(data, codec_options=raw).values() if hasattr(inner, "raw"))]
    old = random.choice(documents)
    key = next(iter(bson.decode(old)))
    element = b"\x10" + key.encode() + b"\0" + bytes(4)
    new = (len(old) + len(element)).to_bytes(4, "little") + old[4:-1] + element + b"\0"
    data = data.replace(old, new) if old is not data else new
    return len(data).to_bytes(4, "little") + data[4:]


def doubling(path: Path) -> Callable[[bytes, Random], bytes] | None:
    data = path.read_bytes()
    if data[8:9] == b"{":
        return doubled_in_safetensors
    if data[:1] == b"{":
        return doubled_in_json
    by_ending = {".msgpack": doubled_in_msgpack, ".bson": doubled_in_bson}
    return doubled_in_zip if data.startswith(b"PK") else by_ending.get(path.suffix)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """A file of each format that is written, which holds JSON, MessagePack, BSON or a zip archive, and the format."""
    folder = tmp_path_factory.mktemp("written")
    files = {}
    for format in registry.cards():
        for ending in registry.endings(format):
            path = folder / f"{format}{ending}"
            with contextlib.suppress(RnnConvertError):  # it cannot hold this layer, or is only read
                sources.write(path, target_format=format)
            if path.is_file() and doubling(path):
                files[path] = format
    return files


def test_a_name_that_a_file_has_twice(written: dict[Path, str], tmp_path: Path) -> None:
    def check(case: tuple[Path, int]) -> None:
        path, seed = case
        data, change = path.read_bytes(), doubling(path)
        assert change is not None
        new = tmp_path / f"{seed}{path.name}"
        new.write_bytes(change(data, Random(seed)))
        with pytest.raises(UnreadableError, match=r"two values for the key|two things in it have the name|appears twice"):
            load(new, written[path])

    assert len(written) > 20
    each(drawn([(path, seed) for path in written for seed in range(20)], 100, "names twice"), check)


class Twice(OrderedDict[str, Any]):
    """A dictionary whose pickle sets its entries, and then those of another again."""

    def __reduce__(self) -> Any:
        return OrderedDict, (), None, None, iter([*self.items(), *((name, array + 1) for name, array in self.items())])


def twice_in_torch(path: Path) -> None:
    torch = needed("torch", "torch")
    torch.save(Twice(torch.nn.LSTM(3, 2).state_dict()), path)


def twice_in_a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Twice(keras_layer("lstm/"))))


def twice_in_pairs(path: Path) -> None:
    """A dictionary that is made of a list of pairs, as Python 2 pickled an OrderedDict."""
    pairs = [[name, array] for name, array in keras_layer("lstm/").items()]
    path.write_bytes(pickle.dumps(Reduced(OrderedDict, ([*pairs, *pairs],))))


class Reduced:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def twice_in_npz(path: Path) -> None:
    write(path, keras_layer("lstm/"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("lstm/kernel", b"another")


def twice_in_mxnet(path: Path) -> None:
    vector = np.zeros(64, np.float32)
    np.savez(path, lstm_parameters=vector, lstm_rnn_param=vector + 1)


def twice_in_ggml(path: Path) -> None:
    data = ggml.written(path, ggml.cell()).read_bytes()
    path.write_bytes(data + ggml.entries(ggml.cell()))


def twice_in_a_header(path: Path) -> None:
    sources.write(path)
    text = path.read_text()
    table = next(row for row in text.splitlines() if "[" in row and "= {" in row)
    name = table.partition("[")[0].split()[-1]
    path.write_text(f"{text}\nstatic const float {name}[2] = {{1, 2}};\n")


def twice_in_a_graph(path: Path) -> None:
    tensorflow = needed("keras", "tensorflow")
    graph = tensorflow.Graph()
    with graph.as_default():
        for name in ("a", "b"):
            tensorflow.constant(np.ones((3, 2), np.float32), name=name)
    path.write_bytes(graph.as_graph_def().SerializeToString().replace(b"\x01b\x12", b"\x01a\x12"))


def twice_in_onnx(path: Path) -> None:
    model = onnx.load(sources.write(path))
    model.graph.initializer.append(model.graph.initializer[0])
    onnx.save(model, path)


def twice_in_torch7(path: Path) -> None:
    """A table with the keys 1 and "1"."""
    array = np.ones((3, 2))
    torch7_write.write(path, {1: array, "1": array + 1})


TWICE = {
    "a.pt": (twice_in_torch, ""),
    "a.pkl": (twice_in_a_pickle, "keras"),
    "b.pkl": (twice_in_pairs, "keras"),
    "a.npz": (twice_in_npz, "keras"),
    "b.npz": (twice_in_mxnet, "mxnet"),
    "a.ggml": (twice_in_ggml, ""),
    "a.h": (twice_in_a_header, ""),
    "a.pb": (twice_in_a_graph, ""),
    "a.onnx": (twice_in_onnx, ""),
    "a.t7": (twice_in_torch7, ""),
}
"""What writes a file with two things of one name, and the format as which it is read."""


def test_a_name_that_a_file_of_each_kind_has_twice(tmp_path: Path) -> None:
    def check(name: str) -> None:
        write_twice, format = TWICE[name]
        write_twice(tmp_path / name)
        with pytest.raises(UnreadableError, match=r"two things in it have the name|are both read as"):
            load(tmp_path / name, format or None)

    each(TWICE, check)


@pytest.mark.parametrize("ending", [".json", ".yaml"])
def test_a_key_that_an_architecture_has_twice(ending: str, tmp_path: Path) -> None:
    text = '{"class_name": "Sequential", "config": {"layers": []}, "config": {"layers": []}}'
    (tmp_path / f"a{ending}").write_text(text)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["lstm/kernel"] = np.zeros((3, 8), np.float32)
    with pytest.raises(UnreadableError, match=r"two values for the key 'config'|a key appears twice"):
        load(tmp_path / "a.h5", "keras", config=str(tmp_path / f"a{ending}"))
