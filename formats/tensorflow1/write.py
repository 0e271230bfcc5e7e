"""TensorFlow 1's variables, written in the scopes that its own wrappers give them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rnnconvert.containers import npz_file, tensor_bundle
from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import TANH
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, put
from rnnconvert.formats.tensorflow1.names import CLASSES, CellPlaces, Member
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack

_NAME = "tensorflow1"
_SCOPES = {
    "lstm": "lstm_cell",
    "gru": "gru_cell",
    "gru_block": "gru_cell",
    "cudnn_gru": "cudnn_compatible_gru_cell",
    "rnn": "basic_rnn_cell",
}
"""The scope that the class of a layout gives its variables."""


def companions(path: Path) -> tuple[Path, ...]:
    """Return the data file beside an index; an .npz needs none."""
    return () if lowered(path).suffix == ".npz" else (tensor_bundle.data_beside(path),)


def write(path: Path, job: Job) -> WriteResult:
    """Write a checkpoint of version 2, or an .npz of the variables; each layer in the scopes of TensorFlow's own wrapper."""
    arrays: dict[str, Array | PiecewiseArray] = {}
    notes = []
    homes = job.source.read_as(CellPlaces).cells if isinstance(job.source.read, CellPlaces) else {}
    bare = len(job.parts) == 1 and not homes
    for part in job.parts:
        asked = job.options.get("prefix", part.stack.name)
        name = "" if bare else part.stack.name
        above = name if asked is None else asked
        above = above.strip("/").replace(":", "_")
        cells = homes.get(part.stack.name, {}) if asked is None else {}
        for layer, number, direction in part.stack.directions():
            layout = _layout_of(direction, part.layout)
            home = cells.get((layer, number))
            place = _scopes(part.stack, above)(layer, number) if home is None else home.scope.rpartition("/")[0] + "/"
            scope = _scope(home, direction, layout) or place.lstrip("/") + _own_scope(layout)
            single = Recurrent(part.stack.name, (Layer((direction.replace(reverse=False),)),))
            for local, packed in pack(layout, single, job.dtype or direction.dtype, job.watch).items():
                original = home.names.get(local) if home is not None and scope == home.scope else None
                put(arrays, original or f"{scope}/{local}", packed)
        notes.append(f"{above or 'the file itself'} loads into {constructor(part.stack, part.layout)}")
    result = WriteResult(notes, dropped=job.carry(arrays))
    if not job.dry_run:
        if lowered(path).suffix == ".npz":
            npz_file.write(path, arrays)
        else:
            tensor_bundle.write(path, arrays)
    return result


def _layout_of(direction: Direction, layout: Layout) -> Layout:
    """Return the layout of a cell in a stack of cells of several kinds."""
    cell = direction.cell
    if (cell.kind, cell.reset_after) == (layout.kind, layout.reset_after):
        return layout
    return registry.layout(_NAME, cell.kind, cell.reset_after)


def _own_scope(layout: Layout) -> str:
    return _SCOPES[layout.name.partition(".")[2]]


def _scope(home: Member | None, direction: Direction, layout: Layout) -> str:
    """Return the scope that a cell already has, if the class that it names computes the same as the cell."""
    if home is None or CLASSES.get(home.known_class) != layout.kind or home.known_class.startswith("coupled_"):
        return ""
    cudnn = home.known_class.startswith("cudnn_")
    if layout.kind == "lstm" and cudnn and (direction.cell.constants.get("f") or direction.projection_size):
        return ""
    return "" if layout.kind == "gru" and cudnn != bool(layout.reset_after) else home.scope


def _scopes(stack: Recurrent, above: str) -> Callable[[int, int], str]:
    """Return the scopes before a cell's, by layer and direction, as TensorFlow's own wrappers name them."""
    start = f"{above}/" if above else ""
    if stack.num_directions == 1:
        inner = "multi_rnn_cell/cell_{layer}/" if stack.num_layers > 1 else ""
        text = start + "rnn/" + inner
    elif stack.num_layers == 1:
        text = start + "bidirectional_rnn/{way}/"
    elif stack.join == "end":
        text = start + "bidirectional_rnn/{way}/multi_rnn_cell/cell_{layer}/"
    else:
        text = start + "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/"
    head, tail = text[: len(start)], text[len(start) :]
    return lambda layer, number: head + tail.format(layer=layer, way=("fw", "bw")[number])


def constructor(stack: Recurrent, layout: Layout) -> str:
    """Return the calls that make a layer whose variables have these names."""
    cells = [_call(layer.directions[0], _layout_of(layer.directions[0], layout)) for layer in stack.layers]
    several = "[" + ", ".join(cells) + "]"
    if stack.num_directions == 1:
        cell = f"tf.nn.rnn_cell.MultiRNNCell({several})" if len(cells) > 1 else cells[0]
        return f"tf.nn.dynamic_rnn({cell}, x)"
    if len(cells) == 1:
        return f"tf.nn.bidirectional_dynamic_rnn({cells[0]} for each direction, x)"
    if stack.join == "end":
        return f"tf.nn.bidirectional_dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell({several}) for each direction, x)"
    return f"tf.contrib.rnn.stack_bidirectional_dynamic_rnn({several} for each direction, x)"


def _call(direction: Direction, layout: Layout) -> str:
    cell = direction.cell
    words = [str(direction.hidden_size)]
    if cell.kind == "lstm":
        words += ["use_peepholes=True"] if direction.has_peepholes else []
        words += [f"num_proj={direction.projection_size}"] if direction.projection_size else []
        names = {"cell": "cell_clip", "projection": "proj_clip"}
        words += [f"{names[clip.kind]}={clip.high:g}" for clip in cell.clips]
        words += [f"forget_bias={cell.constants.get('f', 0.0):g}"]
    if cell.activation != TANH:
        words.append(f"activation={'tf.identity' if cell.activation.name == 'linear' else f'tf.nn.{cell.activation.name}'}")
    return f"{layout.class_name}({', '.join(words)})"
