"""Conservation, judged by the frameworks themselves: one fact of a file is changed, and the framework runs what it makes of it.

What is read then gives the framework's own outputs, or is refused, or somebody is asked: never the old numbers, and never
numbers that the framework does not compute. ONNX and TensorFlow 1 have tests of their own.

Each file gets a share of the cases, drawn anew in each run; --long tries every one.
"""

from __future__ import annotations

import copy
import json
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.running import registry
from tests.files.test_conservation import WRITERS, Case, cases, words
from tests.helpers import drawn, fact_files, frameworks, ready
from tests.helpers.fact_files import GONE
from tests.helpers.requirements import need
from tests.helpers.sources import legacy_h5

ENOUGH = 2
"""How many changed files of a kind are run, without --long."""
X = np.random.default_rng(5).uniform(-2, 2, (6, 2, 3)).astype(np.float32)


def asked(after: Checkpoint, before: Checkpoint | None = None) -> bool:
    """Whether something is said of a file that stops a conversion, or that a user has to look at."""
    messages = words(after) - words(before) if before is not None else words(after)
    return bool(messages) or any(layer.unconvertible for layer in after.layers.values())


def read(path: Path, format: str | None = None) -> Checkpoint | None:
    """What is read; None where it is refused."""
    try:
        return rc.load(path, format)
    except RnnConvertError:
        return None


def far(outputs: Array, wanted: Array) -> str:
    """How far outputs are from the framework's; "" where they agree."""
    if outputs.shape != wanted.shape:
        return f"the shape {outputs.shape}, not {wanted.shape}"
    off = float((np.abs(outputs - wanted) / np.maximum(1, np.abs(wanted))).max())
    return "" if off < 1e-4 else f"{off:.3g} off"


# Arrays: each framework's executor loads the changed file ----------------------------------------------------

LOADED = [
    "pytorch .pt lstm", "pytorch .pt gru", "flax .msgpack lstm", "flax .msgpack gru", "nnx .npz lstm", "haiku .npz lstm",
    "equinox .npz gru", "chainer .npz lstm", "chainer .npz gru", "paddle .pdparams lstm", "paddle .pdparams gru", "mxnet .params lstm",
    "mxnet .params gru", "onednn .npz lstm", "keras .h5 lstm", "keras .h5 gru",
]  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_changed_arrays_are_read_as_the_framework_loads_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    format = name.split()[0]
    executor = frameworks.judge(format)
    monkeypatch.setattr(registry, "executors", lambda: {**registry.built_in(), executor.name: executor})
    path = WRITERS[name](tmp_path)
    kind = fact_files.kind(path)
    tree = kind.open(path)
    before = rc.load(path, format)

    def check(case: Case) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        other = folder / path.name
        try:
            kind.save(other, fact_files.changed(tree, case.path, case.value))
        except (RnnConvertError, KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise drawn.NotComparedError("no such file can be written") from error
        after = read(other, format)
        if after is None or asked(after, before) or not after.layers:
            raise drawn.NotComparedError("it is refused, or asked for")
        try:
            # The framework may round arrays of several types to one.
            choices: dict[str, Any] = {"format_a": format, "cases": ["default states"], "explain": False, "atol": 1e-5}
            report = rc.verify(other, on=[executor.name], **choices)
        except RnnConvertError as error:
            raise drawn.NotComparedError("the framework does not load it, or it is refused") from error
        # A layer that the framework does not run in the changed file is not compared; none may give other numbers.
        assert report.verdict != "not equal", report.document["layers"]

    every = [case for case in cases(tree) if isinstance(case.value, np.ndarray) or case.value is GONE]
    drawn.each(drawn.shuffled(every, name), check, enough=ENOUGH)


# PyTorch: the attributes of a module, in an archive that holds the module -----------------------------------


def other_values(value: object) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]  # sizes of 0 end the process
    if isinstance(value, float):
        return [0.5]
    if isinstance(value, str):
        return ["relu", "tanh", "RNN_RELU", "RNN_TANH", "LSTM", "GRU"]
    return []


