"""Scripts of ours that run whole files in a framework, in a separate process: what they print is JSON, and what they save is .npz."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.temporary import check_room
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import ExecutorError, MissingPackageError
from rnnconvert.running import child
from rnnconvert.running.parent import DEFAULT_ENVIRONMENT, PATIENCE
from rnnconvert.running.registry import executors


def python_of(framework: str, absent: MissingPackageError) -> str:
    """Return the Python that has a framework: this one, unless an executor of that name has its own; raise `absent` without it."""
    python = next((executor.python for name, executor in executors().items() if name.startswith(framework)), sys.executable)
    if python == sys.executable and importlib.util.find_spec(framework) is None:
        raise absent
    return python


def answer_of(file: str, framework: str, absent: MissingPackageError, *arguments: str, **environment: str) -> dict[str, Any]:
    """Return the output of a script, run with the limits of an executor; "absent" and a text for "failed" are raised.

    absent       the error to raise without the framework
    environment  variables of its process, unless this one has them

    Raises ExecutorError where the script fails or ends, or takes too long.
    """
    command = [python_of(framework, absent), str(Path(child.__file__)), "--script", file, *arguments]
    every = {**DEFAULT_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "", **environment, **os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=every, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExecutorError(framework, str(error)) from None
    answer: dict[str, Any] | None = None
    with contextlib.suppress(ValueError, IndexError):
        answer = json.loads(done.stdout.splitlines()[-1])
    if answer is not None and "absent" in answer:
        raise absent
    failed = None if answer is None else answer.get("failed")
    check_room(framework, f"{failed} {done.stderr}")
    if answer is None or done.returncode or isinstance(failed, str):
        problem = failed if isinstance(failed, str) else f"its process ended with {done.returncode}"
        raise ExecutorError(framework, problem, done.stderr[-2000:])
    return answer


def saved(path: Path) -> list[Array]:
    """Return the arrays that a script has saved, in their order."""
    with np.load(path, allow_pickle=False) as archive:
        return [archive[name] for name in archive.files]
