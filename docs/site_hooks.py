"""What mkdocs does with the pages: those of a folder are in the menu under the page of its name, and links to files outside of docs/
lead to the repository, if the file is there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/rnnconvert/rnnconvert"
REFERENCE = 0.2
"""How much a hit counts in the search that is in a page of a folder, or in one of TABLES: what explains comes first."""
TABLES = {"compared.md", "pairs.md", "reference.md"}
_UPWARD = re.compile(r"\]\((?P<path>\.\./[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any, **_: Any) -> Any:
    """Return the configuration with a section in the menu for each page that has a folder of pages: `errors.md` and `errors/`."""
    for section in config.nav or ():
        for entries in section.values() if isinstance(section, dict) else ():
            for entry in entries if isinstance(entries, list) else ():
                for title, page in entry.items() if isinstance(entry, dict) else ():
                    below = sorted((Path(config.docs_dir) / Path(page).stem).glob("*.md")) if isinstance(page, str) else []
                    if below:
                        entry[title] = [page, *(f"{path.parent.name}/{path.name}" for path in below)]
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with links to GitHub in place of those that leave docs/. Raises PluginError for a file that is missing."""
    if "/" in page.file.src_path or page.file.src_path in TABLES:
        page.meta.setdefault("search", {"boost": REFERENCE})

    def outside(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_path), match["path"]))
        if path.startswith("docs/"):
            return match[0]
        there = ROOT / path
        if not there.exists():
            raise PluginError(f"{page.file.src_path} links to ../{path}, which does not exist")
        return f"]({REPOSITORY}/{'tree' if there.is_dir() else 'blob'}/main/{path}{match['anchor'] or ''})"

    return _UPWARD.sub(outside, markdown)
