"""What mkdocs does with the pages: links to files outside of docs/ lead to the repository, if the file is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/rnnconvert/rnnconvert"
_OUTSIDE = re.compile(r"\]\(\.\./(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with links to GitHub in place of those that leave docs/. Raises PluginError for a file that is missing."""

    def outside(found: re.Match[str]) -> str:
        path = found["path"].rstrip("/")
        there = ROOT / path
        if not there.exists():
            raise PluginError(f"{page.file.src_path} links to ../{path}, which does not exist")
        return f"]({REPOSITORY}/{'tree' if there.is_dir() else 'blob'}/main/{path}{found['anchor'] or ''})"

    return _OUTSIDE.sub(outside, markdown)
