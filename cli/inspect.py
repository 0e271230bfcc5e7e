"""rnnconvert inspect: what a file holds, and where it can go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import (
    as_document,
    assumptions,
    complain,
    emit,
    format_option,
    put,
    setting,
    shown,
    size,
    styled,
    usual_first,
)
from rnnconvert.core.errors import RnnConvertError

if TYPE_CHECKING:
    from rnnconvert.files.checkpoint import Checkpoint
    from rnnconvert.files.convert import Verdict
    from rnnconvert.models.others import Other

_EPILOG = """\b
Examples:
  rnnconvert inspect model.h5
  rnnconvert inspect checkpoint.pt --targets
  rnnconvert inspect checkpoint.pt --targets onnx,keras
  rnnconvert inspect encoder.pt decoder.pt
  rnnconvert inspect model.onnx --json
  rnnconvert inspect - < model.onnx
"""

_MOST = 12
"""The most other layers and statements of a file that are shown without --verbose."""


class _Inspect(click.Command):
    """A command whose --targets may stand alone, or have formats after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a --targets without formats its own value: what follows it is then a path."""
        words: list[str] = []
        for at, word in enumerate(args):
            if words and words[-1] == "--targets":
                formats = _formats(word)
                words[-1] = f"--targets={word if formats else _ALL}"
                if formats:
                    continue
            words.append(word)
            if word == "--targets" and at == len(args) - 1:
                words[-1] = f"--targets={_ALL}"
        return super().parse_args(ctx, words)


_ALL = "all"


def _formats(word: str) -> list[str]:
    """Return the formats that a word lists; none if it is something else."""
    from rnnconvert.files.adapter import names

    listed = word.split(",")
    return listed if word == _ALL or set(listed) <= set(names()) else []


@click.command(cls=_Inspect, epilog=_EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@format_option("--from", "format", "Read PATH as this format; by default its content decides.")
@setting
@click.option(
    "--targets",
    metavar="[FORMAT,...]",
    shell_complete=completion.targets,
    help="For every format, or for those named: whether each layer fits exactly, by which rewrite, or why it is refused.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything for machines.")
@click.option("-v", "--verbose", is_flag=True, help="List the other tensors by name, too.")
def inspect(
    paths: tuple[str, ...],
    format: str | None,
    settings: tuple[str, ...],
    targets: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Show what each PATH holds: its format and why, each recurrent layer, and what the file leaves open. `-` is stdin."""
    from rnnconvert.files.adapter import adapter
    from rnnconvert.files.convert import load_with
    from rnnconvert.files.convert import targets as verdicts_of
    from rnnconvert.files.options import Options

    wanted = None if targets in (None, _ALL) else [adapter(name).NAME for name in str(targets).split(",")]
    documents, codes = [], [0]
    with incoming(*paths) as files:
        for path in files:
            options = Options(settings=settings)
            try:
                checkpoint = load_with(path, format, options)
                verdicts = verdicts_of(checkpoint, options, wanted) if targets else []
                options.check_used(path)
            except RnnConvertError as error:
                if len(paths) == 1:
                    raise
                codes.append(error.exit_code)
                documents.append({"path": path, "error": as_document(error)})
                complain(error, path, as_json)
                continue
            if as_json:
                documents.append(_document(checkpoint, verdicts, bool(targets)))
            else:
                _show(path, checkpoint, verdicts, verbose)
        if as_json:
            emit(documents if len(paths) > 1 else documents[0])
    click.get_current_context().exit(max(codes))


_VERDICTS = {"exact": "green", "rewritten": "yellow", "refused": "red"}


