"""Conservation for every format: change, remove or add any one fact of a file, and what is read follows.

Each file has two layers. One fact of it is removed, gets another value, or gets an unknown one beside it. What is read then
are other layers, or an error, or a question, a warning or an unread layer that names the fact. Never the old layers in silence,
and never one layer less in silence. ONNX's nodes and Keras's configurations have tests of their own.

Each format gets a share of the cases, drawn anew in each run; --long tries every one.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.torch7 import classes
from rnnconvert.language import registry
from tests import ROOT
from tests.formats.dl4j import test_dl4j_files
from tests.helpers import drawn, fact_files, torch7_modules
from tests.helpers.fact_files import GONE, Path_
from tests.helpers.julia_files import Function, Struct, bson
from tests.helpers.sources import checkpoint, stack, uniform

LISTED = int(os.environ.get("RNNCONVERT_SHOWN", "12"))
SHARE = int(os.environ.get("RNNCONVERT_SHARE", "6"))
"""How many cases of one file are tried where not all are."""
GOLDEN = ROOT / "tests" / "golden"


# Files ----------------------------------------------------------------------------------------------------


def written(format: str, suffix: str, kind: str, **form: Any) -> Callable[[Path], Path]:
    """A file of two layers that we write ourselves."""

    def make(folder: Path) -> Path:
        stacks = [stack(kind, 1, name="lstm_first", **form), stack(kind, 2, name="lstm_second", **form)]
        path = folder / f"model{suffix}"
        rc.save(checkpoint(*(stacks[:1] if suffix in ALONE or format in ROWS else stacks)), path, format)
        return path

    return make


ALONE = (".bin", ".nam")
"""Files that hold one layer."""
ROWS = ("rtneural",)
"""Formats whose layers read one another: a file of one stack has all of its layers."""


def golden_mxnet(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copy(GOLDEN / "mxnet" / f"{name}-0001.params", folder / "model.params")
        shutil.copy(GOLDEN / "mxnet" / f"{name}-symbol.json", folder / "model-symbol.json")
        return folder / "model.params"

    return make


def golden_fluid(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return Path(shutil.copytree(GOLDEN / "fluid" / name, folder / "fluid"))

    return make


def dl4j(folder: Path) -> Path:
    def new(name: str, *sizes: int, **more: Any) -> dict[str, Any]:
        return test_dl4j_files.new(name, *sizes, hasBias=True, gateActivationFn=sigmoid, activationFn=tanh, **more)

    sigmoid, tanh = ({"@class": f"org.nd4j.linalg.activations.impl.Activation{name}"} for name in ("Sigmoid", "TanH"))
    two = {
        "@class": f"{test_dl4j_files.CLASS}recurrent.Bidirectional", "fwd": new("LSTM", 4, 2), "bwd": new("LSTM", 4, 2),
        "mode": "ADD",
    }  # fmt: skip
    config = test_dl4j_files.network(new("GravesLSTM", 3, 4, layerName="first"), two)
    size = 4 * 4 * 8 + 12 + 2 * 4 * 2 * 7
    path = test_dl4j_files.model(folder / "model.dl4j", config, uniform(1, size), "MIXED_DATA_TYPES")
    shutil.copy(path, folder / "whole.dl4j")
    return path


def torch7(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        make_one = {"lstm": torch7_modules.lstm, "fast_lstm": torch7_modules.fast_lstm, "gru": torch7_modules.gru}[name]
        root = torch7_modules.make("Sequential", make_one(3, 4), make_one(4, 4))
        fact_files.save_t7(folder / "model.t7", root)
        return folder / "model.t7"

    return make


def flux(version: str) -> Callable[[Path], Path]:
    """A whole model, as BSON.@save of Flux 0.12 to 0.16 writes it."""

    def cell(seed: int, width: int) -> Any:
        if version == "new":
            fields = (Function("Base.tanh"), uniform(seed, 4, width), uniform(seed + 1, 4, 4), uniform(seed + 2, 4))
            return Struct("Flux.RNN", Struct("Flux.RNNCell", *fields))
        inner = Struct(
            "Flux.RNNCell", Function("NNlib.relu"), uniform(seed, 4, width), uniform(seed + 1, 4, 4), uniform(seed + 2, 4),
            uniform(seed + 3, 4, 1),
        )  # fmt: skip
        return Struct("Flux.Recur", inner, inner[-1])

    def make(folder: Path) -> Path:
        return bson(folder / "model.bson", model=Struct("Flux.Chain", (cell(1, 3), cell(5, 4))))

    return make


def audio(name: str, suffix: str) -> Callable[[Path], Path]:
    """A whole model with what its makers state, and a dense layer."""

    def make(folder: Path) -> Path:
        form = "guitarml" if name == "guitarml" else name
        kind = "gru" if name == "rtneural" else "lstm"
        path = folder / f"model{suffix}"
        rc.save(checkpoint(stack(kind, 1, name="rec", num_layers=2)), path, form)
        tree = fact_files.open_json(path)
        dense = [uniform(3, 1, 4), uniform(4, 1)]
        if name == "rtneural":
            tree["layers"].append({"type": "dense", "activation": "", "shape": [None, None, 1], "weights": [dense[0].T, dense[1]]})
            tree |= {"in_skip": 1, "metadata": {"name": "Crunch", "samplerate": 48000}}
        elif name == "guitarml":
            about = {"model": "SimpleRNN", "input_size": 3, "skip": 1, "output_size": 1, "unit_type": "LSTM", "num_layers": 2,
                     "hidden_size": 4, "bias_fl": True}  # fmt: skip
            state = {f"rec.{key}": array for key, array in tree.items()} | {"lin.weight": dense[0], "lin.bias": dense[1]}
            tree = {"model_data": about, "state_dict": state}
        else:
            tree |= {"metadata": {"name": "Crunch"}, "sample_rate": 48000}
        fact_files.save_json(path, tree)
        return path

    return make


ONLY = ("weights", "w", "parameters", "rnn_param")
"""Vectors that are all of a layer."""
LETTERS = ("_W", "_U")
"""Matrices of layers whose arrays are called by letters: without one of them, what is left are the names of a dense layer, which
the file of the LSTM tutorial has beside its LSTM."""


def settings(name: str) -> list[str]:
    """What has to be said of a file that does not say it."""
    format, _, kind = name.split()[:3] if name in WRITERS else (name, "", "")
    flat = {"rnn": "rnn_tanh"}.get(kind, kind)
    return [f"cell={flat}", "hidden_size=4"] if format == "persistent_rnn" else []


READ_ONLY = [card.name for card in registry.cards().values() if not card.written and card.name != "fluid"]
SKIPPED = {
    "onnx": "tests/formats/onnx/test_conservation_onnx.py",
    **{name: f"tests/formats/{name}/test_{name}_files.py" for name in ("tflite", "openvino", "ncnn", "c_header", "tfjs")},
    **dict.fromkeys(("coreml", "coreml_nn"), "tests/formats/coreml/test_coreml_files.py"),
    **{name: f"tests/formats/{name}/test_{name}_files.py" for name in ("dl4j", *READ_ONLY)},
}
FORMS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    format: [("lstm", {}), ("gru", {}), ("rnn", {})] for format in adapters() if format not in SKIPPED
}
FORMS["rtneural"] = [(kind, {"num_layers": 2}) for kind in ("lstm", "gru")]
FORMS["guitarml"].append(("lstm", {"num_layers": 2}))
FORMS["nam"] = [("lstm", {}), ("lstm", {"num_layers": 2})]
for _format in ("pytorch", "paddle", "cudnn", "mxnet", "chainer", "torch7", "knet", "keras"):
    FORMS[_format].append(("lstm", {"num_layers": 1 if _format == "keras" else 2, "num_directions": 2}))
OTHER_SUFFIXES = (".keras", ".jld2", ".pth", ".ckpt", ".th", ".cudnn", ".safetensors.index.json", ".hdf5")
"""Files of the kind of another ending, and those whose own kinds of facts have tests of their own."""
WRITERS: dict[str, Callable[[Path], Path]] = {
    f"{format} {suffix} {kind}{' two ways' if form else ''}": written(format, suffix, kind, **form)
    for format, forms in FORMS.items()
    for suffix in adapters()[format].SUFFIXES
    if suffix not in OTHER_SUFFIXES and (format, suffix) != ("pytorch", ".bin")
    for kind, form in forms
}
HAND_MADE: dict[str, Callable[[Path], Path]] = {
    **{f"mxnet graph {name}": golden_mxnet(name) for name in ("fused", "unpacked")},
    **{f"fluid {name}": golden_fluid(name) for name in ("gru", "lstm", "two")},
    **{f"torch7 modules {name}": torch7(name) for name in ("lstm", "fast_lstm", "gru")},
    **{f"flux model {version}": flux(version) for version in ("new", "old")},
    "dl4j": dl4j,
    "rtneural model": audio("rtneural", ".aidax"),
    "guitarml model": audio("guitarml", ".json"),
    "nam model": audio("nam", ".nam"),
}


# Cases ----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One fact that is changed: what is done, where, and the value that stands there then."""

    what: str
    path: Path_
    value: Any

    @property
    def name(self) -> str:
        """The fact's own name."""
        return next((str(word) for word in reversed(self.path) if isinstance(word, str)), "")

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.path))}: {self.what}"


