"""What results are called: "proved", "bit-exact" and "filled" are said in one place, which takes the evidence; "equal" by a verdict."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from rnnconvert.core.claims import exactness, filled, proved
from rnnconvert.judging.comparison import unlike
from rnnconvert.models.verify import WholeModels
from tests import ROOT

CLAIM = re.compile(
    r"(^|[;:] )proved\b(?!.*\bnot\b)|^(bit-exact|NOT EQUAL)$|\(bit-exact\)|exact (up to|but for) rounding|^(nothing )?filled "
)
SAYING = ("rnnconvert/core/claims.py", "rnnconvert/core/verdict.py")


def test_nothing_is_claimed_without_evidence() -> None:
    assert proved([1e-9, 3e-8], "both agree", "in tests") == "proved in tests: both agree, off by 3e-08 at most"
    for nothing in ([], [0.0, np.nan], [np.inf]):
        with pytest.raises(ValueError, match="nothing was compared"):
            proved(nothing)
    assert [exactness(steps) for steps in ([], [True], [True, False])] == ["bit-exact", "bit-exact", "exact up to rounding"]
    assert filled("b", "a", ["lstm"]) == "filled b from a"
    assert filled("b", "a", []) == "nothing filled in b from a"


def test_models_that_show_nothing_are_not_called_equal() -> None:
    assert str(WholeModels((), ())) == "not compared"
    other = WholeModels((unlike("random inputs", "output", (2, 3), (2, 4)),), ())
    assert not other and str(other).startswith("not equal\n  output: not equal, off by ")


def _spoken(tree: ast.AST) -> list[str]:
    """The strings of a module but for docstrings."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return [constant.value for constant in ast.walk(tree)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and id(constant) not in silent]  # fmt: skip


def test_no_other_module_says_the_words() -> None:
    files = [path for folder in ("rnnconvert", "cli", "formats") for path in (ROOT / folder).glob("**/*.py")]
    wrong = []
    for path in files:
        place = path.relative_to(ROOT).as_posix()
        code = path.read_text()
        if place not in SAYING and re.search("proved|bit-exact|NOT EQUAL|filled |for rounding|to rounding", code):
            wrong += [f"{place}: {text!r}" for text in _spoken(ast.parse(code)) if CLAIM.search(text)]
    assert not wrong