def torch_modules() -> Iterator[tuple[str, Any]]:
    import torch

    for kind in ("RNN", "GRU", "LSTM"):
        for more in ({}, {"bidirectional": True}, {"num_layers": 2, "batch_first": True}, {"bias": False}):
            torch.manual_seed(1)
            yield f"{kind} {more}", getattr(torch.nn, kind)(3, 4, **more)
    yield "RNN relu", torch.nn.RNN(3, 4, nonlinearity="relu")
    yield "LSTM proj", torch.nn.LSTM(3, 4, proj_size=2)


def torch_cases() -> list[tuple[str, Any, str, Any, str]]:
    """A module, an attribute of it and another value, and how it is saved."""
    variants = []
    for name, module in torch_modules():
        facts = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        for key, value in {"": None, **facts}.items():
            if key == "hidden_size":
                continue  # PyTorch makes states of it, and reads past their end
            for other in other_values(value) if key else [None]:
                variants += [(name, module, key, other, way) for way in ("script", "trace", "export")]
    return variants


def test_the_attributes_of_a_torch_module_are_followed(tmp_path: Path) -> None:
    need("torch", "")
    import torch

    def check(case: tuple[str, Any, str, Any, str]) -> None:
        _, original, key, value, way = case
        module = copy.deepcopy(original)
        if key:
            setattr(module, key, value)
        model = torch.nn.Sequential(module)
        x = torch.from_numpy(X)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{'pt2' if way == 'export' else 'pt'}"
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module.eval()
                wanted = module(x)[0].numpy()
                if way == "export":
                    torch.export.save(torch.export.export(module, (x,)), path)
                else:
                    program: Any = torch.jit.script(module) if way == "script" else torch.jit.trace(module, (x,))
                    wanted = program(x)[0].numpy()
                    torch.jit.save(program, path)
        except Exception as error:  # PyTorch has many exceptions of its own
            raise drawn.NotComparedError("no such module runs, or can be saved") from error
        del model
        after = read(path)
        if after is None or asked(after) or not after.layers:
            raise drawn.NotComparedError("it is refused, or asked for")
        (layer,) = after.layers.values()
        first = bool(getattr(module, "batch_first", False))
        inputs = X.swapaxes(0, 1) if first else X
        y = reference.run(layer, inputs).y
        assert not (off := far(y.swapaxes(0, 1) if first else y, wanted)), off

    every = torch_cases()
    drawn.each(drawn.shuffled(every, "torch"), check, lambda entry: f"{entry[0]}: {entry[2]}={entry[3]!r}, {entry[4]}", enough=8)


# Keras: the keys of a configuration ------------------------------------------------------------------------

KERAS_WORDS = {
    "tanh": ["relu", "hard_sigmoid"], "sigmoid": ["hard_sigmoid", "tanh"], "hard_sigmoid": ["sigmoid"], "concat": ["sum", "ave", "mul"],
    "LSTM": ["GRU"], "GRU": ["SimpleRNN"],
}  # fmt: skip


def keras_models() -> Iterator[tuple[str, Any]]:
    import keras

    layers = keras.layers
    for name, layer in {
        "lstm": layers.LSTM(4, return_sequences=True, name="a"),
        "gru": layers.GRU(4, return_sequences=True, name="a"),
        "before": layers.GRU(4, return_sequences=True, reset_after=False, go_backwards=True, name="a"),
        "rnn": layers.SimpleRNN(4, return_sequences=True, activation="relu", name="a"),
        "two": layers.Bidirectional(layers.LSTM(4, return_sequences=True), merge_mode="concat", name="a"),
    }.items():
        model = keras.Sequential([keras.Input((6, 3)), layer])
        random = np.random.default_rng(3)
        model.set_weights([random.uniform(-0.7, 0.7, weight.shape).astype("f4") for weight in model.get_weights()])
        yield name, model


def keras_cases(config: Any) -> Iterator[Case]:
    for case in cases(config):
        if "layers" in case.path and "build_config" not in case.path and "batch_shape" not in case.path:
            yield case
            old = fact_at(config, case.path)
            if case.what == "an unknown word" and old in KERAS_WORDS:
                yield from (Case(f"now {word}", case.path, word) for word in KERAS_WORDS[old])


