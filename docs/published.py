"""What pages say of installing rnnconvert: a package and a tag once there are, the repository and its branch until then.

`rnnconvert.core.version.PUBLISHED` decides, and docs/generate.py brings every page into line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rnnconvert.core import version

ROOT = Path(__file__).resolve().parent.parent

_PACKAGE = re.compile(r"(pip install (?:-\S+ )*)'?rnnconvert(?:\[([\w,-]+)\])?(?: @ git\+[^'\s]+)?'?(?![\w/.-])")
_ACTION = re.compile(r"(uses: rnnconvert/rnnconvert@)[\w.]+")
_HOOK = re.compile(r"(- repo: https://github.com/rnnconvert/rnnconvert\n\s+rev: )[\w.]+")


def pages() -> Iterator[Path]:
    """Yield what people read and copy: the pages, and the files of the example repositories."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("**/*.md"))
    yield from sorted(path for path in (ROOT / "examples").glob("**/*") if path.suffix in (".md", ".yml", ".yaml"))
    yield from sorted(path for path in (ROOT / "examples").glob("**/.*") if path.suffix in (".yml", ".yaml"))
    yield from sorted((ROOT / "examples").glob("**/.github/**/*.yml"))


def _revision() -> str:
    """Return the name of the newest version in a repository: its tag, or the branch until there is a tag."""
    return f"v{version.PUBLISHED}" if version.PUBLISHED else "main"


def as_published(text: str) -> str:
    """Return a page with what can be installed today."""
    text = _PACKAGE.sub(lambda match: match[1] + version.requirement(match[2] or ""), text)
    text = _ACTION.sub(lambda match: match[1] + _revision(), text)
    return _HOOK.sub(lambda match: match[1] + _revision(), text)
