"""Executors' processes that go on from one test to the next: most of what a test of them takes is the import of a framework.

tests/conftest.py has the program keep its own there, but for tests that are marked `own_processes`; with --long every test starts its own.
"""

from __future__ import annotations

import contextlib

from rnnconvert.running import parent
from rnnconvert.running.kept import KeptProcesses
from rnnconvert.running.parent import Process
from rnnconvert.running.registry import Executor
from tests.helpers import drawn

UNREAD = (
    "COLUMNS", "ENABLE_RUNTIME_UPTIME", "FORCE_COLOR", "GITHUB_", "HDF5_PLUGIN_PATH", "NO_COLOR", "PYTEST_", "RNNCONVERT_",
    "TORCHINDUCTOR_", "TPU_",
)  # fmt: skip
"""How the names of variables begin that decide nothing in an executor: what frameworks write when they are imported is among them."""


KEEPER = KeptProcesses(most=14, most_uses=1_000_000, unread=UNREAD)


def running(executor: Executor) -> contextlib.AbstractContextManager[Process]:
    """An executor's process, kept for the next test that asks for it."""
    return parent.started(executor) if drawn.LONG else KEEPER.running(executor)
