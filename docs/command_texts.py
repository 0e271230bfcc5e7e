"""Make docs/reference.md: every command and every option, from what the commands declare."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from rnnconvert.cli.main import command_sections, main

HEAD = """# Every command and option

`rnnconvert COMMAND --help` prints this of one command, with more examples. [Which command do I need?](commands.md)
[What do its exit codes mean?](exit-codes.md)

`rnnconvert --version` shows the version; `rnnconvert --debug COMMAND ...` shows where an error comes from.
"""

MANY = 3
"""How many commands have to share an option, with one text, for it to be described once."""


def command_page() -> dict[str, str]:
    """Return docs/reference.md."""
    context = click.Context(main, info_name="rnnconvert", **main.context_settings)
    commands = {name: _command(main, context, name) for name in main.list_commands(context)}
    shared = [line for line in _options(*commands["inspect"]) if all(line in _options(*command) for command in commands.values())]
    lines = [line for command in commands.values() for line in _options(*command)]
    most_common = {line.split("`")[1]: line for line in sorted(lines, key=lines.count)}
    common = [line for line in dict.fromkeys(lines) if line not in shared and lines.count(line) >= MANY and line in most_common.values()]
    page = [HEAD, "\nEvery command has:\n\n", *shared, "\nMany commands have some of these, named last in each:\n\n", *common]
    for title, names in command_sections().items():
        page.append(f"\n## {title}\n")
        for name in names:
            page += _section(*commands[name], shared, common, "###")
    return {"reference.md": "".join(page)}


def _command(group: click.Group, context: click.Context, name: str) -> tuple[click.Command, click.Context]:
    command = group.get_command(context, name)
    if command is None:
        raise ValueError(f"{group.name} lists a command {name} and has none")
    return command, click.Context(command, info_name=name, parent=context)


def _section(command: click.Command, context: click.Context, shared: list[str], common: list[str], level: str) -> Iterator[str]:
    """Yield what a command does and its options, then those of its own commands."""
    path = context.command_path.removeprefix("rnnconvert ")
    usage = " ".join([context.command_path, *(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")])
    about = " ".join(_marked(" ".join(part.split())) for part in (command.help or "").split("\n\n"))
    example = re.search(r"^\s+(rnnconvert .*)$", command.epilog or "", re.M)
    yield f"\n{level} {path}\n\n    {usage}\n{f'    {example[1]}' if example else ''}\n\n{about}\n\n"
    lines = _options(command, context)
    yield from (line for line in lines if line not in shared and line not in common)
    named = [f"`{line.split('`')[1].split()[0].rstrip(',')}`" for line in lines if line in common]
    yield f"- of those above: {', '.join(named)}\n" if named else ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _section(*_command(command, context, name), shared, common, f"{level}#")


def _options(command: click.Command, context: click.Context) -> list[str]:
    """Return a line for each option of a command, in its order."""
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    records = [option.get_help_record(context) for option in options]
    return [f"- `{names}`: {_marked(text)}\n" for names, text in filter(None, records)]


def _marked(text: str) -> str:
    """Return a text of the help as Markdown: its options and files of this folder as such, and no sign of it as markup."""
    parts = re.split(r"(`[^`]*`|docs/[\w-]+\.md)", " ".join(text.split()))
    plain = (re.sub(r"([*_<\[\]|])", r"\\\1", part) if number % 2 == 0 else part for number, part in enumerate(parts))
    return "".join(re.sub(r"^docs/([\w-]+)\.md$", r"[\1](\1.md)", part) for part in plain)
