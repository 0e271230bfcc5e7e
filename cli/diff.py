"""rnnconvert diff: what differs between the weights of two files, gate by gate."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli.two_files import print_findings, two_files

_EPILOG = """\b
Examples:
  rnnconvert diff model.h5 model.onnx
  rnnconvert diff before.pt after.pt --layer encoder.lstm
  rnnconvert diff model.pt model.keras --pair encoder=lstm+lstm_1

Exit codes: 0 equal, or equal but for what is named (rounding); 1 not equal; 2 to 5 as for every command.
"""


@click.command(epilog=_EPILOG)
@two_files()
def diff(a: str, b: str, as_json: bool, **others: Any) -> None:
    """Compare the weights and the cells of A and B, in any formats.

    Weights are compared gate by gate, after exact rewrites, so that equal functions are equal. If they differ, the convention
    that explains it is named. For the effect on outputs, see rnnconvert diagnose.
    """
    from rnnconvert.diagnosis import two_files

    comparison = two_files.diff(a, b, **others)
    print_findings(comparison, as_json)
    click.get_current_context().exit(comparison.verdict.exit_code())
