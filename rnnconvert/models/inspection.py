"""The content of a file and the targets of its layers: `rnnconvert inspect`, and `rnnconvert.inspect` in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import for_user
from rnnconvert.core.printable import called, quoted
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.files import convert as conversion
from rnnconvert.files.adapter import about, adapter
from rnnconvert.files.checkpoint import Checkpoint, suspects
from rnnconvert.files.convert import Convertibility
from rnnconvert.files.in_memory import Source
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.files.questions import assumptions
from rnnconvert.models.others import NonRecurrentPart, others

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import ReadOptions

Paint = Callable[[str, str], str]
"""Returns a text in a colour, or in bold."""
COLOURS = {"exact": "green", "rewritten": "yellow", "refused": "red"}
_MOST = 12
"""The most other layers and statements of a file that are shown where the text is not verbose."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """The content of a file, and the targets of its layers.

    checkpoint  the file as it was read
    targets     for each layer and format that was asked for: exactly, by which rewrite, or why it is refused
    """

    checkpoint: Checkpoint
    targets: Sequence[Convertibility] = ()
    asked: bool = field(default=False, compare=False)

    @cached_property
    def about(self) -> dict[str, str]:
        """The file's statements about itself: the framework and its version, producer, epoch and the like."""
        return about(self.checkpoint)

    @cached_property
    def others(self) -> list[NonRecurrentPart]:
        """The layers that are not recurrent, the arrays of no layer, and groups of other arrays."""
        return others(self.checkpoint)

    @cached_property
    def size(self) -> int:
        """How many bytes the file has, or all files of its folder or name."""
        path = Path(self.checkpoint.file)
        if path.is_dir():
            return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if path.is_file():
            return path.stat().st_size
        return sum(file.stat().st_size for file in path.parent.glob("*") if file.name.startswith(f"{path.name}."))

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        checkpoint = self.checkpoint
        document: dict[str, Any] = {
            "path": checkpoint.path,
            "format": checkpoint.format,
            "bytes": self.size,
            "about": self.about,
            "evidence": list(checkpoint.evidence),
            "layers": [_layer(stack) for stack in checkpoint.layers.values()],
            "other_layers": [asdict(other) for other in self.others],
            "other_tensors": {n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in checkpoint.tensors.items()},
            "questions": [asdict(question) for question in checkpoint.questions],
            "warnings": list(checkpoint.warnings),
        }
        return {**document, "targets": [asdict(verdict) for verdict in self.targets]} if self.asked else document

    def lines(self, verbose: bool = False, paint: Paint = lambda text, _: text) -> Iterator[tuple[str, int]]:
        """Yield the text line by line, each with the columns that its continuation is indented.

        verbose  list the other tensors and the evidence, too
        """
        checkpoint = self.checkpoint
        yield f"{paint(checkpoint.path, 'bold')}: {checkpoint.format} ({checkpoint.evidence[0].partition(': ')[2]})", 2
        yield f"  {self._stated(verbose)}", 4
        wide = max((len(verdict.target) for verdict in self.targets), default=0)
        for name, stack in checkpoint.layers.items():
            yield f"  {paint(called(name), 'bold')}: {stack.describe()}, {stack.parameters:,} weights", 4
            first: dict[str, str] = {}  # of each reason the target that it was told of
            for verdict in (verdict for verdict in self.targets if verdict.layer == name):
                word = paint(f"{verdict.verdict:9}", COLOURS[verdict.verdict])
                detail = verdict.detail.removeprefix(f"layer {name!r}: ")
                holder, _, reason = detail.partition(" cannot hold ")
                if reason and first.setdefault(reason, verdict.target) != verdict.target:
                    detail = f"{holder} cannot hold it either: as for {first[reason]}"
                yield f"    {verdict.target:{wide}} {word} {detail}", 4 + wide + 11
        if not checkpoint.layers:
            named = suspects(checkpoint)
            why = f", though {quoted(named[0])} is named as an array of one" if named and not checkpoint.unread else ""
            yield f"  no recurrent layer{' could be read' if named or checkpoint.unread else 's'}{why}", 4
        yield from self._others(verbose)
        for text in checkpoint.evidence[1:] if verbose else ():
            yield f"  recognised: {text}", 4
        for line in assumptions(checkpoint.questions):
            yield f"  not in the file, {paint('assumed', 'yellow')}: {line}", 4
        for warning in checkpoint.warnings:
            yield f"  {paint('warning', 'yellow')}: {warning}", 4

    def _others(self, verbose: bool) -> Iterator[tuple[str, int]]:
        checkpoint, count = self.checkpoint, len(self.checkpoint.tensors)
        yield f"  {count:,} other tensor{'' if count == 1 else 's'}{':' if count else ''}", 4
        for other in self.others if verbose else self.others[:_MOST]:
            yield f"    {other}", 6
            for tensor in other.tensors if verbose and (other.kind or len(other.tensors) > 1) else ():
                array = checkpoint.arrays.get(tensor, checkpoint.tensors.get(tensor))
                yield f"      {tensor}" + ("" if array is None else f" {tuple(array.shape)} {array.dtype}"), 8
        if len(self.others) > _MOST and not verbose:
            yield f"    and {len(self.others) - _MOST:,} more (-v lists them)", 6

    def _stated(self, verbose: bool) -> str:
        """Return the file's size and what it states about itself, on one line."""
        stated = [f"{key} {value}" for key, value in self.about.items()]
        if not verbose:
            more = len(stated) - _MOST
            stated = [text if len(text) <= 80 else f"{text[:77]}..." for text in stated[:_MOST]]
            stated += [f"and {more:,} more (-v shows them)"] if more > 0 else []
        return "; ".join([amount(self.size), *stated])

    def __repr__(self) -> str:
        return f"<Inspection of {repr(self.checkpoint)[1:-1]}>"

    def __str__(self) -> str:
        return for_user("\n".join(line for line, _ in self.lines()))

    def _repr_html_(self) -> str:
        """Return a table of what the file holds, the targets that were asked for and the other tensors, for a notebook."""
        from rnnconvert.core.notebook import listing

        checkpoint = self.checkpoint
        rows = [("file", self._stated(False))]
        for name, stack in checkpoint.layers.items():
            rows.append((called(name), f"{stack.describe()}, {stack.parameters:,} weights"))
            rows += [
                (f"{called(name)} to {verdict.target}", f"{verdict.verdict} {verdict.detail}".strip())
                for verdict in self.targets
                if verdict.layer == name
            ]
        rows += [("other tensors", str(other)) for other in self.others[:_MOST]]
        left = len(self.others) - _MOST
        rows += [("other tensors", f"and {left:,} more, in .others")] if left > 0 else []
        rows += [("assumed", line) for line in assumptions(checkpoint.questions)]
        rows += [("warning", warning) for warning in checkpoint.warnings]
        return listing(f"{checkpoint.path}: {checkpoint.format}", rows)


