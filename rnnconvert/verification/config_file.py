"""A repository's claims of equivalence: a TOML file that says which models must compute the same.

    [[equal]]
    a = "models/encoder.keras"
    b = "models/encoder.onnx"
    on = ["keras-tensorflow", "onnxruntime-cpu"]   # and whatever else rnnconvert.Plan has
    atol = { y = 1e-4 }                            # and rtol: in place of what rounding explains

Paths are relative to the file.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import UnreadableError
from rnnconvert.verification.collect import Plan, Watch
from rnnconvert.verification.report import Report
from rnnconvert.verification.verify import verify

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "rnnconvert.toml"
_KINDS: Mapping[str, Any] = {
    "on": list, "cases": list, "layers": list, "pairs": list, "settings": list, "lengths": list, "seed": int,
    "batch": int, "time": int, "gradients": bool, "inputs": str,
}  # fmt: skip
"""What a claim may set in its plan, and the kind of value."""


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
        """What a report of it is called."""
        return _name_of(self, suffixes=False)

    @property
    def models(self) -> str:
        """Both files, in words."""
        return f"{self.a}" + (f" and {self.b}" if self.b else "")

    def names(self, files: Iterable[Path]) -> bool:
        """Return whether any of these files is one of its models."""
        own = {path.resolve() for path in (self.a, self.b) if path is not None}
        return any(file.resolve() in own for file in files)

    def check(
        self, watch: Watch = lambda text, done=0, total=0: None, *, explain: bool = True, jobs: int | None = None,
        cache: str | Path | None = None,
    ) -> Report:  # fmt: skip
        """Verify it, as `rnnconvert.verify` does with these choices; raises what it does."""
        return verify(
            self.a,
            self.b,
            self.plan,
            atol=self.atol,
            rtol=self.rtol,
            watch=watch,
            explain=explain,
            jobs=jobs,
            cache=cache,
        )


def named(claims: Sequence[Claim]) -> list[tuple[str, Claim]]:
    """Return claims with the names of their reports, each its own: a folder or a number tells apart what is called alike."""
    found: list[tuple[str, Claim]] = []
    taken: set[str] = set()
    short = [claim.name for claim in claims]
    for claim in claims:
        name = claim.name
        if short.count(name) > 1:
            name = "-".join(part for part in (claim.a.parent.name, _name_of(claim, suffixes=True)) if part)
        count, unique = 2, name
        while unique.lower() in taken:
            unique, count = f"{name}-{count}", count + 1
        taken.add(unique.lower())
        found.append((unique, claim))
    return found


def _name_of(claim: Claim, suffixes: bool) -> str:
    names = [path.name if suffixes else path.stem for path in (claim.a, claim.b) if path is not None]
    return "-".join(dict.fromkeys(names))


def read(path: Path) -> list[Claim]:
    """Return the claims of a file.

    Raises UnreadableError naming the claim and the key that is wrong.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnreadableError(path, f"it cannot be read: {error}") from None
    entries = document.get("equal")
    if not isinstance(entries, list) or not entries:
        raise UnreadableError(
            path, "it has no [[equal]] table with two models", 'Write: [[equal]] then a = "..." and b = "...".'
        )
    return list(_claims(path, entries))


def _claims(path: Path, entries: Iterable[Any]) -> Iterator[Claim]:
    for number, entry in enumerate(entries, 1):
        where = f"[[equal]] number {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("a"), str):
            raise UnreadableError(path, f"{where} has no model a")
        for key, value in entry.items():
            kind = _KINDS.get(
                key, (str if key in ("a", "b") else (float, int, dict) if key in ("atol", "rtol") else None)
            )
            if kind is None:
                raise UnreadableError(
                    path, f"{where} has the unknown key {key!r}, expected some of a, b, atol, rtol, {', '.join(_KINDS)}"
                )
            words = not isinstance(value, list) or all(
                isinstance(one, int if key == "lengths" else str) for one in value
            )
            numbers = not isinstance(value, dict) or all(isinstance(one, (int, float)) for one in value.values())
            if not (isinstance(value, kind) and words and numbers):
                raise UnreadableError(path, f"{where}: {key} is {value!r}, which is of the wrong kind")
        place = path.parent
        chosen = {key: entry[key] for key in _KINDS if key in entry}
        if "inputs" in chosen:
            chosen["inputs"] = str(place / chosen["inputs"])
        b = place / entry["b"] if "b" in entry else None
        yield Claim(place / entry["a"], b, dataclasses.replace(Plan(), **chosen), entry.get("atol"), entry.get("rtol"))
