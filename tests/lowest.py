"""Run tests with the lowest versions of the dependencies that pyproject.toml claims: `python -m tests.lowest [PYTHON]`.

It makes an environment in .environments/lowest, with the base dependencies alone and no framework, and runs the tests that need
none. Arguments after -- go to pytest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "test_hdf5", "test_pickles", "test_apart", "test_disturbed", "test_faulty_disks",
    "test_same_bytes", "test_layout_file", "test_literal", "test_layouts", "test_represent", "test_array_files",
)  # fmt: skip
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
    python, *more = [word for word in words if word != "--"] or [sys.executable]
    folder = ROOT / ".environments" / "lowest"
    inside = folder / "bin" / "python"
    if not inside.exists():
        if python == sys.executable:
            venv.create(folder, with_pip=True)
        else:
            subprocess.run([python, "-m", "venv", str(folder)], check=True)
        pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *lowest(), "pytest>=9", "hypothesis>=6.100"], check=True)
    files = [f"tests/{name}.py" for name in FILES]
    return subprocess.run([str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *more], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
