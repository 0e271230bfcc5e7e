"""rnnconvert identify: what weights of unknown origin are."""

from __future__ import annotations

from pathlib import Path

import click

from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import emit, put, say
from rnnconvert.cli.verbosity import is_quiet

_EPILOG = """\b
Examples:
  rnnconvert identify weights.npz
  rnnconvert identify weights.npz --io sample.npz
  rnnconvert identify buffer.npy --io sample.npz --json
  rnnconvert identify weights.npz --io sample.npz -o found.toml
  rnnconvert convert weights.npz model.onnx --layout found.toml

\b
Exit codes: 0 identified, or candidates listed where no sample was given; 1 ambiguous, near or unknown; 2 to 5 as elsewhere.
"""


@click.command(epilog=_EPILOG)
@click.argument("weights", type=click.Path(allow_dash=True))
@click.option(
    "--io",
    "sample",
    metavar="SAMPLE.npz",
    type=click.Path(),
    help="An input of the layer and what it gave: the arrays input and output, and where known h0, c0, h_n, c_n, lengths.",
)
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE.toml", help="Write the layout that was found, for --layout."
)
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(1), help="How long the search may take."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything for machines.")
def identify(weights: str, sample: str | None, output: str | None, seconds: float, as_json: bool) -> None:
    """Find out what the arrays in WEIGHTS are, whatever they are called: which part and gate each is, and what the cell computes.

    With a sample, the conventions of all known layouts and their mixtures are searched for those that give its output. Without
    one, names, shapes and numbers are weighed, and nothing is decided. WEIGHTS may be a flat buffer (.npy) without sizes.
    """
    from rnnconvert.containers.files import replacing
    from rnnconvert.core.errors import UsageError
    from rnnconvert.identification import identify as room

    if output is not None and sample is None:
        raise UsageError("-o writes a layout that a sample has shown to be right. Give one with --io")
    with incoming(weights) as (path,):
        found = room.identify(path, io=sample, seconds=seconds)
    if output is not None and found.verdict == "identified":
        if not found.functions[0].layout:
            names = " or ".join(found.functions[0].names[:3]) or "none that is known"
            raise UsageError(
                f"no layout file describes these arrays: one of them is several gates at once, or the input is read unweighted. "
                f"Read them with --from; they have the layout {names}"
            )
        with replacing(Path(output)) as file:
            file.write(found.functions[0].layout.encode())
    if as_json:
        emit(found.as_dict())
    else:
        lines = list(found.lines())
        for line in lines[:1] if is_quiet() else lines:
            put(line)
        if (
            output is None
            and found.verdict == "identified"
            and not found.functions[0].names
            and found.functions[0].layout
            and not is_quiet()
        ):
            say("a layout file that --layout accepts:")
            put(found.functions[0].layout, wrap=False)
    click.get_current_context().exit(0 if found.verdict in ("identified", "candidates") else 1)
