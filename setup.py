"""The packages of the three top folders, found: each folder with an `__init__.py`. Everything else is in pyproject.toml."""

import tempfile

from setuptools import find_packages, setup

FOLDERS = {"rnnconvert": "rnnconvert", "rnnconvert.formats": "formats", "rnnconvert.cli": "cli"}

with tempfile.TemporaryDirectory(prefix="rnnconvert-build-") as built:  # nothing is left in the folder that is installed from
    setup(
        # rnnconvert/formats and rnnconvert/cli are links to the other two, for type checkers, editors and uninstalled clones only.
        packages=[
            *FOLDERS,
            *(f"rnnconvert.{name}" for name in find_packages("rnnconvert", exclude=["formats*", "cli*"])),
            *(f"rnnconvert.formats.{name}" for name in find_packages("formats")),
            *(f"rnnconvert.cli.{name}" for name in find_packages("cli")),
        ],
        package_dir=FOLDERS,
        options={"build": {"build_base": built}, "egg_info": {"egg_base": built}},
    )
