"""Whole layers models, as tensorflowjs_converter and TensorFlow.js wrote them, as sources of every command for Keras models."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import MissingFileError, RefusedError, UnreadableError, UsageError
from rnnconvert.formats.keras.upgrade.files import upgrade
from rnnconvert.models.runners import NotRunError
from tests import environments
from tests.helpers.drawn import drawn, each
from tests.helpers.exported import FRAMEWORKS_WARN, RUNS
from tests.helpers.frameworks import let_node_find_tfjs
from tests.helpers.requirements import need, needed

pytestmark = FRAMEWORKS_WARN
GOLDEN = Path(__file__).parents[2] / "golden" / "tfjs"
REFUSED = {
    "javascript/cells": "kernel",
    "javascript/masked_before_repeating": "gives a mask to all layers that it runs later",
    "javascript/masked_average": "differ in what such a layer makes of it",
    "javascript/masked_both_ways": "older Keras repeated the output before",
    "javascript/masked_convolution": "gives a mask to all layers that it runs later",
    "javascript/masked_pooling": "gives a mask to all layers that it runs later",
    "javascript/masked_first": "gives a mask to all layers that it runs later",
    "javascript/masked_second": "gives a mask to all layers that it runs later",
    "javascript/masked_begun": "initial states and a mask: at masked steps before the first other one TensorFlow.js gives the state",
    "javascript/masked_stateful": "stateful = True and a mask",
    "javascript/masked_outside": "masks in a model with models inside",
    "javascript/masked_inside": "masks in a model with models inside",
}
"""What TensorFlow.js computes by rules of its own."""
NOT_LOADED = ("keras_3", "reset_after")
"""What TensorFlow.js itself does not load: inputs as Keras 3 states them, a GRU with reset_after."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with tarfile.open(GOLDEN / "models.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


def names(models: Path) -> list[str]:
    return sorted(name for path in models.glob("*/*/model.json") if not (name := str(path.parent.relative_to(models))).startswith("graph/"))


def recorded(folder: Path) -> tuple[list[Any], list[Any]]:
    """The inputs of a model and its outputs in what made it."""
    arrays = json.loads((folder / "io.json").read_text())
    return [np.asarray(x, np.float32) for x in arrays["x"]], [np.asarray(y) for y in arrays["y"]]


def gives(folder: Path, target: Path, tolerance: float = 2e-6) -> None:
    x, truth = recorded(folder)
    outputs = RUNS[target.suffix[1:]](target)(x)
    for output, expected in zip(outputs, truth, strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=tolerance)
        assert np.ptp(expected) > 1e-3


def test_models_of_every_saver_give_what_they_gave(models: Path, tmp_path: Path) -> None:
    def check(name: str) -> None:
        out = tmp_path / "model.onnx"
        if name in REFUSED:
            with pytest.raises(RefusedError, match=REFUSED[name]):
                rc.export_model(models / name / "model.json", out, force=True)
            return
        done = rc.export_model(models / name / "model.json", out, force=True)
        quantized = name.partition("/")[0] in ("uint8", "uint16", "float16")
        assert quantized == any("stored as" in note for note in done.notes)
        gives(models / name, out, {"uint8": 3e-2, "uint16": 3e-4, "float16": 1e-3}.get(name.partition("/")[0], 2e-6))

    assert len(names(models)) == 52 and REFUSED.keys() <= {*names(models)}
    each(names(models), check)


@pytest.mark.parametrize("ending", ["xml", "tflite", "h"])
def test_other_targets(ending: str, models: Path, tmp_path: Path) -> None:
    def check(name: str) -> None:
        target = tmp_path / f"model.{ending}"
        rc.export_model(models / name, target, force=True)
        if ending != "h":
            gives(models / name, target)

    savers = ("javascript", "keras_2_h5", "keras_3")
    each(drawn([f"{saver}/{name}" for saver in savers for name in ("nested", "shared", "sequence")], 3, ending), check)


