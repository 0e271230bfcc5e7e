"""Which executors there are: those beside this file, found by looking, and those that a user added.

A user's executor lives in another Python (old frameworks need old ones), or in a file of the user's own. The list of
them is a JSON file: $RNNCONVERT_EXECUTORS, or executors.json in the user's folder of settings.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rnnconvert.containers.files import replacing
from rnnconvert.core.arguments import unknown
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import AbsentExecutorError, UnreadableError, UsageError, unreadable, unwritable
from rnnconvert.core.remedies import Flag
from rnnconvert.core.text_file import open_handle, read_text
from rnnconvert.language.rooms import rooms
from rnnconvert.running import child

VARIABLE = "RNNCONVERT_EXECUTORS"


_PATIENCE = 120
"""How many seconds another Python has to report its packages."""


@dataclass(frozen=True)
class Executor:
    """A way to run a format's files.

    name      what the user calls it
    module    file of the executor's module (rnnconvert.running)
    variant   which of its variants, by the name it has there
    python    the interpreter that it runs under
    """

    name: str
    module: str
    variant: str
    python: str = sys.executable

    @cached_property
    def _module(self) -> Any:
        return child.load(self.module)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The variant's own settings."""
        settings: Mapping[str, Any] = self._module.VARIANTS[self.variant]
        return settings

    @property
    def format(self) -> str:
        """The format whose files it runs."""
        return str(self.settings.get("format", self._module.FORMAT))

    @property
    def runs_whole_files(self) -> bool:
        """Whether it runs any file of its format whole, as it is."""
        return bool(getattr(self._module, "WHOLE_FILES", False))

    @property
    def coarse(self) -> float:
        """How many units in the last place of 1 its functions are off, however small their values are, if that is more than usual."""
        return float(getattr(self._module, "COARSE", 0.0))

    @property
    def suffix(self) -> str:
        """The ending of a file that is made for it."""
        return str(self.settings.get("suffix", self._module.SUFFIX))

    @property
    def supports(self) -> str:
        """The cells and features that it runs, in words."""
        return str(self.settings.get("supports", getattr(self._module, "SUPPORTS", "")))

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return str(self.settings["device"])

    @cached_property
    def about(self) -> dict[str, Any]:
        """Whether it can run ("absent": why not, or ""), "versions" of its packages, its "python" and "device"."""
        if self.python == sys.executable:
            return child.about(self._module, dict(self.settings))
        return _asked(self)

    @property
    def missing_packages(self) -> list[str]:
        """The packages, as pip calls them, that it imports and that are not installed; none where it runs under another Python."""
        needs = [*child.needed(self._module, self.settings), *filter(None, [self.settings.get("backend")])]
        other_names: Mapping[str, str] = getattr(self._module, "DISTRIBUTIONS", {})
        lacking = [name for name in needs if self.python == sys.executable and child.missing([name])]
        return [other_names.get(name, name.replace("_", "-")) for name in lacking]

    @property
    def absent(self) -> str:
        """Why it cannot run here, or "" if it can."""
        return str(self.about["absent"])


