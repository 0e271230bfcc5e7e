"""Recurrent layers as Flax nnx: nnx.RNN around its cells where they compute the same, a written class where they do not."""

from __future__ import annotations

from typing import Any

from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.steps import GATES, Language, class_of, settings, steps

FUNCTIONS = {
    "relu": "nnx.relu({})", "sigmoid": "nnx.sigmoid({})", "tanh": "jnp.tanh({})", "exponential": "jnp.exp({})",
    "softmax": "nnx.softmax({}{axis})", "log_softmax": "nnx.log_softmax({}{axis})", "elu": "nnx.elu({}, {alpha})", "selu": "nnx.selu({})",
    "softplus": "nnx.softplus({})", "softsign": "nnx.soft_sign({})", "hard_sigmoid": "nnx.hard_sigmoid({})",
    "leaky_relu": "nnx.leaky_relu({}, {alpha})", "silu": "nnx.silu({})", "gelu": "nnx.gelu({}, approximate=False)",
    "relu6": "nnx.relu6({})", "abs": "jnp.abs({})", "sqrt": "jnp.sqrt({})", "log": "jnp.log({})", "square": "jnp.square({})", "neg": "-{}",
    "gelu_tanh": "nnx.gelu({})", "hard_swish": "nnx.hard_swish({})", "mish": "jax.nn.mish({})", "celu": "nnx.celu({}, {alpha})",
}  # fmt: skip
"""The functions by their names. nnx.hard_sigmoid is relu6(x + 3) / 6, Keras 3's."""


def _call(function: Activation, x: str) -> str:
    """Return a function's value in a cell."""
    if function.name == "linear":
        return x if x.isidentifier() else f"({x})"
    if function.name == "hard_sigmoid" and function.alpha != 1 / 6:
        return f"jnp.clip({function.alpha!r} * ({x}) + {function.beta!r}, 0, 1)"
    if function.name not in FUNCTIONS:
        raise RefusedError(f"the activation {function}", "Flax", "JAX has no such function")
    return FUNCTIONS[function.name].format(x, alpha="" if function.alpha is None else f"{function.alpha:.9g}", axis="")


LANGUAGE = Language(
    _call,
    lambda x, weight, bias: f"{x} @ {weight}" + (f" + {bias}" if bias else ""),
    lambda x, count: f"jnp.split({x}, {count}, axis=-1)",
    lambda weight, count: f"jnp.split({weight}, {count}, axis=-1)",
    lambda x, low, high: f"jnp.clip({x}, {low!r}, {high!r})",
    False,
)
_CLASS = '''class {name}(nnx.Module):
    """{title}

    Where mask (batch, time) is false, a step changes no state, and its output is the one before it, or zero.
    """

    def __init__(self, in_features, hidden_features, use_bias=True, bidirectional=False, *, rngs):
        self.hidden_features, self.bidirectional = hidden_features, bidirectional
        self.rnnconvert_cell = {cell}
        drawn = nnx.initializers.lecun_normal()
        for end in ("", "_reverse")[: 1 + bidirectional]:
            setattr(self, "input_kernel" + end, nnx.Param(drawn(rngs.params(), (in_features, {gates} * hidden_features))))
            setattr(self, "recurrent_kernel" + end, nnx.Param(drawn(rngs.params(), (hidden_features, {gates} * hidden_features))))
            for name in {biases} if use_bias else ():
                setattr(self, name + end, nnx.Param(jnp.zeros({gates} * hidden_features)))

    def __call__(self, x, state=None, mask=None, zero=False):
        """Return the outputs (batch, time, features), and for each direction its last state."""
        mask = jnp.ones(x.shape[:2], bool) if mask is None else mask
        zeros = jnp.zeros((len(x), self.hidden_features), x.dtype)
        outputs, finals = [], []
        for number, end in enumerate(("", "_reverse")[: 1 + self.bidirectional]):
            kernel, {weights} = (
                getattr(self, name + end)[...] if hasattr(self, name + end) else 0.0 for name in ({names})
            )

            def step(carry, now, {bound}):
                before, output = carry
                x_t, counts = now
                {unpack} = before
{step}
                {kept}
                output = jnp.where(counts, h, zeros if zero else output)
                return ({packed}, output), output

            start = {start}
            steps = (x @ kernel + bias).swapaxes(0, 1), mask.swapaxes(0, 1)[..., None]
            (final, _), output = jax.lax.scan(step, (start, zeros), steps, reverse=bool(number))
            outputs.append(output.swapaxes(0, 1))
            finals.append(final)
        return jnp.concatenate(outputs, -1), finals
'''


