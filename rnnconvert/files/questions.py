"""Facts that files leave open, and what is taken until the caller decides them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rnnconvert.core.errors import AssumptionWarning
from rnnconvert.core.remedies import Setting


@dataclass(frozen=True)
class Question:
    """A fact that a file leaves open, and what is taken until the caller decides it.

    option   the option that decides it: `--set OPTION=VALUE`, or the keyword of `load`
    assumed  the value taken
    choices  the values it may have; empty where any text or number will do
    why      what the file lacks, and where it could be found
    layer    the layer in question, or "" for all
    common   whether models of other values are common, too: then nothing is converted before somebody decides
    """

    option: str
    assumed: str
    choices: tuple[str, ...]
    why: str
    layer: str = ""
    common: bool = False


def warn(questions: Iterable[Question], otherwise: str = "", stacklevel: int = 3) -> None:
    """Warn of each fact that arrays in memory leave open, and say what is assumed.

    otherwise   another way to settle all of them, in words
    stacklevel  how far above its own caller the user's code is: what the package hands out checks the arguments first
    """
    for asked in questions:
        choices = f"one of {', '.join(asked.choices)}" if asked.choices else "its value"
        warnings.warn(
            f"{asked.layer or 'the arrays'}: {asked.option}={asked.assumed} is assumed; {asked.why}. Give {asked.option}=... ({choices})"
            + otherwise,
            AssumptionWarning,
            stacklevel=stacklevel + 1,
        )


def assumptions(questions: Iterable[Question]) -> Iterator[str]:
    """Yield the assumptions about what files do not state, with the options that decide: a line for all of one reason."""
    layers: dict[tuple[str, str, str, str], list[str]] = {}
    for question in questions:
        key = (question.option, question.assumed, question.why, "|".join(question.choices) or "...")
        layers.setdefault(key, []).append(question.layer or "every layer")
    lines: dict[tuple[str, str], list[tuple[str, Setting]]] = {}
    for (option, assumed, why, choices), names in layers.items():
        lines.setdefault((", ".join(names), why), []).append((f"{option}={assumed}", Setting(option, choices)))
    for (places, why), stated in lines.items():
        yield f"{', '.join(text for text, _ in stated)} for {places}: {why} ({', '.join(str(decides) for _, decides in stated)})"
