"""Keras models drawn at random, around two recurrent layers: joined they compute what the whole model computes, or they are
refused."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.comparison.pairing import pair
from rnnconvert.containers import wire
from rnnconvert.core import reference
from rnnconvert.core.weights import INPUT, Directly, Input, Through
from rnnconvert.formats.keras.model import entries
from rnnconvert.formats.keras.model.layered import Layered
from rnnconvert.language.layout import Sizes
from tests.helpers import drawn
from tests.helpers.drawn import each
from tests.helpers.requirements import needed
from tests.helpers.stacks import random_stack

pytestmark = pytest.mark.filterwarnings("ignore")

T, N, H = 4, 3, 4
"""Steps, features and units: as many units as steps, so that exchanging them keeps the shape."""
X = np.random.default_rng(0).normal(size=(3, T, N)).astype(np.float32)
STATES = [np.random.default_rng(seed).normal(size=(3, H)).astype(np.float32) for seed in (1, 2, 3, 4)]
NAMES = ("low", "encoder's", 'a"b', "back\\slash", "com,ma", "sl'ash', 0, 0", "dots.and::more", "line\nbreak", "größe", "['x', 0, 0]")

MASKED = {"Identity", "Dropout", "SpatialDropout1D", "GaussianNoise", "Activation linear", "ActivityRegularization",
          "Dropout 0 that is on"}  # fmt: skip
"""Those of `same` that pass masks on."""

Apply = Callable[[Any, Any], Any]


def same(k: Any) -> dict[str, Apply]:
    """Layers and operations that change nothing."""
    ops = k.ops
    return {
        "Identity": lambda k, y: k.layers.Identity()(y),
        "Dropout": lambda k, y: k.layers.Dropout(0.5)(y),
        "SpatialDropout1D": lambda k, y: k.layers.SpatialDropout1D(0.5)(y),
        "GaussianNoise": lambda k, y: k.layers.GaussianNoise(0.5)(y),
        "Activation linear": lambda k, y: k.layers.Activation("linear")(y),
        "ActivityRegularization": lambda k, y: k.layers.ActivityRegularization(0.1)(y),
        "Permute twice": lambda k, y: k.layers.Permute((2, 1))(k.layers.Permute((2, 1))(y)),
        "Reshape": lambda k, y: k.layers.Reshape((T, y.shape[-1]))(k.layers.Flatten()(y)),
        "Cropping1D 0": lambda k, y: k.layers.Cropping1D(0)(y),
        "flip twice": lambda k, y: ops.flip(ops.flip(y, 1), 1),
        "Dropout 0 that is on": lambda k, y: k.layers.Dropout(0.0)(y, training=True),
    }


def others(k: Any) -> dict[str, Apply]:
    """Layers and operations that change something: elements moved, computed, rounded, random."""
    ops = k.ops

    class Identity(k.layers.Layer):
        def call(self, y: Any) -> Any:
            return ops.flip(y, 1)

    class Dropout(k.layers.Dropout):
        def call(self, y: Any, training: Any = False) -> Any:
            return y * 0.5

    return {
        "flip": lambda k, y: ops.flip(y, 1),
        "flip units": lambda k, y: ops.flip(y, 2),
        "roll": lambda k, y: ops.roll(y, 1, 1),
        "Permute": lambda k, y: k.layers.Permute((2, 1))(y) if y.shape[-1] == T else ops.flip(y, 1),
        "Reshape of Permute": lambda k, y: k.layers.Reshape((T, y.shape[-1]))(k.layers.Permute((2, 1))(y)),
        "Cropping1D": lambda k, y: k.layers.Cropping1D((1, 0))(y),
        "ZeroPadding1D": lambda k, y: k.layers.ZeroPadding1D(1)(y),
        "UpSampling1D": lambda k, y: k.layers.UpSampling1D(2)(y),
        "halves": lambda k, y: k.layers.Concatenate()([y[:, :, H // 2 :], y[:, :, : H // 2]]),
        "Dense": lambda k, y: k.layers.Dense(y.shape[-1])(y),
        "Rescaling": lambda k, y: k.layers.Rescaling(0.5)(y),
        "relu": lambda k, y: k.layers.Activation("relu")(y),
        "LayerNormalization": lambda k, y: k.layers.LayerNormalization()(y),
        "Add": lambda k, y: k.layers.Add()([y, y]),
        "TimeDistributed": lambda k, y: k.layers.TimeDistributed(k.layers.Dense(y.shape[-1]))(y),
        "float16": lambda k, y: k.layers.Identity(dtype="float16")(y),
        "cast": lambda k, y: ops.cast(ops.cast(y, "int32"), "float32"),
        "Masking": lambda k, y: k.layers.Masking(0.5)(y),
        "Dropout that is on": lambda k, y: k.layers.Dropout(0.5)(y, training=True),
        "GaussianNoise that is on": lambda k, y: k.layers.GaussianNoise(0.5)(y, training=True),
        "a user's Identity": lambda k, y: Identity()(y),
        "a user's Dropout": lambda k, y: Dropout(0.5)(y),
    }


@dataclass
class Case:
    """What is drawn; `plain` if the two layers are a stack."""

    seed: int
    ending: str = ".keras"
    kind: str = "LSTM"
    both: bool = False
    between: list[str] = field(default_factory=list)
    calls: str = "ab"
    states: str = ""
    mask: str = ""
    nested: str = ""
    training: bool = False
    names: tuple[str, str] = ("a", "b")

    def __str__(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if value)

    def is_plain(self, k: Any) -> bool:
        return (
            set(self.between) <= set(same(k)) and self.calls == "ab" and self.states in ("", "both")
            and not self.training
            and (not self.mask or (self.mask == "before" and set(self.between) <= MASKED and self.ending != ""))
        )  # fmt: skip


def draw(seed: int, k: Any) -> Case:
    dice = random.Random(seed)
    case = Case(seed, dice.choice((".keras", ".keras", ".h5")))
    case.kind, case.both = dice.choice(("LSTM", "GRU", "SimpleRNN")), dice.random() < 0.3
    choices = [*same(k)] if dice.random() < 0.6 else [*same(k), *others(k)]
    case.between = [dice.choice(choices) for _ in range(dice.choice((0, 1, 1, 2, 3)))]
    if case.ending == ".h5":  # which writes no module: a user's class is Keras's own to Keras, too
        case.between = [name for name in case.between if not name.startswith("a user")]
    case.calls = dice.choice(("ab",) * 8 + ("aba", "abb", "aab"))
    if case.calls == "ab":
        case.states = dice.choice(("",) * 6 + ("handed", "one", "both"))
        case.training = dice.random() < 0.1
    case.mask = dice.choice(("",) * 6 + ("before", "b alone"))
    case.nested = dice.choice(("",) * 3 + ("a", "b", "each", "alike", "sequential", "all", "deep"))
    if case.states or case.calls != "ab":
        case.nested = "" if case.nested != "all" else case.nested
    case.names = (dice.choice(NAMES), dice.choice(NAMES) + "2")
    if case.nested == "alike":
        case.names = (case.names[0], case.names[0])
    if dice.random() < 0.08 and not case.states and case.nested != "alike":
        case.ending, case.names = "", ("a", "b")
    if "Permute" in " ".join(case.between) or case.both:  # layers that give no states, or other shapes
        case.states = ""
    if case.both and case.calls != "ab":
        case.calls = "ab"
    return case


def build(case: Case, k: Any) -> tuple[Any, list[Any]]:
    """The model, and what it is called on."""
    k.utils.set_random_seed(case.seed)
    layers = k.layers
    cells: dict[str, Any] = {}

    def layer(which: str) -> Any:
        if which not in cells:
            rate = {"dropout": 0.4} if case.training and which == "b" else {}
            handed = {"return_state": True} if case.states == "handed" and which == "a" else {}
            name = case.names["ab".index(which)]
            cell = getattr(layers, case.kind)(H, return_sequences=True, name=None if case.both else name, **rate, **handed)
            cells[which] = layers.Bidirectional(cell, name=name) if case.both else cell
        return cells[which]

    x = k.Input((T, N if case.calls == "ab" else H))
    inputs: list[Any] = [x]
    count = 2 if case.kind == "LSTM" else 1
    handed: list[Any] = []

    def call(which: str, y: Any) -> Any:
        states: dict[str, Any] = {}
        if case.states == "both" or (case.states == "one" and which == "b"):
            fresh = [k.Input((H,)) for _ in range(count)]
            inputs.extend(fresh)
            states = {"initial_state": fresh}
        elif case.states == "handed" and which == "b":
            states = {"initial_state": handed}
        if case.mask == "b alone" and which == "b":
            states["mask"] = k.ops.greater(y[:, :, 0], -0.2)
        if case.training and which == "b":
            states["training"] = True
        outputs = layer(which)(y, **states)
        if isinstance(outputs, (list, tuple)):
            y, *handed[:] = outputs
            return y
        return outputs

    def inside(width: int, name: str, function: Callable[[Any], Any], sequential: bool = False) -> Any:
        start = k.Input((None if case.mask else T, width))
        if sequential:
            return k.Sequential([start, layer(name)])
        return k.Model(start, function(start))

    every = same(k) | others(k)
    y = layers.Masking(123.0)(x) if case.mask == "before" else x
    calls = case.calls

    def middle(y: Any) -> Any:
        for name in case.between:
            y = every[name](k, y)
        return y

    wide = H * (2 if case.both else 1)
    if calls != "ab":
        for which in calls:
            y = call(which, y)
        return k.Model(inputs, y), [np.concatenate([X, X[:, :, :1]], 2)]
    if case.nested in ("a", "each", "alike"):
        y = inside(N, "a", lambda y: call("a", y))(y)
    elif case.nested == "sequential":
        y = inside(N, "a", lambda y: call("a", y), sequential=not case.training)(y)
    elif case.nested == "deep":
        shared = inside(N, "a", lambda y: call("a", y))
        y = inside(N, "a", lambda y: shared(y))(y)
    else:
        y = call("a", y)
    y = middle(y)
    if case.nested in ("b", "each", "alike", "deep") and y.shape[1] == T and case.mask != "b alone":
        y = inside(wide, "b", lambda y: call("b", y))(y)
    else:
        y = call("b", y)
    model = k.Model(inputs, y)
    if case.nested == "all":
        again = [k.Input(tensor.shape[1:]) for tensor in inputs]
        model = k.Model(again, model(again if len(again) > 1 else again[0]))
    return model, [X, *STATES[: len(inputs) - 1]]


def check(case: Case, folder: Path) -> str:
    """Return "joined" or "refused". Raises AssertionError for anything else."""
    keras, torch = needed("keras", "keras"), needed("torch", "torch")
    if case.calls != "ab" and not case.both:
        case.nested, case.between = "", []
    try:
        model, inputs = build(case, keras)
    except ValueError:  # a shape that an operator does not take
        assert not case.is_plain(keras)
        return "not made"
    path = folder / f"m{case.seed}{case.ending}"
    model.save(path) if case.ending else model.export(path, verbose=False)
    out = folder / f"o{case.seed}.pt"
    try:
        rc.convert(path, out, target_format="pytorch", stack="join", force=True)
    except rc.RefusedError as error:
        assert not case.is_plain(keras), f"refused what changes nothing: {error}"
        assert "comes before" in str(error) or "called" in str(error) or "initial state" in str(error) or "mask" in str(error) or (
            "random" in str(error) or "does not read" in str(error)
        ), error  # fmt: skip
        return "refused"
    kind = {"SimpleRNN": "RNN"}.get(case.kind, case.kind)
    module = getattr(torch.nn, kind)(N, H, 2, batch_first=True, bidirectional=case.both)
    module.load_state_dict(torch.load(out))
    states = [torch.tensor(state) for state in inputs[1:]]
    count = 2 if case.kind == "LSTM" else 1
    pairs = [torch.stack(states[number::count]) for number in range(count)] if states else []
    outputs = module(torch.tensor(X), *([tuple(pairs) if count == 2 else pairs[0]] if pairs else []))[0].detach().numpy()
    expected = np.asarray(model(inputs if len(inputs) > 1 else inputs[0]))
    assert outputs.shape == expected.shape, "joined to another shape"
    assert np.abs(outputs - expected).max() < 1e-5, f"joined, and off by {np.abs(outputs - expected).max()}"
    return "joined"


def test_models_drawn_at_random(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    first = drawn.SEED
    seen: dict[str, int] = {}

    def check_seed(seed: int) -> None:
        result = check(draw(seed, keras), tmp_path)
        seen[result] = seen.get(result, 0) + 1

    each(range(first, first + (2000 if drawn.LONG else 24)), check_seed, lambda seed: str(draw(seed, keras)))
    print(f"{sum(seen.values())} models drawn: {', '.join(f'{number} {word}' for word, number in sorted(seen.items()))}")
    assert {"joined", "refused"} <= set(seen)


# The specimens ---------------------------------------------------------------------------------------


SPECIMENS: dict[str, dict[str, Any]] = {
    "a(b(a(x)))": {"calls": "aba"}, "b(b(a(x)))": {"calls": "abb"}, "b(a(a(x)))": {"calls": "aab"},
    "a Dropout that is on": {"between": ["Dropout that is on"]}, "noise that is on": {"between": ["GaussianNoise that is on"]},
    "the layer's own dropout is on": {"training": True}, "states of another layer": {"states": "handed"},
    "states of one layer": {"states": "one"}, "a user's Identity": {"between": ["a user's Identity"]},
    "a user's Dropout": {"between": ["a user's Dropout"]}, "a Dense between nested models": {"between": ["Dense"], "nested": "each"},
    "a Dense inside a nested model": {"between": ["Dense"], "nested": "all"},
    "a Dense between layers of one name": {"between": ["Dense"], "nested": "alike"},
    "a mask of one layer": {"mask": "b alone"}, "a SavedModel with a Dense": {"between": ["Dense"], "ending": ""},
    "a SavedModel with a flip": {"between": ["flip"], "ending": ""},
}  # fmt: skip


def test_what_is_no_stack_is_refused(tmp_path: Path) -> None:
    def check_specimen(words: str) -> None:
        assert check(Case(1, **SPECIMENS[words]), tmp_path) == "refused"

    each(SPECIMENS, check_specimen)


def test_what_is_a_stack_is_joined(tmp_path: Path) -> None:
    def check_joined(case: Case) -> None:
        assert check(case, tmp_path) == "joined"

    cases = [
        *(Case(2, ending=ending, both=both) for ending in (".keras", ".h5", "") for both in (False, True)),
        Case(2, between=["Identity"], nested="alike", states=""), Case(2, nested="sequential", mask="before"), Case(2, states="both"),
    ]  # fmt: skip
    each(cases, check_joined)


@pytest.mark.parametrize("states", ["zeros", "numpy", "zeros_like", "ones", "one of them", "ones_like"])
def test_states_that_are_zeros_are_where_a_stack_begins(states: str, tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    k, ops = keras.layers, keras.ops
    x = keras.Input((T, N), batch_size=3)
    y = k.LSTM(H, return_sequences=True, name="a")(x)
    zero, ones = ops.zeros((3, H)), ops.ones((3, H))
    zeros = {
        "zeros": [zero, zero], "numpy": [np.zeros((3, H), np.float32)] * 2, "zeros_like": [ops.zeros_like(y[:, 0])] * 2,
        "ones": [ones, ones], "one of them": [zero, ones], "ones_like": [zero, ops.ones_like(y[:, 0])],
    }[states]  # fmt: skip
    model = keras.Model(x, k.LSTM(H, return_sequences=True, name="b")(y, initial_state=zeros))
    model.save(tmp_path / "m.keras")
    out = tmp_path / "o.safetensors"
    if "one" in states:
        with pytest.raises(rc.RefusedError, match="the initial states of 'b' are given"):
            rc.convert(tmp_path / "m.keras", out, target_format="pytorch", stack="join")
        return
    rc.convert(tmp_path / "m.keras", out, target_format="pytorch", stack="join")
    (stack,) = rc.load(out).layers.values()
    outputs = reference.run(stack, X.swapaxes(0, 1)).y.swapaxes(0, 1)
    assert np.abs(outputs - np.asarray(model(X))).max() < 1e-5


def test_zeros_of_keras_2_are_where_a_layer_begins() -> None:
    """As tf_keras 2.21 writes tf.zeros((tf.shape(x)[0], 4)), and constants that it evaluated."""
    for wires, has_states in (
        ([["a", 0, 0, {}], ["z", 0, 0, {}]], False),
        ([["a", 0, 0, {}], ["o", 0, 0, {}]], True),
        ([["a", 0, 0, {"initial_state": [[[0.0, 0.0]], [[0.0, 0.0]]]}]], False),
        ([["a", 0, 0, {"initial_state": [[[0.0, 0.0]], [[0.0, 1.0]]]}]], True),
        ([["a", 0, 0, {}], ["_CONSTANT_VALUE", -1, [[0.0, 0.0]]]], False),
        ([["a", 0, 0, {}], ["_CONSTANT_VALUE", -1, [[0.5, 0.0]]]], True),
        ([["a", 0, 0, {"initial_state": [{"class_name": "__tensor__", "config": {}}]}]], True),
    ):
        shape = {"batch_input_shape": [None, T, N]}
        layers: list[dict[str, Any]] = [{"class_name": "InputLayer", "name": "x", "inbound_nodes": [], "config": {"name": "x", **shape}}]
        for name, kind, more in (
            ("a", "LSTM", {}), ("z", "TFOpLambda", {"function": "zeros"}), ("o", "TFOpLambda", {"function": "ones"}), ("b", "LSTM", {}),
        ):  # fmt: skip
            nodes = [wires] if name == "b" else [[["x", 0, 0, {}]]]
            layers.append({"class_name": kind, "name": name, "inbound_nodes": nodes, "config": {"name": name, **more}})
        config: dict[str, Any] = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["b", 0, 0]]}
        entry = entries.entry({"class_name": "Functional", "config": config})
        (call,) = [step for step in Layered(entry, "m").steps if step.label == "b"]
        assert call.has_states == has_states, wires


def test_directions_that_are_given_apart_are_joined_side_by_side(tmp_path: Path) -> None:
    """merge_mode=None gives two sequences; a Concatenate of both, in order, is what a stack hands on."""
    keras = needed("keras", "keras")
    k = keras.layers

    def check_join(join: str) -> None:
        x = keras.Input((T, N))
        two = k.Bidirectional(k.LSTM(H, return_sequences=True), merge_mode=None, name="a")(x)
        y = k.Add()(two) if join == "sum" else k.Concatenate()(two[::-1] if join == "turned" else two)
        model = keras.Model(x, k.LSTM(H, return_sequences=True, name="b")(y))
        model.save(tmp_path / "m.keras")
        layers = list(rc.load(tmp_path / "m.keras").layers.values())
        if join == "concat":
            outputs = reference.run(rc.join_stack(layers), X.swapaxes(0, 1)).y.swapaxes(0, 1)
            assert np.abs(outputs - np.asarray(model(X))).max() < 1e-5
            return
        with pytest.raises(ValueError, match="Add" if join == "sum" else "the directions, or the halves of the units, are exchanged"):
            rc.join_stack(layers)

    each(("concat", "turned", "sum"), check_join)


def test_names_do_not_hide_what_stands_between(tmp_path: Path) -> None:
    """A Dense of each name, once named as the layer before it would be in a text of the wires."""
    keras = needed("keras", "keras")
    k = keras.layers

    def check_name(name: str) -> None:
        x = keras.Input((T, N))
        y = k.Dense(H, name=name)(k.LSTM(H, return_sequences=True, name="a")(x))
        keras.Model(x, k.LSTM(H, return_sequences=True, name="b")(y)).save(tmp_path / "m.keras")
        layers = rc.load(tmp_path / "m.keras").layers
        assert layers["a"].reads == Input() and layers["b"].reads == Through(("a",), ("Dense",))

    each(NAMES, check_name)


def _configured(path: Path, change: Callable[[list[Any]], None]) -> Path:
    """A file of two LSTMs with its configuration changed."""
    keras = needed("keras", "keras")
    k = keras.layers
    x = keras.Input((T, N))
    y = k.LSTM(H, return_sequences=True, name="b")(k.Dropout(0.5, name="d")(k.LSTM(H, return_sequences=True, name="a")(x)))
    keras.Model(x, y).save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    change(config["config"]["layers"])
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def _loop(layers: list[Any]) -> None:
    layers[1]["inbound_nodes"][0]["args"][0]["config"]["keras_history"] = ["b", 0, 0]


def _nowhere(layers: list[Any]) -> None:
    layers[2]["inbound_nodes"][0]["args"][0]["config"]["keras_history"] = ["gone", 0, 0]


def _no_call(layers: list[Any]) -> None:
    layers[3]["inbound_nodes"][0]["args"][0]["config"]["keras_history"][1] = 7


def _strange(layers: list[Any]) -> None:
    layers[2]["inbound_nodes"][0] = 5


def _negative(layers: list[Any]) -> None:
    layers[2]["inbound_nodes"][0]["args"][0]["config"]["keras_history"][1] = -1


def _deep(layers: list[Any]) -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    layers[2]["inbound_nodes"][0]["kwargs"]["noise"] = value


def _twice(layers: list[Any]) -> None:
    layers[2]["name"] = layers[2]["config"]["name"] = "a"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_loop, "reads its own output"), (_nowhere, "layer 'gone', which has none"), (_no_call, "call 7 of layer 'd'"),
        (_strange, "of layer 'd' has an unknown form"), (_negative, "of layer 'd' has an unknown form"),
        (_deep, "of layer 'd' has an unknown form"), (_twice, "have one name"),
    ],
)  # fmt: skip
def test_damaged_wires_are_named(change: Callable[[list[Any]], None], words: str, tmp_path: Path) -> None:
    with pytest.raises(rc.UnreadableError, match=words):
        rc.load(_configured(tmp_path / "m.keras", change))


def _nested(inner: dict[str, Any], depth: int) -> dict[str, Any]:
    """A model that calls the model inside it twice, so deep that its calls would be 2 to that power."""
    for level in range(depth):
        name = f"m{level}"
        ref = {"class_name": "__keras_tensor__", "config": {"shape": [], "dtype": "float32"}}

        def history(*listed: object, ref: dict[str, Any] = ref) -> dict[str, Any]:
            return {**ref, "config": {**ref["config"], "keras_history": list(listed)}}

        start = {"class_name": "InputLayer", "name": "x", "inbound_nodes": [], "config": {"name": "x", "batch_shape": [None, T, N]}}
        calls = [{"args": [history("x", 0, 0)], "kwargs": {}}, {"args": [history(inner["name"], 0, 0)], "kwargs": {}}]
        inside = {**inner, "inbound_nodes": calls}
        config = {
            "name": name,
            "layers": [start, inside],
            "input_layers": [["x", 0, 0]],
            "output_layers": [[inner["name"], 1 + ("layers" in inner["config"]), 0]],
        }
        inner = {"class_name": "Functional", "name": name, "config": config}
    return inner


def test_work_is_bounded() -> None:
    from rnnconvert.formats.keras.model.entries import entry

    lstm = {"class_name": "LSTM", "name": "l", "config": {"name": "l"}}
    assert len(Layered(entry(_nested(lstm, 3)), "a file").steps) == 9
    for depth, words in ((30, "call layers more than"), (60, "more than 50 deep")):
        with pytest.raises(rc.UnreadableError, match=words):
            Layered(entry(_nested(lstm, depth)), "a file")


@pytest.mark.parametrize("inside", [True, False])
def test_masks_of_nested_models_are_named(inside: bool, tmp_path: Path) -> None:
    """Masking inside a nested model before the layer, and outside of the model that holds it."""
    keras = needed("keras", "keras")
    k = keras.layers
    x = keras.Input((T, N))
    layer = k.LSTM(H, name="a")
    if inside:
        y = layer(keras.Sequential([keras.Input((T, N)), k.Masking(name="skip"), k.Dense(N)], name="features")(x))
    else:
        y = keras.Sequential([keras.Input((T, N)), layer])(k.Masking(name="skip")(x))
    keras.Model(x, y).save(tmp_path / "m.keras")
    read = rc.load(tmp_path / "m.keras")
    assert any("pass the lengths of its sequences" in warning for warning in read.warnings)
    assert read.layers["a"].calls[0].mask


def test_states_of_inputs_and_calls_are_told(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x, h, c = keras.Input((T, H)), keras.Input((H,)), keras.Input((H,))
    layer = keras.layers.LSTM(H, return_sequences=True, name="a")
    keras.Model([x, h, c], layer(layer(x, initial_state=[h, c]))).save(tmp_path / "m.keras")
    read = rc.load(tmp_path / "m.keras")
    first, second = read.layers["a"].calls
    assert (first.sequence, first.states) == (Input(), INPUT) and (second.sequence, second.states) == (Directly(("a",)), "")
    assert any("the model calls it 2 times" in warning for warning in read.warnings)


def test_a_sequential_model_that_is_joined_is_its_own(tmp_path: Path) -> None:
    """The first of its layers has the name that Keras gives, which is no reason to pair it with all of the stack."""
    keras = needed("keras", "keras")
    k = keras.layers
    layers = [keras.Input((T, N)), k.LSTM(H, return_sequences=True, name="lstm"), k.LSTM(H, name="lstm_1")]
    keras.Sequential(layers).save(tmp_path / "m.keras")
    rc.convert(tmp_path / "m.keras", tmp_path / "o.pt", stack="join")
    (match,) = pair(rc.load(tmp_path / "m.keras"), rc.load(tmp_path / "o.pt"))
    assert match.own_names == ("lstm", "lstm_1") and match.counterpart.num_layers == 2


@pytest.mark.parametrize(("between", "direct"), [("Dropout", True), ("Activation", True), ("Dense", False), ("RepeatVector", False)])
def test_a_model_of_tensorflow_js_states_what_stands_between(between: str, direct: bool, tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", N, H, 2), 3, np.float32).replace(name="deep")
    path = tmp_path / "model.json"
    rc.save(rc.Checkpoint("(made)", "canonical", {"deep": stack}), path, "tfjs")
    document = json.loads(path.read_text())
    layers = document["modelTopology"]["model_config"]["config"]["layers"]
    more: dict[str, dict[str, Any]] = {"Dropout": {"rate": 0.5}, "Activation": {"activation": "linear"}, "RepeatVector": {"n": 2}}
    layers.insert(1, {"class_name": between, "config": {"name": "middle", **more.get(between, {})}})
    path.write_text(json.dumps(document))
    first, second = rc.load(path).layers.values()
    assert first.reads == Input() and isinstance(second.reads, Directly if direct else Through)


def test_the_model_of_a_saved_models_metadata_is_followed(tmp_path: Path) -> None:
    """As Keras 2 writes it: a description of each object, the root's with the whole model."""
    keras = needed("keras", "keras")
    k = keras.layers
    x = keras.Input((T, N))
    y = k.Dense(H, name="d")(k.LSTM(H, return_sequences=True, name="a")(x))
    keras.Model(x, k.LSTM(H, return_sequences=True, name="b")(y)).export(tmp_path / "m", verbose=False)

    def layer(kind: str, name: str, below: str, **config: Any) -> dict[str, Any]:
        nodes = [[[below, 0, 0, {}]]] if below else []
        return {"class_name": kind, "name": name, "inbound_nodes": nodes, "config": {"name": name, **config}}

    rnn = {"units": H, "return_sequences": True, "activation": "tanh", "recurrent_activation": "sigmoid"}
    shape = {"class_name": "__tuple__", "items": [None, T, N]}
    layers = [layer("InputLayer", "x", "", batch_input_shape=shape), layer("LSTM", "a", "x", **rnn, batch_input_shape=shape),
              layer("Dense", "d", "a"), layer("LSTM", "b", "d", **rnn)]  # fmt: skip
    root = {"class_name": "Functional", "config": {
        "name": "m", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["b", 0, 0]]}}  # fmt: skip
    objects = [("root", root), *((f"root.layer-{number}", entry) for number, entry in enumerate(layers))]
    content = b"".join(wire.field(1, wire.field(3, path.encode()) + wire.field(5, json.dumps(tree).encode())) for path, tree in objects)
    (tmp_path / "m" / "keras_metadata.pb").write_bytes(content)
    read = rc.load(tmp_path / "m").layers
    assert read["a"].reads == Input() and read["b"].reads == Through(("a",), ("Dense",))


def test_a_layer_is_called_as_its_model_calls_it() -> None:
    operator = {"class_name": "TensorFlowOpLayer", "config": {"name": "AddV2"}, "name": "tf_op_layer_AddV2", "inbound_nodes": []}
    assert entries.entry(operator).name == "tf_op_layer_AddV2"
