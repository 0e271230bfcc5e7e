"""The layers of rnnconvert.formats.keras.module in a `.keras` file: their configuration states what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.keras.config import tree
from rnnconvert.formats.keras.model.entries import OWN_RECURRENT, Entry
from rnnconvert.language import outline


def find_own(
    model: Entry | None, arrays: Mapping[str, Array], attributes: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Entry, Recurrent, dict[str, str]]]:
    """Yield the configuration of each such layer, the layer, and for each of its variables the array's name.

    attributes  of the file's groups: from 3.6 on Keras notes a layer's name next to its numbered variables

    Raises UsageError if a configuration and the arrays do not match.
    """
    if model is None:
        return
    named = {str(stated.get("name")): path for path, stated in attributes.items() if path.endswith("/vars")}
    for place, layer in tree(model):
        text = layer.config.get("outline")
        if layer.class_name != OWN_RECURRENT or not isinstance(text, str):
            continue
        stack = outline.from_text(text)
        path = named.get(layer.name, f"{place}/vars")
        names = {key: f"{path}/{number}" for number, key in enumerate(outline.shapes(stack, outline.KERAS))}
        missing = [name for name in names.values() if name not in arrays]
        if missing:
            raise UsageError(f"layer {layer.name!r} has no array {missing[0]!r}")
        try:
            own_arrays = {key: arrays[name] for key, name in names.items()}
            yield layer, outline.filled(stack, outline.KERAS, own_arrays, layer.name), names
        except ValueError as error:
            raise UsageError(f"the arrays of layer {layer.name!r} do not fit together: {error}") from None
