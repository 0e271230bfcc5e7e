"""The terminal: the one place where text goes out.

Names of layers, paths and warnings come from files. `put` escapes unprintable characters in any text, so no command prints in another way
(tests/cli/test_cli_terminal.py). Colours and line breaks are added after that. They are not rich's: importing its console
and tables makes every start 1.2 times as long, and a console folds lines that pipes get as they are. rich draws progress, where one waits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import click

from rnnconvert.cli import completion
from rnnconvert.cli.verbosity import is_quiet
from rnnconvert.core import errors
from rnnconvert.core.errors import RnnConvertError, for_user
from rnnconvert.core.printable import abridged, json_of, printable

T = TypeVar("T")

_COLOURS = ("red", "green", "yellow", "bold")
# Marks that no file can know: characters for private use, drawn anew by each process. They become codes where text goes out.
_FIRST = 0x100000 + int.from_bytes(os.urandom(2), "little") % 0xFF00
_MARKS = {colour: chr(_FIRST + number) for number, colour in enumerate(_COLOURS)}
_END = chr(_FIRST + len(_COLOURS))
_CODES = {"red": "\x1b[31m\x1b[1m", "green": "\x1b[32m", "yellow": "\x1b[33m", "bold": "\x1b[1m"}
_RESET = "\x1b[0m"


held_back: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
"""What holds back a drawing of the work under way while a line is printed (rnnconvert.cli.progress)."""


# Text -------------------------------------------------------------------------------------------------


def styled(text: str, colour: str) -> str:
    """Return text that `put` shows in a colour, where its stream is a terminal that has colours."""
    return f"{_MARKS[colour]}{text}{_END}"


_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#(?:vso)?\[|#teamcity\[)")
"""How a line begins that a runner of continuous integration takes for a command to it: two colons, or, anywhere in it, ##[ and the like.

Source: actions/runner, ActionCommand.cs; microsoft/azure-pipelines-agent, Command.cs; TeamCity's service messages. GitLab's begin with a
control character.
"""


def commanding_nothing(line: str) -> str:
    """Return a line that no runner of continuous integration takes for a command: names of layers may begin as these do."""
    return _COMMAND.sub(lambda match: f"{match[0]} ", line) if "::" in line or "##" in line else line


def open_stdout() -> Any:
    """Return stdout. Raises OSError where it is closed: what was asked for would be lost, and nobody would know."""
    if sys.stdout is None:  # Python found it closed when it began
        raise OSError(errno.EBADF, "stdout is closed")
    return sys.stdout


def put(text: str, *, err: bool = False, hang: int | None = None, wrap: bool = True, command: bool = False) -> None:
    """Print one line: what is not printable in it is escaped, and on a terminal it is broken to the width.

    err   print on stderr
    hang  how many columns the lines after the first are indented; by default two more than the first
    wrap  whether it may be broken
    command  whether it is a command of ours to a runner of continuous integration
    """
    stream = sys.stderr if err else open_stdout()
    marks = "".join((*_MARKS.values(), _END))
    line = printable(abridged(errors.for_user(text)), marks)
    rows = _wrapped(line, _width(stream), hang) if wrap and is_terminal(stream) else [line]
    colours = _has_colours(stream)
    for colour, mark in _MARKS.items():
        rows = [row.replace(mark, _CODES[colour] if colours else "") for row in rows]
    rows = [row.replace(_END, _RESET if colours else "") for row in rows]
    joined = "\n".join(rows if command else map(commanding_nothing, rows))
    # Without stderr there is nobody to tell.
    with contextlib.suppress(OSError) if err else contextlib.nullcontext(), held_back():
        click.echo(joined.encode("utf-8", "backslashreplace").decode("utf-8"), err=err, color=colours)


def put_lines(text: str, *, err: bool = False) -> None:
    """Print text of several lines, each as `put` does; names in it must have no line ends (`printable`)."""
    for line in text.splitlines():
        put(line, err=err, wrap=False)


def say(text: str, quiet: bool = False, hang: int | None = None) -> None:
    """Print a line for people, on stderr; none with `-q`."""
    if not quiet and not is_quiet():
        put(text, err=True, hang=hang)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # none, or closed
        return False


def _has_colours(stream: Any) -> bool:
    """Return whether to colour: NO_COLOR and FORCE_COLOR decide where they are set, else what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def _width(stream: Any) -> int:
    """Return the columns of a terminal: COLUMNS, or what the terminal says."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _columns(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata  # a library of its own, which most output does not need

    marks = {*_MARKS.values(), _END}
    return sum(0 if char in marks or unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def _wrapped(line: str, width: int, hang: int | None) -> list[str]:
    """Return a line in rows of a width, broken at spaces; a word that is longer stays whole."""
    indent = len(line) - len(line.lstrip(" "))
    inner = indent + 2 if hang is None else hang
    if inner > width // 2:
        inner = min(indent + 2, width // 4)
    rows, row, used = [], "", 0
    for word in _words(line):
        size = _columns(word)
        if row.strip() and used + _columns(word.rstrip(" ")) > width:
            rows.append(row.rstrip(" "))
            row, used = " " * inner, inner
            word = word.lstrip(" ")
            size = _columns(word)
        row += word
        used += size
    return [*rows, row.rstrip(" ")]


def _words(line: str) -> Iterator[str]:
    """Yield the words of a line, each with the spaces before it."""
    start = 0
    for at in range(1, len(line)):
        if line[at] == " " and line[at - 1] != " ":
            yield line[start:at]
            start = at
    yield line[start:]


def emit(document: Any) -> None:
    """Print a document as JSON, on stdout."""
    open_stdout()
    text = errors.for_user(json_of(document, indent=2, default=str))
    click.echo(_COMMAND.sub(r"\\u0023", text) if "##" in text else text)


# Errors -----------------------------------------------------------------------------------------------


def complain(error: RnnConvertError | str, path: str = "", quiet: bool = False) -> None:
    """Print an error on stderr, each of its details on a separate line.

    error  the error, or its text as `str` has it
    path   the file that it is about, if several were given
    """
    if quiet:
        return
    path = for_user(path)
    if isinstance(error, str):
        headline, *details = map(for_user, error.split("\n  "))
    else:
        headline, details = error.headline, [*error.details]
    where = f"{path}: " if path and not headline.startswith(path) else ""
    put(f"{styled('error', 'red')}: {where}{headline}", err=True)
    for detail in details:
        put(f"  {detail}", err=True)


_FIELDS = ("path", "problem", "remedy", "feature", "target", "reason", "layer", "package", "executor", "source", "problems")
"""What errors know besides their message (rnnconvert.core.errors)."""


def as_document(error: RnnConvertError) -> dict[str, Any]:
    """Return an error as JSON has it."""
    more = {key: getattr(error, key) for key in _FIELDS if getattr(error, key, "")}
    return {"kind": error.kind, "message": str(error), "exit_code": error.exit_code, **more}


class FilePath(click.Path):
    """A path. Whether it can be read shows when it is opened, as does whether it exists: click's own check is an error of usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(readable=False, **options)


