"""rnnconvert: the commands, how their errors end, and nothing else."""

from __future__ import annotations

from rnnconvert.cli import starting

# isort: split
import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rnnconvert import __version__
from rnnconvert.cli.completion import WORDS
from rnnconvert.cli.help import in_order
from rnnconvert.cli.terminal import as_document, complain, emit, put_lines, say
from rnnconvert.cli.verbosity import timed, with_switches
from rnnconvert.containers.placing import Changes, changes
from rnnconvert.containers.reading import reading, zeros_for_cut_files
from rnnconvert.core import remedies
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.malformed import strictly

if TYPE_CHECKING:
    from rnnconvert.core.room_command import RoomCommand

_EPILOG = """\b
Options     --version, --debug (where an error comes from), -h or --help
Example     rnnconvert convert model.h5 model.onnx --verify
Exit codes  0 done, 1 not equal, 2 usage, 3 unreadable, 4 refused, 5 missing
"""


class _CommandPlace(NamedTuple):
    """Where a command is, module and function below this package, and what it does, in half a line."""

    function: str
    what: str


_SECTIONS = {
    "Every day": {
        "inspect": _CommandPlace("inspect.inspect", "Show the recurrent layers of a file"),
        "convert": _CommandPlace("convert.convert", "Write them for another framework"),
        "batch": _CommandPlace("batch.batch", "Convert thousands of files, and resume"),
        "view": _CommandPlace("view.view", "Show weights as pictures and figures"),
        "identify": _CommandPlace("identify.identify", "Find out what unlabelled weights are"),
    },
    "Whole models": {
        "transplant": _CommandPlace("transplant.transplant", "Fill your own model from another framework's file"),
        "scaffold": _CommandPlace("scaffold.scaffold", "Write the code of a model in another framework"),
        "export": _CommandPlace("export.export", "Write a whole model as ONNX, TFLite, C and others"),
    },
    "Proof": {
        "verify": _CommandPlace("verify.verify", "Prove that two models compute the same"),
        "diff": _CommandPlace("diff.diff", "Compare weights without running them"),
        "diagnose": _CommandPlace("diagnose.diagnose", "Find the cause of a difference"),
        "check": _CommandPlace("check.check", "Verify all pairs of rnnconvert.toml, as CI does"),
    },
}
"""The commands that people need, by what they are for; those that rooms offer follow in _OFFERED_IN."""
_OFFERED_IN = "Whole models"
_PLUMBING = {
    "map": "map.map_layers",
    "run": "verify.run",
    "report": "report.report",
    "formats": "formats.formats",
    "executors": "executors.executors",
    "layout": "layout.layout",
    "demo": "demo.demo",
}
"""The others: the help names them alone, to fit a screen."""
_COMMANDS = {name: place.function for section in _SECTIONS.values() for name, place in section.items()} | _PLUMBING


def command_sections() -> dict[str, list[str]]:
    """Return the names of all commands by what they are for, in the order of the help."""
    sections = {title: list(places) for title, places in _SECTIONS.items()}
    sections[_OFFERED_IN] += _offered()
    return {**sections, "Also": list(_PLUMBING)}


def _offered() -> dict[str, RoomCommand]:
    """Return the commands that rooms offer, by name."""
    from rnnconvert.cli.room_commands import offered  # every room is looked at: of no use to a command of the table

    return offered()


