"""Copies of the process (fork) that a program makes while its other threads use rnnconvert.

A copy has no other threads. What one of them was importing stays locked in it for ever, by Python's own locks.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

_PACKAGES = {"rnnconvert", "numpy", "ml_dtypes", "safetensors", "h5py", "google", "click", "yaml", *sys.stdlib_module_names}
_locked: list[str] = []
"""The modules that can never be imported here."""


def watch_copies() -> None:
    """Find out in every copy of this process, which this function is called in once, what is locked in it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _locked.extend(_importing()))


def check_copy() -> None:
    """Raise RuntimeError in a copy of a process in which an import would wait for ever."""
    if _locked:
        raise RuntimeError(
            f"this process is a copy (fork), made while another thread imported {_locked[0]}, which nothing can import here any more. "
            "Start processes by spawn (multiprocessing.get_context), or before the threads"
        )


def _importing() -> Iterator[str]:
    """Yield the modules that other threads were importing when this process was copied."""
    for name, lock in [*getattr(sys.modules["_frozen_importlib"], "_module_locks", {}).items()]:
        if name.partition(".")[0] in _PACKAGES and getattr(lock(), "owner", None) not in (None, threading.get_ident()):
            yield name
