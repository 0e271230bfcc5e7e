"""rnnconvert formats: what can be read and written, from the layouts' own data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from rnnconvert.cli import completion
from rnnconvert.cli.terminal import emit, own_layouts, put, styled, usual_first

_EPILOG = """\b
Examples:
  rnnconvert formats
  rnnconvert formats keras
  rnnconvert formats .npz
  rnnconvert formats --options
  rnnconvert formats --json
"""


@click.command(epilog=_EPILOG)
@click.argument("name", required=False, shell_complete=completion.formats)
@click.option("--options", "show_options", is_flag=True, help="List the keys of --set, of all formats or of one.")
@own_layouts
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def formats(name: str | None, show_options: bool, as_json: bool) -> None:
    """List the formats, a line each, or those of an ending; or show all of one format, with its cells; or list the options."""
    from dataclasses import asdict

    from rnnconvert.core.errors import UsageError
    from rnnconvert.files.adapter import adapter, adapters
    from rnnconvert.files.catalogue import OPTIONS, asked_by, explained
    from rnnconvert.language.registry import frameworks, systems

    ending = name if name and name.startswith(".") else None
    if ending:
        having = {key: files for key, files in adapters().items() if ending.lower() in files.SUFFIXES}
        if not having:
            raise UsageError(f"no format has the ending {ending}. `rnnconvert formats` lists those that one has")
        _list({key: having[key].SUFFIXES for key in usual_first(having)})
        return
    chosen = {name: adapter(name)} if name else adapters()
    if show_options:
        keys = asked_by(name) if name else tuple(OPTIONS)
        if as_json:
            emit({key: {**asdict(OPTIONS[key]), "meaning": explained(key)} for key in keys})
            return
        for key in keys:
            put(f"{key}={'|'.join(OPTIONS[key].choices) or '...'}")
            put(f"    {explained(key)}", hang=4)
        return
    if as_json:
        emit(
            {
                format_name: {
                    "suffixes": files.SUFFIXES,
                    "system": _document(systems()[format_name]) if format_name in systems() else None,
                    "layouts": [_document(x) for x in frameworks()[format_name]],
                }
                for format_name, files in chosen.items()
            }
        )
        return
    if not name:
        _list({format_name: chosen[format_name].SUFFIXES for format_name in usual_first(chosen)})
        return
    for system_name in chosen:
        system = systems().get(system_name)
        put(f"{styled(system_name, 'bold')}  ({', '.join(chosen[system_name].SUFFIXES) or 'read only'})", hang=4)
        if system is not None:
            put(f"    {system.title}; {system.proof}", hang=6)
        for layout in frameworks()[system_name]:
            read_only = "" if layout.writable else "  (read only)"
            put(f"    {layout.name:28} {layout.class_name:36} gates {layout.gates}{read_only}", hang=33)
        if system is not None:
            for note in (system.versions, *system.notes):
                put(f"    - {note}", hang=6)
            for key in asked_by(system_name):
                here = f" ({system.asks[key]})" if system.asks.get(key, "") not in OPTIONS[key].meaning else ""
                choices = "|".join(OPTIONS[key].choices) or "..."
                put(f"    --set {key}={choices}: {OPTIONS[key].meaning}{here}", hang=6)


def _list(endings: Mapping[str, Sequence[str]]) -> None:
    """Print a line for each format: its name, what is done with its files, and their endings."""
    from rnnconvert.language.layout import FAMILIES
    from rnnconvert.language.registry import frameworks, systems

    width = max(map(len, endings))
    for family, name in _in_families([*endings]):
        if family:
            put(styled(f"{FAMILIES[family]}:", "bold"))
        title = systems()[name].title if name in systems() else ""
        written = any(layout.writable for layout in frameworks()[name])
        reach = "read, written" if written else "read only"
        put(f"  {name:{width}}  {reach:13}  {title}  ({' '.join(endings[name]) or 'by its content'})", hang=width + 19)
    put("rnnconvert formats NAME shows the cells, the options and the proof of one.")


def _in_families(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield formats by family, the first of each with the family's word."""
    from rnnconvert.language.layout import FAMILIES
    from rnnconvert.language.registry import systems

    of = {name: systems()[name].family if name in systems() else "training" for name in names}
    for family in FAMILIES:
        members = [name for name in names if of[name] == family]
        yield from zip((family, *[""] * (len(members) - 1)), members, strict=False)


def _document(system_or_layout: object) -> dict[str, object]:
    from dataclasses import asdict

    document = asdict(system_or_layout)  # type: ignore[call-overload]
    document.pop("heads", None)  # bytes, which JSON has not
    return document  # type: ignore[no-any-return]
