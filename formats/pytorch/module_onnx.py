"""The modules of rnnconvert.formats.pytorch.module in torch.onnx.export: one RNN, GRU or LSTM operator a layer, with its attributes.

Both exporters: the tracing one (dynamo=False) writes what an autograd function declares, the one of torch.export
(dynamo=True) takes torch.onnx.ops. Operators, inputs and orders: onnx/docs/Operators.md#LSTM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rnnconvert.core.cells import GATES, PEEPHOLE_GATES
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.onnx.graph import attributes, units
from rnnconvert.formats.pytorch.module_stack import joined, turned
from rnnconvert.language import outline, registry
from rnnconvert.rewrites.fit_to_layout import allows

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.module import ForeignRecurrent

INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
"""An operator's inputs in their order; those that are not given are left empty."""


def exported(module: ForeignRecurrent, x: Tensor, states: list[list[Tensor]] | None) -> tuple[Tensor, list[list[Tensor]]]:
    """Return the outputs of a module, as operators; x is (time, batch, in), states are as the module's own, None for the default.

    Raises RefusedError for a computation that no ONNX operator has.
    """
    stack = outline.from_text(module.text)
    finals: list[list[Tensor]] = [[] for _ in module.widths]
    below = [x]
    number = 0
    for index, layer in enumerate(stack.layers):
        outputs: list[Tensor] = []
        for unit in units(layer):
            ends = module.ends[number : number + len(unit)]
            states_of_unit = None if states is None else [rows[number : number + len(unit)] for rows in states]
            y, h, c = _node(module, unit, ends, below[min(len(outputs), len(below) - 1)], states_of_unit)
            outputs += y.unbind(1)
            finals[0] += h.unbind(0)
            if module.has_cell:
                finals[1] += _memory(unit, x, states_of_unit) if c is None else c.unbind(0)
            number += len(unit)
        last = index == stack.num_layers - 1
        if last and module.readouts:
            outputs = [y @ getattr(module, name).t() for y, name in zip(outputs, module.readouts, strict=True)]
        below = [joined(outputs, layer.merge)] if last or stack.join == "layer" else outputs
    y = below[0]
    return turned(y, None) if stack.output_order == "processing" else y, finals


def _memory(unit: tuple[Direction, ...], x: Tensor, initial: list[list[Tensor]] | None) -> list[Tensor]:
    """Return the cell states of a cell without any: unchanged."""
    return initial[1] if initial is not None else [x.new_zeros(x.shape[1], direction.hidden_size) for direction in unit]


