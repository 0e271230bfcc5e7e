"""HTML that is escaped unless it was made here, and whose elements are always closed."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = {"meta", "br", "wbr", "col"}
_EMPTY_IN_SVG = {"path", "line", "rect", "circle"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(
    name: str, /, *children: str | Iterable[str | None] | None, **attributes: str | int | float | bool | None
) -> Markup:
    """Return an element. Text is escaped, Markup is not.

    attributes  class_ is class, x_y is x-y; True stands alone, False and None are left out

    >>> el("td", "a < b", class_="number")
    '<td class="number">a &lt; b</td>'
    """
    opened = name
    for key, value in attributes.items():
        if value is True:
            opened += f" {_attribute(key)}"
        elif value is not False and value is not None:
            opened += f' {_attribute(key)}="{html.escape(_printable(str(value)))}"'
    if name in _VOID:
        return Markup(f"<{opened}>")
    if name in _EMPTY_IN_SVG and not children:
        return Markup(f"<{opened}/>")
    return Markup(f"<{opened}>{join(*children)}</{name}>")


def join(*children: str | Iterable[str | None] | None) -> Markup:
    """Join several pieces; None adds nothing."""
    return Markup("".join(_one(child) for child in children))


def listing(title: str, rows: Iterable[tuple[str, str]]) -> Markup:
    """Return a small table of names and what they are, under a title."""
    cells = [
        el("tr", el("th", name, scope="row", style="text-align:left"), el("td", text, style="text-align:left"))
        for name, text in rows
    ]
    return el("table", el("caption", title, style="text-align:left;font-weight:bold"), el("tbody", cells))


def _one(child: str | Iterable[str | None] | None) -> str:
    if child is None or isinstance(child, Markup):
        return child or ""
    if isinstance(child, str):
        return html.escape(_printable(child), quote=False)
    return "".join(map(_one, child))


def _printable(text: str) -> str:
    """Return text without control characters, except for line breaks and tabs."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
