"""rnnconvert inspect: what a file holds, and where it can go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.terminal import assumptions, complain, emit, setting
from rnnconvert.core.errors import RnnConvertError

if TYPE_CHECKING:
    from rnnconvert.files.checkpoint import Checkpoint
    from rnnconvert.files.convert import Verdict

_EPILOG = """\b
Examples:
  rnnconvert inspect model.h5
  rnnconvert inspect checkpoint.pt --targets
  rnnconvert inspect encoder.pt decoder.pt
  rnnconvert inspect model.onnx --json
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--from", "format", metavar="FORMAT", help="Read PATH as this format; by default its content decides.")
@setting
@click.option(
    "--targets",
    "show_targets",
    is_flag=True,
    help="For every format: whether each layer fits exactly, by which rewrite, or why it is refused.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything for machines.")
@click.option("-v", "--verbose", is_flag=True, help="List the other tensors by name, too.")
def inspect(
    paths: tuple[str, ...],
    format: str | None,
    settings: tuple[str, ...],
    show_targets: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Show what each PATH holds: its format and why, each recurrent layer, and what the file leaves open."""
    from rnnconvert.files.convert import load_with, targets
    from rnnconvert.files.options import Options

    documents, codes = [], [0]
    for path in paths:
        options = Options(settings=settings)
        try:
            checkpoint = load_with(path, format, options)
            verdicts = targets(checkpoint, options) if show_targets else []
            options.check_used(path)
        except RnnConvertError as error:
            if len(paths) == 1:
                raise
            codes.append(error.exit_code)
            documents.append({"path": path, "error": str(error), "exit_code": error.exit_code})
            complain(path, error, as_json)
            continue
        if as_json:
            documents.append(_document(checkpoint, verdicts, show_targets))
        else:
            _show(path, checkpoint, verdicts, verbose)
    if as_json:
        emit(documents if len(paths) > 1 else documents[0])
    click.get_current_context().exit(max(codes))


def _show(path: str, checkpoint: Checkpoint, verdicts: Sequence[Verdict], verbose: bool) -> None:
    click.echo(f"{path}: {checkpoint.format} ({checkpoint.evidence[0].partition(': ')[2]})")
    for name, stack in checkpoint.layers.items():
        click.echo(f"  {name or '(the module itself)'}: {stack.describe()}, {stack.parameters:,} weights")
        for verdict in (v for v in verdicts if v.layer == name):
            click.echo(f"    {verdict.target:8} {verdict.verdict:9} {verdict.detail}")
    if not checkpoint.layers:
        click.echo("  no recurrent layers")
    count = len(checkpoint.tensors)
    click.echo(f"  {count} other tensor{'' if count == 1 else 's'}")
    if verbose:
        for name, array in checkpoint.tensors.items():
            click.echo(f"    {name} {tuple(array.shape)} {array.dtype}")
        for text in checkpoint.evidence[1:]:
            click.echo(f"  recognised: {text}")
    for line in assumptions(checkpoint.questions):
        click.echo(f"  not in the file, assumed: {line}")
    for warning in checkpoint.warnings:
        click.echo(f"  warning: {warning}")


def _document(checkpoint: Any, verdicts: Any, show_targets: bool) -> dict[str, Any]:
    from dataclasses import asdict

    document: dict[str, Any] = {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "evidence": list(checkpoint.evidence),
        "layers": [_layer(stack) for stack in checkpoint.layers.values()],
        "other_tensors": {n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in checkpoint.tensors.items()},
        "questions": [asdict(question) for question in checkpoint.questions],
        "warnings": list(checkpoint.warnings),
    }
    if show_targets:
        document["targets"] = [asdict(verdict) for verdict in verdicts]
    return document


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
