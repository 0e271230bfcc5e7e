"""Core ML's tools, for the tests."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tests.helpers.requirements import needed


def tools() -> Any:
    """Coremltools, imported without the frameworks that it would load."""
    modules = {name: sys.modules.get(name) for name in ("tensorflow", "torch")}
    logging.getLogger("coremltools").setLevel(logging.CRITICAL)
    try:
        if "coremltools" not in sys.modules:
            sys.modules.update({name: None for name, module in modules.items() if module is None})  # type: ignore[misc]
        return needed("coremltools", "coremltools")
    finally:
        for name, module in modules.items():
            if module is None and sys.modules.get(name, modules) is None:
                del sys.modules[name]
