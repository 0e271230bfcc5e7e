"""rnnconvert diagnose: which wrong convention makes two files differ, and where the difference begins."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli.terminal import FilePath, whole_numbers
from rnnconvert.cli.two_files import print_findings, two_files

_EPILOG = """\b
Examples:
  rnnconvert diagnose model.h5 model.onnx
  rnnconvert diagnose right.pt wrong.keras --layer encoder.lstm
  rnnconvert diagnose model.onnx model.pt --lengths 9,4,1 --json
  rnnconvert diagnose model.h5 --io sample.npz

Exit codes: 0 both compute the same, or A computes the sample; 1 they do not; 2 to 5 as for every command.
"""


@click.command(epilog=_EPILOG)
@two_files(second=False)
@click.option(
    "--io",
    "sample",
    metavar="SAMPLE.npz",
    type=FilePath(),
    help="In place of B: an input of A, or of a layer, and its output, as arrays x and y, optionally h_0, c_0, h_n, c_n, lengths.",
)
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="With --io: time limit of the search for each layer.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), metavar="N", help="Seed of the random inputs.")
@click.option("--batch", default=4, show_default=True, type=click.IntRange(1), metavar="N", help="Sequences in a batch.")
@click.option("--time", default=12, show_default=True, type=click.IntRange(3), metavar="N", help="Steps of a sequence.")
@click.option("--lengths", metavar="N,N,...", callback=whole_numbers, help="Lengths of the sequences; by default, random.")
def diagnose(a: str, b: str | None, sample: str | None, seconds: float, as_json: bool, **others: Any) -> None:
    """Find out why B does not compute what A does.

    The layers run on random inputs in the reference, without any framework. If the outputs differ, wrong conventions are tried on A
    until one gives B: gates in another order, a matrix transposed, biases dropped, the reset gate in the wrong place, and so on.
    If they agree and both files hold models that run here, these run whole, and faults around the layers are tried: a softmax
    that only one has, an input that is scaled or reversed, a dense layer's matrix transposed, an embedding's rows shifted.

    With --io and without B, a sample recorded from the real model, or from a layer of it, shows whether A computes it. If not, the
    same faults are tried, and the search of `identify` finds the convention under which a layer of A does.
    """
    from rnnconvert.core.errors import UsageError
    from rnnconvert.diagnosis import two_files

    if (b is None) == (sample is None):
        raise UsageError("diagnose takes two files, or one file and --io SAMPLE.npz. Give one of the two")
    if b is None:
        assert sample is not None
        if any(others[name] for name in ("pairs", "format_b", "settings_b")):
            raise UsageError("--pair, --from-b and --set-b are about B, and --io takes its place. Leave them out")
        of_a = {name: others[name] for name in ("layers", "format_a", "settings", "settings_a")}
        diagnosis = two_files.diagnose(a, io=sample, seconds=seconds, **of_a)
        print_findings(diagnosis, as_json)
        click.get_current_context().exit(0 if diagnosis.equal else 1)
    findings = two_files.diagnose(a, b, **others)
    print_findings(findings, as_json)
    click.get_current_context().exit(findings.verdict.exit_code())