def fact_at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step] if not isinstance(tree, dict) or step in tree else None
    return tree


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_keys_of_a_keras_configuration_are_followed(suffix: str, tmp_path: Path) -> None:
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    import h5py
    import keras

    variants: list[tuple[str, Path, Any, Case]] = []
    for name, model in keras_models():
        path = tmp_path / f"{name}{suffix}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save(path)
        if suffix == ".keras":
            with zipfile.ZipFile(path) as archive:
                config = json.loads(archive.read("config.json"))
        else:
            with h5py.File(path) as file:
                config = json.loads(file.attrs["model_config"])
        variants += [(name, path, config, case) for case in keras_cases(config)]

    def saved(path: Path, config: Any, other: Path) -> None:
        other.write_bytes(path.read_bytes())
        if suffix == ".h5":
            with h5py.File(other, "a") as file:
                file.attrs["model_config"] = json.dumps(config)
            return
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
            for entry in old.namelist():
                new.writestr(entry, json.dumps(config) if entry == "config.json" else old.read(entry))

    def check(variant: tuple[str, Path, Any, Case]) -> None:
        _, path, config, case = variant
        other = tmp_path / f"changed{len(list(tmp_path.iterdir()))}{suffix}"
        saved(path, fact_files.changed(config, case.path, case.value), other)
        after = read(other)
        if after is None or asked(after) or not after.layers:
            raise drawn.NotComparedError("it is refused, or asked for")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = keras.saving.load_model(other, compile=False)
                wanted = np.asarray(model(np.ascontiguousarray(X.swapaxes(0, 1))))
        except Exception as error:
            raise drawn.NotComparedError("Keras does not load it") from error
        (layer,) = after.layers.values()
        y = np.asarray(reference.run(layer, X).y).swapaxes(0, 1)
        y = y[:, -1] if wanted.ndim == 2 and y.ndim == 3 else y  # the last step alone
        assert not (off := far(y, wanted)), off

    drawn.each(drawn.shuffled(variants, suffix), check, lambda variant: f"{variant[0]}: {variant[3]}", enough=12)


def test_the_keys_of_an_old_keras_configuration_decide(tmp_path: Path) -> None:
    """Keras 2's own keys, which today's Keras does not read: each changes what is read, or is named."""
    pairs = [
        (f"a/a/{name}:0", np.full(shape, 0.25, "f4"))
        for name, shape in (("kernel", (3, 16)), ("recurrent_kernel", (4, 16)), ("bias", (16,)))
    ]
    plain = {"name": "a", "units": 4, "activation": "tanh", "recurrent_activation": "sigmoid", "go_backwards": False}
    descriptions = set()
    for change in ({}, {"activation": "relu"}, {"recurrent_activation": "hard_sigmoid"}, {"go_backwards": True}, {"unknown": 0.5}):
        config = {"class_name": "Sequential", "config": {"name": "m", "layers": [{"class_name": "LSTM", "config": {**plain, **change}}]}}
        (layer,) = rc.load(legacy_h5(tmp_path / "m.h5", {"a": pairs}, config, "2.4.0")).layers.values()
        descriptions.add(layer.describe())
    assert len(descriptions) == 5


# MXNet: the attributes of a graph's nodes --------------------------------------------------------------------

