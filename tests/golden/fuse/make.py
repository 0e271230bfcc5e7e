"""Make the files beside this: models that exporters wrote, with the outputs of the framework that they came from.

    KERAS_BACKEND=tensorflow python make.py keras      (keras 3.15, tensorflow 2.21, tf2onnx 1.17)
    KERAS_BACKEND=torch python make.py keras_torch     (keras 3.15, torch 2.13)
    python make.py torch                               (torch 2.13)
    python make.py jax                                 (jax2onnx 0.17.1, jax 0.10, equinox 0.13, haiku 0.0.17, flax 0.12)

Weights are random with seed 0.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BATCH, TIME = 2, 6


def keep(name: str, inputs: list, outputs: list) -> None:
    """Keep what a model read and gave."""
    arrays = {f"x{n}": np.asarray(one) for n, one in enumerate(inputs)}
    np.savez(HERE / f"{name}.npz", **arrays, **{f"y{n}": np.asarray(one) for n, one in enumerate(outputs)})


def keras_models(prefix: str, time: int | None) -> None:
    import keras

    layers = keras.layers
    cells = {
        "gru": layers.GRU(8, return_sequences=True), "gru_reset_before": layers.GRU(8, reset_after=False),
        "rnn": layers.SimpleRNN(8, return_sequences=True), "lstm": layers.LSTM(8, return_sequences=True, activation="relu"),
        "bilstm": layers.Bidirectional(layers.LSTM(8)), "lstm_hard": layers.LSTM(8, recurrent_activation="hard_sigmoid"),
        "gru_backwards": layers.GRU(8, go_backwards=True),
    }  # fmt: skip
    for name, layer in cells.items():
        model = keras.Sequential([keras.Input((time, 6)), layer, layers.Dense(3)])
        export(f"{prefix}_{name}", model, np.random.default_rng(1).normal(size=(BATCH, TIME, 6)).astype("float32"))
    tokens = keras.Input((time,), dtype="int32")
    model = keras.Model(tokens, layers.GRU(8)(layers.Embedding(20, 6, mask_zero=True)(tokens)))
    export(f"{prefix}_masked", model, np.array([[3, 4, 5, 6, 0, 0], [1, 2, 3, 4, 5, 6]], "int32"))
    if time is None:
        both = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Embedding(20, 6, mask_zero=True)(tokens))
        export(f"{prefix}_masked_bilstm", keras.Model(tokens, both), np.array([[0, 4, 0, 6, 0, 0], [0] * 6, [1, 2, 3, 4, 5, 6]], "int32"))


def export(name: str, model: object, x: np.ndarray) -> None:
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape) * 0.3)
    y = model(x)
    model.export(str(HERE / f"{name}.onnx"), format="onnx", verbose=False)
    keep(name, [x], [y.detach() if hasattr(y, "detach") else y])


def without_notes(path: Path) -> None:
    """Take out what the exporter notes of each node: the lines of source, with the paths of the machine."""
    import onnx

    model = onnx.load(path)
    graphs = [model.graph]
    for graph in graphs:
        graphs += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
        for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
            part.ClearField("metadata_props")
            part.ClearField("doc_string")
    onnx.save(model, path)


def torch_models() -> None:
    import torch

    torch.manual_seed(0)

    class Steps(torch.nn.Module):
        def __init__(self, cell: torch.nn.Module, batch_first: bool = False) -> None:
            super().__init__()
            self.cell, self.out, self.batch_first = cell, torch.nn.Linear(8, 3), batch_first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            lstm = isinstance(self.cell, torch.nn.LSTMCell)
            axis = int(self.batch_first)
            h = c = torch.zeros(x.shape[1 - axis], 8)
            states = []
            for one in x.unbind(axis):
                if lstm:
                    h, c = self.cell(one, (h, c))
                else:
                    h = self.cell(one, h)
                states.append(h)
            return self.out(torch.stack(states, axis))

    class Own(torch.nn.Module):
        """A GRU as a textbook writes it: what it reads and its state side by side, the reset gate before the product."""

        def __init__(self) -> None:
            super().__init__()
            self.gates, self.candidate = torch.nn.Linear(14, 16), torch.nn.Linear(14, 8)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            for one in x.flip(1).unbind(1):
                z, r = torch.sigmoid(self.gates(torch.cat([one, h], 1))).chunk(2, 1)
                n = torch.tanh(self.candidate(torch.cat([one, r * h], 1)))
                h = (1 - z) * n + z * h
            return h

    class Scanned(torch.nn.Module):
        """A cell that PyTorch's scan runs, which the exporter writes as a Scan."""

        def __init__(self, cell: torch.nn.Module, reverse: bool) -> None:
            super().__init__()
            self.cell, self.reverse = cell, reverse

        def forward(self, x: torch.Tensor, *first: torch.Tensor) -> torch.Tensor:
            from torch._higher_order_ops.scan import scan

            def step(states: tuple, one: torch.Tensor) -> tuple:
                new = self.cell(one, states if len(states) > 1 else states[0])
                new = new if isinstance(new, tuple) else (new,)
                return new, new[0].clone()

            last, y = scan(step, first, x, reverse=self.reverse)
            return y, *last

    x, h = torch.randn(TIME, BATCH, 6), torch.randn(BATCH, 8)
    scanned = {
        "scan_gru": (Scanned(torch.nn.GRUCell(6, 8), False), (x, h)), "scan_rnn": (Scanned(torch.nn.RNNCell(6, 8), False), (x, h)),
        "scan_lstm_backwards": (Scanned(torch.nn.LSTMCell(6, 8), True), (x, h, torch.randn(BATCH, 8))),
    }  # fmt: skip
    models = {
        "lstm_cells": (Steps(torch.nn.LSTMCell(6, 8)), (x,)),
        "gru_cells": (Steps(torch.nn.GRUCell(6, 8), True), (x.transpose(0, 1),)),
        "rnn_cells": (Steps(torch.nn.RNNCell(6, 8)), (x,)), "gru_cell": (torch.nn.GRUCell(6, 8), (x[0], h)),
        "own": (Own(), (x.transpose(0, 1), h)),
        "gru": (torch.nn.GRU(6, 8), (x,)),
    }  # fmt: skip
    for name, (model, given) in (models | scanned).items():
        model.eval()
        y = model(*given)
        for way, dynamo in (("dynamo", True), *([] if name in scanned else [("torchscript", False)])):
            extra = {"external_data": False} if dynamo else {}
            torch.onnx.export(model, given, HERE / f"{way}_{name}.onnx", dynamo=dynamo, verbose=False, **extra)
            without_notes(HERE / f"{way}_{name}.onnx")
            keep(f"{way}_{name}", list(given), [one.detach() for one in (y if isinstance(y, tuple) else (y,))])


