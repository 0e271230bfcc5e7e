"""rnnconvert executors: what can run models here, and why the others cannot."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli.terminal import FilePath, emit, put, say

_EPILOG = """\b
Examples:
  rnnconvert executors
  rnnconvert executors --json
  rnnconvert executors add mxnet --python ~/old/bin/python
  rnnconvert executors add mine --python ~/env/bin/python --module mine.py
  rnnconvert executors remove mine
"""


@click.group(invoke_without_command=True, epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show which cells and features each runs, too.")
@click.pass_context
def executors(context: click.Context, as_json: bool, verbose: bool) -> None:
    """List the frameworks that can run models here, with their versions; or why one cannot."""
    if context.invoked_subcommand is not None:
        return
    from rnnconvert.running import registry

    entries = [_entry(executor) for executor in registry.executors().values()]
    if as_json:
        emit({"executors": entries})
        return
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        state = f"absent: {entry['absent']}" if entry["absent"] else f"{entry['device']}; {versions}"
        put(f"{entry['name']:{width}}  {entry['format']:8}  {state}{'  (added)' if entry['added'] else ''}")
        if verbose and entry["supports"]:
            put(f"{'':{width}}  {entry['supports']}")


def _entry(executor: Any) -> dict[str, Any]:
    from rnnconvert.running import registry

    added = registry.built_in().get(executor.name) != executor
    about = {**executor.about, "device": executor.about["device"] or executor.device}
    return {
        "name": executor.name,
        "format": executor.format,
        "supports": executor.supports,
        "added": added,
        "interpreter": executor.python,
        **about,
    }


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@executors.command()
@click.argument("name")
@click.option(
    "--python", required=True, type=FilePath(), metavar="PATH", help="The Python (3.8 or newer) that has the framework and numpy."
)
@click.option("--like", default="", metavar="EXECUTOR", help="The built-in executor to run there; by default, NAME.")
@click.option("--module", default="", type=FilePath(), metavar="FILE", help="Your own executor instead (docs/equivalence.md).")
@_json
def add(name: str, python: str, like: str, module: str, as_json: bool) -> None:
    """Add an executor under another Python, and remember it."""
    from rnnconvert.running import registry

    executor = registry.add(name, python, like, module)
    if as_json:
        emit({"added": _entry(executor), "list": str(registry.listing())})
        return
    versions = ", ".join(f"{package} {version}" for package, version in executor.about["versions"].items())
    say(f"added {name}: {versions}, Python {executor.about['python']} ({registry.listing()})")


@executors.command()
@click.argument("name")
@_json
def remove(name: str, as_json: bool) -> None:
    """Remove an executor that was added."""
    from rnnconvert.running import registry

    registry.remove(name)
    if as_json:
        emit({"removed": name, "list": str(registry.listing())})
        return
    say(f"removed {name}")
