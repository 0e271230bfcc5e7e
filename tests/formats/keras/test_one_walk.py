"""One walk through a Keras model, for every command: which steps are masked, which calls there are, and in which order.

The truth is Keras's: what its layers hand on, and with which mask it calls a recurrent layer when the model runs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.formats.keras.describe.model import describe
from rnnconvert.formats.keras.describe.operations import OPERATIONS
from rnnconvert.formats.keras.flow import KerasFlow
from rnnconvert.formats.keras.model import entries
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.model.layered import Layered
from rnnconvert.formats.keras.model.masks import ADDING, effect_of
from rnnconvert.formats.keras.upgrade.files import upgrade
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel
from tests.helpers import drawn
from tests.helpers.drawn import each
from tests.helpers.frameworks import by_keras_2
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore")
T, N = 4, 3

# Keras 2 ---------------------------------------------------------------------------------------------

EFFECTS_OF_KERAS_2 = """
import json, sys
import numpy as np, tensorflow as tf, tf_keras as k
L, effects = k.layers, {}
arguments = {"Dense": (4,), "Bidirectional": (L.LSTM(2, return_sequences=True),), "TimeDistributed": (L.Dense(3),), "Conv1D": (4, 2),
    "MultiHeadAttention": (2, 2), "Activation": ("relu",), "Dropout": (.1,), "RepeatVector": (3,), "Reshape": ((2, 8),),
    "Permute": ((2, 1),), "GaussianNoise": (.1,), "GaussianDropout": (.1,), "AlphaDropout": (.1,), "LSTM": (2,), "GRU": (2,),
    "SimpleRNN": (2,), "Rescaling": (2.,), "RNN": (L.LSTMCell(2),), "ConvLSTM1D": (2, 1), "SpatialDropout1D": (.1,),
    "SpatialDropout2D": (.1,), "SpatialDropout3D": (.1,), "GroupNormalization": (2,)}

def after(name, masked, rank):
    more = {"return_sequences": True} if name in ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D") else {}
    for form in ("one", "list", "several"):
        xs = [tf.ones((2,) + (4,) * (rank - 1)) for _ in masked]
        masks = [tf.constant(np.arange(8).reshape(2, 4) % (n + 2) > 0) for n in range(2)]
        for x, mask, on in zip(xs, masks, masked):
            if on:
                x._keras_mask = mask
        try:
            layer = getattr(L, name)(*arguments.get(name, ()), **more)
            y = layer(xs[0]) if form == "one" and len(xs) == 1 else layer(xs) if form == "list" else layer(*xs)
        except Exception:
            continue
        y = y[0] if isinstance(y, (list, tuple)) else y
        mask = getattr(y, "_keras_mask", None)
        if mask is None:
            return "none"
        first, second = map(np.asarray, masks)
        words = {"first": first, "second": second, "all": first & second, "any": first | second}
        return next((word for word, value in words.items() if np.shape(mask) == value.shape and np.array_equal(mask, value)), "another")
    return "?"

for name in sorted(name for name in dir(L) if isinstance(getattr(L, name), type)):
    merges = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Attention", "MultiHeadAttention")
    for rank in (3, 4, 5, 2):
        each = [after(name, masked, rank) for masked in (((1, 0), (0, 1), (1, 1)) if name in merges else ((1,),))]
        if set(each) != {"?"}:
            effects[name] = each
            break
    else:
        try:
            effects[name] = "passes" if getattr(L, name)(*arguments.get(name, (L.Conv1D(3, 1),))).supports_masking else "drops"
        except Exception:
            pass
