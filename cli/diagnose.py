"""rnnconvert diagnose: which wrong convention makes two files differ, and where the difference begins."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import whole_numbers
from rnnconvert.cli.two_files import tell, two_files

_EPILOG = """\b
Examples:
  rnnconvert diagnose model.h5 model.onnx
  rnnconvert diagnose right.pt wrong.keras --layer encoder.lstm
  rnnconvert diagnose model.onnx model.pt --lengths 9,4,1 --json

\b
Exit codes: 0 both compute the same, 1 they do not, 2 to 5 as elsewhere.
"""


@click.command(epilog=_EPILOG)
@two_files
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the random inputs.")
@click.option("--batch", default=4, show_default=True, type=click.IntRange(1), help="Sequences in a batch.")
@click.option("--time", default=12, show_default=True, type=click.IntRange(3), help="Steps of a sequence.")
@click.option(
    "--lengths", metavar="N,N,...", callback=whole_numbers, help="Lengths of the sequences; by default random ones."
)
def diagnose(
    a: str,
    b: str,
    from_a: str | None,
    from_b: str | None,
    layers: tuple[str, ...],
    pairs: tuple[str, ...],
    settings: tuple[str, ...],
    settings_a: tuple[str, ...],
    settings_b: tuple[str, ...],
    as_json: bool,
    seed: int,
    batch: int,
    time: int,
    lengths: list[int] | None,
) -> None:
    """Find out why the layers of B do not compute the same as those of A.

    The reference runs both on random inputs, without any framework. If the outputs differ, the arrays are compared with one
    another, and the wrong conventions that people ship are planted in A, in each layer, direction, matrix and gate, until
    one gives B: gates in another order, a matrix transposed, biases dropped, the reset gate in the wrong place, and so on.
    """
    from rnnconvert.diagnosis import two_files

    found = two_files.diagnose(
        a, b, layers=layers, pairs=pairs, format_a=from_a, format_b=from_b, settings=settings, settings_a=settings_a,
        settings_b=settings_b, seed=seed, batch=batch, time=time, lengths=lengths,
    )  # fmt: skip
    tell(found, as_json)
    click.get_current_context().exit(0 if found.equal else 1)
