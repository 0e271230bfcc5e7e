"""Core ML's tools, for the tests."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tests.requirements import needed


def tools() -> Any:
    """Coremltools, imported without the frameworks that it would load."""
    kept = {name: sys.modules.get(name) for name in ("tensorflow", "torch")}
    logging.getLogger("coremltools").setLevel(logging.CRITICAL)
    try:
        if "coremltools" not in sys.modules:
            sys.modules.update({name: None for name, one in kept.items() if one is None})  # type: ignore[misc]
        return needed("coremltools", "coremltools")
    finally:
        for name, one in kept.items():
            if one is None and sys.modules.get(name, kept) is None:
                del sys.modules[name]
