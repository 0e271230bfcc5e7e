"""Run tests with the lowest versions of the dependencies that pyproject.toml claims: `python -m tests.lowest [--newest] [PYTHON]`.

It makes an environment in .environments/lowest, with the base dependencies alone and no framework, and runs the tests that need
none. With --newest they have the newest versions, as a new user's Python would get them, in .environments/newest. Arguments after
-- go to pytest.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "containers/test_hdf5",
    "containers/test_pickles",
    "containers/test_apart",
    "containers/test_disturbed",
    "containers/test_faulty_disks",
    "containers/test_same_bytes",
    "language/test_layout_file",
    "language/test_literal",
    "language/test_layouts",
    "rewrites/test_represent",
    "files/test_array_files",
)
"""Tests that need no framework, nor what newer versions of click have for tests: containers, layouts, rewrites, writing."""


def lowest() -> list[str]:
    """Return the base dependencies of pyproject.toml, each pinned to the lowest version that it allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    return [
        f"{name}=={version}{';' + marker if marker else ''}"
        for name, version, marker in re.findall(r'"([\w-]+)>=([\d.]+)(?:; (.*?))?"', block[1])
    ]


def main(words: Sequence[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    newest = "--newest" in words[:split]
    python = next((word for word in words[:split] if word != "--newest"), sys.executable)
    folder = ROOT / ".environments" / ("newest" if newest else "lowest")
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        needed = [name.partition("==")[0] for name in lowest() if "tomli" not in name] if newest else lowest()
        pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *needed, "pytest>=9", "hypothesis>=6.100"], check=True)
    files = [f"tests/{name}.py" for name in FILES]
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *words[split + 1 :]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
