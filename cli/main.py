"""rnnconvert: the commands, how their errors end, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import click

from rnnconvert import __version__
from rnnconvert.cli.check import check
from rnnconvert.cli.completion import WORDS
from rnnconvert.cli.convert import convert
from rnnconvert.cli.diagnose import diagnose
from rnnconvert.cli.diff import diff
from rnnconvert.cli.executors import executors
from rnnconvert.cli.formats import formats
from rnnconvert.cli.inspect import inspect
from rnnconvert.cli.layout import layout
from rnnconvert.cli.map import map_layers
from rnnconvert.cli.report import report
from rnnconvert.cli.terminal import as_document, complain, emit, put_lines, say
from rnnconvert.cli.transplant import transplant
from rnnconvert.cli.upgrade import upgrade
from rnnconvert.cli.verify import run, verify
from rnnconvert.cli.view import view
from rnnconvert.core import voice
from rnnconvert.core.errors import RnnConvertError

_EPILOG = """\b
Examples:
  rnnconvert inspect model.h5
  rnnconvert view model.h5
  rnnconvert convert model.h5 model.onnx
  rnnconvert convert encoder.ckpt encoder.keras --layer model.lstm
  rnnconvert convert model.h5 proved.onnx --verify
  rnnconvert transplant model.h5 --into mine.pt -o filled.pt
  rnnconvert upgrade old.h5 new.keras
  rnnconvert verify model.h5 model.onnx --report report.html
  rnnconvert diff model.h5 model.onnx
  rnnconvert diagnose model.h5 model.onnx
  rnnconvert layout cudnn --cell lstm --input-size 3 --hidden-size 5

\b
Exit codes: 0 done, 1 not equal, 2 wrong usage, 3 unreadable or unknown input,
4 refused (the target cannot represent it), 5 a package, an executor or a GPU is missing,
130 interrupted. After any code but 0 every file is unchanged, except for reports.

\b
Completion for bash (likewise zsh, fish):
  eval "$(_RNNCONVERT_COMPLETE=bash_source rnnconvert)"
"""


class _Group(click.Group):
    """A group whose commands end with one paragraph and an exit code of our own when they fail; with --json, with one
    object on stdout.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; whatever it prints speaks of flags."""
        if not any(name in os.environ for name in _THREADS):
            # OpenBLAS's threads wait busily for one another: with other work on the machine they take several times as
            # long as one does. Large layers are computed in threads of ours.
            os.environ[_THREADS[0]] = "1"
        with voice.of_the_command_line():
            try:
                return super().main(*args, **extra)
            except OSError as error:  # a full disk behind stdout: what a command does with files has errors of its own
                _failed("unwritable", f"cannot write the output: {error.strerror or error}", 2, as_json=False)
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.close()
                sys.exit(2)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Return the context, with wrong usage of the options before the command printed as ours is."""
        words = list(args[1] if len(args) > 1 else extra["args"])
        try:
            return super().make_context(*args, **extra)
        except click.ClickException as error:
            raise click.exceptions.Exit(_click_failed(error, _wants_json(words))) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words, and whether machines read the output: a command that cannot be parsed has to know."""
        ctx.meta[_JSON] = _wants_json(args)
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        as_json = ctx.meta[_JSON]
        try:
            with _ended_like_interrupted():
                return super().invoke(ctx)
        except click.ClickException as error:
            ctx.exit(_click_failed(error, as_json))
        except RnnConvertError as error:
            if ctx.params.get("debug"):
                put_lines(traceback.format_exc(), err=True)
            if as_json:
                emit({"error": as_document(error)})
            else:
                complain(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            _failed("interrupted", "interrupted; every file is unchanged", 130, as_json)
            ctx.exit(130)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)
        except MemoryError:
            _failed("out_of_memory", "out of memory", 3, as_json)
            ctx.exit(3)


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
    text, code = error.format_message(), int(error.exit_code)
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
def _ended_like_interrupted() -> Iterator[None]:
    """Let SIGTERM, which a cancelled job receives, clean up as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(
    "rnnconvert",
    cls=_Group,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rnnconvert")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def main(debug: bool) -> None:
    """Move trained RNN, GRU and LSTM weights between frameworks, exactly, or learn why it cannot be done."""


for command in (
    convert,
    inspect,
    view,
    map_layers,
    transplant,
    upgrade,
    verify,
    run,
    check,
    report,
    diff,
    diagnose,
    executors,
    formats,
    layout,
):
    main.add_command(command)