def _show(path: str, checkpoint: Checkpoint, verdicts: Sequence[Verdict], verbose: bool) -> None:
    from rnnconvert.models.others import others

    name = styled(path, "bold")
    put(f"{name}: {checkpoint.format} ({checkpoint.evidence[0].partition(': ')[2]})", hang=2)
    put(f"  {_stated(checkpoint, verbose)}")
    wide = max((len(verdict.target) for verdict in verdicts), default=0)
    for name, stack in checkpoint.layers.items():
        put(f"  {styled(shown(name), 'bold')}: {stack.describe()}, {stack.parameters:,} weights", hang=4)
        for verdict in usual_first((v for v in verdicts if v.layer == name), lambda one: one.target):
            word = styled(f"{verdict.verdict:9}", _VERDICTS[verdict.verdict])
            detail = verdict.detail.removeprefix(f"layer {name!r}: ")
            put(f"    {verdict.target:{wide}} {word} {detail}", hang=4 + wide + 11)
    if not checkpoint.layers:
        put("  no recurrent layers")
    count = len(checkpoint.tensors)
    put(f"  {count:,} other tensor{'' if count == 1 else 's'}{':' if count else ''}")
    found = others(checkpoint)
    for one in found if verbose else found[:_MOST]:
        put(f"    {one}")
        for tensor in one.tensors if verbose and (one.kind or len(one.tensors) > 1) else ():
            array = checkpoint.arrays.get(tensor, checkpoint.tensors.get(tensor))
            put(f"      {tensor}" + ("" if array is None else f" {tuple(array.shape)} {array.dtype}"))
    if len(found) > _MOST and not verbose:
        put(f"    and {len(found) - _MOST:,} more (-v lists them)")
    for text in checkpoint.evidence[1:] if verbose else ():
        put(f"  recognised: {text}")
    for line in assumptions(checkpoint.questions):
        put(f"  not in the file, {styled('assumed', 'yellow')}: {line}", hang=4)
    for warning in checkpoint.warnings:
        put(f"  {styled('warning', 'yellow')}: {warning}", hang=4)


def _stated(checkpoint: Checkpoint, verbose: bool) -> str:
    """Return the file's size and what it states about itself, on one line."""
    from rnnconvert.files.adapter import about

    stated = [f"{key} {value}" for key, value in about(checkpoint).items()]
    if not verbose:
        more = len(stated) - _MOST
        stated = [text if len(text) <= 80 else f"{text[:77]}..." for text in stated[:_MOST]]
        stated += [f"and {more:,} more (-v shows them)"] if more > 0 else []
    return "; ".join([size(_bytes(checkpoint)), *stated])


def _bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of a file, of a folder, or of the files that share the name of a checkpoint."""
    path = Path(checkpoint.path)
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.parent.glob("*") if one.name.startswith(f"{path.name}."))


def _document(checkpoint: Checkpoint, verdicts: Sequence[Verdict], show_targets: bool) -> dict[str, Any]:
    from dataclasses import asdict

    from rnnconvert.files.adapter import about
    from rnnconvert.models.others import others

    document: dict[str, Any] = {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "bytes": _bytes(checkpoint),
        "about": about(checkpoint),
        "evidence": list(checkpoint.evidence),
        "layers": [_layer(stack) for stack in checkpoint.layers.values()],
        "other_layers": [other_document(one) for one in others(checkpoint)],
        "other_tensors": {n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in checkpoint.tensors.items()},
        "questions": [asdict(question) for question in checkpoint.questions],
        "warnings": list(checkpoint.warnings),
    }
    if show_targets:
        document["targets"] = [asdict(verdict) for verdict in verdicts]
    return document


def other_document(other: Other) -> Mapping[str, Any]:
    """Return a layer that is not recurrent for machines."""
    from dataclasses import asdict

    return asdict(other)


def _layer(stack: Any) -> dict[str, Any]:
    return {
        "name": stack.name,
        "description": stack.describe(),
        "join": stack.join,
        "output_order": stack.output_order,
        "parameters": stack.parameters,
        "layers": [
            {"merge": layer.merge, "directions": [_direction(direction) for direction in layer.directions]}
            for layer in stack.layers
        ],
    }


def _direction(direction: Any) -> dict[str, Any]:
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
