"""The packages of the three top folders, found: each folder with an `__init__.py`. Everything else is in pyproject.toml."""

import sys
import tempfile
from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = {"rnnconvert": "rnnconvert", "rnnconvert.formats": "formats", "rnnconvert.cli": "cli"}
# rnnconvert/formats and rnnconvert/cli are links to the other two, for type checkers, editors and clones: through them all is below
# rnnconvert, and an editable install is a path to the clone, which type checkers follow. A Windows clone may have files in their place.
LINKED = "editable_wheel" in sys.argv and all(Path("rnnconvert", name).is_dir() for name in ("formats", "cli"))

with tempfile.TemporaryDirectory(prefix="rnnconvert-build-") as built:  # nothing is left in the folder that is installed from
    setup(
        packages=[
            *FOLDERS,
            *(f"rnnconvert.{name}" for name in find_packages("rnnconvert", exclude=["formats*", "cli*"])),
            *(f"rnnconvert.formats.{name}" for name in find_packages("formats")),
            *(f"rnnconvert.cli.{name}" for name in find_packages("cli")),
        ],
        package_dir={"": "."} if LINKED else FOLDERS,
        options={"build": {"build_base": built}, "egg_info": {"egg_base": built}},
    )