# What the commands share --------------------------------------------------------------------------------


_CONFIG = "rnnconvert.config"


def _keep_config(ctx: click.Context, option: click.Parameter, path: str | None) -> None:
    ctx.meta[_CONFIG] = path


def _with_config(ctx: click.Context, option: click.Parameter, settings: tuple[str, ...]) -> tuple[str, ...]:
    path = ctx.meta.get(_CONFIG)
    return settings if path is None else (*settings, f"config={path}")


_set = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[LAYER:]KEY=VALUE",
    shell_complete=completion.settings,
    callback=_with_config,
    help="State what the file leaves open, or accept a difference (keys: rnnconvert formats --options). Repeatable.",
)


_config = click.option(
    "--config",
    metavar="FILE",
    type=FilePath(),
    expose_value=False,
    callback=_keep_config,
    is_eager=True,
    help="For a file of weights alone: its model, as model.to_json wrote it, or the file of the whole model.",
)


def _add(ctx: click.Context, option: click.Parameter, paths: tuple[str, ...]) -> None:
    if paths:
        from rnnconvert.containers.addresses import local
        from rnnconvert.language.layout_file import add_layouts

        for path in paths:
            add_layouts(local(path))


own_layouts = click.option(
    "--layout",
    multiple=True,
    type=FilePath(),
    metavar="FILE.toml",
    expose_value=False,
    callback=_add,
    is_eager=True,
    help="Add layouts of your own (docs/layouts.md). Repeatable.",
)


def setting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that reads files: --set, --config and --layout."""
    return _set(_config(own_layouts(command)))


def format_option(flag: str, name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option whose value is a format."""
    return click.option(flag, name, metavar="FORMAT", shell_complete=completion.formats, help=text)


def whole_numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int] | None:
    """Parse integers separated by commas, such as lengths."""
    try:
        return None if value is None else [int(word) for word in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value}: expected integers separated by commas, as in 9,4,1") from None


USED_MOST = ("pytorch", "keras", "onnx", "tensorflow1", "flax", "nnx", "cudnn", "equinox", "haiku", "mlx", "paddle", "mxnet")
"""The formats that most people use, in the order of the listings; the others follow by name."""


def usual_first(names: Iterable[T], name: Callable[[T], str] = str) -> list[T]:
    """Return things of formats, with the formats that most people use first."""
    rank = {format_name: number for number, format_name in enumerate(USED_MOST)}
    return sorted(names, key=lambda entry: rank.get(name(entry), len(rank)))


def finish(report: Any, paths: Sequence[str], quiet: bool, remark: str = "", err: bool = False) -> None:
    """Print and write a report of equivalence, and end the program with its exit code unless it is 0.

    err  print it on stderr
    """
    from rnnconvert import reports
    from rnnconvert.reports.text import to_text

    for path in paths:
        report.write(path)
    reports.summary_to_github(report.document)
    put_lines(report.conclusion.short if quiet else to_text(report.document, styled), err=err)
    if remark:
        say(remark)
    if report.exit_code:
        sys.exit(report.exit_code)
