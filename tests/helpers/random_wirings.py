"""Whole Keras models drawn by a seed, wired at random: several inputs and outputs, shared layers, masks, merges, attention, cells.

python -m tests.helpers.random_wirings --to pytorch --count 200

writes each model's code, fills it, runs it beside Keras, and says how many came out equal, refused, and wrong.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc
from tests.helpers import drawn
from tests.helpers.random_models import _OVER_TIME, _Drawn, fill

CLOSE = 2e-5


class Wired(_Drawn):
    """A model whose tensors, all (batch, time, features) of one time, are read again and again.

    tensors  those that there are
    shared   layers that were called before, by the width of what they read
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.time = self.random.choice([None, None, 7, 10])
        self.tensors: list[Any] = []
        self.shared: list[tuple[int, Any]] = []

    def any(self) -> Any:
        """Return a tensor: more often one of the last."""
        return self.random.choice(self.tensors[-4:])

    def like(self, x: Any) -> Any:
        """Return another tensor, as wide as one."""
        y = self.any()
        return y if y.shape[-1] == x.shape[-1] else self.layers.Dense(x.shape[-1])(y)


def _start(d: Wired, number: int) -> tuple[Any, Any]:
    kind = d.random.randrange(4)
    if kind < 2:
        start = d.keras.Input((d.time,), dtype=d.random.choice(["int32", "float32"]), name=f"tokens_{number}")
        return start, d.layers.Embedding(11, d.size(), mask_zero=kind == 0)(start)
    start = d.keras.Input((d.time, d.size()), name=f"features_{number}")
    return start, d.layers.Masking()(start) if kind == 2 else start


def _merge(d: Wired, x: Any) -> Any:
    kind = d.random.choice(["Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"])
    return getattr(d.layers, kind)()([x, d.like(x)])


def _heads(d: Wired, x: Any) -> Any:
    layer = d.layers.MultiHeadAttention(
        d.random.randint(1, 3), d.size(), value_dim=d.size() if d.flip(0.3) else None, use_bias=d.flip(0.8),
        dropout=0.1 if d.flip(0.2) else 0.0, output_shape=d.size() if d.flip(0.3) else None,
    )  # fmt: skip
    words = {"use_causal_mask": True} if d.flip(0.3) else {}
    if d.flip(0.15):
        words["return_attention_scores"] = True
    result = layer(x, x if d.flip(0.5) else d.any(), **words)
    return result[0] if isinstance(result, (list, tuple)) else result


def _scaled(d: Wired, x: Any) -> Any:
    kind = d.random.randrange(3)
    layer = d.layers.AdditiveAttention() if kind == 0 else d.layers.Attention(use_scale=True)
    layer = d.layers.Attention(score_mode="concat") if kind == 2 else layer
    y = d.like(x)
    return layer([x, y] if d.flip(0.7) else [x, y, d.like(x)])


def _of_cells(d: Wired, x: Any) -> Any:
    cells = [
        getattr(d.layers, f"{kind}Cell")(d.size()) for kind in d.random.choices(["LSTM", "GRU", "SimpleRNN"], k=d.random.randint(1, 3))
    ]
    return d.layers.RNN(cells if len(cells) > 1 else cells[0], return_sequences=True)(x)


def _unlike(d: Wired, x: Any) -> Any:
    (kind, settings), (other, others) = d.cell(), d.cell()
    size = d.size()
    if not d.flip(0.5):
        d.size()  # Keras joins directions of one size alone
    back = other(size, return_sequences=True, go_backwards=True, **others)
    return d.layers.Bidirectional(kind(size, return_sequences=True, **settings), backward_layer=back)(x)


def _norm(d: Wired, x: Any) -> Any:
    if d.time is not None and d.flip(0.6):
        return d.layers.LayerNormalization(axis=[1, 2])(x)
    return d.random.choice([d.layers.RMSNormalization, d.layers.UnitNormalization, d.layers.LayerNormalization])()(x)


def _again(d: Wired, x: Any) -> Any:
    """A layer that was called before, or one that is called again later."""
    fitting = [layer for width, layer in d.shared if width == x.shape[-1]]
    if fitting:
        return d.random.choice(fitting)(x)
    choices = (
        lambda: d.layers.Dense(d.size(), activation="tanh"),
        lambda: d.layers.LSTM(d.size(), return_sequences=True),
        lambda: d.layers.Bidirectional(d.layers.GRU(d.size(), return_sequences=True)),
        lambda: _inner(d, x.shape[-1]),
    )
    layer = d.random.choice(choices)()
    d.shared.append((x.shape[-1], layer))
    return layer(x)