@pytest.mark.own_processes
def test_a_model_is_proved_against_tensorflow_js(models: Path, tmp_path: Path) -> None:
    need("tfjs", environments.missing("tfjs"))
    let_node_find_tfjs()

    def check(name: str) -> None:
        out = tmp_path / "model.onnx"
        if any(word in name for word in NOT_LOADED):
            with pytest.raises(NotRunError, match=r"TensorFlow\.js does not load it"):
                rc.export_model(models / name, out, force=True, verify=True)
            return
        done = rc.export_model(models / name, out, force=True, verify=True)
        assert "equal" in str(done) or "proved" in str(done), str(done)

    savers = ("javascript", "keras_2_h5", "keras_3", "uint8")
    each(drawn([name for name in names(models) if name.partition("/")[0] in savers and name not in REFUSED], 4, "tfjs"), check)


def test_what_the_converter_fuses_is_written_out(models: Path, tmp_path: Path) -> None:
    operators = {node["op"] for node in json.loads((models / "graph" / "functions" / "model.json").read_text())["modelTopology"]["node"]}
    assert {"_FusedConv2D", "FusedDepthwiseConv2dNative", "_FusedMatMul", "Prelu"} <= operators
    rc.export_model(models / "graph" / "functions", tmp_path / "a.onnx")
    gives(models / "graph" / "functions", tmp_path / "a.onnx")


@pytest.mark.own_processes
def test_a_graph_model_has_the_inputs_and_outputs_of_its_signature(models: Path, tmp_path: Path) -> None:
    """The converter states the inputs in another order than the model that it was made of."""
    x, truth = recorded(models / "graph" / "two_inputs")
    by_name, expected = {"x": x[0], "z": x[1]}, {output.shape: output for output in truth}
    signature = json.loads((models / "graph" / "two_inputs" / "model.json").read_text())["signature"]
    for turn_inputs, turn_outputs in ((False, False), (True, False), (False, True)):
        stated = {
            word: dict(reversed(tensors.items())) if turn else tensors
            for (word, tensors), turn in zip(signature.items(), (turn_inputs, turn_outputs), strict=True)
        }
        path = copied(models, "graph/two_inputs", tmp_path, lambda document, stated=stated: document.update(signature=stated))
        rc.export_model(path, tmp_path / "a.onnx", force=True)
        outputs = RUNS["onnx"](tmp_path / "a.onnx")([by_name[name] for name in stated["inputs"]])
        widths = [int(tensor["tensorShape"]["dim"][1]["size"]) for tensor in stated["outputs"].values()]
        assert [output.shape[1] for output in outputs] == widths
        for output in outputs:
            np.testing.assert_allclose(output, expected[output.shape], rtol=1e-5, atol=2e-6)
    need("tfjs", environments.missing("tfjs"))
    let_node_find_tfjs()
    done = rc.export_model(path, tmp_path / "a.onnx", force=True, verify=True)
    assert "equal" in str(done), str(done)


def test_a_norm_over_another_axis_is_told_of(models: Path, tmp_path: Path) -> None:
    """What TensorFlow.js computes on the CPU takes the numbers of the last axis."""
    for axis in (-1, 2):

        def state(document: Any, axis: int = axis) -> None:
            (norm,) = (layer for layer in document["modelTopology"]["config"]["layers"] if layer["class_name"] == "BatchNormalization")
            norm["config"]["axis"] = axis

        path = copied(models, "javascript/convolution", tmp_path, state)
        done = rc.export_model(path, tmp_path / "a.onnx", force=True)
        assert any("states its axis" in note for note in done.notes) == (axis == 2)


def in_keras(path: Path, folder: Path) -> None:
    keras = needed("keras", "keras")
    x, truth = recorded(folder)
    model = keras.saving.load_model(path)
    outputs = model(x if len(x) > 1 else x[0], training=False)
    for output, expected in zip(outputs if isinstance(outputs, list) else [outputs], truth, strict=True):
        np.testing.assert_allclose(np.asarray(output), expected, rtol=1e-5, atol=2e-6)


