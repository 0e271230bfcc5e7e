"""A part for tests.gpu whose cases hang, crash and fail: what comes after them has to run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from tests.gpu.records import EQUAL, Absence, Refusal
from tests.gpu.work import Case, Outcome, Work


def cases(work: Work) -> list[Case]:
    """Faults, with good cases between them."""

    def good() -> Outcome:
        return Outcome(EQUAL, ratio=0.5, arrays={"": np.ones(3, np.float32)})

    def hang() -> Outcome:
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (work.folder / "grandchild").write_text(str(grandchild.pid))
        time.sleep(600)
        return good()

    def killed() -> Outcome:
        os.kill(os.getpid(), signal.SIGSEGV)
        return good()

    def left() -> Outcome:
        os._exit(3)

    def failing() -> Outcome:
        raise RuntimeError("cudaMemcpy returned 700")

    def wrong() -> Outcome:
        raise ValueError("a mistake of ours")

    def refused() -> Outcome:
        raise Refusal("the library does not do this")

    def absent() -> Outcome:
        raise Absence("a package is missing")

    faults = {"hang": hang, "crash": killed, "exit": left, "CUDA": failing, "mistake": wrong, "no": refused, "gone": absent}
    listed = [Case("first", good)]
    for name, run in faults.items():
        listed += [Case(name, run), Case(f"after {name}", good)]
    return listed
