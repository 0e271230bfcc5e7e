"""What TensorFlow.js keeps of TensorFlow's graphs: graph models, as protobuf itself writes graphs as JSON, and dumped variables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import tensor_bundle
from rnnconvert.containers.graph_def_json import _FIELDS
from rnnconvert.core.errors import UnreadableError
from rnnconvert.verification.running import identical
from tests import ROOT
from tests.helpers.damage import endings
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

GOLDEN = ROOT / "tests" / "golden"
CELLS = GOLDEN / "tensorflow1" / "cells.index"
FROZEN = [path for folder in ("frozen", "frozen_functions", "keras_loops", "frozen_keras21") for path in (GOLDEN / folder).glob("*.pb")]


def graph_model(source: Path, folder: Path) -> Path:
    """Write a frozen graph as tensorflowjs_converter does: the graph by protobuf's JSON, the constants in a group of weights.

    Source: tensorflowjs 4.22, converters/tf_saved_model_conversion_v2.py, extract_weights; converters/graph_rewrite_util.py,
    rename_constants.
    """
    graph_pb2 = needed("tensorflow", "tensorflow.core.framework.graph_pb2")
    make = needed("tensorflow", "tensorflow").make_ndarray
    graph = graph_pb2.GraphDef.FromString(source.read_bytes())
    weights: list[dict[str, Any]] = []
    numbers = b""
    for function in graph.library.function:
        constants = {node.name for node in function.node_def if node.op == "Const"}
        for node in function.node_def:
            renamed = [f"{function.signature.name}/{name}" if name.partition(":")[0] in constants else name for name in node.input]
            node.input[:] = renamed
            node.name = f"{function.signature.name}/{node.name}" if node.op == "Const" else node.name
        for key, name in function.ret.items():
            function.ret[key] = f"{function.signature.name}/{name}" if name.partition(":")[0] in constants else name
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        if node.op == "Const" and node.attr["dtype"].type != 7:
            tensor = node.attr["value"].tensor
            array = make(tensor)
            array = array.astype(np.int32) if array.dtype == np.int64 else array
            weights.append({"name": node.name, "shape": list(array.shape), "dtype": array.dtype.name})
            numbers += array.tobytes()
            bare = type(tensor)(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape)
            tensor.CopyFrom(bare)
    topology = json.loads(needed("tensorflow", "google.protobuf.json_format").MessageToJson(graph))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "group1-shard1of1.bin").write_bytes(numbers)
    document = {
        "format": "graph-model",
        "modelTopology": topology,
        "weightsManifest": [{"paths": ["group1-shard1of1.bin"], "weights": weights}],
    }
    (folder / "model.json").write_text(json.dumps(document))
    return folder / "model.json"


def test_a_graph_as_json_has_the_layers_that_it_has_in_binary_form(tmp_path: Path) -> None:
    def check(source: Path) -> None:
        binary, text = rc.load(source), rc.load(graph_model(source, tmp_path / source.stem))
        assert text.format == "tensorflow1" and text.layers.keys() == binary.layers.keys() and binary.layers
        for name, layer in binary.layers.items():
            assert identical(text.layers[name], layer) and text.layers[name].calls == layer.calls
        assert [str(note) for note in text.unread] == [str(note) for note in binary.unread]

    each(FROZEN, check, lambda path: f"{path.parent.name}/{path.name}")


def test_a_folder_is_its_model_and_the_group_of_weights_belongs_to_it(tmp_path: Path) -> None:
    model = graph_model(GOLDEN / "frozen" / "stack_frames.pb", tmp_path / "web")
    assert rc.load(tmp_path / "web").layers.keys() == rc.load(model).layers.keys()
    assert rc.load(model).beside == (str(model.with_name("group1-shard1of1.bin")),)
    model.with_name("group1-shard1of1.bin").unlink()
    with pytest.raises(UnreadableError, match=r"group1-shard1of1\.bin"):
        rc.load(model)


def test_a_damaged_graph_is_unreadable_or_read(tmp_path: Path) -> None:
    model = graph_model(GOLDEN / "frozen" / "stack_frames.pb", tmp_path)
    assert endings(model, "tensorflow1", 60, b'0123456789{}[]"/:,-eant\x00\xff') <= {"read", "unreadable"}


def test_a_field_of_another_kind_is_unreadable(tmp_path: Path) -> None:
    model = graph_model(GOLDEN / "frozen_functions" / "lstm.pb", tmp_path)
    document = json.loads(model.read_text())
    node = next(node for node in document["modelTopology"]["node"] if node.get("attr"))
    name = next(iter(node["attr"]))

    def check(wrong: tuple[str, Any]) -> None:
        node["attr"] = {name: {wrong[0]: wrong[1]}}
        model.write_text(json.dumps(document))
        with pytest.raises(UnreadableError, match=r"its graph has .* where .* belongs?"):
            rc.load(model, "tensorflow1")

    values: tuple[Any, ...] = ([[]], {"x": []}, "\u00e9")
    wrongs = [(field, value) for field in _FIELDS["attribute"] for value in values if not _fits(field, value)]
    each(wrongs, check)


def _fits(field: str, value: Any) -> bool:
    """Return whether protobuf takes a value for a field: a message without known fields is empty, names of types are open."""
    if field in ("list", "shape", "tensor", "func"):
        return isinstance(value, dict)
    return field == "type" and isinstance(value, str)


def dumped(checkpoint: Path, folder: Path) -> Path:
    """Write the variables of a checkpoint as deeplearn.js's dump_checkpoint_vars.py does."""
    stored = tensor_bundle.read(checkpoint)
    listed = {}
    folder.mkdir(exist_ok=True)
    for name, array in stored.arrays.items():
        file = name.replace("/", "_")
        (folder / file).write_bytes(np.ascontiguousarray(array, "<f4").tobytes())
        listed[name] = {"filename": file, "shape": list(array.shape)}
    (folder / "manifest.json").write_text(json.dumps(listed))
    return folder / "manifest.json"


def test_dumped_variables_are_the_layers_of_their_checkpoint(tmp_path: Path) -> None:
    path = dumped(CELLS, tmp_path / "web")
    before = rc.load(CELLS)
    for named in (path, path.parent):
        after = rc.load(named)
        assert after.layers.keys() == before.layers.keys() and before.layers
        assert all(identical(after.layers[name], layer) for name, layer in before.layers.items())
    assert {Path(file).name for file in rc.load(path).beside} == {name.replace("/", "_") for name in before.arrays}


def test_a_file_of_another_size_than_its_variable_is_unreadable(tmp_path: Path) -> None:
    path = dumped(CELLS, tmp_path / "web")
    file = next(file for file in path.parent.iterdir() if file.name.endswith("kernel"))
    content = file.read_bytes()
    for other in (content + b"\0\0\0\0", content[:-4]):
        file.write_bytes(other)
        with pytest.raises(UnreadableError, match=re.escape(file.name)):
            rc.load(path)
    file.unlink()
    with pytest.raises(UnreadableError, match=re.escape(file.name)):
        rc.load(path)
