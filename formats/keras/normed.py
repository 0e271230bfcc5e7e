"""The weights of cells whose products and cell state go through layer norms, as layers of their own: two products, a bias, the norms.

Source: tensorflow_addons 0.23 rnn/layer_norm_lstm_cell.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.cells import CellArrays, CellPlace
from rnnconvert.formats.keras.cells_of_layers import place_of
from rnnconvert.formats.keras.layouts import LAYER_NORM, NORMED_INPUT, NORMED_RECURRENT
from rnnconvert.formats.keras.model.entries import NORMED, NORMS
from rnnconvert.models.model import Unit


def part_name(layer: str, cells: int, number: int, way: str = "") -> str:
    """Return the name of a cell in a model: that of its layer, with its number if there are several, and its way if there are two.

    cells  how many cells the layer has in each direction
    """
    return f"{layer}{f'[{number}]' if cells > 1 else ''}{f'/{way}' if way else ''}"


def units_of_normed(layer: str, place: CellPlace, arrays: Mapping[str, Array]) -> Iterator[Unit]:
    """Yield the parts of a layer's cells."""
    ways = ("forward", "backward") if any(way for _, way in place.cells) else ("",)
    for (number, way), cell in place.cells.items():
        yield from _parts(part_name(layer, len(place.cells) // len(ways), number, ways[way]), cell, arrays)


def _parts(name: str, cell: CellArrays, arrays: Mapping[str, Array]) -> Iterator[Unit]:
    names = dict(zip(cell.arrays, cell.names, strict=True))
    for layout in (NORMED_INPUT, NORMED_RECURRENT):
        (tensor,) = layout.tensors
        yield Unit(f"{name}/{layout.path}", {tensor.name: names[tensor.name]}, (layout,), title=NORMED)
    if "bias" in names:
        yield Unit(f"{name}/bias", {"": names["bias"]}, title="array")
    around = place_of(cell).removesuffix("/vars")
    for norm in NORMS:
        within = [full for full in arrays if full.startswith(f"{around}/{norm}/")]
        yield Unit(f"{name}/{norm}", dict(zip(_words(within), within, strict=True)), (LAYER_NORM,), title="LayerNormalization", stated=True)


def _words(names: list[str]) -> list[str]:
    """Return the parts that the arrays of a norm are; Keras 3 numbers them, gamma first."""
    leaves = [name.rpartition("/")[2].partition(":")[0] for name in names]
    return [{"0": "gamma", "1": "beta"}.get(leaf, leaf) for leaf in leaves]