def cases(tree: Any) -> Iterator[Case]:
    """Every change of one fact."""
    for path, value in fact_files.facts(tree):
        about = path[:1] in (("attributes",), ("metadata",)) and "rnnconvert.cudnn" not in path
        if about or (isinstance(value, dict) and ("arrays" in value or "buffer" in value)):
            continue  # what a container says of itself is said of no layer
        if path and not fact_files.children(value):
            yield Case("removed", path, GONE)
        for what, other in fact_files.others(value):
            yield Case(what, path, other)
        for what, place, other in fact_files.added(path, value):
            yield Case(what, place, other)


def read(path: Path, name: str) -> Checkpoint | str:
    """What is read, or the error."""
    try:
        return rc.load(path, name.split()[0], settings(name))
    except RnnConvertError as error:
        return str(error)


def content(layer: Recurrent) -> tuple[Any, ...]:
    """Everything that a layer computes with, to be compared."""
    arrays = tuple(
        (number, where, direction.cell, direction.reverse,
         tuple((key, np.asarray(data).dtype.str, data.shape, np.asarray(data).tobytes()) for key, data in sorted(direction.arrays.items())))
        for number, where, direction in layer.directions()
    )  # fmt: skip
    return (
        arrays, tuple(level.merge for level in layer.layers), layer.join, layer.output_order, layer.unconvertible, layer.wrapped,
        layer.reads,
    )  # fmt: skip