def test_upgraded_they_are_models_of_keras(models: Path, tmp_path: Path) -> None:
    def check(name: str) -> None:
        source = models / name
        done = upgrade(source if name < "k" else source / "model.json", tmp_path / "new.keras", force=True)
        assert ("Keras 2.0 (tfjs-layers 4.22.0)" if name < "k" else "Keras 2.21.0") == done.written
        in_keras(tmp_path / "new.keras", source)

    each(
        [name for name in names(models) if name.partition("/")[0] in ("javascript", "keras_2_h5") and name not in REFUSED],
        check,
    )  # fmt: skip
    assert "stored as uint8" in str(upgrade(models / "uint8" / "sequence", tmp_path / "new.keras", force=True))
    with pytest.raises(UsageError, match=r"Keras 3\.15\.1, and states no modules of its classes.*scaffold"):
        upgrade(models / "keras_3" / "nested", tmp_path / "new.keras", force=True)


@pytest.mark.own_processes
def test_an_upgrade_is_proved_against_tensorflow_js(models: Path, tmp_path: Path) -> None:
    need("tfjs", environments.missing("tfjs"))
    let_node_find_tfjs()
    for name, count in (("two_inputs", 2), ("several_outputs", 4)):
        done = upgrade(models / "javascript" / name, tmp_path / "new.keras", verify=True, force=True)
        assert done.proof.startswith(f"proved: TensorFlow.js on the old file and Keras on the new one agree in all {count} outputs")


def test_they_fill_models_of_keras(models: Path) -> None:
    keras = needed("keras", "keras")
    inner = keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(4, return_sequences=True), keras.layers.Dense(3, activation="tanh")])
    start = keras.Input((5, 3))
    model = keras.Model(start, keras.layers.GlobalAveragePooling1D()(inner(start)))
    rc.load_into(model, models / "keras_2_h5" / "nested")
    x, truth = recorded(models / "keras_2_h5" / "nested")
    np.testing.assert_allclose(model(x[0], training=False), truth[0], rtol=1e-5, atol=2e-6)


def copied(models: Path, name: str, tmp_path: Path, change: Any) -> Path:
    """A model with another document."""
    shutil.copytree(models / name, tmp_path / "copy", dirs_exist_ok=True)
    path = tmp_path / "copy" / "model.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def _rename(document: Any, old: str, new: str) -> None:
    for weight in document["weightsManifest"][0]["weights"]:
        weight["name"] = weight["name"].replace(old, new)


def test_a_weight_of_no_layer_and_a_layer_without_weights_are_refused(models: Path, tmp_path: Path) -> None:
    for old, new, why in (
        ("dense_Dense6/bias", "dense_Dense6/beta", r"the weight 'bias'.*0 arrays"),
        ("dense_Dense6", "other", r"the weight 'kernel'.*0 arrays"),
    ):
        path = copied(models, "javascript/nested", tmp_path, lambda document, old=old, new=new: _rename(document, old, new))
        with pytest.raises(RefusedError, match=why):
            rc.export_model(path, tmp_path / "a.onnx", force=True)

    def add(document: Any) -> None:
        document["weightsManifest"][0]["weights"].append({"name": "nobody/kernel", "shape": [0], "dtype": "float32"})

    with pytest.raises(RefusedError, match=r"nobody/kernel.*belong to no layer"):
        rc.export_model(copied(models, "javascript/nested", tmp_path, add), tmp_path / "a.onnx", force=True)


def test_weights_of_another_shape_are_an_error(models: Path, tmp_path: Path) -> None:
    def widen(document: Any) -> None:
        (kernel,) = (weight for weight in document["weightsManifest"][0]["weights"] if weight["name"] == "dense_Dense6/kernel")
        kernel["shape"].reverse()

    with pytest.raises((RefusedError, UnreadableError)):
        rc.export_model(copied(models, "javascript/nested", tmp_path, widen), tmp_path / "a.onnx", force=True)


