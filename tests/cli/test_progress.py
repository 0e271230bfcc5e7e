"""What shows that work is going on: only on a terminal, only after a while, never on a line of something else, and gone in the end."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from rnnconvert.cli import progress, terminal
from tests.cli.test_cli_terminal import EVIL, raw
from tests.helpers.commands import on_a_terminal


class Screen(io.StringIO):
    """A stderr that is a terminal and keeps what it is given."""

    def isatty(self) -> bool:
        return True


def screen_of(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Put a screen in the place of stderr; pytest would take back what a fixture put there."""
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress.Watch, "PATIENCE", 0.05)
    return stream


def text_on(screen: Screen) -> str:
    """What was drawn, without the codes of a terminal."""
    console = Console(file=io.StringIO(), width=500)
    with console.capture() as capture:
        from rich.text import Text

        console.print(Text.from_ansi(screen.getvalue().replace("\r", "\n")), soft_wrap=True)
    return capture.get()


def wait_for(screen: Screen, text: str) -> None:
    end = time.monotonic() + 10
    while text not in text_on(screen):
        assert time.monotonic() < end, screen.getvalue()
        time.sleep(0.02)


def test_work_that_ends_at_once_shows_nothing_and_imports_no_library_that_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    monkeypatch.setattr(progress.Watch, "PATIENCE", 60.0)
    with progress.watching(False) as watch:
        watch("reading model.h5", 1, 2)
    assert screen.getvalue() == ""
    code = "import sys, rnnconvert.cli.main, rnnconvert.cli.convert, rnnconvert.cli.batch; print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_phase_the_amount_and_a_remark_are_shown_and_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    with progress.watching(False) as watch:
        watch(f"reading [bold]{EVIL}[/bold]", 1, 2)
        wait_for(screen, "1 of 2")
        assert "reading [bold]a" in text_on(screen)
        watch("converting", 1_200, 3_000, "7 failed")
        wait_for(screen, "1,200 of 3,000  7 failed")
        watch("writing out.h5", 25_000_000, 100_000_000, unit="MB")
        wait_for(screen, "25 of 100 MB")
    assert raw(text_on(screen)) <= {"\n"}


def test_a_line_that_is_printed_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    with progress.watching(False) as watch:
        for number in range(3):
            watch("converting", number, 3)
            wait_for(screen, f"{number} of 3")
            terminal.complain(f"file {number} cannot be read")
    printed = screen.getvalue()
    for number in range(3):
        (row,) = [row for row in printed.replace("\r", "\n").split("\n") if f"file {number} cannot" in row]
        assert row.partition("\x1b[2K")[2].startswith("\x1b[31m\x1b[1merror"), row  # the drawn line was removed, and nothing else is on it
        assert "converting" not in row
    assert terminal.held_back is contextlib.nullcontext and screen.getvalue().endswith("\x1b[2K")


def test_nothing_is_drawn_where_there_is_no_terminal_and_when_asked_to_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    with progress.watching(True) as watch:
        watch("reading", 1, 2)
        time.sleep(0.2)
    assert screen.getvalue() == ""
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with progress.watching(False) as watch:
        watch("reading", 1, 2)
        time.sleep(0.2)
    assert plain.getvalue() == ""


def test_an_interrupted_command_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    code, output = on_a_terminal("batch", tmp_path, "--to", "onnx", "--out", tmp_path / "out")
    assert code == 3 and output.count("\x1b[?25l") == output.count("\x1b[?25h")  # the cursor that is hidden is shown again
