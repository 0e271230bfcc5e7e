"""rnnconvert formats: what can be read and written, from the layouts' own data."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import emit, own_layouts

_EPILOG = """\b
Examples:
  rnnconvert formats
  rnnconvert formats keras
  rnnconvert formats --options
  rnnconvert formats --json
"""


@click.command(epilog=_EPILOG)
@click.argument("name", required=False)
@click.option("--options", "show_options", is_flag=True, help="List the keys of --set instead; with a format, its own.")
@own_layouts
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def formats(name: str | None, show_options: bool, as_json: bool) -> None:
    """List the formats, their files and the cells they hold; all that is known of one; or the options."""
    from dataclasses import asdict

    from rnnconvert.files.adapter import adapter, adapters
    from rnnconvert.files.options import OPTIONS, asked_by, explained
    from rnnconvert.language.registry import frameworks, systems

    shown = {name: adapter(name)} if name else adapters()
    if show_options:
        keys = asked_by(name) if name else tuple(OPTIONS)
        if as_json:
            emit({key: {**asdict(OPTIONS[key]), "meaning": explained(key)} for key in keys})
            return
        for key in keys:
            click.echo(f"{key}={'|'.join(OPTIONS[key].choices) or '...'}\n    {explained(key)}")
        return
    if as_json:
        emit(
            {
                one: {
                    "suffixes": files.SUFFIXES,
                    "system": _document(systems()[one]) if one in systems() else None,
                    "layouts": [_document(x) for x in frameworks()[one]],
                }
                for one, files in shown.items()
            }
        )
        return
    for one, files in shown.items():
        system = systems().get(one)
        click.echo(f"{one}  ({', '.join(files.SUFFIXES) or 'read only'})")
        if system is not None:
            click.echo(f"    {system.title}; {system.proof}")
        for layout in frameworks()[one]:
            read_only = "" if layout.writable else "  (read only)"
            click.echo(f"    {layout.name:28} {layout.class_name:36} gates {layout.gates}{read_only}")
        if name and system is not None:
            for note in (system.versions, *system.notes):
                click.echo(f"    - {note}")
            for key in asked_by(one):
                here = f" ({system.asks[key]})" if system.asks.get(key) else ""
                click.echo(f"    --set {key}={'|'.join(OPTIONS[key].choices) or '...'}: {OPTIONS[key].meaning}{here}")


def _document(system_or_layout: object) -> dict[str, object]:
    from dataclasses import asdict

    found = asdict(system_or_layout)  # type: ignore[call-overload]
    found.pop("heads", None)  # bytes, which JSON has not
    return found  # type: ignore[no-any-return]
