"""The command line, run in the tests' own process."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from click.testing import CliRunner, Result

from rnnconvert.cli.main import main
from tests import ROOT


def call(*words: object, stdin: bytes | None = None, **environment: str) -> Result:
    """Run the command with these words. An exception that the command does not handle fails the test.

    stdin        its standard input
    environment  variables of its process
    """
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def on_a_terminal(*words: object, columns: int = 80, **environment: str) -> tuple[int, str]:
    """The exit code of a command in a process of its own, and what a terminal of that width shows of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    child = subprocess.Popen(
        [sys.executable, "-m", "rnnconvert", *map(str, words)], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL,
        env={**clean, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 1 << 12)
        except OSError:  # Linux says so where the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    return child.wait(), output.decode().replace("\r\n", "\n")