def words(checkpoint: Checkpoint) -> Counter[str]:
    """What is said of a file: warnings, unread layers, and questions."""
    return Counter([*checkpoint.warnings, *checkpoint.unread, *(f"{question.option} {question}" for question in checkpoint.questions)])


def silent(case: Case, before: Checkpoint, after: Checkpoint | str) -> str:
    """What is wrong with what is read after a change; "" where nothing is."""
    if isinstance(after, str):
        return ""  # refused
    messages = list((words(after) - words(before)).elements())
    old, new = ([content(layer) for layer in each.layers.values()] for each in (before, after))
    if len(new) < len(old):
        lost = [name for name in before.layers if name not in after.layers]
        asked = any(question.option == "arrays" for question in after.questions)  # files without names
        # Nothing of the layer is left to be seen, or what every dense layer has.
        alone = case.value is GONE and (
            case.name.rpartition("/")[2] in ONLY or (before.format == "tutorials" and case.name.endswith(LETTERS))
        )
        if len(after.unread) <= len(before.unread) and not asked and not alone:
            return f"{', '.join(map(repr, lost))} is not read any more, and `unread` does not say so; said: {messages}"
        return ""
    if new != old or list(after.layers) != list(before.layers):
        return ""
    places = [str(word) for word in case.path]
    named = any(case.name in message or any(place in message for place in places if len(place) > 2) for message in messages)
    return "" if named else f"the layers are as they were, and nothing names it; said: {messages}"


