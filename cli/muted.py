"""Libraries in C++ that write to stderr past Python: their banners stay off the screen."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from rnnconvert.core.errors import RnnConvertError


@contextlib.contextmanager
def libraries_muted() -> Iterator[None]:
    """Keep aside what libraries in C++ write to stderr on their own, such as TensorFlow on being imported; show it after a fault of ours.

    What Python prints still appears.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    ours = sys.stderr
    try:
        screen_handle = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as held, os.fdopen(screen_handle, "w", encoding=ours.encoding, errors=ours.errors, buffering=1) as screen:
        ours.flush()
        if _is_descriptor(ours, 2):
            sys.stderr = screen
        os.dup2(held.fileno(), 2)
        try:
            yield
        except RnnConvertError:
            raise
        except Exception:
            held.seek(0)
            os.write(screen_handle, held.read())
            raise
        finally:
            os.dup2(screen_handle, 2)
            sys.stderr = ours


def _is_descriptor(stream: Any, number: int) -> bool:
    try:
        return bool(stream.fileno() == number)
    except (OSError, ValueError):  # a stream of a test has none
        return False
