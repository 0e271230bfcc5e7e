"""Whether the packages of an executor are installed, without importing them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence


def absent(names: Sequence[str]) -> str:
    """Which of these packages are not installed, in words; "" if all are.

    >>> absent(["json", "email"])
    ''
    >>> absent(["json", "no_such_package"])
    'no_such_package is not installed'
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed" if missing else ""
