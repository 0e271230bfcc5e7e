"""rnnconvert: the commands, how their errors end, and nothing else."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import click

from rnnconvert import __version__
from rnnconvert.cli.check import check
from rnnconvert.cli.convert import convert
from rnnconvert.cli.diagnose import diagnose
from rnnconvert.cli.diff import diff
from rnnconvert.cli.executors import executors
from rnnconvert.cli.formats import formats
from rnnconvert.cli.inspect import inspect
from rnnconvert.cli.layout import layout
from rnnconvert.cli.map import map_layers
from rnnconvert.cli.report import report
from rnnconvert.cli.transplant import transplant
from rnnconvert.cli.verify import run, verify
from rnnconvert.core import voice
from rnnconvert.core.errors import RnnConvertError

_EPILOG = """\b
Examples:
  rnnconvert inspect model.h5
  rnnconvert convert model.h5 model.onnx
  rnnconvert convert encoder.ckpt encoder.keras --layer model.lstm
  rnnconvert convert model.h5 proved.onnx --verify
  rnnconvert transplant model.h5 --into mine.pt -o filled.pt
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
    """A group whose commands end with one paragraph and an exit code of our own when they fail."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _ended_like_interrupted(), voice.of_the_command_line():
                return super().invoke(ctx)
        except RnnConvertError as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            with voice.of_the_command_line():
                _complain(str(error))
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            _complain("interrupted; every file is unchanged")
            ctx.exit(130)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)
        except MemoryError:
            _complain("out of memory")
            ctx.exit(3)


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


def _complain(text: str) -> None:
    from rnnconvert.cli.terminal import styled

    click.echo(f"{styled('error', 'red')}: {text}", err=True)


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
    map_layers,
    transplant,
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