def loop(name: str, cell: Cell, wishes: set[str]) -> str:
    """Return the class of a layer that nnx lacks. Raises RefusedError for a function that JAX lacks."""
    lstm, reset_after = cell.kind == "lstm", cell.kind == "gru" and bool(cell.reset_after)
    title, lines = steps(cell, LANGUAGE, "recurrent_kernel", "recurrent_bias", "nnx.GRU")
    names = ["input_kernel", "recurrent_kernel", "bias", *(["recurrent_bias"] if reset_after else [])]
    return _CLASS.format(
        name=name,
        title=title,
        cell=settings(cell, 8),
        gates=GATES[cell.kind],
        biases='("bias", "recurrent_bias")' if reset_after else '("bias",)',
        weights=", ".join(names[1:]),
        bound=", ".join(f"{word}={word}" for word in names if word.startswith("recurrent")),
        names=", ".join(f'"{word}"' for word in names),
        unpack="h, c" if lstm else "h",
        step="\n".join(f"{' ' * 16}{line}" for line in lines),
        packed="(h, c)" if lstm else "h",
        kept="h, c = jnp.where(counts, h, before[0]), jnp.where(counts, c, before[1])" if lstm else "h = jnp.where(counts, h, before)",
        start="((zeros, zeros) if state is None else tuple(state[number]))" if lstm else "zeros if state is None else state[number]",
    )


def _plain(node: Node[kinds.Recurrent]) -> bool:
    """Return whether nnx.RNN around one of its cells computes the same: without masks, with one bias."""
    cell = node.kind.cells[0]
    alike = len(set(node.kind.cells)) == 1 and not node.named.get("mask") and not node.kind.stateful and not node.named.get("states")
    if cell.kind == "rnn":
        return alike and cell.activation.name in ("tanh", "relu") and not cell.clips
    return alike and cell.kind == "lstm" and cell == Cell("lstm", None, TANH, SIGMOID, TANH)


def recurrent(m: Any, node: Node[kinds.Recurrent]) -> str:
    """Write the lines of a recurrent layer."""
    cells, both, mask = node.kind.cells, len(node.kind.cells) > 1, node.named.get("mask")
    cell, lstm = cells[0], cells[0].kind == "lstm"
    sizes = f"{node.x.shape[-1]}, {node.kind.units}"
    turn = "[:, ::-1]" if node.kind.backwards else ""
    x = f"{m(node.x)}{turn}"
    if _plain(node):
        relu = ", activation_fn=nnx.relu" if cell.activation.name == "relu" else ""
        layer = f"nnx.RNN(nnx.{'OptimizedLSTM' if lstm else 'Simple'}Cell({sizes}{relu}, rngs=rngs), return_carry=True)"
        m.within[node.layer] = "" if both else "/cell"
        if both:
            layer = f"nnx.Bidirectional({layer}, {layer}, return_carry=True)"
        call = f"{m.part(node.layer, layer)}({x})"
        state = ["state[{}][1]", "state[{}][0]"] if lstm else ["state[{}]"]  # nnx's carry is (c, h)
        state = state if both else [word.replace("[{}]", "", 1) for word in state]
        order = f"state, {{}} = {call}"
    else:
        bias = "" if node.kind.biases else ", use_bias=False"
        bias += ", bidirectional=True" if both else ""
        layer = f"{class_of(m.file, cell, loop, 'Masked' if mask else '')}({sizes}{bias}, rngs=rngs)"
        part = m.part(node.layer, layer)
        starts = [m(value) for value in node.named.get("states", ())]
        pairs = [f"({starts[n]}, {starts[n + 1]})" for n in range(0, len(starts), 2)] if lstm else starts
        start = f"[{', '.join(pairs)}]" if pairs else ""
        start = f"{_state_variable(m, node)}[...]" if node.kind.stateful else start
        starting = [x, f"state={start}" if start else "", f"mask={m(mask[0])}{turn}" if mask else "", "zero=True" if node.kind.zero else ""]
        state = ["state[{}][0]", "state[{}][1]"] if lstm else ["state[{}]"]
        order = f"{{}}, state = {part}({', '.join(word for word in starting if word)})"
    _lines(m, node, order, state, both)
    return ""


