"""`rnnconvert view` and `rnnconvert.view`: a checkpoint, or two side by side, as a page or a picture."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.containers.files import check_target, replacing
from rnnconvert.core.errors import RnnConvertError, UsageError
from rnnconvert.core.printable import called
from rnnconvert.core.verdict import Verdict
from rnnconvert.core.weights import Recurrent
from rnnconvert.diagnosis.findings import Comparison
from rnnconvert.diagnosis.two_files import diff
from rnnconvert.files.arrays_by_name import in_memory
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.in_memory import PathLike, Source
from rnnconvert.files.load import load, select
from rnnconvert.files.questions import assumptions
from rnnconvert.files.settings import as_settings
from rnnconvert.models.inspection import Inspection, amount
from rnnconvert.reports.markup import Markup, el, section
from rnnconvert.reports.words import digits_of
from rnnconvert.scaffolding.sources import described_source
from rnnconvert.views import graph, page, picture
from rnnconvert.views.measured import ArrayView, DirectionView, difference, matrices, measured
from rnnconvert.views.spectral import EigenvalueBudget

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import ReadOptions

SIDE = 128
"""The most rows and columns of a heat map."""

CELLS = 3_000_000
"""The most cells of all heat maps of a page: of many matrices, each has fewer."""

_SMALLEST = 8
_LINES = 3
"""The most sentences about a layer that are shown unfolded."""
_MOST = 12
"""The most differences of a layer that are shown as heat maps."""

FORMS = (".html", ".svg", ".png", ".pdf")
"""The endings of what a view is written as."""


@dataclass(frozen=True, repr=False)
class View:
    """A view of the recurrent layers of a checkpoint.

    checkpoint  the file as it was read
    other       the comparison with a second checkpoint, or None
    """

    checkpoint: Checkpoint
    other: Comparison | None = None

    def page(self) -> str:
        """Return one self-contained page of HTML."""
        return _compared(self.other) if self.other is not None else _single(self.checkpoint)

    def write(self, path: PathLike, *, force: bool = False) -> None:
        """Write the page, or by the path's ending a picture: .html, .svg, .png or .pdf.

        Raises UsageError for another ending or an existing file, and MissingPackageError where a picture needs matplotlib.
        """
        target = Path(path)
        check(target, force)
        if target.suffix.lower() == ".html":
            text = self.page().encode("utf-8", "backslashreplace")
        else:
            text = picture.draw(self._stacks(), target.suffix.lower()[1:], self.checkpoint.path)
        with replacing(target) as file:
            file.write(text)

    def _stacks(self) -> list[Recurrent]:
        if self.other is None:
            return list(self.checkpoint.layers.values())
        return [stack for layer in self.other.layers for stack in (layer.pair.stack, layer.pair.counterpart)]

    def __repr__(self) -> str:
        other = f" beside {self.other.b.path}" if self.other is not None else ""
        return f"<View of {repr(self.checkpoint)[1:-1]}{other}>"

    def _repr_html_(self) -> str:
        """Return the page in a separate frame, for a notebook."""
        return f'<iframe srcdoc="{html.escape(self.page())}" style="width:100%;height:40rem;border:0"></iframe>'


def check(target: Path, force: bool) -> None:
    """Raise UsageError if a view cannot be written to a path."""
    if target.suffix.lower() not in FORMS:
        raise UsageError(f"{target}: a view is written as one of {', '.join(FORMS)}. Choose a name that ends so")
    check_target(target, force)


def view(
    source: Source | Checkpoint | Recurrent,
    other: Source | Checkpoint | Recurrent | None = None,
    *,
    layers: Sequence[str] | str = (),
    pairs: Sequence[str] | str = (),
    source_format: str | None = None,
    other_format: str | None = None,
    settings: Iterable[str] = (),
    **options: Unpack[ReadOptions],
) -> View:
    """Return a view of the recurrent layers of a checkpoint, or of two side by side.

    source, other  sources, as `load` takes them, or checkpoints that were read, or layers
    layers         only these; one name, or several
    pairs          for two: "A=B", a layer of the one and one of the other, as `diff` takes them
    settings, options  as `load` takes them; for two, settings for both

    Raises the errors of `load` and `diff`.

        >>> import rnnconvert as rc
        >>> rc.view("examples/encoder.keras").page()[:15]
        '<!doctype html>'
    """
    words = [*settings, *as_settings(options)]
    if isinstance(source, Recurrent):
        source = in_memory(source)
    if isinstance(other, Recurrent):
        other = in_memory(other)
    if other is not None:
        comparison = diff(source, other, layers=layers, pairs=pairs, format_a=source_format, format_b=other_format, settings=words)
        return View(comparison.a, comparison)
    if pairs:
        raise UsageError("pairs name a layer of each of two files, but one file is given. Give the other file, too")
    if not isinstance(source, Checkpoint):
        source = load(source, source_format, words)
    elif words or source_format is not None:
        raise UsageError("source_format and settings decide how a file is read, but it is read already. Give them to load")
    return View(select(source, layers) if layers else source)


def _side(count: int) -> int:
    """Return the most rows and columns of each of so many heat maps; 0 where each would be too small to see."""
    side = int(min(SIDE, (CELLS / max(count, 1)) ** 0.5))
    return side if side >= _SMALLEST else 0


def _single(checkpoint: Checkpoint) -> str:
    stacks, work = list(checkpoint.layers.values()), EigenvalueBudget()
    side = _side(sum(map(matrices, stacks)))
    measured_stacks = [(number, stack, list(measured(stack, side, work))) for number, stack in enumerate(stacks)]
    inspection = Inspection(checkpoint)
    total = sum(stack.parameters for stack in stacks)
    facts = [
        ("format", checkpoint.format),
        ("recurrent layers", f"{len(stacks):,}"),
        ("recurrent weights", f"{total:,}"),
        ("other arrays", f"{len(checkpoint.tensors):,}"),
        ("file", amount(inspection.size)),
    ]
    lead = "; ".join(f"{key} {value}" for key, value in list(inspection.about.items())[:6])
    notes = [f"not in the file, assumed: {line}" for line in assumptions(checkpoint.questions)] + list(checkpoint.warnings)
    layers = [page.layer(number, len(stacks), stack, ways) for number, stack, ways in measured_stacks]
    if not side and stacks:
        notes.append(f"there are {sum(map(matrices, stacks)):,} matrices: too many for heat maps. View some layers only")
    others = [str(tensor) for tensor in inspection.others[:200]]
    links = {stack.name: page.anchor(number) for number, stack, _ in measured_stacks}
    return page.to_page(
        checkpoint.path,
        lead,
        facts,
        section("notes", "Notes", _listed(notes)) if notes else None,
        page.overview(measured_stacks) if measured_stacks else section("overview", "Recurrent layers", el("p", "There are none.")),
        _whole_models([(checkpoint, links)]),
        section("layers", "Layer by layer", layers) if layers else None,
        section("others", "Other layers and arrays", _listed(others)) if others else None,
    )


def _compared(comparison: Comparison) -> str:
    pairs = [layer.pair for layer in comparison.layers]
    side = _side(3 * sum(matrices(pair.stack) for pair in pairs))
    work, parts = EigenvalueBudget(), []
    links: list[dict[str, str]] = [{}, {}]
    for number, compared in enumerate(comparison.layers):
        a, b = compared.pair.stack, compared.pair.counterpart
        name = f"{called(compared.pair.name)} = {' + '.join(map(called, compared.pair.names))}"
        lines = list(comparison.lines_of(compared))
        body: list[Markup | None] = [_listed(lines[:_LINES]), _folded(lines[_LINES:])]
        ways = [list(measured(stack, side, work)) for stack in (a, b)]
        for first, second in zip(*ways, strict=False):
            body += _pair_of_ways(a, first, second, side)
        summary = el("summary", el("h3", name), el("span", Verdict.of(equal=compared.equal, compared=True).word, class_="what"))
        tone = "layer" if compared.equal else "layer bad"
        unfolded = len(pairs) <= 3 or not compared.equal
        parts.append(el("details", summary, el("div", body, class_="body"), class_=tone, id=page.anchor(number), open=unfolded))
        for names, linked in zip(((compared.pair.name,), compared.pair.names), links, strict=True):
            linked.update(dict.fromkeys(names, page.anchor(number)))
    others = [*comparison.others.different, *comparison.others.settings]
    facts = [
        ("recurrent layers compared", f"{len(pairs):,}"),
        ("of these not equal", f"{sum(not layer.equal for layer in comparison.layers):,}"),
        ("other layers that differ", f"{len(others):,}"),
    ]
    return page.to_page(
        f"{comparison.a.path} and {comparison.b.path}",
        str(comparison).splitlines()[-1],
        facts,
        section("others", "Other layers that differ", _listed(others)) if others else None,
        section("layers", "Layer by layer", parts) if parts else section("layers", "Layer by layer", el("p", "There are none.")),
        _whole_models([(comparison.a, links[0]), (comparison.b, links[1])]),
        verdict=comparison.verdict.word,
        are_equal=all(layer.equal for layer in comparison.layers),
    )


def _whole_models(files: Sequence[tuple[Checkpoint, Mapping[str, str]]]) -> Markup | None:
    """Draw the models of files that state one, side by side; None where no file does.

    files  each with the parts of the page that show its recurrent layers, by their names
    """
    figures = [el("figure", el("figcaption", file.path), picture) for file, links in files if (picture := _whole_model(file, links))]
    return (
        section("model", "The whole model" if len(files) == 1 else "The whole models", el("div", figures, class_="models"))
        if figures
        else None
    )


def _whole_model(file: Checkpoint, links: Mapping[str, str]) -> Markup | None:
    """Draw the model that a file states; None for weights alone, for layers in memory, and where the model is unknown."""
    if not Path(file.file).exists():
        return None
    try:
        description = described_source(Path(file.file), True).description
    except RnnConvertError:
        return None
    return graph.drawing(description, links)


def _pair_of_ways(stack: Recurrent, a: DirectionView, b: DirectionView, side: int) -> list[Markup | None]:
    """Return the arrays of two directions that differ, side by side with their difference, the largest first."""
    others = {part.key: part for part in b.parts}
    rows: list[tuple[float, ArrayView, ArrayView, ArrayView]] = []
    for part in a.parts:
        other = others.get(part.key)
        if other is not None and other.shape == part.shape:
            off = difference(a.direction.arrays[part.key], b.direction.arrays[part.key], side)
            if off.norm > 0 or off.not_finite:
                rows.append((off.norm / (part.norm or 1.0), part, other, off))
    rows.sort(key=lambda row: -row[0])
    where = page.place(stack, a)
    parts: list[Markup | None] = [el("h4", where) if where and rows else None]
    for share, part, other, off in rows[:_MOST]:
        name = part.key[0].replace("_", " ") + (f" of gate {part.key[1]}" if part.key[1] else "")
        figures = [page.figure(part, f"A: {name}"), page.figure(other, f"B: {name}"), page.figure(off, "B minus A")]
        parts += [el("p", f"{name}: the difference has {digits_of(100 * share, 3)} % of A's norm"), el("div", figures, class_="beside")]
    if len(rows) > _MOST:
        parts.append(el("p", f"{len(rows) - _MOST:,} more arrays differ, by less than these", class_="note"))
    return parts


def _folded(lines: Sequence[str]) -> Markup | None:
    return el("details", el("summary", f"{len(lines):,} more"), _listed(lines)) if lines else None


def _listed(lines: Sequence[str]) -> Markup:
    return el("ul", [el("li", line) for line in lines])
