"""What the commands that compare two files share: their options, and how a layer of both is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.terminal import assumptions, format_option, say, setting, shown, styled

if TYPE_CHECKING:
    from rnnconvert.comparison.difference import Difference
    from rnnconvert.comparison.pairing import Pair
    from rnnconvert.files.checkpoint import Checkpoint

_OPTIONS = (
    click.argument("a", type=click.Path()),
    click.argument("b", type=click.Path()),
    format_option("--from-a", "from_a", "Read A as this format; by default its content decides."),
    format_option("--from-b", "from_b", "Read B as this format; by default its content decides."),
    click.option(
        "--layer", "layers", multiple=True, metavar="NAME", shell_complete=completion.layers,
        help="Only this layer of A. Repeatable.",
    ),
    click.option(
        "--pair", "pairs", multiple=True, metavar="A=B",
        help="Pair a layer of A with one of B; A=B1+B2 where B has it in pieces. Repeatable.",
    ),
    setting,
    click.option(
        "--set-a", "settings_a", multiple=True, metavar="[LAYER:]KEY=VALUE", shell_complete=completion.settings,
        help="Like --set, for A only.",
    ),
    click.option(
        "--set-b", "settings_b", multiple=True, metavar="[LAYER:]KEY=VALUE", shell_complete=completion.settings,
        help="Like --set, for B only.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print everything for machines."),
)  # fmt: skip


def two_files(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that reads two files."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load_both(
    a: str, b: str, from_a: str | None, from_b: str | None, settings: Sequence[str], settings_a: Sequence[str],
    settings_b: Sequence[str],
) -> tuple[Checkpoint, Checkpoint]:  # fmt: skip
    """Return both files, and print on stderr what they leave open and warn about."""
    from rnnconvert.files.convert import load_pair

    both = load_pair((a, b), (from_a, from_b), settings, (settings_a, settings_b))
    for label, checkpoint in zip("AB", both, strict=True):
        for line in assumptions(checkpoint.questions):
            say(f"{styled('assumed', 'yellow')} of {label}: {line}")
        for warning in checkpoint.warnings:
            say(f"{styled('warning', 'yellow')} of {label}: {warning}")
    return both


def headline(pair: Pair) -> str:
    """Say which layers are compared, and how they were found."""
    return f"{shown(pair.name)} = {' + '.join(map(shown, pair.names))} ({pair.evidence})"


def place(difference: Difference) -> str:
    """Return the layer and direction of a difference."""
    words = [] if difference.layer < 0 else [f"layer {difference.layer}"]
    return ", ".join([*words, *([] if difference.direction < 0 else [("forward", "backward")[difference.direction]])])


def document(pair: Pair, differences: Sequence[Difference], equal: bool) -> dict[str, Any]:
    """Return a layer of both files for machines."""
    from dataclasses import asdict

    return {
        "name": pair.name,
        "counterpart": list(pair.names),
        "evidence": pair.evidence,
        "description": [pair.stack.describe(), pair.counterpart.describe()],
        "equal": equal,
        "differences": [
            {**asdict(one), "equal": one.equal} for one in differences if one.error or one.kind == "rewrite"
        ],
    }