def _state_variable(m: Any, node: Node[kinds.Recurrent]) -> str:
    """Return the variable in which a stateful layer keeps its states.

    It is (directions, batch, units), of an LSTM (directions, 2, batch, units).
    """
    batch = node.x.shape[0]
    if node.named.get("states"):
        raise m.refused(node, "initial states of a stateful layer", "it keeps those of the last call")
    if batch is None:
        raise m.refused(node, "a stateful layer for batches of any size", "a variable of Flax has one shape")
    shape = (len(node.kind.cells), *([2] if node.kind.cells[0].kind == "lstm" else []), batch, node.kind.units)
    return str(m.state(node.layer, f"nnx.Cache(jnp.zeros({shape}))"))


_MERGES = {"sum": "{0} + {1}", "mul": "{0} * {1}", "ave": "({0} + {1}) / 2"}


def _lines(m: Any, node: Node[kinds.Recurrent], order: str, state: list[str], both: bool) -> None:
    merge, sequences = node.kind.merge, node.kind.sequences
    count = 2 if both and merge is None else 1
    outs, finals = node.outputs[:count], node.outputs[count:]
    wants = not sequences or node.kind.stateful or any(m.used(value) for value in finals)
    keeps = _state_variable(m, node) if node.kind.stateful else ""
    m.release(node)
    text = order if wants else order.replace("state, {}", "_, {}").replace("{}, state", "{}, _")
    halves = [state[0].format(0), state[0].format(1)]
    name = ""
    if sequences:
        name = m.new(outs[0]) if len(outs) == 1 else m.new(outs[0], "both")
        m.line(text.format(name), node.y.shape if not both or merge == "concat" else None)
        if both and merge != "concat":
            m.line(f"ahead, back = jnp.split({name}, 2, axis=-1)")
            halves = ["ahead", "back"]
    else:
        m.line(text.format("_"))
    if keeps:
        m.line(f"{keeps}[...] = jnp.array(state)")
    if not both and not sequences:
        m.line(f"{m.new(outs[0])} = {halves[0]}", node.y.shape)
    elif both and merge is None:
        for value, word, half in zip(outs, ("forward", "backward"), halves, strict=True):
            m.line(f"{m.rename(value, word)} = {half}", value.shape)
    elif both and merge == "concat" and not sequences:
        m.line(f"{m.new(outs[0])} = jnp.concatenate([{halves[0]}, {halves[1]}], axis=-1)", node.y.shape)
    elif both and merge is not None and merge != "concat":
        m.line(f"{name or m.new(outs[0])} = {_MERGES[merge].format(*halves)}", node.y.shape)
    for number, value in enumerate(finals):
        if m.used(value):
            way, kind = divmod(number, len(state))
            stem = f"{m.stem(node)}_{'hc'[kind]}" + "_backward" * way
            m.line(f"{m.new(value, stem)} = {state[kind].format(way)}", value.shape)
