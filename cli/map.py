"""rnnconvert map: which layer of one model belongs to which of another, proposed for a person to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rnnconvert.cli.progress import watching
from rnnconvert.cli.streams import incoming
from rnnconvert.cli.terminal import FilePath, emit, format_option, put_lines, say, setting
from rnnconvert.cli.values import in_one

_EPILOG = """\b
Examples:
  rnnconvert map model.h5 mine.pt
  rnnconvert map model.h5 mine.pt -o m.yaml
  rnnconvert map model.h5 mine.pt --json
  rnnconvert transplant model.h5 --into mine.pt -o out.pt --mapping m.yaml
"""


@click.command("map", epilog=_EPILOG)
@click.argument("source", type=FilePath(allow_dash=True))
@click.argument("target", type=FilePath(allow_dash=True))
@click.option("-o", "--output", type=FilePath(), help="Write the mapping to this file.")
@format_option("--from", "source_format", "Format of SOURCE; by default, its content decides.")
@format_option("--to", "target_format", "Format of TARGET; by default, its content decides.")
@setting
@click.option("--force", is_flag=True, help="Replace the mapping if it exists, but keep its decisions.")
@click.option("--json", "as_json", is_flag=True, help="Print the mapping as JSON.")
@in_one
def map_layers(asked: Any) -> None:
    """Propose which layers of SOURCE fill which layers of TARGET, with the evidence.

    Ambiguous layers are listed for you to choose, never guessed. Decisions of an existing mapping are kept. `-` is stdin.
    """
    from rnnconvert.containers.files import only_replace, replacing
    from rnnconvert.core.text_file import read_text
    from rnnconvert.models.load import proposal

    path = Path(asked.output) if asked.output is not None else None
    existing = path if path is not None and path.exists() else None
    with incoming(asked.source, asked.target) as (giving, taking), watching(asked.as_json) as watch:
        watch("reading both models")
        result = proposal(
            taking, giving, mapping=existing, source_format=asked.source_format, target_format=asked.target_format, settings=asked.settings
        )
        text = str(result)
    if path is None and not asked.as_json:
        put_lines(text)
    if path is not None and (existing is None or read_text(existing) != text):
        only_replace(path, asked.force)
        with replacing(path) as file:
            file.write(text.encode())
        say(f"wrote {path}", asked.as_json)
        count = len(result.pairing.ambiguous)
        if count:
            sets = "set of layers is" if count == 1 else "sets of layers are"
            say(f"{count} {sets} ambiguous: choose in {path}", asked.as_json)
    elif path is not None:
        say(f"{path} is up to date", asked.as_json)
    if asked.as_json:
        emit(result.as_dict())
