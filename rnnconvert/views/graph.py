"""A whole model as a drawing: each layer a box with the shape that it gives, and a line for each tensor that a layer reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rnnconvert.reports.html_layer import scrolling
from rnnconvert.reports.markup import Markup, el
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Description, Node, Value

MOST_NODES = 120
"""The most nodes of a model that is drawn: more cannot be followed."""

_ROW, _TALL, _GAP, _LETTER, _NARROWEST, _LANE = 62, 40, 18, 7.1, 90, 12
"""In pixels: from row to row, the height of a box, the space between boxes, a letter, the narrowest box, a line that passes a row."""
_LETTERS = 26
"""The most letters of a line in a box."""


@dataclass(eq=False)
class _Box:
    """A box of the drawing, or the place at which a line passes a row.

    lines   what stands in the box; none for a place that a line passes
    kind    its class in the style
    link    the part of the page that shows its weights, ""
    above   the boxes whose tensors it reads
    """

    lines: tuple[str, ...] = ()
    kind: str = ""
    link: str = ""
    above: list[_Box] = field(default_factory=list)
    row: int = 0
    x: float = 0.0

    @property
    def width(self) -> float:
        return max(_NARROWEST, 20 + _LETTER * max(map(len, self.lines))) if self.lines else _LANE


def drawing(description: Description, links: Mapping[str, str]) -> Markup | None:
    """Draw a model from its inputs at the top to its outputs, or say that it is too large to follow; None for one without layers.

    links  the parts of the page that show layers, by the names under which `load` has them
    """
    scope = description.scope
    if not scope.nodes:
        return None
    if len(scope.nodes) > MOST_NODES:
        return el("p", f"too many to draw: {len(scope.nodes):,} layers and operations", class_="note")
    rows = _arranged(_boxes_of(scope, description, links))
    width = max(sum(box.width + _GAP for box in row) for row in rows) + _GAP
    _place(rows, width)
    height = len(rows) * _ROW
    boxes = [box for row in rows for box in row]
    lines = [_line(above, box) for box in boxes for above in box.above]
    frames = [piece for box in boxes if box.lines for piece in _frame(box)]
    name = f"{len(scope.nodes):,} layers and operations, the inputs at the top"
    picture = el(
        "svg",
        el("title", name),
        *lines,
        *frames,
        viewBox=f"0 {(_TALL - _ROW) // 2} {width:.0f} {height}",  # as much space above the first row as below the last
        width=f"{width:.0f}",
        height=height,
        role="img",
        class_="model",
    )
    return scrolling(picture, "Whole model")


def _boxes_of(scope: DescribedModel, description: Description, links: Mapping[str, str]) -> list[_Box]:
    """Return a box for each input and node of a model, each below all that it reads."""
    sources: dict[int, _Box] = {}
    boxes = []
    for value in scope.inputs:
        sources[id(value)] = box = _Box((_short(value.name), _shape(value, description)), "input")
        boxes.append(box)
    for node in scope.nodes:
        box = _Box(_lines(node, description), _kind(node), _link(node, description, links))
        for value in node.reads():
            source = sources.get(id(value))
            if source is not None and source not in box.above:
                box.above.append(source)
        box.row = 1 + max((source.row for source in box.above), default=0)
        sources.update((id(value), box) for value in node.outputs)
        boxes.append(box)
    return boxes


def _arranged(boxes: Iterable[_Box]) -> list[list[_Box]]:
    """Return boxes row by row, with a place in each row that a line passes; each stands near the middle of those above it."""
    rows: list[list[_Box]] = []
    lanes: dict[tuple[int, int], _Box] = {}
    for box in sorted(boxes, key=lambda box: box.row):
        rows += [[] for _ in range(box.row + 1 - len(rows))]
        for number, above in enumerate(box.above):
            for passed in range(above.row + 1, box.row):
                lane = lanes.get((id(above), passed)) or _Box(above=[above], row=passed)
                if (id(above), passed) not in lanes:
                    lanes[id(above), passed] = lane
                    rows[passed].append(lane)
                above = lane
            box.above[number] = above
        rows[box.row].append(box)
    for upper, row in pairwise(rows):
        order = {id(box): number / max(len(upper) - 1, 1) for number, box in enumerate(upper)}
        row.sort(key=lambda box: sum(order[id(above)] for above in box.above) / max(len(box.above), 1))
    return rows


def _place(rows: Sequence[Sequence[_Box]], width: float) -> None:
    """Give boxes their middles, each row in the middle of the drawing."""
    for row in rows:
        left = (width - sum(box.width + _GAP for box in row)) / 2
        for box in row:
            box.x = left + (box.width + _GAP) / 2
            left += box.width + _GAP


def _line(above: _Box, box: _Box) -> Markup:
    """Draw the line of a tensor from the foot of a box to the head of another, through the places that it passes."""
    start = above.row * _ROW + (_TALL if above.lines else _ROW)
    end = box.row * _ROW
    through = f"V{end + _ROW}" if not box.lines else ""
    return el("path", d=f"M{above.x:.1f} {start}C{above.x:.1f} {end - 8} {box.x:.1f} {start + 8} {box.x:.1f} {end}{through}")


def _frame(box: _Box) -> list[Markup]:
    top, left = box.row * _ROW, box.x - box.width / 2
    rect = el("rect", x=f"{left:.1f}", y=top + 0.5, width=f"{box.width:.1f}", height=_TALL, rx=6, class_=box.kind or None)
    texts = [
        el("text", text, x=f"{box.x:.1f}", y=top + 17 + 16 * number, class_="small" if number else None)
        for number, text in enumerate(box.lines)
    ]
    return [rect, texts[0] if not box.link else el("a", texts[0], href=f"#{box.link}"), *texts[1:]]


def _lines(node: Node[kinds.Kind], description: Description) -> tuple[str, str]:
    """Return the text in the box of a node: its layer, or its operation, and the shape of its output."""
    shape = _shape(node.y, description)
    if not node.layer:
        return _short(node.kind.title), shape
    return _short(node.label), f"{node.kind.word} {shape}"


def _kind(node: Node[kinds.Kind]) -> str:
    if isinstance(node.kind, kinds.LeftOut):
        return "unknown"
    return "recurrent" if isinstance(node.kind, kinds.Recurrent | kinds.ConvLSTM) else "" if node.layer else "plain"


def _link(node: Node[kinds.Kind], description: Description, links: Mapping[str, str]) -> str:
    names = (node.layer, *description.names.get(node.layer, ()))
    return next((links[name] for name in names if name in links), "") if isinstance(node.kind, kinds.Recurrent) else ""


def _shape(value: Value, description: Description) -> str:
    """Return the axes of a tensor: numbers, and what is known of those that are open."""
    if not value.sized:
        return ""
    words = [description.roles.get(word) or description.words.get(word) or "?" for word in value.axes or [""] * len(value.shape)]
    return " \N{MULTIPLICATION SIGN} ".join(
        word if length is None else f"{length:,}" for length, word in zip(value.shape, words, strict=False)
    )


def _short(text: str) -> str:
    """Return text that fits into a box: of a long name the end tells it from others."""
    return text if len(text) <= _LETTERS else f"\N{HORIZONTAL ELLIPSIS}{text[1 - _LETTERS :]}"
