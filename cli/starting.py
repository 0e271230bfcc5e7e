"""Imported before all else: Ctrl-C during the imports ends the program by its signal, and not somewhere inside a library.

And the search for cycles of garbage waits: hundreds of thousands of objects that the imports make stay until the end.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    try:  # `signal` builds enumerations first: most of the time in which nothing is prepared
        import _signal as signal
    except ImportError:
        import signal

_HELD = signal.getsignal(signal.SIGINT) is signal.default_int_handler
try:
    if _HELD:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except ValueError:  # in another thread than the main one
    _HELD = False

import gc  # noqa: E402
import threading  # noqa: E402
from types import FrameType  # noqa: E402

if _HELD:
    gc.set_threshold(100_000, 50, 100)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, now that everything is imported; libraries that commands import later load whole."""
    global _HELD
    if _HELD:
        signal.signal(signal.SIGINT, interrupt)
    _HELD = False


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but never within an import.

    A library in C++ that calls Python while it loads ends the process with an abort for any exception (onnx by nanobind does).
    """
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename == "<frozen importlib._bootstrap>":
            again = threading.Timer(0.02, signal.pthread_kill, (threading.main_thread().ident, number))
            again.daemon = True
            again.start()
            return
        caller = caller.f_back
    signal.default_int_handler(number, frame)