class _CommandGroup(click.Group):
    """A group whose commands end with one paragraph and one of rnnconvert's exit codes when they fail; with --json, with one
    object on stdout.

    Click and Python end with 1 for anything that they do not expect. Here 1 means "not equal" alone, so all of it is caught.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands; none is imported."""
        return sorted([*_COMMANDS, *_offered()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by their purposes, on one screen of 24 lines; none is imported."""
        sections = {title: {name: place.what for name, place in places.items()} for title, places in _SECTIONS.items()}
        sections[_OFFERED_IN] |= {name: offer.what for name, offer in _offered().items()}
        title_width, width = max(map(len, _SECTIONS)), max(map(len, self.list_commands(ctx)))
        formatter.write_paragraph()
        for title, listed in sections.items():
            for number, (name, what) in enumerate(listed.items()):
                formatter.write(f"{'' if number else title:{title_width}}  {name:{width}}  {what}\n")
        formatter.write(f"{'Also':{title_width}}  {', '.join(_PLUMBING)}\n")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; its module is imported when it is first asked for."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module, _, function = _COMMANDS[cmd_name].partition(".")
            command = getattr(importlib.import_module(f"rnnconvert.cli.{module}"), function)
            self.add_command(in_order(with_switches(command)), cmd_name)
        elif cmd_name not in self.commands and cmd_name in _offered():
            from rnnconvert.cli.room_commands import command as command_of

            self.add_command(in_order(with_switches(command_of(_offered()[cmd_name]))), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant. Raises click.UsageError for any other word, with the command most like it."""
        if args[0] not in _COMMANDS and args[0] not in _offered():
            if os.path.exists(args[0]):  # noqa: PTH110  # pathlib takes longer to import than this command line may
                hint = f"To see what the file holds: rnnconvert inspect {args[0]}"
            else:
                import difflib  # of no use to a command that exists

                near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
                hint = f"Did you mean {near[0]!r}?" if near else "rnnconvert --help lists the commands."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; anything that it prints speaks of flags."""
        starting.imported()
        if not any(name in os.environ for name in _THREADS):
            # OpenBLAS's threads wait busily for one another: with other work on the machine they take several times as
            # long as one does. Large layers are computed in threads of ours.
            os.environ[_THREADS[0]] = "1"
        try:
            with remedies.of_the_command_line():
                return super().main(*args, **extra)
        except SystemExit as end:
            raise SystemExit(_flushed(end.code)) from None

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Return the context, with wrong usage of the options before the command printed as ours is."""
        words = list(args[1] if len(args) > 1 else extra["args"])
        try:
            return super().make_context(*args, **extra)
        except click.ClickException as error:
            failed = error
            raise click.exceptions.Exit(_exit_code(lambda: _click_failed(failed, _wants_json(words)), failed.exit_code)) from None
        except click.exceptions.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise click.exceptions.Exit(_unexpected(error, _wants_json(words), "--debug" in words)) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words, and whether machines read the output: a command that cannot be parsed has to know."""
        ctx.meta[_JSON] = _wants_json(args)
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        as_json, debug = ctx.meta[_JSON], bool(ctx.params.get("debug"))
        written = Changes()
        try:
            zeros_for_cut_files()
            with (
                changes() as written,
                timed(say),
                _ended_like_interrupted(),
                _warned_as_by_a_command(),
                strictly() if debug else contextlib.nullcontext(),
                reading() as under_way,
            ):
                try:
                    result = super().invoke(ctx)
                except click.exceptions.Exit:  # a verdict, too, is of what was read
                    under_way.check()
                    raise
                under_way.check()
                return result
        except click.exceptions.Exit:
            raise
        except click.ClickException as error:
            ended = error
            ctx.exit(_exit_code(lambda: _click_failed(ended, as_json), ended.exit_code))
        except RnnConvertError as error:
            failed = error
            ctx.exit(_exit_code(lambda: _ours_failed(failed, as_json, debug), failed.exit_code))
        except (Exception, KeyboardInterrupt) as error:
            ctx.exit(_unexpected(error, as_json, debug, written))


INTERNAL, OUTPUT = 70, 74
"""Exit codes as sysexits.h has them: a fault of the program, and output that cannot be written."""

CLOSED = 128 + 13
"""The exit code of a process that SIGPIPE ends: whoever reads the output closed it before the verdict was known."""


def _ours_failed(error: RnnConvertError, as_json: bool, debug: bool) -> int:
    if debug:
        put_lines(traceback.format_exc(), err=True)
    if as_json:
        emit({"error": as_document(error)})
    else:
        complain(error)
    return error.exit_code


def _unexpected(error: BaseException, as_json: bool, debug: bool, written: Changes | None = None) -> int:
    """Print what nobody raised on purpose, and return its exit code.

    written  what the command has written before
    """
    if isinstance(error, BrokenPipeError):
        _silence()
        return CLOSED
    if debug:
        _exit_code(lambda: put_lines("".join(traceback.format_exception(error)), err=True), 0)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        kind, text, code = "interrupted", f"interrupted; {error if str(error) else _changed(written)}", 130
    elif isinstance(error, MemoryError):
        kind, text, code = "out_of_memory", "out of memory", 3
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else "cannot write the output: "
        as_json = False  # stdout is what failed, if anything did
        _silence(sys.stdout)
        kind, text, code = "output", f"{where}{error.strerror or error}", OUTPUT
    else:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        kind, code = "internal", INTERNAL
        text = f"this is a fault of rnnconvert ({what}). Please report it, with what --debug shows (SECURITY.md says where)"
    return _exit_code(lambda: _failed(kind, text, code, as_json), code)


def _changed(written: Changes | None) -> str:
    """Return the sentence on files that an interrupted command has changed."""
    paths = written.paths() if written is not None else []
    if not paths:
        return "no file was changed"
    return f"{', '.join(paths)} {'was' if len(paths) == 1 else 'were'} written before, whole"


def _exit_code(tell: Callable[[], object], code: int) -> int:
    """Print an error, and return its exit code even where nothing can be printed."""
    try:
        tell()
    except OSError:
        _silence()
    return code


def _flushed(code: Any) -> Any:
    """Return an exit code, once all output is out: Python itself would end with 120 where it cannot be."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BrokenPipeError:
        _silence()
    except (OSError, ValueError) as error:
        _silence(sys.stdout)
        why = f"cannot write the output: {getattr(error, 'strerror', None) or error}"
        if not code:
            _exit_code(lambda: complain(why), OUTPUT)
        _silence(sys.stderr)
        return code or OUTPUT
    return code


def _silence(*streams: Any) -> None:
    """Let what is still to be printed go nowhere: nobody reads it, or it cannot be written."""
    for stream in streams or (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_JSON = "rnnconvert.json"


def _wants_json(words: Sequence[str]) -> bool:
    return "--json" in words[: words.index("--") if "--" in words else None]


def _failed(kind: str, text: str, code: int, as_json: bool) -> None:
    if as_json:
        emit({"error": {"kind": kind, "message": text, "exit_code": code}})
    else:
        complain(text)


_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What newer versions of click raise where a group is called without a command."""


def _click_failed(error: click.ClickException, as_json: bool) -> int:
    """Print an error of click's own, with the usage and the way to more help; return its exit code."""
    text, code = " ".join(error.format_message().split()), int(error.exit_code)  # click puts choices on lines of their own
    if isinstance(error, _HELP):
        error.show()
        return code
    if as_json:
        _failed("usage", text, code, as_json)
        return code
    ctx = getattr(error, "ctx", None)
    if ctx is not None:
        put_lines(ctx.get_usage(), err=True)
        say(f"Try '{ctx.command_path} --help' for help.")
    complain(text)
    return code


@contextlib.contextmanager
def _warned_as_by_a_command() -> Iterator[None]:
    """Show a warning of Python's as the command's own ones: without the line of code that gave it."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _ended_like_interrupted() -> Iterator[None]:
    """Let SIGTERM, which a cancelled job receives, and SIGHUP, where a terminal closes, clean up as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in wanted}
    try:
        for signal_number, handler in before.items():
            if handler is not signal.SIG_IGN:  # nohup
                signal.signal(signal_number, starting.interrupt)
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


@click.group(
    "rnnconvert", cls=_CommandGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="rnnconvert")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def main(debug: bool) -> None:
    """Move RNN, GRU and LSTM weights between frameworks, exactly, and prove it."""