json.dump(effects, open(sys.argv[1], "w"))
"""


def test_the_table_of_masks_is_that_of_keras_2(tmp_path: Path) -> None:
    """What tf_keras gives of a mask is what the table says of a model before Keras 3, merges too."""
    by_keras_2(EFFECTS_OF_KERAS_2, tmp_path / "effects.json")
    effects = json.loads((tmp_path / "effects.json").read_text())
    differ = []
    for name, outcome in effects.items():
        effect = effect_of(Entry(name, name, {"layer": {"class_name": "Dense", "config": {}}}), 2)
        if name.startswith("Random") or name == "InputLayer":
            continue  # steps before a model
        if name in (*ADDING, "Concatenate"):
            right = effect == "join" and outcome == ["first", "second", "all"]
        elif name in ("Masking", "Lambda", "Layer"):
            right = effect == ("make" if name == "Masking" else "")
        elif outcome in ("passes", "drops"):  # no array here is for it
            right = outcome == "drops" or bool(effect)
        else:
            right = (effect in ("pass", "sequences")) == (outcome[0] == "first")
        differ += [] if right else [f"{name}: {outcome} in Keras 2, {effect or 'drop'} in the table"]
    assert not differ
    compared = {name for name, outcome in effects.items() if isinstance(outcome, list)}
    assert {"Add", "Concatenate", "Identity", "Rescaling", "Normalization", "LSTM", "LayerNormalization", "Dense"} <= compared
    assert effects["SpectralNormalization"] == "drops"


DRAWN_OF_KERAS_2 = """
import json, random, sys
import numpy as np, tf_keras as k
L, truth = k.layers, {}

def passed(seed):
    dice = random.Random(seed)
    x = k.Input((4, 3))
    masked, plain = L.Masking(123.0)(x), L.Dense(3)(x)
    def thing(y):
        return dice.choice((
            lambda y: L.Identity()(y), lambda y: L.Rescaling(0.5)(y), lambda y: L.Dense(3)(y), lambda y: L.LayerNormalization()(y),
            lambda y: L.Activation("tanh")(y), lambda y: L.Dropout(0.1)(y), lambda y: y, lambda y: L.Conv1D(3, 1)(y),
            lambda y: L.LSTM(3, return_sequences=True)(y)))(y)
    joined = dice.choice((
        lambda: masked, lambda: masked, lambda: L.Add()([masked, plain]), lambda: L.Concatenate()([masked, masked]),
        lambda: L.Multiply()([masked, L.Masking(7.0)(plain)]), lambda: L.Add()([plain, plain]),
        lambda: L.Concatenate(axis=1)([masked, masked]), lambda: k.Sequential([k.Input((4, 3)), L.Masking(5.0), L.Dense(3)])(x)))()
    y = thing(thing(joined))
    last = L.LSTM(2, name="last")
    if dice.random() < 0.3:
        inner = k.Input(y.shape[1:])
        model = k.Model(x, k.Model(inner, last(inner))(y))
    else:
        model = k.Model(x, last(y))
    heard = []
    call = last.call
    def hearing(sequence, mask=None, **more):
        heard.append(mask is not None)
        return call(sequence, mask=mask, **more)
    last.call = hearing
    model(np.ones((2, 4, 3), "float32"))
    last.call = call
    model.save(f"{sys.argv[1]}/m{seed}.h5")
    return heard[-1]

for seed in map(int, sys.argv[2:]):
    truth[seed] = passed(seed)
