"""Real files with some of their bytes or of their meaning changed: whatever comes of it, only our own errors come out."""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import rnnconvert as rc
from rnnconvert import convert
from rnnconvert.core.errors import RnnConvertError
from tests import ROOT
from tests.helpers import corpus, ready
from tests.helpers.drawn import LONG, drawn
from tests.helpers.requirements import need
from tests.helpers.sources import keras_lstm_h5, onnx_arrays, onnx_node, sequential, stack, uniform, write

pytestmark = pytest.mark.reads_apart

SMALL = 130_000

CHECK: dict[str, Any] = {"derandomize": True, "deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def attempt(path: Path) -> bool:
    """Load, and convert to another format; whether both went well. Anything but our own error comes out."""
    target = path.with_name("target.onnx" if rc_format(path) != "onnx" else "target.pt")
    target.unlink(missing_ok=True)
    try:
        checkpoint = rc.load(path)
        for layer in checkpoint.layers.values():
            layer.describe()
        convert(path, target, assume_defaults=True)
        target.unlink()
        return True
    except RnnConvertError as error:
        assert str(error) and "Traceback" not in str(error)
        assert not target.exists()
        return False


def rc_format(path: Path) -> str:
    return "onnx" if path.suffix in (".onnx", ".onnxtxt") else "other"


# Bytes ----------------------------------------------------------------------------------------------


def model_files(folder: Path) -> dict[str, Path]:
    """Small files of every kind but HDF5, whose library is not safe against damaged files."""
    paths = {
        "checkpoint.pt": write(folder / "checkpoint.pt", stack("gru", hidden_size=2)),
        "weights.safetensors": write(folder / "weights.safetensors", stack("gru", hidden_size=2)),
        "model.onnx": write(folder / "model.onnx", stack("gru", hidden_size=2)),
        "node.onnx": onnx_node(folder / "node.onnx", "LSTM", onnx_arrays("LSTM"), input_forget=1),
        "buffer.bin": write(folder / "buffer.bin", stack("gru", hidden_size=2)),
        "buffer.safetensors": write(folder / "buffer.safetensors", stack(), target_format="cudnn"),
        "external.onnx": write(folder / "external.onnx", stack(hidden_size=16), external_data=True),
    }
    text = folder / "text.onnxtxt"
    text.write_text(str(onnx.load(paths["node.onnx"])))
    return {**paths, "text.onnxtxt": text}


NAMES = [
    "checkpoint.pt", "weights.safetensors", "model.onnx", "node.onnx", "buffer.bin", "buffer.safetensors",
    "external.onnx", "text.onnxtxt",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutations")
    assert list(model_files(path)) == NAMES
    assert all(attempt(path / name) for name in NAMES)
    return path


def mutated(content: bytes, data: st.DataObject) -> bytes:
    """Some bytes changed, more of them near the two ends, where headers and directories are; or a piece cut or doubled."""
    size = len(content)
    place = st.one_of(st.integers(0, min(size - 1, 300)), st.integers(max(0, size - 400), size - 1), st.integers(0, size - 1))
    changed = bytearray(content)
    byte = st.one_of(st.sampled_from([0, 1, 127, 128, 255]), st.integers(0, 255))
    for at, value in data.draw(st.lists(st.tuples(place, byte), min_size=1, max_size=5)):
        changed[at] = value
    start, length = data.draw(place), data.draw(st.integers(0, 40))
    how = data.draw(st.sampled_from(["leave", "leave", "leave", "cut", "drop", "double"]))
    if how == "cut":
        del changed[start:]
    elif how == "drop":
        del changed[start : start + length]
    elif how == "double":
        changed[start:start] = changed[start : start + length]
    return bytes(changed)


@pytest.mark.parametrize("name", NAMES)
def test_changed_bytes_raise_our_errors_only(name: str, folder: Path, tmp_path: Path) -> None:
    content = (folder / name).read_bytes()
    for other in folder.iterdir():  # external data and descriptions lie beside
        (tmp_path / other.name).write_bytes(other.read_bytes())
    outcomes = set()

    @settings(max_examples=80 if LONG else 40, **CHECK)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        (tmp_path / name).write_bytes(mutated(content, data))
        outcomes.add(attempt(tmp_path / name))

    check()
    assert False in outcomes


CORPUS = [
    "allennlp-fixtures/simple_tagger_best.th", "pytorch-quantized-lstm/TestSerialization.test_lstm.scripted.pt",
    "burn-onnx-tests/lstm_bidirectional.onnx", "opencv-onnx-basic/models/gru_bi.onnx",
    "glow-onnxtxt/lstmForwardWithPeephole.onnxtxt", "opencv-onnx-basic/models/gru_cell_batchsize_5_seqlen_5.onnx",
]  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
def test_changed_bytes_of_real_files_raise_our_errors_only(name: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    content = (corpus.FOLDER / name).read_bytes()
    path = tmp_path / Path(name).name

    @settings(max_examples=40, **CHECK)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        path.write_bytes(mutated(content, data))
        attempt(path)

    check()


# HDF5, in a process of its own ----------------------------------------------------------------------

MUTATE = textwrap.dedent(
    """
    import random, resource, sys
    from pathlib import Path
    from rnnconvert import load
    from rnnconvert import convert
    from rnnconvert.core.errors import RnnConvertError

    # a damaged length of a string makes the library allocate up to 4 GiB for it
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    folder = Path(sys.argv[1])
    path, target = folder / ("changed" + Path(sys.argv[2]).suffix), folder / "target.onnx"
    whole = Path(sys.argv[2]).read_bytes()
    refused = done = 0
    for seed in range(int(sys.argv[3])):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            at = chance.randrange(min(len(data), chance.choice((600, 4000, 1 << 20))))
            data[at] = chance.choice((0, 255, chance.randrange(256), data[at] ^ 1 << chance.randrange(8)))
        path.write_bytes(bytes(data))
        try:
            load(path)
            convert(path, target, force=True, assume_defaults=True)
            done += 1
        except RnnConvertError:
            refused += 1
    print(refused, done)
    """
)


def in_a_child(source: Path, folder: Path, count: int) -> tuple[int, int]:
    """How many of the changed files were refused, and how many converted."""
    command = [sys.executable, "-W", "ignore", "-c", MUTATE, folder, source, count]
    ended = ready.run(command, ready.OURS, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ended.returncode == 0, ended.stderr[-2000:]
    refused, done = map(int, ended.stdout.split())
    return refused, done


def keras_3(path: Path) -> Path:
    write(path, stack("gru", num_directions=2, name="gru"))
    return path


@pytest.mark.parametrize(
    "make",
    [lambda folder: keras_lstm_h5(folder / "legacy.h5"), lambda folder: keras_3(folder / "model.keras"),
     lambda folder: keras_3(folder / "model.weights.h5")],
    ids=["legacy", "keras", "weights"],
)  # fmt: skip
def test_changed_bytes_of_hdf5_raise_our_errors_only(make: Callable[[Path], Path], tmp_path: Path) -> None:
    refused, done = in_a_child(make(tmp_path), tmp_path, 50)
    assert refused > 2 and done > 2


@pytest.mark.parametrize("name", ["dl4j-keras-imports/bidirectional_lstm_tensorflow_1.h5", "crema-beats/model.h5"])
def test_changed_bytes_of_real_hdf5_raise_our_errors_only(name: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    source = corpus.FOLDER / name
    refused, done = in_a_child(source, tmp_path, 30)
    assert refused + done == 30


# Meaning: descriptions that are well-formed JSON and say something else ------------------------------

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 7, 1 << 40, 1.5, 1e308, float("nan"), "", "x", "lstm", "GRU", "hard_sigmoid", "../x",
    [], [[]], {}, {"config": {}}, {"class_name": "LSTM"}, {"class_name": "LSTM", "config": {}}, ["a", 1], [None],
]  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in pairs:
        yield from places(value, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any, drop: bool) -> Any:
    """The document with one value in it replaced, or left out."""
    if not path:
        return value
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if drop:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


def every_change(document: Any) -> Iterator[Any]:
    for number, path in enumerate(places(document)):
        for value in VALUES[number % 8 :: 8]:
            yield replaced(document, path, value, False)
        if path:
            yield replaced(document, path, None, True)


def _config() -> dict[str, Any]:
    gru: dict[str, Any] = {"class_name": "GRU", "config": {
        "name": "gru", "units": 4, "reset_after": True, "activation": "tanh", "recurrent_activation": "sigmoid",
        "go_backwards": False,
    }}  # fmt: skip
    back = {"class_name": "GRU", "config": {**gru["config"], "go_backwards": True}}
    activation = {"class_name": "LeakyReLU", "config": {"negative_slope": 0.1}}
    return sequential(
        ("Bidirectional", {"name": "both", "layer": gru, "backward_layer": back, "merge_mode": "concat"}),
        ("RNN", {"name": "rnn", "cell": {
            "class_name": "StackedRNNCells",
            "config": {"cells": [{"class_name": "LSTMCell", "config": {"name": "c", "units": 4, "activation": activation}}]},
        }}),
    )  # fmt: skip


def _keras_arrays() -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for way in ("forward_layer", "backward_layer"):
        for number, shape in enumerate(((3, 12), (4, 12), (2, 12))):
            arrays[f"layers/bidirectional/{way}/cell/vars/{number}"] = uniform(number, *shape)
    for number, sizes in enumerate(((8, 16), (4, 16), (16,))):
        arrays[f"layers/rnn/cell/cells/0/vars/{number}"] = uniform(number, *sizes)
    return arrays


def test_a_keras_configuration_may_say_anything(tmp_path: Path) -> None:
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for name, array in _keras_arrays().items():
            file[name] = array
    path = tmp_path / "model.keras"

    def packed(config: Any, metadata: Any) -> Path:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps(config))
            archive.writestr("metadata.json", json.dumps(metadata))
            archive.writestr("model.weights.h5", weights.getvalue())
        return path

    metadata = {"keras_version": "3.4.1", "date_saved": "2024-01-01"}
    assert len(rc.load(packed(_config(), metadata)).layers) == 2
    configs = drawn(every_change(_config()), 20, "configuration")
    outcomes = [loads(packed(config, metadata)) for config in configs]
    outcomes += [loads(packed(_config(), changed)) for changed in drawn(every_change(metadata), 5, "metadata")]
    assert True in outcomes and False in outcomes


def loads(path: Path, **options: Any) -> bool:
    try:
        checkpoint = rc.load(path, **options)
    except RnnConvertError:
        return False
    rc.targets(checkpoint)
    return True


def test_the_attributes_of_a_legacy_file_may_say_anything(tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "model.h5")
    config = sequential(("LSTM", {"name": "lstm", "units": 4}))
    texts = [json.dumps(changed) for changed in every_change(config)]
    outcomes = []
    with h5py.File(path, "a") as file:
        pass
    for text in [*drawn(texts, 10, "attributes"), "{", "null", b"\xff\xfe", 5, np.zeros(3), h5py.Empty("f4")]:
        with h5py.File(path, "a") as file:
            file.attrs["model_config"] = text
        outcomes.append(loads(path))
    names, values = ("layer_names", "weight_names", "keras_version", "backend"), (5, "x", [b"nobody"], [b"\xff"], np.zeros((2, 2)))
    for name, value in drawn(itertools.product(names, (*values, h5py.Empty("S1"), [b"lstm", b"lstm"])), 12, "names"):
        keras_lstm_h5(path)
        with h5py.File(path, "a") as file:
            for place in ("/", "model_weights", "model_weights/lstm"):
                file[place].attrs[name] = value
        outcomes.append(loads(path))
    assert True in outcomes and False in outcomes


def test_a_description_of_a_buffer_may_say_anything(tmp_path: Path) -> None:
    path = write(tmp_path / "buffer.bin")
    sidecar = tmp_path / "buffer.bin.json"
    description = json.loads(sidecar.read_text())
    description["layers"][0]["clip"] = [-1.0, 1.0]
    outcomes = []
    for changed in every_change(description):
        sidecar.write_text(json.dumps(changed))
        outcomes.append(loads(path))
    assert True in outcomes and False in outcomes


def test_the_metadata_of_buffers_may_say_anything(tmp_path: Path) -> None:
    path = tmp_path / "buffers.safetensors"
    arrays = {"a": np.asarray(rc.pack(stack(), "cudnn"))}
    description = {"layers": [{"name": "a", "tensor": "a", "cell": "lstm", "input_size": 3, "hidden_size": 4}]}
    outcomes = []
    for changed in every_change(description):
        save_file(arrays, path, {"rnnconvert.cudnn": json.dumps(changed)})
        outcomes.append(loads(path))
    assert True in outcomes and False in outcomes


def test_the_attributes_of_a_node_may_say_anything(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "node.onnx", "LSTM", onnx_arrays("LSTM", peepholes=True))
    model = onnx.load(path)
    values: list[Any] = [0, 1, -1, 1 << 40, 0.5, -0.5, float("nan"), float("inf"), "forward", "bidirectional", "", b"\xff"]
    values += [[1, 2], [0.5, 0.5], ["Tanh"], ["Sigmoid", "Tanh", "Tanh"], ["x"] * 3, [b"\xff"] * 3]
    names = ["direction", "clip", "input_forget", "hidden_size", "layout", "activations", "activation_alpha", "activation_beta"]
    outcomes = []
    for name in names:
        for value in values:
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            node = changed.graph.node[0]
            others = [attribute for attribute in node.attribute if attribute.name != name]
            del node.attribute[:]
            node.attribute.extend([*others, onnx.helper.make_attribute(name, value)])
            path.write_bytes(changed.SerializeToString())
            outcomes.append(attempt(path) if name != "clip" else loads(path))
    assert False in outcomes


def test_the_inputs_of_a_node_may_be_anything(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "node.onnx", "LSTM", onnx_arrays("LSTM", peepholes=True))
    model = onnx.load(path)
    for slot in range(8):
        for name in ("", "X", "nobody", "W", "R", "B", "P", "Y"):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            changed.graph.node[0].input[slot] = name
            path.write_bytes(changed.SerializeToString())
            loads(path)
    for count in range(8):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        del changed.graph.node[0].input[count:]
        path.write_bytes(changed.SerializeToString())
        assert loads(path) == (count > 2)


NAMED = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0", "weight_ih_l1", "weight_hh_l0_reverse"]
SHAPES = [(), (0,), (1,), (16,), (16, 3), (16, 4), (12, 4), (4, 4), (2, 4), (16, 3, 1), (0, 4), (16, 0)]


@settings(max_examples=100, **CHECK)
@given(
    arrays=st.dictionaries(st.sampled_from(NAMED), st.sampled_from(SHAPES), min_size=1),
    kind=st.sampled_from([np.float32, np.float16, np.int64, np.bool_]),
)
def test_parameters_may_have_any_shapes(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, tuple[int, ...]], kind: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_file({name: np.zeros(shape, kind) for name, shape in arrays.items()}, path)
    attempt(path)


KERAS_NAMES = [f"lstm/lstm/{name}:0" for name in ("kernel", "recurrent_kernel", "bias", "input_gate_peephole_weights")]


@settings(max_examples=25, **CHECK)
@given(arrays=st.dictionaries(st.sampled_from(KERAS_NAMES), st.sampled_from(SHAPES), min_size=1))
def test_kernels_may_have_any_shapes(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, tuple[int, ...]]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.h5"
    with h5py.File(path, "w") as file:
        for name, shape in arrays.items():
            file[name] = np.zeros(shape, np.float32)
    attempt(path)
