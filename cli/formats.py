"""rnnconvert formats: what can be read and written, from the layouts' own data."""

from __future__ import annotations

import click

from rnnconvert.cli.terminal import emit, own_layouts

_EPILOG = """\b
Examples:
  rnnconvert formats
  rnnconvert formats --options
  rnnconvert formats --json
"""


@click.command(epilog=_EPILOG)
@click.option("--options", "show_options", is_flag=True, help="List the keys of --set instead.")
@own_layouts
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def formats(show_options: bool, as_json: bool) -> None:
    """List the formats, their files and the cells they hold; or the options."""
    from dataclasses import asdict

    from rnnconvert.files.adapter import adapters
    from rnnconvert.files.options import OPTIONS
    from rnnconvert.language.registry import frameworks, systems

    if show_options:
        if as_json:
            emit({name: asdict(option) for name, option in OPTIONS.items()})
            return
        for option in OPTIONS.values():
            click.echo(f"{option.name}={'|'.join(option.choices) or '...'}\n    {option.meaning}")
        return
    if as_json:
        emit(
            {
                name: {
                    "suffixes": adapter.SUFFIXES,
                    "system": _document(systems()[name]) if name in systems() else None,
                    "layouts": [_document(x) for x in frameworks()[name]],
                }
                for name, adapter in adapters().items()
            }
        )
        return
    for name, adapter in adapters().items():
        system = systems().get(name)
        click.echo(f"{name}  ({', '.join(adapter.SUFFIXES) or 'read only'})")
        if system is not None:
            click.echo(f"    {system.title}; {system.proof}")
        for layout in frameworks()[name]:
            read_only = "" if layout.writable else "  (read only)"
            click.echo(f"    {layout.name:28} {layout.class_name:36} gates {layout.gates}{read_only}")


def _document(data: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(data)  # type: ignore[call-overload, no-any-return]
