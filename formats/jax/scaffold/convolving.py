"""LSTMs whose products are convolutions as Flax nnx, which has none: a class with a scan over the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnnconvert.core.cells import Cell
from rnnconvert.formats.jax.scaffold.recurrent import LANGUAGE
from rnnconvert.formats.jax.scaffold.space import several
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.steps import class_of, steps
from rnnconvert.scaffolding.windows import padding_word

_CLASS = '''class {name}(nnx.Module):
    """{title}

    Its products are convolutions: it reads (batch, time, *space, channels), and gives its outputs, and its last states h and c.
    """

    def __init__(self, channels, filters, kernel, strides=None, padding="VALID", kernel_dilation=None, use_bias=True, *, rngs):
        self.strides, self.padding, self.kernel_dilation = strides or (1,) * len(kernel), padding, kernel_dilation
        self.rnnconvert_cell = {{"kind": "conv_lstm"}}
        drawn = nnx.initializers.lecun_normal()
        self.input_kernel = nnx.Param(drawn(rngs.params(), (*kernel, channels, 4 * filters)))
        self.recurrent_kernel = nnx.Param(drawn(rngs.params(), (*kernel, filters, 4 * filters)))
        if use_bias:
            self.bias = nnx.Param(jnp.zeros(4 * filters))

    def __call__(self, x, state=None):
        axes = "N" + "DHW"[-len(self.strides) :] + "C"
        layout = (axes, axes[1:-1] + "IO", axes)
        recurrent_kernel, ones = self.recurrent_kernel[...], (1,) * len(self.strides)
        products = jax.lax.conv_general_dilated(
            x.reshape(-1, *x.shape[2:]), self.input_kernel[...], self.strides, self.padding, None, self.kernel_dilation, layout
        )
        products = products + self.bias[...] if hasattr(self, "bias") else products
        products = products.reshape(*x.shape[:2], *products.shape[1:]).swapaxes(0, 1)
        zeros = jnp.zeros((*products.shape[1:-1], products.shape[-1] // 4), x.dtype)

        def step(carry, x_t):
            h, c = carry
{step}
            return (h, c), h

        state, outputs = jax.lax.scan(step, (zeros, zeros) if state is None else tuple(state), products)
        return outputs.swapaxes(0, 1), state
'''


def _loop(name: str, cell: Cell, wishes: set[str]) -> str:
    """Return the class of an LSTM whose products are convolutions."""
    product = 'jax.lax.conv_general_dilated({}, {}, ones, "SAME", dimension_numbers=layout)'
    title, lines = steps(cell, replace(LANGUAGE, product=lambda h, weight, _: product.format(h, weight)), "recurrent_kernel", "", "")
    return _CLASS.format(name=name, title=title, step="\n".join(f"{' ' * 12}{line}" for line in lines))


def conv_lstm(m: Any, node: Node[kinds.ConvLSTM]) -> str:
    """Write the lines of an LSTM whose products are convolutions."""
    words = [str(node.kind.channels), str(node.kind.filters), str(tuple(node.kind.kernel)), several("strides", node.kind.strides)]
    words += ['padding="SAME"' if padding_word(node.kind) == "same" else "", several("kernel_dilation", node.kind.dilation)]
    words += ["" if node.kind.bias else "use_bias=False", "rngs=rngs"]
    part = m.part(node.layer, f"{class_of(m.file, node.kind.cell, _loop, kind='ConvLSTM')}({', '.join(filter(None, words))})")
    states = [m(value) for value in node.named.get("states", ())]
    keeps, state = "", f"({', '.join(states)})" if states else ""
    if node.kind.stateful:
        batch, *_ = node.x.shape
        if states or batch is None:
            raise m.refused(node, "a stateful layer with initial states, or for batches of any size", "a variable of Flax has one shape")
        keeps = m.state(node.layer, f"nnx.Cache(jnp.zeros({(2, batch, *node.kind.size, node.kind.filters)}))")
        state = f"{keeps}[...]"
    out, *finals = node.outputs
    wants = [value for value in finals if m.used(value)]
    x = m(node.x) + ("[:, ::-1]" if node.kind.backwards else "")
    call = f"{part}({', '.join(filter(None, (x, state)))})"
    m.release(node)
    name = m.new(out) if node.kind.sequences else "_"
    target = "state" if keeps or wants or not node.kind.sequences else "_"
    m.line(f"{name}, {target} = {call}", out.shape if node.kind.sequences else None)
    if keeps:
        m.line(f"{keeps}[...] = jnp.array(state)")
    if not node.kind.sequences:
        m.line(f"{m.new(out)} = state[0]", out.shape)
    for number, value in enumerate(finals):
        if value in wants:
            m.line(f"{m.new(value, f'{m.stem(node)}_' + 'hc'[number])} = state[{number}]", value.shape)
    return ""
