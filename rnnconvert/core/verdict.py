"""The verdict of a comparison: one word, and everything that the word does not cover.

Nothing else says that two things are equal: reports, exit codes, exceptions and truth values are read off a Verdict, which is
made from the evidence alone, so that what was left out cannot be dropped on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Word = Literal["equal", "equal but for", "recurrent layers equal", "equal layer by layer, not run whole", "not equal", "not compared"]

EQUAL: Word = "equal"
BUT_FOR: Word = "equal but for"
LAYERS: Word = "recurrent layers equal"
BY_LAYER: Word = "equal layer by layer, not run whole"
NOT_EQUAL: Word = "not equal"
NOT_COMPARED: Word = "not compared"

Kind = Literal[
    "chosen",
    "caller",
    "cast",
    "sample",
    "rounding",
    "merge",
    "mask",
    "precision",
    "states",
    "stated",
    "weights",
    "units",
    "tolerance",
    "whole",
    "others",
    "rest",
    "outputs",
    "folded",
    "overflow",
]

EXPLAINING: tuple[Kind, ...] = ("mask", "precision", "states")
"""Limits that may explain why whole models give something else although their layers agree: whether they do is tried."""

_ASIDE = ("chosen", "caller", "cast", "sample", "others")
"""Limits that leave the word "equal" unchanged, and are named with it: what the user chose not to compare, what is an input of
the layer, what an element type costs that holds each weight as nearly as it can, what was compared beside the usual, and layers
without recurrence whose numbers were not compared where the whole models were."""

EXIT_CODES: Mapping[Word, int] = {EQUAL: 0, BUT_FOR: 6, BY_LAYER: 7, LAYERS: 8, NOT_EQUAL: 1, NOT_COMPARED: 5}
"""The exit code of the command line for each under --strict. Without it, BUT_FOR, BY_LAYER and LAYERS are 0."""

Scope = Literal["whole", "weights", "layers", ""]
SCOPES: Mapping[Scope, str] = {
    "whole": "both models ran whole, and give the same",
    "weights": "every weight was compared",
    "layers": "recurrent layers alone were compared",
    "": "",
}
"""What "equal" speaks of: models that ran whole; all weights of the files; their recurrent layers alone; or, where nothing says it, the
executors that ran one model."""

ROUNDED, OTHER_NUMBERS = "rounded to", "other numbers"
"""How the names of causes begin where no layout is wrong: each number stands in its place."""

OF_INTEGERS = "integers"
"""The name of the difference that a kernel of integers makes: it rounds more than the weights."""


@dataclass(frozen=True)
class Limit:
    """Something that a comparison left out or leaves open.

    kind   "chosen": layers that --layer left out; "caller": what is passed to the layer at each call; "cast": what the
           element type costs that weights were rounded to; "sample": recorded outputs in a file, which were compared, too;
           "rounding": a difference that rounding explains; "merge": how directions are joined; "mask", "precision" and
           "stated": what one model states and the other does not; "states": states that only one model carries from call to
           call; "weights": a difference too small for any output to show; "units": units that no input exercised;
           "tolerance": the user's own, which would let zeros pass; "whole": layers that were joined, and whose source was not
           run whole; "overflow": a function that an executor computes from an exponential that is infinite where the function
           is not; "others": layers without recurrence that only one model has, or that fit in several ways; "rest": these, or
           what lies around the recurrent layers, where the models did not run whole; "outputs": what whole models give differs,
           where something else is left out that may explain it; "folded": layers without recurrence that differ, perhaps because
           a normalization was multiplied into them
    layer  the layer it is about; "" for the module itself, or for all
    words  the whole in words
    """

    kind: Kind
    layer: str
    words: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.words}" if self.layer else self.words


def not_chosen(names: Iterable[str], path: str) -> Limit:
    """Return the limit of a comparison in which a file's layers were left out with --layer."""
    quoted = [repr(name) if name else "the module itself" for name in names]
    return Limit("chosen", "", f"{', '.join(quoted)} of {path} {'was' if len(quoted) == 1 else 'were'} not compared")


@dataclass(frozen=True)
class Verdict:
    """The verdict of a comparison; true only if everything is equal.

    word    one of six
    limits  what it does not cover
    scope   what it is about
    """

    word: Word
    limits: tuple[Limit, ...] = ()
    scope: Scope = ""

    @classmethod
    def of(cls, *, equal: bool, compared: bool, limits: Iterable[Limit] = (), scope: Scope = "") -> Verdict:
        """Return the verdict that evidence allows.

        equal     whether nothing was found to differ
        compared  whether everything that was to be compared was
        limits    what was left out or is left open
        scope     what was compared
        """
        distinct = tuple(dict.fromkeys(limits))
        if not equal:
            return cls(NOT_EQUAL, distinct, scope)
        if not compared:
            return cls(NOT_COMPARED, distinct, scope)
        kinds = {limit.kind for limit in distinct if limit.kind not in _ASIDE}
        if "whole" in kinds:
            return cls(BY_LAYER, distinct, scope)
        return cls(BUT_FOR if kinds - {"rest"} else LAYERS if kinds else EQUAL, distinct, scope)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Verdict:
        """Return the verdict that a report holds."""
        limits = (Limit(limit["kind"], limit["layer"], limit["words"]) for limit in document.get("limits", ()))
        return cls(document["verdict"], tuple(limits), document.get("scope", ""))

    def as_dict(self) -> dict[str, Any]:
        """Return it as the fields of a report."""
        return {"verdict": self.word, "scope": self.scope, "limits": [asdict(limit) for limit in self.limits]}

    def __bool__(self) -> bool:
        return self.word == EQUAL

    @property
    def exceptions(self) -> tuple[Limit, ...]:
        """The limits that make it less than equal."""
        return tuple(limit for limit in self.limits if limit.kind not in _ASIDE)

    @property
    def remarks(self) -> tuple[Limit, ...]:
        """The limits that are named with the word and leave it unchanged."""
        return tuple(limit for limit in self.limits if limit.kind in _ASIDE)

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of a command; strict: whether anything less than equal fails."""
        return EXIT_CODES[self.word] if strict or self.word in (NOT_EQUAL, NOT_COMPARED) else 0

    @property
    def contradiction(self) -> str:
        """How the word contradicts the limits, or ""."""
        allowed = Verdict.of(equal=self.word != NOT_EQUAL, compared=self.word != NOT_COMPARED, limits=self.limits).word
        return "" if allowed == self.word else f"the verdict is {self.word!r}, but what was left out allows {allowed!r}"

    @property
    def short(self) -> str:
        """The word, with what makes it less than equal."""
        exceptions = () if self.word in (NOT_EQUAL, NOT_COMPARED) else self.exceptions
        return f"{self.word}: {'; '.join(map(str, exceptions))}" if exceptions else str(self.word)

    def __str__(self) -> str:
        """Return the whole in words: "equal but for ...", with all that was left out."""
        remarks = () if self.word in (NOT_EQUAL, NOT_COMPARED) else self.remarks
        return "; ".join([self.short, *map(str, remarks)])
