"""Names and keys of a PyTorch pickle, as text."""

from __future__ import annotations

from typing import Any

from rnnconvert.containers.pickle_values import Global


def is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= 64  # Python refuses to print a number of many thousand digits
    return value is None or isinstance(value, float | str | complex | Global)


def joined_name(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def key_text(key: Any, index: int) -> str:
    return str(key) if is_plain(key) else f"<{index}>"


def short(value: Any) -> str:
    """Return a number or numbers as text, however large."""
    if isinstance(value, tuple):
        return f"[{', '.join(short(item) for item in value[:8])}]"
    return str(value) if abs(value) < 1 << 64 else "an impossibly large number"


def class_name(made_by: Global) -> str:
    """Return the dotted name of a class as Python knows it, without TorchScript's prefix and numbering. TorchScript's
    prefix and its numbering are taken off.
    """
    parts = [part for part in str(made_by).split(".") if not part.startswith("___torch_mangle_")]
    return ".".join(parts[1:] if parts[0] == "__torch__" and len(parts) > 1 else parts)
