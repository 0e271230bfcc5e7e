"""A repository's claims of equivalence: a TOML file that lists which models must compute the same.

    [[equal]]
    a = "models/encoder.keras"
    b = "models/encoder.onnx"
    on = ["keras-tensorflow", "onnxruntime-cpu"]   # and any other field of rnnconvert.Plan
    atol = { y = 1e-4 }                            # and rtol: in place of what rounding explains

Paths are relative to the file. `*` and `?` in a name stand for letters, `**` for folders; in b they take, in their order, the text that
they stand for in a:

    [[equal]]
    a = "models/*.keras"
    b = "exported/*.onnx"       # models/encoder.keras and exported/encoder.onnx, and so on
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.text_file import read_text
from rnnconvert.verification.plan import Plan, Watch
from rnnconvert.verification.report import Report
from rnnconvert.verification.verify import verify

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "rnnconvert.toml"
_MODELS_AND_TOLERANCES: Mapping[str, Any] = {"a": str, "b": str, "atol": (float, int, dict), "rtol": (float, int, dict)}
_KINDS: Mapping[str, Any] = {
    "on": list,
    "cases": list,
    "layers": list,
    "pairs": list,
    "settings": list,
    "lengths": list,
    "seed": int,
    "batch": int,
    "time": int,
    "gradients": bool,
    "inputs": str,
}
"""The settings that a claim may have for its plan, and the kind of value."""


@dataclass(frozen=True)
class Claim:
    """Two models that must compute the same, or one that must do so everywhere (b None)."""

    a: Path
    b: Path | None
    plan: Plan
    atol: Mapping[str, float] | float | None = None
    rtol: Mapping[str, float] | float | None = None

    @property
    def name(self) -> str:
        """The name of its report."""
        return _name_of(self, suffixes=False)

    @property
    def models(self) -> str:
        """Both files, in words."""
        return f"{self.a}" + (f" and {self.b}" if self.b else "")

    def names(self, files: Iterable[Path]) -> bool:
        """Return whether any of these files is one of its models."""
        claimed = {path.resolve() for path in (self.a, self.b) if path is not None}
        return any(file.resolve() in claimed for file in files)

    def check(
        self,
        watch: Watch = lambda text, done=0, total=0: None,
        *,
        explain: bool = True,
        jobs: int | None = None,
        cache: str | Path | None = None,
        strict: bool = False,
    ) -> Report:
        """Verify it, as `rnnconvert.verify` does with these choices; raises what it does."""
        return verify(
            self.a, self.b, self.plan, atol=self.atol, rtol=self.rtol, watch=watch, explain=explain, jobs=jobs, cache=cache, strict=strict
        )


def named(claims: Sequence[Claim]) -> list[tuple[str, Claim]]:
    """Return claims with the names of their reports, each its own: a folder or a number tells apart what is called alike."""
    result: list[tuple[str, Claim]] = []
    names: set[str] = set()
    short = [claim.name for claim in claims]
    for claim in claims:
        name = claim.name
        if short.count(name) > 1:
            name = "-".join(part for part in (claim.a.parent.name, _name_of(claim, suffixes=True)) if part)
        count, unique = 2, name
        while unique.lower() in names:
            unique, count = f"{name}-{count}", count + 1
        names.add(unique.lower())
        result.append((unique, claim))
    return result


def _name_of(claim: Claim, suffixes: bool) -> str:
    names = [path.name if suffixes else path.stem for path in (claim.a, claim.b) if path is not None]
    return "-".join(dict.fromkeys(names))


def read(path: Path) -> list[Claim]:
    """Return the claims of a file.

    Raises UnreadableError naming the claim and the key that is wrong.
    """
    try:
        document = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableError(path, f"it is not valid TOML: {error}") from None
    entries = document.get("equal")
    if not isinstance(entries, list) or not entries:
        raise UnreadableError(path, "it has no [[equal]] table with two models", 'Write: [[equal]] then a = "..." and b = "...".')
    return list(_claims(path, entries))


def _claims(path: Path, entries: Iterable[Any]) -> Iterator[Claim]:
    for number, entry in enumerate(entries, 1):
        where = f"[[equal]] number {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("a"), str):
            raise UnreadableError(path, f"{where} has no model a")
        for key, value in entry.items():
            kind = {**_KINDS, **_MODELS_AND_TOLERANCES}.get(key)
            if kind is None:
                raise UnreadableError(path, f"{where} has the unknown key {key!r}, expected some of a, b, atol, rtol, {', '.join(_KINDS)}")
            words = not isinstance(value, list) or all(isinstance(item, int if key == "lengths" else str) for item in value)
            numbers = not isinstance(value, dict) or all(isinstance(element, (int, float)) for element in value.values())
            if not (isinstance(value, kind) and words and numbers):
                raise UnreadableError(path, f"{where}: {key} is {value!r}, which is of the wrong kind")
        place = path.parent
        chosen = {key: entry[key] for key in _KINDS if key in entry}
        if "inputs" in chosen:
            chosen["inputs"] = str(place / chosen["inputs"])
        plan = dataclasses.replace(Plan(), **chosen)
        for a, b in _models(path, where, entry["a"], entry.get("b")):
            yield Claim(place / a, None if b is None else place / b, plan, entry.get("atol"), entry.get("rtol"))


_WILD = re.compile(r"\*\*/|\*|\?")
_STANDS_FOR = {"**/": "((?:[^/]+/)*)", "*": "([^/]*)", "?": "([^/])"}


def _models(path: Path, where: str, a: str, b: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield the pairs that a claim names: one, or where a has wildcards one for each file that it fits.

    Raises UnreadableError if nothing fits, or if b has wildcards that a does not fill.
    """
    wild = _WILD.findall(a)
    theirs = [] if b is None or (path.parent / b).exists() else _WILD.findall(b)
    if not wild or (path.parent / a).exists():
        if theirs:
            raise UnreadableError(path, f"{where}: {b!r} has {theirs[0]!r}, but nothing in {a!r} says what it stands for")
        yield a, b
        return
    if theirs and theirs != wild:
        raise UnreadableError(
            path,
            f"{where}: the wildcards of b take what those of a stand for, but {b!r} has {' '.join(theirs)} and {a!r} has {' '.join(wild)}",
        )
    pattern = re.compile("".join(_STANDS_FOR.get(part, re.escape(part)) for part in re.split(f"({_WILD.pattern})", a)))
    matches = [(name, pattern.fullmatch(name)) for name in _files(path.parent, a)]
    pairs = [(name, match.groups()) for name, match in matches if match is not None]
    if not pairs:
        raise UnreadableError(path, f"{where}: no file fits {a!r}", "Correct the pattern, or remove the claim.")
    for name, letters in pairs:
        filled = iter(letters)
        yield name, _WILD.sub(lambda _, filled=filled: next(filled), b) if theirs and b is not None else b  # type: ignore[misc]


def _files(folder: Path, pattern: str) -> list[str]:
    """Return the files below a folder that match a pattern, in the order of the names; hidden files only if it names the dot."""
    paths = folder.glob(pattern.replace("[", "[[]")) if not Path(pattern).is_absolute() else Path("/").glob(pattern[1:])
    names = [str(path if Path(pattern).is_absolute() else path.relative_to(folder)) for path in paths]
    hidden = any(part.startswith(".") for part in Path(pattern).parts)
    return sorted(name for name in names if hidden or not any(part.startswith(".") for part in Path(name).parts))
