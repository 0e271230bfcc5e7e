"""The packages of the three top folders, found: each folder with an `__init__.py`. Everything else is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {"rnnconvert": "rnnconvert", "rnnconvert.formats": "formats", "rnnconvert.cli": "cli"}

setup(
    # rnnconvert/formats and rnnconvert/cli are links to the other two, for type checkers, editors and uninstalled clones only.
    packages=[
        *FOLDERS,
        *(f"rnnconvert.{name}" for name in find_packages("rnnconvert", exclude=["formats*", "cli*"])),
        *(f"rnnconvert.formats.{name}" for name in find_packages("formats")),
        *(f"rnnconvert.cli.{name}" for name in find_packages("cli")),
    ],
    package_dir=FOLDERS,
)