def test_weights_that_are_not_there_are_an_error(models: Path, tmp_path: Path) -> None:
    path = copied(models, "uint8/sequence", tmp_path, lambda document: None)
    shards = sorted(path.parent.glob("*.bin"))
    assert len(shards) > 2
    content = shards[1].read_bytes()
    shards[1].write_bytes(content[:-1])
    for run in (lambda: rc.export_model(path, tmp_path / "a.onnx"), lambda: upgrade(path, tmp_path / "a.keras"), lambda: rc.load(path)):
        with pytest.raises(UnreadableError, match=r"beyond the end|bytes"):
            run()
    shards[1].unlink()
    with pytest.raises(MissingFileError, match=shards[1].name):
        rc.export_model(path, tmp_path / "a.onnx")


@pytest.mark.parametrize(
    "topology", [5, [], {}, {"model_config": 5}, {"model_config": {"class_name": "Sequential"}}, {"class_name": "Sequential"}]
)
def test_a_topology_that_is_no_model_is_damage(topology: Any, models: Path, tmp_path: Path) -> None:
    path = copied(models, "javascript/nested", tmp_path, lambda document: document.update(modelTopology=topology))
    for run in (lambda: rc.load(path), lambda: rc.export_model(path, tmp_path / "a.onnx"), lambda: upgrade(path, tmp_path / "a.keras")):
        with pytest.raises(UnreadableError, match="its modelTopology is not a model of layers"):
            run()


def test_weights_alone_take_a_model_from_another_file(models: Path, tmp_path: Path) -> None:
    model = json.loads((models / "keras_2_h5" / "nested" / "model.json").read_text())["modelTopology"]["model_config"]
    config = tmp_path / "architecture.json"
    config.write_text(json.dumps({**model, "keras_version": "2.21.0"}))
    path = copied(models, "keras_2_h5/nested", tmp_path, lambda document: document.update(modelTopology=None))
    rc.export_model(path, tmp_path / "a.onnx", config=config)
    gives(models / "keras_2_h5" / "nested", tmp_path / "a.onnx")


def test_layers_of_one_name_in_two_models_are_told_apart_or_refused(tmp_path: Path) -> None:
    """A weight named after its innermost layer alone is refused where two layers have that name."""
    layer: dict[str, Any] = {"class_name": "Dense", "config": {"name": "dense", "units": 2, "activation": "linear", "use_bias": False}}

    def inner(name: str, source: str, size: int) -> Any:
        config = {**layer["config"], "batch_input_shape": [None, size]}
        return {"class_name": "Sequential", "name": name, "config": {"name": name, "layers": [{**layer, "config": config}]},
                "inbound_nodes": [[[source, 0, 0, {}]]]}  # fmt: skip

    start = {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_input_shape": [None, 2], "dtype": "float32"},
             "inbound_nodes": []}  # fmt: skip
    config = {"name": "model", "layers": [start, inner("a", "x", 2), inner("b", "a", 2)], "input_layers": [["x", 0, 0]],
              "output_layers": [["b", 0, 0]]}  # fmt: skip
    topology = {"keras_version": "2.15.0", "model_config": {"class_name": "Functional", "config": config}}
    kernels = np.random.default_rng(1).uniform(-1, 1, (2, 2, 2)).astype(np.float32)
    (tmp_path / "weights.bin").write_bytes(kernels.tobytes())

    def write(*names: str) -> Path:
        weights = [{"name": name, "shape": [2, 2], "dtype": "float32"} for name in names]
        document = {"modelTopology": topology, "weightsManifest": [{"paths": ["weights.bin"], "weights": weights}]}
        path = tmp_path / "model.json"
        path.write_text(json.dumps(document))
        return path

    x = np.random.default_rng(2).uniform(-1, 1, (3, 2)).astype(np.float32)
    for listed, first in ((("a/dense/kernel", "b/dense/kernel"), 0), (("b/dense/kernel", "a/dense/kernel"), 1)):
        rc.export_model(write(*listed), tmp_path / "a.onnx", force=True)
        (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x])
        np.testing.assert_allclose(y, x @ kernels[first] @ kernels[1 - first], atol=1e-6)
    with pytest.raises(RefusedError, match="arrays of that name"):
        rc.export_model(write("dense/kernel", "other/dense_1/kernel"), tmp_path / "a.onnx", force=True)
