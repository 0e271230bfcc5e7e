"""XML without what XML may do: no document type, so no entities and no other files; depth and number of elements are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.limits import NESTING, PROGRAM_BYTES

_LONGEST_NUMBER = 32


_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold (2.2), not even by their numbers."""


def attribute(value: str) -> str:
    """Return a text as the value of an attribute, in quotes; what XML cannot hold is spelled out, by its number."""
    return quoteattr(_FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], value))


@dataclass
class XmlElement:
    """An element: its tag, its attributes, the elements in it, and of the text in it as much as a number needs."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)

    def first(self, tag: str) -> XmlElement | None:
        """Return the first element of that tag in this one."""
        return next(self.every(tag), None)

    def every(self, tag: str) -> Iterator[XmlElement]:
        """Yield the elements of that tag in this one."""
        return (child for child in self.children if child.tag == tag)


def read(path: Path) -> XmlElement:
    """Return the root of a file.

    Raises UnreadableError for what is not XML, and for a document type, which may define entities.
    """
    content = read_small(path, PROGRAM_BYTES)
    reading = charging(len(content))
    top = XmlElement("", {})
    open_ones = [top]
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        reading.work(1 + len(attributes), path)
        if len(open_ones) > NESTING:
            raise UnreadableError(path, f"its elements are nested more than {NESTING} deep")
        element = XmlElement(tag, attributes)
        open_ones[-1].children.append(element)
        open_ones.append(element)

    def refuse(*_: object) -> None:
        raise UnreadableError(path, "it has a document type, which a model does not need and which may define entities")

    def text(piece: str) -> None:
        last = open_ones[-1]
        if len(last.text) < _LONGEST_NUMBER:
            last.text += piece[:_LONGEST_NUMBER]

    parser.StartElementHandler = start
    parser.CharacterDataHandler = text
    parser.EndElementHandler = lambda tag: open_ones.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except RnnConvertError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # an encoding that expat does not know, too
        raise UnreadableError(path, f"it is not XML: {error}") from None
    return top.children[0]
