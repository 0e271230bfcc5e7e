"""Copies of a process (fork) whose threads read: each ends, with what it read or with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied on this system")
EXAMPLES = ROOT / "examples"

START = """
import os, signal, sys, threading
import rnnconvert as rc

inside = threading.Event()

def block(*_):
    inside.set()
    threading.Event().wait()

def end(pid):
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print({-signal.SIGALRM: "waits for ever"}.get(code, code), flush=True)
    os._exit(0)

def copy(read):
    inside.wait()
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        try:
            read()
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    end(pid)
"""

PROPERTY = """
import inspect
from rnnconvert.files.opened import Opened
rc.load(sys.argv[1])
computed = inspect.getattr_static(Opened, "kinds")
real, computed.func = computed.func, block
threading.Thread(target=rc.load, args=sys.argv[1:], daemon=True).start()

def read():
    computed.func = real
    print(*rc.load(sys.argv[1]).layers, flush=True)

copy(read)
"""

IMPORT = """
sys.addaudithook(lambda event, words: block() if event == "exec" and words[0].co_filename.endswith("files/load.py") else None)
threading.Thread(target=lambda: rc.load(sys.argv[1]), daemon=True).start()
copy(lambda: rc.load(sys.argv[1]))
"""


def run(script: str, *words: object) -> str:
    done = subprocess.run([sys.executable, "-c", START + script, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_copy_reads_what_another_thread_was_reading() -> None:
    assert run(PROPERTY, EXAMPLES / "decoder.keras") == "decoder\n0\n"


def test_a_copy_in_which_an_import_would_wait_for_ever_says_so() -> None:
    printed = run(IMPORT, EXAMPLES / "exported.onnx")
    assert printed.startswith("this process is a copy (fork), made while another thread imported rnnconvert.files.load, which nothing can")
    assert "Start processes by spawn" in printed and printed.endswith("\n0\n")


TEMPORARY = """
rc.load(open(sys.argv[1], "rb").read())
there = sorted(os.listdir(sys.argv[2]))
pid = os.fork()
if not pid:
    sys.exit(0)  # it does what the process left to be done at its end
os.waitpid(pid, 0)
print(len(there), sorted(os.listdir(sys.argv[2])) == there)
"""


def test_a_copy_leaves_the_temporary_files_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run(TEMPORARY, EXAMPLES / "encoder.keras", tmp_path) == "2 True\n"
    assert not [*tmp_path.iterdir()]
