"""Pictures of a report: error against time step, and error by gate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rnnconvert.reports.markup import Markup, el
from rnnconvert.reports.words import Document, digits_of, rank, used, value

WIDTH, HEIGHT = 380, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 374, 36, 198
_POINTS = 120
"""The most points of a curve; longer sequences are drawn by the largest of several steps."""
_DECADES = 18
_SUPERSCRIPT = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


@dataclass(frozen=True)
class _Point:
    """One or more time steps: the first and last of them, and the largest of each curve."""

    first: int
    last: int
    error: float
    allowed: float
    floor: float

    @property
    def over(self) -> bool:
        return not self.error <= self.allowed


@dataclass(frozen=True)
class _Axes:
    """Where a number lies in the picture.

    low, high  decades at the ends of the axis of errors
    zero       whether something is zero, which lies below the lowest decade
    endless    whether something is not finite, which lies above the highest
    count      points along the axis of time
    """

    low: int
    high: int
    zero: bool
    endless: bool
    count: int

    def x(self, number: float) -> float:
        return (_LEFT + _RIGHT) / 2 if self.count == 1 else _LEFT + 8 + (_RIGHT - _LEFT - 16) * number / (self.count - 1)

    def y(self, error: float) -> float:
        low, high = self.low - self.zero, self.high + self.endless
        at: float
        if error <= 0:
            at = low
        elif math.isfinite(error):
            at = math.log10(error)
        else:
            at = high
        at = max(at, self.low) if error > 0 else at
        return _BOTTOM - (_BOTTOM - _TOP) * (min(at, high) - low) / (high - low)


def steps_plot(comparison: Document, name: str) -> Markup | None:
    """Draw error against time step, with the allowed error and the noise floor; None where there are no steps."""
    points = _points(comparison["steps"] or {})
    if not points:
        return None
    axes = _axes(points)
    title = f"{name}: largest error {digits_of(comparison['error'])}, {used(comparison)}"
    return el(
        "svg",
        el("title", title),
        *_grid(axes, points),
        _curve(axes, [point.floor for point in points], "floor"),
        _curve(axes, [point.allowed for point in points], "allowed"),
        _curve(axes, [point.error for point in points], "error"),
        *_marks(axes, points),
        *_legend(),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="plot",
    )


def gate_bars(comparison: Document) -> Markup | None:
    """Draw the largest error by gate as bars from zero; None where there are no gates."""
    gates = comparison["gates"]
    if not gates:
        return None
    top = max((value(error) for error in gates.values() if math.isfinite(value(error))), default=0.0)
    full = 100.0 if all(math.isfinite(value(error)) for error in gates.values()) else 70.0  # what is endless is longer
    rows = []
    for gate, error in gates.items():
        if not math.isfinite(value(error)):
            length = 100.0
        elif top:
            length = full * value(error) / top
        else:
            length = 0.0
        bar = el("span", class_="bar", style=f"width:{max(length, 0.5):.1f}%")
        rows.append(el("tr", el("th", gate, scope="row"), el("td", bar, class_="barbox"), _number(digits_of(error))))
    head = el("tr", el("th", "gate", scope="col"), el("th", "largest error", scope="col", colspan=2))
    return el("table", el("thead", head), el("tbody", rows), class_="bars")


def _number(text: str) -> Markup:
    return el("td", text, class_="n")


def _points(steps: dict[str, Sequence[object]]) -> list[_Point]:
    """Return the steps, or the largest of every few of them."""
    points = list(zip(steps.get("error", ()), steps.get("allowed", ()), steps.get("floor", ()), strict=False))
    size = max(1, -(-len(points) // _POINTS))
    return [_point(start, points[start : start + size]) for start in range(0, len(points), size)]


def _point(start: int, group: Sequence[tuple[object, object, object]]) -> _Point:
    """Return the step of a group that uses the largest share of its allowed error, which stands for all."""
    error, allowed, floor = max(group, key=_part)
    return _Point(start, start + len(group) - 1, rank(error), rank(allowed), rank(floor))


def _part(step: tuple[object, object, object]) -> float:
    error, allowed = rank(step[0]), rank(step[1])
    return error / allowed if allowed and math.isfinite(error) and math.isfinite(allowed) else error


def _axes(points: list[_Point]) -> _Axes:
    numbers = [number for point in points for number in (point.error, point.allowed, point.floor)]
    finite = [number for number in numbers if 0 < number < math.inf]
    high = math.ceil(math.log10(max(finite)) + 0.1) if finite else 0
    low = max(math.floor(math.log10(min(finite)) - 0.1), high - _DECADES) if finite else -1
    low = min(low, high - 2)
    return _Axes(low, high, min(numbers) <= 0, math.inf in numbers, len(points))


def _grid(axes: _Axes, points: list[_Point]) -> Iterator[Markup]:
    """Draw the lines and names of both axes."""
    every = max(1, -(-(axes.high - axes.low) // 6))
    ticks = [(axes.y(10.0**decade), f"10{str(decade).translate(_SUPERSCRIPT)}") for decade in range(axes.low, axes.high + 1, every)]
    ticks += [(axes.y(0.0), "0")] if axes.zero else []
    ticks += [(axes.y(math.inf), "\N{INFINITY}")] if axes.endless else []
    for y, text in ticks:
        yield el("line", x1=_LEFT, x2=_RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid")
        yield el("text", text, x=_LEFT - 7, y=f"{y + 4:.1f}", text_anchor="end")
    every = max(1, -(-len(points) // 8))
    for number in range(0, len(points), every):
        yield el("text", str(points[number].first), x=f"{axes.x(number):.1f}", y=_BOTTOM + 17, text_anchor="middle")
    size = points[0].last - points[0].first + 1
    steps = "time step" if size == 1 else f"time step (each point: the worst of {size} steps)"
    yield el("text", steps, x=(_LEFT + _RIGHT) // 2, y=HEIGHT - 8, text_anchor="middle", class_="axis")
    middle = (_TOP + _BOTTOM) // 2
    yield el("text", "absolute error", x=0, y=0, text_anchor="middle", class_="axis", transform=f"translate(10 {middle}) rotate(-90)")


def _curve(axes: _Axes, numbers: list[float], kind: str) -> Markup:
    """Draw one curve; a single point becomes a line across."""
    places = [(axes.x(number), axes.y(height)) for number, height in enumerate(numbers)]
    if len(places) == 1:
        places = [(_LEFT, places[0][1]), (_RIGHT, places[0][1])]
        if kind == "error":
            return Markup("")
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return el("path", d=path, class_=kind)


def _marks(axes: _Axes, points: list[_Point]) -> Iterator[Markup]:
    """Draw a mark for each error, a cross where it is more than allowed, with its numbers as a tooltip."""
    radius, arm = (3, 4) if len(points) <= 60 else (1.5, 2)
    for number, point in enumerate(points):
        x, y = axes.x(number), axes.y(point.error)
        steps = f"step {point.first}" if point.first == point.last else f"worst of steps {point.first} to {point.last}"
        title = f"{steps}: error {digits_of(point.error)}, allowed {digits_of(point.allowed)}, noise floor {digits_of(point.floor)}"
        if point.over:
            cross = f"M{x - arm:.1f} {y - arm:.1f}l{2 * arm} {2 * arm}m0 -{2 * arm}l-{2 * arm} {2 * arm}"
            yield el("path", el("title", title), d=cross, class_="cross")
        else:
            yield el("circle", el("title", title), cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, class_="dot")


def _legend() -> Iterator[Markup]:
    for x, kind, text in ((_LEFT, "error", "error"), (120, "allowed", "allowed"), (203, "floor", "noise floor")):
        yield el("path", d=f"M{x} 13h20", class_=kind)
        if kind == "error":
            yield el("circle", cx=x + 10, cy=13, r=3, class_="dot")
        yield el("text", text, x=x + 25, y=17)
    yield el("path", d="M304 9l8 8m0 -8l-8 8", class_="cross")
    yield el("text", "too large", x=318, y=17)