json.dump(truth, open(f"{sys.argv[1]}/truth.json", "w"))
"""


def test_masks_of_drawn_models_of_keras_2_are_those_that_it_hands_on(tmp_path: Path) -> None:
    by_keras_2(DRAWN_OF_KERAS_2, tmp_path, *range(drawn.SEED, drawn.SEED + (300 if drawn.LONG else 30)))
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert set(truth.values()) == {True, False}

    def check(seed: str) -> None:
        path = tmp_path / f"m{seed}.h5"
        read = rc.load(path)
        stated: Any = read.metadata["attributes"]
        assert bool(read.layers["last"].calls[0].mask) == truth[seed], read.layers["last"].calls
        model = entries.entry(json.loads(stated[""]["model_config"]))
        assert (KerasFlow(model, 2).masks("last") != "none") == truth[seed]
        try:
            upgrade(path, tmp_path / f"m{seed}.keras")
        except rc.RefusedError as error:
            assert any(word in str(error) for word in ("Identity", "mask", "model inside a model")), error
            return
        upgraded.append(seed)
        assert bool(rc.load(tmp_path / f"m{seed}.keras").layers["last"].calls[0].mask) == truth[seed], "upgrade"
        masked = [bool(node.named.get("mask")) for node in _nodes(describe(path).scope) if node.layer == "last"]
        assert masked == [truth[seed]], "scaffold"

    upgraded: list[str] = []
    each(truth, check)
    assert {truth[seed] for seed in upgraded} == {True, False}


# Keras 3 ---------------------------------------------------------------------------------------------


class Heard:
    """A recurrent layer, and the mask with which Keras calls it."""

    def __init__(self, k: Any, name: str) -> None:
        self.layer = k.layers.LSTM(2, name=name)
        self.masks: list[Any] = []
        call = self.layer.call

        def hearing(sequence: Any, initial_state: Any = None, mask: Any = None, training: bool = False) -> Any:
            self.masks.append(mask)
            return call(sequence, initial_state=initial_state, mask=mask, training=training)

        self.layer.call = hearing

    def masks_a_step(self) -> bool | None:
        """Whether the last call masked any step; None for a mask that lets all steps count, where either answer is right."""
        mask = self.masks[-1]
        return False if mask is None else None if np.asarray(mask).all() else True


def _drawn(seed: int, k: Any) -> tuple[Any, Heard, Any]:
    """A model around an LSTM, that layer, and an input of which two steps are masked."""
    dice, layers, ops = random.Random(seed), k.layers, k.ops
    between: list[Callable[[Any], Any]] = [
        lambda y: y, lambda y: layers.Identity()(y), lambda y: layers.Rescaling(0.5)(y), lambda y: layers.Dense(N)(y),
        lambda y: layers.LayerNormalization()(y), lambda y: layers.RMSNormalization()(y), lambda y: layers.Dropout(0.1)(y),
        lambda y: layers.Conv1D(N, 1)(y), lambda y: layers.Activation("tanh")(y), lambda y: y * 0.5, lambda y: ops.tanh(y),
        lambda y: ops.add(y, y), lambda y: ops.concatenate([y, y], axis=-1), lambda y: layers.GRU(N, return_sequences=True)(y),
        lambda y: layers.Bidirectional(layers.LSTM(2, return_sequences=True))(y), lambda y: layers.TimeDistributed(layers.Dense(N))(y),
        lambda y: layers.Add()([y, y]), lambda y: ops.softmax(y, axis=-1),
    ]  # fmt: skip
    words = dice.random() < 0.4
    start = k.Input((T,), dtype="int32") if words else k.Input((T, N))
    value = 0 if words else dice.choice((0.0, 7.0))
    heard = Heard(k, "last")

    def masked(x: Any) -> Any:
        return layers.Embedding(9, N, mask_zero=True)(x) if words else layers.Masking(value)(x)

    def plain(x: Any) -> Any:
        return layers.Embedding(9, N)(x) if words else layers.Dense(N)(x)

    joins: list[Callable[[Any], Any]] = [
        masked, masked, lambda x: layers.Add()([masked(x), plain(x)]), lambda x: layers.Multiply()([masked(x), masked(x)]),
        lambda x: layers.Concatenate(axis=1)([masked(x), plain(x)]), lambda x: layers.Concatenate()([masked(x), plain(x)]),
        lambda x: layers.Concatenate()([masked(x), masked(x)]), lambda x: layers.Attention()([plain(x), masked(x)]),
        lambda x: layers.Attention()([masked(x), plain(x)]), plain,
    ]  # fmt: skip
    join, before, behind = dice.choice(joins), dice.choice(between), dice.choice(between)
    how = dice.choice(("graph", "graph", "line", "inside", "apart"))
    if how == "line":  # no operations in it
        inside = [dice.choice((layers.Identity(), layers.Rescaling(0.5), layers.Dense(N), layers.Conv1D(N, 1), layers.RMSNormalization()))]
        first = layers.Embedding(9, N, mask_zero=True) if words else layers.Masking(value)
        model = k.Sequential([k.Input(start.shape[1:], dtype=start.dtype), first, *inside, heard.layer])
    elif how == "inside":  # the layer is in a model that reads the mask
        y = before(join(start))
        inner = k.Input(y.shape[1:])
        model = k.Model(start, k.Model(inner, heard.layer(behind(inner)))(y))
    elif how == "apart":  # the mask comes out of a model
        inner = k.Input(start.shape[1:], dtype=start.dtype)
        model = k.Model(start, heard.layer(behind(k.Model(inner, before(join(inner)))(start))))
    else:
        model = k.Model(start, heard.layer(behind(before(join(start)))))
    x = np.full((2, T) if words else (2, T, N), 3 if words else 0.5, "int32" if words else "float32")
    x[0, 2:] = value
    return model, heard, x


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_masks_of_drawn_models_are_those_with_which_keras_calls_them(ending: str, tmp_path: Path) -> None:
    """For inspect and convert, transplant and scaffold alike; HDF5 files state no modules, and say the same."""
    k = needed("keras", "keras")
    seen: set[tuple[bool, bool]] = set()

    def check(seed: int) -> None:
        model, heard, x = _drawn(seed, k)
        path = tmp_path / f"m{seed}{ending}"
        model(x)
        truth = heard.masks_a_step()
        if truth is None:
            return
        model.save(path)
        read = rc.load(path)
        (call,) = read.layers["last"].calls
        attributes: Any = read.metadata["attributes"]
        config: Any = read.metadata["config"] if ending == ".keras" else json.loads(attributes[""]["model_config"])
        (step,) = [step for step in Layered(entries.entry(config), path).steps if step.layer.name == "last"]
        assert bool(call.mask) == bool(step.mask) == truth, f"inspect: {call.mask!r}, Keras: {truth}"
        if any(layer.class_name == "Masking" for layer in entries.every(entries.entry(config))):
            assert (KerasFlow(entries.entry(config)).masks("last") != "none") == truth, "transplant"
        masked = [bool(node.named.get("mask")) for node in _nodes(describe(path).scope) if node.layer == "last"]
        assert masked == [truth], "scaffold"
        seen.add((truth, bool(masked[0])))

    each(range(drawn.SEED, drawn.SEED + (600 if drawn.LONG else 30)), check)
    assert len(seen) == 2


def _nodes(scope: DescribedModel) -> list[Any]:
    inner = [node.kind.scope for node in scope.nodes if isinstance(node.kind, kinds.Model)]
    return [*scope.nodes, *(node for outer in inner for node in _nodes(outer))]


def test_calls_are_in_the_order_in_which_keras_runs_them(tmp_path: Path) -> None:
    """For inspect and for what is written: the layers of drawn graphs, with branches of different lengths, in Keras's order."""
    k = needed("keras", "keras")

    def check(seed: int) -> None:
        dice, x = random.Random(seed), k.Input((T, N))
        tensors = [x]
        for number in range(dice.randint(3, 9)):
            reads = [dice.choice(tensors) for _ in range(dice.choice((1, 1, 2)))]
            layer = k.layers.Dense(N, name=f"n{number}") if len(reads) == 1 else k.layers.Add(name=f"n{number}")
            tensors.append(layer(reads[0] if len(reads) == 1 else reads))
        model = k.Model(x, dice.sample(tensors[1:], dice.randint(1, 2)))
        path = tmp_path / f"m{seed}.keras"
        model.save(path)
        nodes = [node for depth in sorted(model._nodes_by_depth, reverse=True) for node in model._nodes_by_depth[depth]]
        order = [node.operation.name for node in nodes if not node.is_input]
        steps = [step.label for step in Layered(entries.entry(json.loads(model.to_json())), path).steps]
        assert [label for label in steps if label in order] == order
        written = [
            str(node.outputs[0].name) for node in describe(path).scope.nodes if isinstance(node.kind, kinds.Dense | kinds.Arithmetic)
        ]
        assert written == order

    each(range(drawn.SEED, drawn.SEED + (300 if drawn.LONG else 20)), check)


def test_every_operation_that_is_described_is_known_as_one() -> None:
    """Keras 3's HDF5 files state no module: an operation is told from a layer of its name by what every layer states."""
    for name in OPERATIONS:
        assert Entry("x", name, {"name": "x"}, nodes=[{"args": []}]).is_operation, name
        assert not Entry("x", name, {"name": "x", "trainable": True}, nodes=[{"args": []}]).is_operation, name
