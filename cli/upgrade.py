"""rnnconvert upgrade: a whole model of an old Keras as a Keras 3 file."""

from __future__ import annotations

from typing import NamedTuple

import click

from rnnconvert.cli.terminal import FilePath, emit, say
from rnnconvert.cli.values import in_one

_EPILOG = """\b
Examples:
  rnnconvert upgrade old.h5 new.keras
  rnnconvert upgrade old.h5 new.keras --verify
  rnnconvert upgrade weights.h5 new.keras --config model.json
  rnnconvert upgrade old.h5 new.keras --dry-run --json

NEW opens with keras.saving.load_model, in safe mode and without custom objects. A layer or setting without an equivalent in
Keras 3 is refused by name; what only training needs is left out, and named.
"""


class UpgradeOptions(NamedTuple):
    """What the command is given, by its options and arguments."""

    old: str
    new: str
    config: str | None
    verify: bool
    force: bool
    dry_run: bool
    as_json: bool
    quiet: bool


@click.command(epilog=_EPILOG)
@click.argument("old", type=FilePath())
@click.argument("new", type=FilePath())
@click.option("--config", type=FilePath(), metavar="FILE.json", help="If OLD has weights alone: its model, as model.to_json wrote it.")
@click.option("--verify", is_flag=True, help="Run OLD in tf_keras, NEW in Keras; keep NEW only if they agree.")
@click.option("--force", is_flag=True, help="Replace NEW if it exists.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@in_one(UpgradeOptions)
def upgrade(asked: UpgradeOptions) -> None:
    """Rewrite OLD, a whole model of Keras 1, Keras 2 or tf.keras, as the Keras 3 file NEW."""
    from rnnconvert.formats.keras.upgrade.files import upgrade as upgrade_file

    done = upgrade_file(asked.old, asked.new, config=asked.config, force=asked.force, dry_run=asked.dry_run, verify=asked.verify)
    if asked.as_json:
        emit(done.as_dict())
        return
    say(f"{'would write' if asked.dry_run else 'wrote'} {asked.new}", asked.quiet)
    for line in done.lines():
        say(line, asked.quiet)