def _inner(d: Wired, width: int) -> Any:
    start = y = d.keras.Input((d.time, width))
    for _ in range(d.random.randint(1, 2)):
        y = d.over_time(y)
    return d.keras.Model(start, y, name=f"inner_{len(d.shared)}")


def _each_step(d: Wired, x: Any) -> Any:
    return d.layers.TimeDistributed(d.layers.Dense(d.size(), activation="relu"))(x)


_WIRES: tuple[Callable[[Wired, Any], Any], ...] = (
    *[lambda d, x: d.random.choice(_OVER_TIME)(d, x)] * 8, *[_merge] * 5, *[_heads] * 3, _scaled, _scaled, *[_of_cells] * 2, _unlike,
    _norm, *[_again] * 4, _each_step,
)  # fmt: skip


def _end(d: Wired, x: Any) -> Any:
    """An output: a sequence, or what is left of it."""
    kind = d.random.randrange(5)
    if kind == 0:
        return d.layers.Dense(2, activation="softmax")(x)
    if kind == 1:
        return getattr(d.layers, d.random.choice(["GlobalAveragePooling1D", "GlobalMaxPooling1D"]))()(x)
    cell, settings = d.cell()
    if kind == 2:
        return d.layers.Bidirectional(cell(3, **settings), merge_mode=d.random.choice(["concat", "sum", "mul", "ave"]))(x)
    if kind == 3 and d.time is not None and x.shape[1] is not None:
        return d.layers.Dense(2)(d.layers.Flatten()(x))
    return cell(3, go_backwards=d.flip(0.2), **settings)(x)


def wired_model(seed: int) -> Any:
    """A Keras model with weights that are all different."""
    d = Wired(seed)
    starts = []
    for number in range(d.random.choice([1, 1, 2, 3])):
        start, x = _start(d, number)
        starts.append(start)
        d.tensors.append(x)
    ends = []
    for _ in range(d.random.randint(3, 9)):
        d.tensors.append(d.random.choice(_WIRES)(d, d.any()))
    for x in d.random.sample(d.tensors[len(starts) :], min(d.random.choice([1, 1, 2, 3]), len(d.tensors) - len(starts))):
        ends.append(_end(d, x))
    model = d.keras.Model(starts, ends if len(ends) > 1 else ends[0])
    fill(model, seed, 0.4)
    return model


def outcome(seed: int, target: str, folder: Path) -> tuple[str, str]:
    """Return what became of a model: "equal", "refused" or "wrong", and why."""
    from tests.scaffolding.test_scaffold import inputs_for, module_at
    from tests.scaffolding.test_scaffold_targets import called

    model, path, written = wired_model(seed), folder / f"{seed}.keras", folder / f"{seed}_{target}.py"
    model.save(path)
    try:
        rc.scaffold(path, target, written)
    except rc.RefusedError as error:
        return "refused", error.feature
    filled = module_at(written).load(str(path))
    most = 0.0
    for batch, time, empty in drawn.drawn(((3, 7, False), (1, 9, False), (3, 8, True)), 1, f"shapes {seed} {target}"):
        inputs = inputs_for(model, batch, time)
        for x in inputs if empty else ():
            x[1] = 0  # a sequence without a single step that counts
        with np.errstate(invalid="ignore"):
            for got, wanted in zip(called(filled, target, inputs), called(model, "keras", inputs), strict=True):
                if got.shape != wanted.shape or (np.isnan(got) != np.isnan(wanted)).any():
                    return "wrong", f"shapes {got.shape}, {wanted.shape}"
                both = np.nan_to_num(np.abs(got - wanted)).max() / max(1.0, np.nan_to_num(np.abs(wanted)).max())
                most = max(most, float(both))
    return ("equal" if most <= CLOSE else "wrong"), f"{most:.1e}"


def main() -> None:
    """Print how many of the models came out equal, refused and wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--to", action="append", help="pytorch by default; may be given several times")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    drawn.LONG = True
    for target in asked.to or ["pytorch"]:
        outcomes: dict[str, list[str]] = collections.defaultdict(list)
        for seed in range(asked.first, asked.first + asked.count):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    kind, why = outcome(seed, target, Path(folder))
                except Exception as error:
                    kind, why = "failed", f"{type(error).__name__}: {error}"
            outcomes[kind].append(why)
            print(f"{seed}: {kind}: {' '.join(why.split())[:300]}", flush=True)
        print(f"{target}: " + ", ".join(f"{len(listed)} {kind}" for kind, listed in sorted(outcomes.items())))
        for why, count in collections.Counter(outcomes["refused"]).most_common():
            print(f"  {count} refused: {why}")


if __name__ == "__main__":
    main()
