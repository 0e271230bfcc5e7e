"""Offsets in the flat buffer, ours against those that the real cuDNN library reports, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from tests import environments
from tests.helpers.cudnn_layouts import cases, differs, layout_of
from tests.helpers.requirements import need


def answers(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The library's answers, from a process that it may crash."""
    need("cudnn", environments.missing("cudnn"))
    program = [sys.executable, "-m", "tests.helpers.cudnn_library"]
    done = subprocess.run(
        [*program, environments.place("cudnn"), *environments.CUDNN_LIBRARIES],
        input=json.dumps(asked), capture_output=True, text=True, cwd=environments.ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    replies: list[dict[str, Any]] = json.loads(done.stdout)
    return replies


def test_the_library_reports_our_offsets() -> None:
    asked = list(cases())
    for case, answer in zip(asked, answers(asked), strict=True):
        assert differs(layout_of(case), case, answer) == "", case


def test_a_wrong_gate_order_is_seen_in_the_offsets() -> None:
    case = next(case for case in cases() if (case["cell"], case["bias_mode"], case["hidden_size"]) == ("gru", "double", 5))
    layout = registry.layout("keras", "gru", True)
    wrong = Layout("wrong", "gru", layout.gates, layout_of(case).tensors, "a mistake", reset_after=True)
    (answer,) = answers([case])
    assert "of gate" in differs(wrong, case, answer)
    assert differs(layout_of(case), case, answer) == ""
    assert "bytes" in differs(layout_of(case), case, {**answer, "bytes": answer["bytes"] + 4})
