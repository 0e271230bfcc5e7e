"""Imported before all else: Ctrl-C during the imports ends the program by its signal, and not somewhere inside a library.

And the search for cycles of garbage waits: hundreds of thousands of objects that the imports make stay until the end.
"""

from __future__ import annotations

import gc
import signal

_HELD = signal.getsignal(signal.SIGINT) is signal.default_int_handler
try:
    if _HELD:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except ValueError:  # in another thread than the main one
    _HELD = False

if _HELD:
    gc.set_threshold(100_000, 50, 100)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, now that everything is imported."""
    global _HELD
    if _HELD:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _HELD = False
