"""No docstring, text for users or page uses a phrase that reads as translated; each has a better wording beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests import ROOT

SOURCES = [
    path for top in ("rnnconvert", "formats", "cli", "docs", "benchmarks", "examples")
    for path in sorted((ROOT / top).rglob("*.py")) if not path.is_relative_to(ROOT / "rnnconvert" / "formats")
]  # fmt: skip
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "benchmarks").glob("*.md"))

PHRASES = {
    r"\b(is|are|was|were) told\b(?! apart)": "'is reported', 'receives', or name who reads it",
    r"\btold of\b": "'reported', or 'about'",
    r"\b(it|they|that|which|and|code|what) (has|have) not\b(?! (been|yet|the same))": "'does not have', 'lacks', 'without'",
    r"\b(has|have) not (the|a|an|all)\b": "'does not have the ...', 'without'",
    r"\bthat which\b": "name the thing",
    r"\bnone of (its|their|it|theirs)\b(?! own\b)": "'not part of', 'does not belong to'",
    r"\b(it|they|that|layer|cell|file|array) (is|are) none\b": "'it is not one', 'why it is unreadable'",
    r"(?<![Tt]here )\b(is|are) no (?!longer|more|less|larger|smaller|other|different)[a-z]+\b": "'is not a ...'",
    r"\b(stays?|stayed|left|leaves?|over|kept|keeps?|written|is|are) as (it|they) (is|are|was|were)\b(?! [a-z]+(ed|en)\b)": (
        "'unchanged', 'directly'"
    ),
    r"\ball the same\b": "'still', 'anyway'",
    r"\bgo(es)? together\b": "'fit together', 'match'",
    r"\bdoes not go\b(?! beyond| past| through)": "'does not fit'",
    r"\b(say|says|said) nothing of\b": "'does not describe', 'does not show'",
    r"\b(not|nothing) (is )?said\b": "'by default', 'unstated'",
    r"\bstands? beside\b": "'accompanies', 'is next to'",
    r"\bbeside (it|them|that|which)\b(?! does)": "'next to it', 'with it'",
    r"\bwithout a word\b": "'silently'",
    r"\bturned? round\b": "'reverse'",
    r"\bnot known (here|how)\b": "'unknown'",
    r"\bthat is known here\b": "'known'",
    r"\blooked (at|for)\b": "'examined', 'read', 'searched'",
    r"\b(is|are) not there\b": "'is missing', 'does not exist'",
    r"\bthere twice\b": "'appears twice'",
    r"\bsay which\b(?! of)": "'choose'",
    r"\bsay so(?! of)\b": "'confirm'",
    r"; there (is|are) (\{|only|none)": "'Choose one of: ...'",
    r"\bno \w+ \{\w+!r\}; ": "'Unknown ...'",
    r"\bsound (YAML|HDF5|ONNX|BSON|JLD2|\.keras)\b": "'valid'",
    r"\bbelongs? into\b": "'belongs in'",
    r"\bshall\b": "'must', 'will', or the verb alone",
    r"\ba riddle\b": "say it plainly",
    r"\bworst news\b": "'the most serious result'",
    r"\bby saying so\b": "'confirm it with'",
    r"\bmodules? of ours\b": "'a module of rnnconvert's own'",
    r"\btakes nothing with it\b": "'is retried'",
    r"\bstrongest colour\b": "'scale'",
    r"\bso it is for those\b": "'use it only if'",
    r"\blikeliest\b": "'most likely'",
    r"\bbears? the\b": "'is named after'",
    r"\b(as many|so many) as there are\b": "'one per'",
    r"\bfor machines\b": "'as JSON'",
    r"\bwhatever becomes of\b": "'each is checked'",
    r"\bwith a \w+ a line\b": "'with one ... per line'",
    r"\bone (class|layer|file|model) a (class|layer|file|model)\b": "'one ... per ...'",
    r"\b(is|are|be) met(?! by| with)\b": "'occurs', 'is found'",
    r"\bis said, too\b": "'also says'",
    r"\bbut for this\b": "'except'",
    r"\bother numbers, all\b": "'differ slightly'",
    r"\bof one training\b": "'from the same training step'",
}
"""Phrases that read as translated, as expressions, and what to write instead."""


def phrases(text: str) -> Iterator[str]:
    """Yield the phrases in a text that read as translated, each with the advice."""
    plain = " ".join(text.split())
    for phrase, advice in PHRASES.items():
        for match in re.finditer(phrase, plain):
            yield f"'{plain[max(0, match.start() - 30) : match.end() + 20]}': better {advice}"


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring and string; braces stand for the values in an f-string."""
    inside = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in ast.walk(node) if part is not node)
            if id(node) not in inside:
                values = (part.value if isinstance(part, ast.Constant) else "{value!r}" for part in node.values)
                yield node.lineno, "".join(str(value) for value in values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a page with their first lines, without code."""
    page = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), page, flags=re.M | re.S)
    page = re.sub(r"`[^`]*`", lambda code: "`code`" + "\n" * code[0].count("\n"), page)
    for match in re.finditer(r"(?:.+\n?)+", page):
        yield page.count("\n", 0, match.start()) + 1, match[0]


def test_docstrings_and_texts_for_users_are_plain_english() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in SOURCES
        for line, text in texts(path.read_text(encoding="utf-8"))
        for phrase in phrases(text)
    ]
    assert not faults, "\n".join(faults)


def test_pages_are_plain_english() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {phrase}"
        for path in PAGES
        for line, text in prose(path.read_text(encoding="utf-8"))
        for phrase in phrases(text)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "it has the arrays of X, and y beside them, which that has not",
        "if it computes the same all the same, say so",
        "a flat vector of parameters says nothing of itself",
        "What is no weight is told of.",
        "no format {name!r}; there are {names}",
        "the arrays do not go together",
        "the function of a plain RNN; tanh if not said",
        "The functions bear the layers' names.",
        "a manifest is a .txt with a source a line",
        "`--json` prints the report for machines",
    ],
)
def test_a_translated_phrase_is_found_in_code_and_on_a_page(text: str) -> None:
    assert list(phrases(text))
    ((line, string),) = texts(f"\n\nanswer = f{text!r}" if "{" in text else f"\n\nanswer = {text!r}")
    assert line == 3 and list(phrases(string))
    assert [line for line, part in prose(f"# Page\n\n```\ncode\n```\n\n{text}\n") if list(phrases(part))] == [7]


@pytest.mark.parametrize(
    "text", ["these arrays do not fit together", "it is no longer there", "the file does not have the array", "unknown"]
)
def test_plain_english_passes(text: str) -> None:
    assert not list(phrases(text))