def _asked(executor: Executor) -> dict[str, Any]:
    """Return the report of the executor's own Python."""
    script = str(Path(child.__file__))
    command = [executor.python, script, executor.module, "--about", json.dumps(dict(executor.settings))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        last = done.stderr.strip().splitlines()[-1:] if isinstance(error, ValueError) else [str(error)]
        return {"absent": f"{executor.python} does not run it: {' '.join(last)}", "versions": {}, "python": "", "device": ""}
    return answer


@functools.cache
def built_in() -> dict[str, Executor]:
    """Return the executors in the frameworks' rooms, by name."""
    result = {}
    for module in rooms("run*"):
        imported = importlib.import_module(module)
        for name in getattr(imported, "VARIANTS", ()):
            result[name] = Executor(name, str(Path(str(imported.__file__))), name)
    return result


def executors() -> dict[str, Executor]:
    """Return every executor by name; one that a user added replaces a built-in one of that name.

    Raises UnreadableError if the list of those added is damaged.
    """
    added = _added()
    for entry in added.values():
        _check(entry)
    return {**built_in(), **added}


def _check(entry: Executor) -> None:
    """Raise UnreadableError if the file of an added executor is gone, or is no longer an executor."""
    try:
        exists = entry.variant in _variants(entry.module)
    except UnreadableError as error:
        raise UnreadableError(error.path, error.problem, f"Remove it with: rnnconvert executors remove {entry.name}") from None
    if not exists:
        raise UnreadableError(entry.module, f"it no longer has the variant {entry.variant!r}", f"Add {entry.name} again.")


def executor(name: str) -> Executor:
    """Return the executor of that name.

    Raises UsageError, listing the known ones; AbsentExecutorError if it cannot run here, saying why.
    """
    chosen = executors().get(name)
    if chosen is None:
        raise unknown("executor", name, executors())
    if chosen.absent:
        raise AbsentExecutorError(name, chosen.absent)
    return chosen


def listing() -> Path:
    """Return the file that lists the executors added."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "rnnconvert" / "executors.json"


def _added() -> dict[str, Executor]:
    path = listing()
    if not path.is_file():
        return {}
    try:
        entries = json.loads(read_text(path))
        return {entry["name"]: Executor(**entry) for entry in entries}
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableError(path, f"it is not a list of executors: {error}", "Repair or delete the file.") from None


def add(name: str, python: str, like: str = "", module: str = "") -> Executor:
    """Add an executor under another Python, and remember it.

    like    the built-in executor that it runs there; the one of the same name if ""
    module  file of an executor of the user's own instead; `like` then names its variant, the only one if ""

    Raises UsageError if there is no such executor or interpreter, or if the interpreter cannot run it.
    """
    if module:
        variants = _variants(module)
        if not like and len(variants) != 1:
            raise UsageError(f"{module} has several variants: {', '.join(variants)}. Choose one with {Flag('like')}")
        entry = Executor(name, str(Path(module).resolve()), like or variants[0], python)
    else:
        original = built_in().get(like or name)
        if original is None:
            raise UsageError(
                f"Unknown built-in executor {like or name!r} for {python}. Choose one with {Flag('like')}: {', '.join(built_in())}"
            )
        entry = Executor(name, original.module, original.variant, python)
    if entry.absent:
        raise UsageError(f"{name} cannot run under {python}: {entry.absent}")
    _remember({**_added(), name: entry})
    return entry


def _variants(module: str) -> list[str]:
    """Return the variants of an executor's module. Raises UnreadableError if the file is not an executor."""
    try:
        os.close(open_handle(module))
        loaded = child.load(module)
        lacking = [name for name in ("NEEDS", "FORMAT", "SUFFIX", "answer") if not hasattr(loaded, name)]
        lacking += [f"device of {name!r}" for name, variant in loaded.VARIANTS.items() if "device" not in variant]
        if lacking:
            raise AttributeError(f"no {lacking[0]}")
        return list(loaded.VARIANTS)
    except OSError as error:
        raise unreadable(module, error) from None
    except UnreadableError:
        raise
    except Exception as error:  # a user's file may raise anything
        raise UnreadableError(module, f"it is not an executor: {type(error).__name__} {error}") from None


def remove(name: str) -> None:
    """Remove an executor that was added. Raises UsageError if there is none of that name."""
    there = _added()
    if name not in there:
        raise UsageError(f"no executor {name!r} was added. Those added: {', '.join(there) or 'none'}")
    _remember({key: value for key, value in there.items() if key != name})


def _remember(added: Mapping[str, Executor]) -> None:
    path = listing()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    with replacing(path) as file:
        file.write(json.dumps([asdict(entry) for entry in added.values()], indent=2).encode() + b"\n")
