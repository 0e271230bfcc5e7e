"""A recurrent layer of the source as a node of a description."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.core.weights import Direction, Merge
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.tensors import SourceTensor


def recurrent(
    build: Builder,
    unit: Unit,
    x: SourceTensor,
    states: Sequence[SourceTensor],
    mask: SourceTensor | None = None,
    sequences: bool = True,
    merge: Merge = "concat",
    zero: bool = True,
) -> tuple[SourceTensor, list[SourceTensor]]:
    """Add a call of a layer on (batch, time, features); return its output, and for each direction its final states.

    unit       a stack of one layer; of one direction that reads from the end the output stands in the order in which it is computed
    states     for each direction its initial states; none where they are zeros
    mask       which steps count
    sequences  whether its output is every step, and not the last one alone
    merge      how the outputs of two directions are joined: concat, sum, mul or ave
    zero       whether its output is zero at steps that do not count, and not that of the step before, which is zero at first

    Raises RefusedError for other numbers than float32, and for directions of different cells.
    """
    stack = unit.stack
    assert stack is not None
    directions = stack.layers[0].directions
    ways, units, outputs = len(directions), stack.hidden_size, stack.first.output_size
    if x.dtype != "float32":
        integral = "int" in x.dtype
        remedy = "Take the model as it was before it was quantized. `convert` reads its recurrent layers alone." if integral else ""
        raise build.refuse(
            f"a recurrent layer over {x.dtype}", "it computes in integers throughout" if integral else "it reads float32", remedy
        )
    build.need(x.dims[-1], stack.input_size)
    if len({(direction.cell, direction.hidden_size, direction.output_size) for direction in directions}) > 1:
        raise build.refuse("two directions of different cells", "they are written as one layer")
    batch, time, _ = x.dims
    build.call(batch, "batch")
    build.call(time, "time")
    widths = {"h": outputs, **({"c": units} if stack.cell.kind == "lstm" else {})}
    width = ways * outputs if merge == "concat" else outputs
    dims = (batch, time, width) if sequences else (batch, width)
    out, *finals = build.several(
        kinds.Recurrent(
            cells=tuple(direction.cell for direction in directions),
            units=units,
            biases=stack.first.biases != "none",
            sequences=sequences,
            zero=sequences and mask is not None and zero,
            backwards=stack.first.reverse and ways == 1,
            merge=merge,
            stateful=False,
            rare=tuple(dict.fromkeys(word for direction in directions for word in _rare(direction))),
        ),
        unit.name,
        [x],
        [(dims, "float32", unit.name), *[((batch, size), "float32", f"{unit.name}_{word}") for word, size in widths.items()] * ways],
        {"mask": [] if mask is None else [mask], "states": states},
    )
    return out, finals


def _rare(direction: Direction) -> list[str]:
    """Return the features of a direction that few frameworks' layers have, in words."""
    cell = direction.cell
    rare = ["coupled gates"] if cell.coupled else []
    rare += [f"a clip ({clip})" for clip in cell.clips if clip.kind not in ("gates", "cell")]
    rare += ["peepholes"] if direction.has_peepholes else []
    return rare + (["a projection"] if direction.projection_size else [])
