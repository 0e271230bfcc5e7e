"""What libraries in C++ write to stderr stays off the screen, and is shown after a fault."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from rnnconvert.cli.muted import libraries_muted
from rnnconvert.core.errors import UsageError
with libraries_muted():
    os.write(2, b"banner\\n")
    print("ours", file=sys.stderr)
    {then}
os.write(2, b"afterwards\\n")
"""


@pytest.mark.parametrize(
    ("then", "expected", "banner"),
    [("pass", "afterwards", False), ("raise UsageError('wrong')", "wrong", False), ("raise ValueError('fault')", "fault", True)],
)
def test_a_banner_is_shown_after_a_fault_alone(then: str, expected: str, banner: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM.format(then=then)], capture_output=True, text=True, timeout=60)
    assert "ours" in ran.stderr and expected in ran.stderr and ("banner\n" in ran.stderr) == banner


def test_a_closed_stderr_is_no_fault() -> None:
    program = "import os; os.close(2); from rnnconvert.cli.muted import libraries_muted\nwith libraries_muted(): print('done')"
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, env={**os.environ})
    assert ran.stdout == "done\n"
