"""The layouts of PyTorch's modules by the names of their arrays, and why a file without them has no layers."""

from __future__ import annotations

from collections.abc import Mapping

from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.names import NAME
from rnnconvert.formats.pytorch.recognise import recognise as recognise
from rnnconvert.language import registry
from rnnconvert.language.fitting import pattern
from rnnconvert.language.layout import Layout


def check_read(unreadable: Mapping[str, str], prefix: str, style: str) -> None:
    """Raise RefusedError for a parameter of a module whose numbers the file does not hold as an array."""
    widest = layouts_by_style()[style]
    patterns = [pattern(widest, tensor) for tensor in widest.tensors]
    for full, why in unreadable.items():
        if full.startswith(prefix) and any(allowed.fullmatch(full.removeprefix(prefix)) for allowed in patterns):
            raise RefusedError("a parameter that is not a dense tensor", "the canonical form", f"{full!r}: {why}", _instead(why))


def _instead(why: str) -> str:
    """Return the remedy for a tensor that is not read."""
    return "Save module.weight.to_dense() in its place." if "sparse" in why else "Save it as a plain tensor."


def explain_absence(stored: Stored) -> None:
    unreadable = stored.metadata_as(TorchMetadata).get("unreadable", {})
    packed = [name for name in unreadable if "packed" in name or "_all_weight_values" in name or "quant" in unreadable[name]]
    if packed:
        raise RefusedError(
            "quantised weights",
            "the canonical form",
            f"{packed[0]!r}: {unreadable[packed[0]]}",
            "Convert the model before it is quantized, or dequantize it in PyTorch first.",
        )
    for name in unreadable:
        for style in layouts_by_style():
            check_read(unreadable, name[: len(name) - len(name.rpartition(".")[2])], style)


def torch_layouts() -> list[Layout]:
    return registry.layouts_of(NAME)


def layouts_by_style() -> dict[str, Layout]:
    """Return the widest of the layouts whose arrays have the same names, by the first of these names."""
    styles: dict[str, Layout] = {}
    for layout in torch_layouts():
        style = layout.tensors[0].name
        styles[style] = max(layout, styles.get(style, layout), key=lambda candidate: len(candidate.tensors))
    return styles
