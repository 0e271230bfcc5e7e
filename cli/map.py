"""rnnconvert map: which layer of one model belongs to which of another, proposed for a person to edit."""

from __future__ import annotations

from pathlib import Path

import click

from rnnconvert.cli.terminal import say, setting

_EPILOG = """\b
Examples:
  rnnconvert map model.h5 mine.pt
  rnnconvert map model.h5 mine.pt -o mapping.yaml
  rnnconvert transplant model.h5 --into mine.pt -o filled.pt --mapping mapping.yaml
"""


@click.command("map", epilog=_EPILOG)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Write the mapping here instead of printing it.")
@click.option(
    "--from", "source_format", metavar="FORMAT", help="Read SOURCE as this format; by default its content decides."
)
@click.option(
    "--to", "target_format", metavar="FORMAT", help="Read TARGET as this format; by default its content decides."
)
@setting
@click.option("--force", is_flag=True, help="Replace the mapping if it exists; its decisions are kept.")
def map_layers(
    source: str,
    target: str,
    output: str | None,
    source_format: str | None,
    target_format: str | None,
    settings: tuple[str, ...],
    force: bool,
) -> None:
    """Propose which layers of SOURCE fill which layers of TARGET, each with its evidence.

    Ambiguous layers are listed for you to choose, never guessed. An existing mapping counts as
    decided, and the same files give the same text.
    """
    from rnnconvert.containers.files import only_replace, replacing
    from rnnconvert.models.load import propose_mapping

    path = Path(output) if output is not None else None
    known = path if path is not None and path.exists() else None
    text = propose_mapping(
        target, source, mapping=known, source_format=source_format, target_format=target_format, settings=settings
    )
    if path is None:
        click.echo(text, nl=False)
        return
    if known is not None and known.read_text(encoding="utf-8") == text:
        say(f"{path} is up to date")
        return
    only_replace(path, force)
    with replacing(path) as file:
        file.write(text.encode())
    say(f"wrote {path}")
    open_questions = text.count("# Ambiguous")
    if open_questions:
        say(f"{open_questions} sets of layers are ambiguous: choose in {path}")
