"""The version of this package, and where people get it."""

__version__ = "0.1.0"

PUBLISHED = ""
"""The newest version that is on PyPI and has a tag; "" for none. Messages and pages name it (docs/releasing.md, docs/generate.py)."""

HOME = "https://github.com/rnnconvert/rnnconvert"


def requirement(extras: str = "") -> str:
    """Return the requirement for pip, quoted for a shell: the package, or its repository until there is a package.

    extras  with commas between
    """
    name = f"rnnconvert[{extras}]" if extras else "rnnconvert"
    return f"'{name}'" if PUBLISHED else f"'{name} @ git+{HOME}'"