def jax_models() -> None:
    """Cells in jax.lax.scan, which jax2onnx writes as a Loop whose states are the weights, too."""
    import equinox
    import flax.linen
    import haiku
    import jax
    import jax.numpy as jnp
    import onnx
    from flax import nnx
    from jax2onnx import to_onnx

    random = np.random.default_rng(0)
    x, zero = random.normal(size=(TIME, BATCH, 6)).astype("float32"), jnp.zeros((BATCH, 8))

    def drawn(tree: object) -> object:
        return jax.tree.map(lambda one: jnp.asarray(random.normal(size=one.shape) * 0.3, one.dtype), tree)

    def scanned(step: object, first: object) -> object:
        return lambda x: jax.lax.scan(step, first, x)[1]

    def of_equinox(kind: type) -> object:
        own, arrays = kind(6, 8, key=jax.random.key(0)), None
        arrays, rest = equinox.partition(own, equinox.is_array)
        own, lstm = equinox.combine(drawn(arrays), rest), kind is equinox.nn.LSTMCell

        def step(state: object, one: object) -> object:
            state = own(one, state)
            return state, state[0] if lstm else state

        first = (jnp.zeros(8), jnp.zeros(8)) if lstm else jnp.zeros(8)
        return jax.vmap(scanned(step, first), 1, 1)

    def of_haiku(kind: type) -> object:
        def run(x: object) -> object:
            core = kind(8)
            return haiku.dynamic_unroll(core, x, core.initial_state(BATCH))[0]

        pure = haiku.without_apply_rng(haiku.transform(run))
        weights = drawn(pure.init(jax.random.key(0), x))
        return lambda x: pure.apply(weights, x)

    def of_linen(kind: type) -> object:
        own = kind(8)
        weights = drawn(own.init(jax.random.key(0), zero, x[0]))
        return scanned(lambda state, one: own.apply(weights, state, one), zero)

    def of_nnx(kind: type) -> object:
        form, weights = nnx.split(kind(6, 8, rngs=nnx.Rngs(0)))
        return scanned(lambda state, one: nnx.merge(form, weights)(state, one), (zero, zero))

    gates, new = (jnp.asarray(random.normal(size=(14, size)) * 0.3, "float32") for size in (16, 8))

    def own(h: object, one: object) -> object:
        z, r = jnp.split(jax.nn.sigmoid(jnp.concatenate([one, h], -1) @ gates), 2, -1)
        h = (1 - z) * jnp.tanh(jnp.concatenate([one, r * h], -1) @ new) + z * h
        return h, h

    models = {
        "equinox_gru": of_equinox(equinox.nn.GRUCell), "equinox_lstm": of_equinox(equinox.nn.LSTMCell),
        "haiku_gru": of_haiku(haiku.GRU), "haiku_lstm": of_haiku(haiku.LSTM), "haiku_rnn": of_haiku(haiku.VanillaRNN),
        "linen_gru": of_linen(flax.linen.GRUCell), "nnx_lstm": of_nnx(nnx.LSTMCell), "own": scanned(own, zero),
    }  # fmt: skip
    for name, model in models.items():
        keep(f"jax_{name}", [x], [model(x)])  # before the exporter puts primitives of its own into JAX
        jax.clear_caches()
        made = to_onnx(model, [jax.ShapeDtypeStruct(x.shape, jnp.float32)])
        onnx.save(made, HERE / f"jax_{name}.onnx")
        without_notes(HERE / f"jax_{name}.onnx")
        jax.clear_caches()


if __name__ == "__main__":
    if sys.argv[1] in ("torch", "jax"):
        {"torch": torch_models, "jax": jax_models}[sys.argv[1]]()
    else:
        keras_models(sys.argv[1], None if sys.argv[1] == "keras" else TIME)