def _node(
    module: ForeignRecurrent, unit: tuple[Direction, ...], ends: list[str], x: Tensor, states: list[list[Tensor]] | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return one operator: Y (time, directions, batch, hidden), Y_h, and Y_c of an LSTM."""
    for direction in unit:
        check(direction)
    cell = unit[0].cell
    plain = tuple(direction.replace(cell=direction.cell.replace(constants={})) for direction in unit)
    inputs: dict[str, Tensor] = {"X": x}
    words = {"W": _input, "R": _recurrent, "B": _biases, "P": _peephole}
    for word, make in words.items():
        rows = [make(module, direction, end) for direction, end in zip(unit, ends, strict=True)]
        if any(row is not None for row in rows):
            zero = next(torch.zeros_like(row) for row in rows if row is not None)
            inputs[word] = torch.stack([zero if row is None else row for row in rows])
    for position, (word, part) in enumerate((("initial_h", "initial_hidden"), ("initial_c", "initial_cell"))):
        if position == 0 or cell.kind == "lstm":
            state = _state(module, unit, ends, x, part) if states is None else torch.stack(states[position])
            inputs |= {} if state is None else {word: state}
    sizes = (len(unit), x.shape[1], unit[0].hidden_size)
    shapes = [(x.shape[0], *sizes), sizes, sizes][: 3 if cell.kind == "lstm" else 2]
    outputs = _operator(cell.kind.upper(), attributes(Recurrent("", (Layer(plain),))), inputs, shapes)
    return outputs[0], outputs[1], outputs[2] if cell.kind == "lstm" else None


def check(direction: Direction) -> None:
    """Check that an ONNX operator computes a direction's cell.

    Raises RefusedError naming what it lacks.
    """
    cell = direction.cell
    holds = registry.layout("onnx", cell.kind, cell.reset_after).holds

    def refuse(feature: str, reason: str, remedy: str = "") -> RefusedError:
        return RefusedError(feature, f"ONNX's {cell.kind.upper()}", reason, remedy)

    rewritten = "Use rnnconvert.to_onnx(rnnconvert.from_torch(module)), which rewrites it."
    if direction.projection_size:
        raise refuse("a projection", "its state is as wide as the cell", rewritten)
    if cell.coupled not in ("", *holds.coupled):
        raise refuse("i = 1 - f", "its input_forget couples f to i", rewritten)
    for clip in cell.clips:
        if clip.kind not in holds.clips or (clip.low != -clip.high and not holds.uneven_clips):
            raise refuse(f"a clip ({clip})", "its clip is one bound on the gates' pre-activations")
    roles = {"rnn": 1, "gru": 2, "lstm": 3}[cell.kind]
    for function in (cell.activation, cell.gate_activation, cell.output_activation)[:roles]:
        if not allows(holds.activations, function):
            raise refuse(f"the activation {function}", f"it computes {', '.join(map(str, holds.activations))}")


def _ordered(rows: Tensor, direction: Direction) -> Tensor:
    """Return an array of all gates in ONNX's order."""
    cell, size = direction.cell, direction.hidden_size
    order = registry.layout("onnx", cell.kind, cell.reset_after).gates.split()
    return torch.cat([rows.narrow(0, GATES[cell.kind].index(gate) * size, size) for gate in order])


def _input(module: ForeignRecurrent, direction: Direction, end: str) -> Tensor:
    if not direction.skip_input:
        return _ordered(getattr(module, "weight_ih" + end), direction)
    like = getattr(module, "weight_hh" + end)
    return torch.eye(direction.hidden_size, dtype=like.dtype, device=like.device).repeat(len(direction.cell.gates), 1)


def _recurrent(module: ForeignRecurrent, direction: Direction, end: str) -> Tensor:
    return _ordered(getattr(module, "weight_hh" + end), direction)


def _biases(module: ForeignRecurrent, direction: Direction, end: str) -> Tensor | None:
    added = outline.constants(direction.cell, direction.hidden_size)
    if direction.biases == "none" and added is None:
        return None
    zero = torch.zeros_like(getattr(module, "weight_hh" + end)[:, 0])
    first, second = (getattr(module, name + end, zero) for name in ("bias_ih", "bias_hh"))
    if added is not None:
        first = first + torch.tensor(added).to(first)
    return torch.cat([_ordered(first, direction), _ordered(second, direction)])


def _peephole(module: ForeignRecurrent, direction: Direction, end: str) -> Tensor | None:
    if not direction.has_peepholes:
        return None
    rows, size = getattr(module, "weight_peephole" + end), direction.hidden_size
    return torch.cat([rows.narrow(0, PEEPHOLE_GATES.index(gate) * size, size) for gate in ("i", "o", "f")])


def _state(module: ForeignRecurrent, unit: tuple[Direction, ...], ends: list[str], x: Tensor, part: str) -> Tensor | None:
    """Return the learned states of an operator, spread over the batch; None where it has none."""
    learned = [getattr(module, part + end, None) for end in ends]
    if all(state is None for state in learned):
        return None
    rows = [x.new_zeros(direction.hidden_size) if state is None else state for direction, state in zip(unit, learned, strict=True)]
    return torch.stack(rows).unsqueeze(1).expand(len(unit), x.shape[1], unit[0].hidden_size)


def _operator(kind: str, settings: Mapping[str, Any], inputs: Mapping[str, Tensor], shapes: list[Any]) -> list[Tensor]:
    names = list(inputs)
    if torch.jit.is_tracing():
        return list(_Traced.apply(kind, dict(settings), names, shapes, *(inputs[name] for name in names)))
    if not hasattr(torch.onnx, "ops"):
        raise RefusedError(
            "an operator of its own", "torch.export in this torch", "torch.onnx.ops came with torch 2.8", "Export with dynamo=False."
        )
    dtypes = [inputs["X"].dtype] * len(shapes)
    return list(torch.onnx.ops.symbolic_multi_out(kind, _slots(inputs, None), dict(settings), dtypes=dtypes, shapes=shapes))


def _slots(inputs: Mapping[str, Any], absent: Any) -> list[Any]:
    """Return the inputs by position, up to the last one given."""
    last = max(INPUTS.index(name) for name in inputs)
    return [inputs.get(name, absent) for name in INPUTS[: last + 1]]


_SUFFIXES = {int: "i", float: "f", str: "s"}


class _Traced(torch.autograd.Function):
    """An operator as the tracing exporter takes it; what it computes meanwhile is ignored."""

    @staticmethod
    def forward(ctx: Any, kind: str, settings: dict[str, Any], names: list[str], shapes: list[Any], *inputs: Tensor) -> Any:
        return tuple(inputs[0].new_zeros([int(size) for size in shape]) for shape in shapes)

    @staticmethod
    def symbolic(g: Any, kind: str, settings: dict[str, Any], names: list[str], shapes: list[Any], *tensors: Any) -> Any:
        absent = g.op("prim::Constant")
        absent.setType(torch._C.OptionalType.ofTensor())
        typed = {f"{name}_{_SUFFIXES[type(value[0] if isinstance(value, list) else value)]}": value for name, value in settings.items()}
        inputs = _slots(dict(zip(names, tensors, strict=True)), absent)
        return g.op(kind, *inputs, outputs=len(shapes), **typed)