RUN_GRAPHS = """
import sys, json, mxnet as mx, numpy as np
x = np.load(sys.argv[1])
for stem in json.load(open(sys.argv[2])):
    try:
        graph = mx.sym.load(f"{stem}-symbol.json")
        arrays = {k.replace("arg:", ""): v for k, v in mx.nd.load(f"{stem}-0001.params").items()}
        bound = graph.simple_bind(mx.cpu(), data=x.shape)
        for name, array in bound.arg_dict.items():
            array[:] = mx.nd.array(x) if name == "data" else arrays[name]
        np.save(f"{stem}.npy", bound.forward()[0].asnumpy())
    except Exception as error:
        print(stem, type(error).__name__)
"""
MAKE_GRAPHS = """
import sys, mxnet as mx, numpy as np
from mxnet.gluon import rnn
folder = sys.argv[1]
def made(name, cell, kept=False):
    graph = cell.unroll(6, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)[0]
    shapes, _, _ = graph.infer_shape(data=(6, 2, 3))
    random = np.random.RandomState(3)
    arrays = {n: mx.nd.array(random.uniform(-.7, .7, s)) for n, s in zip(graph.list_arguments(), shapes) if n != "data"}
    mx.model.save_checkpoint(f"{folder}/{name}", 1, graph, arrays, {})
made("lstm", rnn.LSTMCell(4, input_size=3)); made("gru", rnn.GRUCell(4, input_size=3)); made("rnn", rnn.RNNCell(4, input_size=3))
for mode in ("lstm", "gru", "rnn_relu"):
    made("fused_" + mode, mx.rnn.FusedRNNCell(4, num_layers=1, mode=mode, bidirectional=mode == "gru", prefix="x_"))
"""
MXNET_WORDS = {"tanh": "relu", "sigmoid": "tanh", "lstm": "gru", "rnn_relu": "rnn_tanh", "True": "False", "False": "True"}


def test_the_attributes_of_mxnets_graphs_are_followed(tmp_path: Path) -> None:
    python = frameworks.mxnet().python
    done = ready.run([python, "-c", MAKE_GRAPHS, tmp_path], ready="mxnet")
    assert done.returncode == 0, done.stderr
    np.save(tmp_path / "x.npy", X)
    variants: list[tuple[str, int, str, str | None]] = []
    graphs = {path.name.removesuffix("-symbol.json"): json.loads(path.read_text()) for path in tmp_path.glob("*-symbol.json")}
    for name, graph in sorted(graphs.items()):
        for number, node in enumerate(graph["nodes"]):
            for key, value in (node.get("attrs") or {}).items():
                if key.startswith("__") or node["op"] in ("null", "_zeros"):
                    continue
                others = [MXNET_WORDS.get(value, ""), str(int(value) + 1) if value.isdecimal() else "", None]
                variants += [(name, number, key, other) for other in others if other != ""]
            if node["op"] in ("tanh", "sigmoid", "relu"):
                variants += [(name, number, "op", other) for other in ("tanh", "sigmoid", "relu", "softsign", "erf") if other != node["op"]]
    chosen = drawn.shuffled(variants, "mxnet")
    stems = []
    for place, (name, number, key, value) in enumerate(chosen):
        graph = copy.deepcopy(graphs[name])
        node = graph["nodes"][number]
        if key == "op":
            # every step alike, or the cell would be another one at each step
            part = node["name"].rpartition("_t")[2].partition("_")[2]
            for other_node in graph["nodes"]:
                if other_node["op"] == node["op"] and other_node["name"].endswith(f"_{part}"):
                    other_node["op"] = value
        elif value is None:
            del node["attrs"][key]
        else:
            node["attrs"][key] = value
        stem = tmp_path / f"case{place}"
        stem.with_name(f"{stem.name}-symbol.json").write_text(json.dumps(graph))
        stem.with_name(f"{stem.name}-0001.params").write_bytes((tmp_path / f"{name}-0001.params").read_bytes())
        stems.append(str(stem))
    (tmp_path / "stems.json").write_text(json.dumps(stems))
    done = ready.run([python, "-c", RUN_GRAPHS, tmp_path / "x.npy", tmp_path / "stems.json"], ready="mxnet")
    assert done.returncode == 0, done.stderr

    def check(numbered: tuple[int, tuple[str, int, str, str | None]]) -> None:
        place, _ = numbered
        answer = tmp_path / f"case{place}.npy"
        after = read(tmp_path / f"case{place}-0001.params")
        if after is None or asked(after) or not answer.exists():
            raise drawn.NotComparedError("it is refused, asked for, or MXNet does not run it")
        (layer,) = after.layers.values()
        y, wanted = np.asarray(reference.run(layer, X).y), np.load(answer)
        if wanted.shape == y.swapaxes(0, 1).shape:  # the steps are put together in another order
            y = y.swapaxes(0, 1)
        assert not (off := far(y, wanted)), off

    drawn.each(list(enumerate(chosen)), check, enough=5)