def exported(path: Path, after: Checkpoint | str) -> str:
    """What is wrong where a file that states something unknown of a layer is written as a whole model; "" where it is refused."""
    if isinstance(after, str) or not any(each.unknown for layer in after.layers.values() for each in layer.unconvertible):
        return ""
    try:
        rc.export_model(path, path.with_name("exported.onnx"))
    except RnnConvertError:
        return ""
    return "a whole model is written as if it were not there"


_AGAIN = ("modules", "cellLayer", "hiddenLayer", "inputGate", "forgetGate", "outputGate")
"""Fields of a Torch7 layer that hold parts of its recurrentModule once more."""


def harmless(name: str, case: Case, before: Checkpoint, tree: Any) -> bool:
    """Whether a fact is none of a layer's, or says again what another one says."""
    format = name.split()[0]
    if case.name in before.tensors or (len(case.path) == 1 and case.value is GONE and case.path[0] in ("arrays", "graph")):
        return True
    if case.path[0] == "graph":  # what is not said of an RNN operator is said of none of its numbers
        attrs = len(case.path) == 5 and case.path[3] == "attrs" and tree["graph"]["nodes"][case.path[2]]["op"] == "RNN"
        default = case.value is GONE and case.name == "bidirectional"  # the operator's default is False
        return not attrs or default or case.name in ("p", "state_outputs")
    if format == "torch7":  # of a tree of modules, the object of the layer's class
        read = {"weight", "bias", "weightO", "mode", "bidirectional", "inputMode", *classes.SIZES}
        listed = case.name in classes.HARMLESS - read or case.name.startswith(classes.CACHES)
        listed = listed or any(isinstance(word, str) and word.startswith(classes.CACHES) for word in case.path)
        again = case.value is GONE and case.name in classes.SIZES  # the arrays show it
        above = ["/".join(map(str, case.path[:count])) for count in range(len(case.path))]
        at = next((count for count, place in enumerate(above) if place in before.layers), None)
        if at is None:
            return True
        # A layer runs its recurrentModule; its own list of modules holds that one again. A copy in another type is equal.
        copy = len(case.path) > at + 1 and (case.path[at] in _AGAIN or case.what == "float64")
        return listed or again or copy or "size" in case.path
    if format == "cudnn" and case.value is GONE and case.name == "crc32":  # a description may go without
        return True
    if format == "rtneural":  # of a shape the width alone is read, and a function that is not stated is tanh
        around = case.path[0] == "layers" and len(case.path) > 2 and tree["layers"][case.path[1]]["type"] == "dense"
        leading = case.value is GONE and len(case.path) > 1 and case.path[-2] in ("shape", "in_shape")
        return leading or around or (case.value is GONE and case.name in ("activation", "in_skip"))
    if format == "guitarml" and case.path[0] == "model_data":  # the arrays show it
        return case.value is GONE
    if format == "guitarml" and case.name.startswith("lin."):
        return True
    if format == "nam":  # files from before 0.6 state no channels: the arrays show them
        return case.name == "sample_rate" or (case.value is GONE and case.name in ("in_channels", "out_channels"))
    if format == "flux" and case.value is GONE:  # another model, of which a struct has one field less
        return case.name == "σ"
    if format == "dl4j":
        return "layer" not in case.path or (case.value is GONE and case.name == "hasBias")  # there is no layer without
    if format == "fluid" and case.name.endswith("unknown_fact"):
        place = case.name.removesuffix("unknown_fact")
        return all(array in before.tensors for array in tree if array.startswith(place))
    gone = case.value is GONE
    if format == "cudnn":
        absent = ("projection_size",) if "lstm" not in name else ()
        return gone and case.name in ("name", "tensor", "dtype", "format", "elements", *absent)
    if format == "paddle":
        return gone and "_l" in case.name.rpartition(".")[2]  # second names of arrays that are there
    return False


