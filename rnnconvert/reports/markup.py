"""HTML that is escaped unless it was made here, and whose elements are always closed."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from pathlib import Path

from rnnconvert.core.printable import abridged

_VOID = {"meta", "br", "wbr", "col", "img"}
_EMPTY_IN_SVG = {"path", "line", "rect", "circle"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, /, *children: str | Iterable[str | None] | None, **attributes: str | int | float | bool | None) -> Markup:
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
    return Markup("".join(_text(child) for child in children))


def section(key: str, name: str, *content: str | Iterable[str | None] | None) -> Markup:
    """Return a part of a page under a heading, which links find by its key."""
    return el("section", el("h2", name, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title")


def folded(key: str, name: str, *content: str | Iterable[str | None] | None) -> Markup:
    """Return a part of a page that is closed under its heading; a link into it opens it."""
    summary = el("summary", el("h2", name, id=f"{key}-title"))
    body = el("details", summary, el("div", *content, class_="inside"), class_="fold")
    return el("section", body, id=key, aria_labelledby=f"{key}-title")


def page(title: str, *content: str | None, style: str = "", script: str = "") -> str:
    """Return a self-contained page: no matter what its text says, it loads nothing and runs no other script.

    style   rules in addition to those that all pages share
    script  the only one that runs; "" for none
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        *([f"script-src 'sha256-{digest}'"] if script else []),
    ]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content="; ".join(allowed)),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(asset("style.css") + style)),
    )
    body = el("body", *content, el("script", Markup(script)) if script else None)
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def asset(name: str) -> str:
    """Return a text that belongs to the pages: their style, their script."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def _text(child: str | Iterable[str | None] | None) -> str:
    if child is None or isinstance(child, Markup):
        return child or ""
    if isinstance(child, str):
        return html.escape(_printable(abridged(child)), quote=False)
    return "".join(map(_text, child))


def _printable(text: str) -> str:
    """Return text without control characters, except for line breaks and tabs."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