def inspect(
    source: Source,
    source_format: str | None = None,
    *,
    targets: bool | str | Sequence[str] = False,
    settings: Iterable[str] = (),
    **options: Unpack[ReadOptions],
) -> Inspection:
    """Return the content of a file: its format and the evidence, each recurrent layer, the other layers, and what the file leaves open.

    targets  formats, or True for every one: whether each layer goes there exactly, by which rewrite, or why it is refused

    The other arguments, and the errors, are as for `load`.

        >>> import rnnconvert as rc
        >>> inspection = rc.inspect("examples/decoder.keras", targets="pytorch")
        >>> inspection
        <Inspection of Checkpoint examples/decoder.keras (keras): 1 layer>
        >>> inspection.targets[0].verdict
        'refused'
    """
    return inspect_with(source, source_format, Options(options, settings), targets)


def inspect_with(source: Source, source_format: str | None, options: Options, targets: bool | str | Sequence[str]) -> Inspection:
    """Inspect a file as `inspect` does, with a ledger of options."""
    checkpoint = load_with(source, source_format, options)
    names = targets.split(",") if isinstance(targets, str) else targets
    wanted = None if isinstance(names, bool) else [adapter(name).NAME for name in names]
    verdicts = conversion.targets(checkpoint, options, wanted) if targets else []
    options.ledger.check_used(checkpoint.path)
    return Inspection(checkpoint, verdicts, bool(targets))


def amount(count: int) -> str:
    """Return a number of bytes as people read it."""
    number, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:,.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"


def _layer(stack: Recurrent) -> dict[str, Any]:
    return {
        "name": stack.name,
        "description": stack.describe(),
        "join": stack.join,
        "output_order": stack.output_order,
        "parameters": stack.parameters,
        "layers": [
            {"merge": layer.merge, "directions": [_direction(direction) for direction in layer.directions]} for layer in stack.layers
        ],
    }


def _direction(direction: Direction) -> dict[str, Any]:
    cell = direction.cell
    return {
        "cell": cell.kind,
        "reset_after": cell.reset_after,
        "reverse": direction.reverse,
        "input_size": direction.input_size,
        "hidden_size": direction.hidden_size,
        "projection_size": direction.projection_size,
        "biases": direction.biases,
        "dtype": str(direction.dtype),
        "activation": str(cell.activation),
        "gate_activation": str(cell.gate_activation),
        "output_activation": str(cell.output_activation) if cell.kind == "lstm" else None,
        "unusual": cell.describe(),
        "peepholes": direction.has_peepholes,
        "learned_initial_state": any(part.startswith("initial") for part, _ in direction.arrays),
    }