@pytest.mark.parametrize("name", [*WRITERS, *HAND_MADE])
def test_no_fact_is_dropped_in_silence(name: str, tmp_path: Path) -> None:
    format = name.split()[0]
    try:
        path = {**WRITERS, **HAND_MADE}[name](tmp_path)
    except RnnConvertError as error:
        pytest.skip(f"no such file: {error}")
    kind = fact_files.kind(path)
    tree = kind.open(path)
    before = rc.load(path, name.split()[0], settings(name))
    assert before.layers
    every = [case for case in cases(tree) if not harmless(name, case, before, tree)]
    wrong: list[str] = []
    tried = 0
    for number, case in enumerate(drawn.drawn(every, SHARE, name)):
        (tmp_path / str(number)).mkdir()
        other = tmp_path / str(number) / path.name
        if format == "dl4j":
            shutil.copy(tmp_path / "whole.dl4j", tmp_path / str(number))
        try:
            kind.save(other, fact_files.changed(tree, case.path, case.value))
        except (RnnConvertError, KeyError, TypeError, AttributeError, ValueError, IndexError):
            continue  # no such file can be written
        tried += 1
        after = read(other, name)
        problem = silent(case, before, after) or exported(other, after)
        if problem:
            wrong.append(f"{case}: {problem}")
    assert tried
    if wrong:
        pytest.fail(f"{len(wrong)} of {tried} changes:\n" + "\n".join(wrong[:LISTED]))


def test_every_format_is_here() -> None:
    assert {name.split()[0] for name in (*WRITERS, *HAND_MADE)} | set(SKIPPED) == set(adapters())
    assert all((ROOT / path).is_file() for path in SKIPPED.values())


@pytest.mark.parametrize("name", ["arraymancer .npz gru", "onednn .npz lstm", "flax .msgpack lstm"])
def test_a_layer_that_lacks_an_array_stops_a_conversion_of_the_whole_file(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path)
    kind = fact_files.kind(path)
    tree = kind.open(path)
    gone = next(array for array in tree if array.startswith("lstm_second"))
    other = tmp_path / f"other{path.suffix}"
    kind.save(other, fact_files.changed(tree, (gone,), GONE))
    target = tmp_path / "out.npz"
    with pytest.raises(rc.RefusedError, match=r"(?s)lstm_second.*Convert the others: --layer lstm_first"):
        rc.convert(other, target, source_format=name.split()[0], target_format="flax")
    rc.convert(other, target, source_format=name.split()[0], target_format="onednn", layers=["lstm_first"])


def test_a_graph_speaks_for_the_arrays_that_were_unpacked_from_its_vector(tmp_path: Path) -> None:
    path = golden_mxnet("unpacked")(tmp_path)
    kind = fact_files.kind(path)
    tree = kind.open(path)
    (at,) = (number for number, node in enumerate(tree["graph"]["nodes"]) if node["op"] == "RNN")
    for end, bound in (("min", "-0.5"), ("max", "0.5")):
        tree = fact_files.changed(tree, ("graph", "nodes", at, "attrs", f"lstm_state_clip_{end}"), bound)
    kind.save(path, tree)
    (clip,) = rc.load(path).layers["lstm"].cell.clips
    assert (clip.low, clip.high) == (-0.5, 0.5)
