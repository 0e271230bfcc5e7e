"""Whole models drawn by a seed give in every target what their framework gives, or are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.drawn_models import KINDS, TARGETS, outcome
from tests.helpers.exported import FRAMEWORKS_WARN
from tests.helpers.whole_models import need_both

pytestmark = [*FRAMEWORKS_WARN, pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")]
EVERYWHERE = {"ONNX", "OpenVINO", "TFLite", "TFLite float16", "TFLite int8", "Core ML", "ncnn", "C", "C float16", "C int8", "C, read again"}
HELD = {
    "lstm": {*EVERYWHERE, "TensorFlow.js"},
    "gru": EVERYWHERE,
    "rnn": {*EVERYWHERE, "TensorFlow.js"},
    "amplifier": EVERYWHERE,
    "module": {"ONNX"},
    "chain": {"ONNX", "TFLite", "TFLite float16", "TFLite int8", "Core ML"},
    "graph": {"ONNX"},
    "net": set(),
    "torch graph": set(),
}
"""The targets that hold every model of a kind, so that none is refused there."""


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_equal_in_every_target_or_refused_by_name(tmp_path: Path, kind: str) -> None:
    need_both()

    def check(seed: int) -> None:
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = KINDS[kind](seed, folder)

        def written(name: str) -> None:
            result = outcome(source, TARGETS[name], folder)
            if result.status == "refused" and name not in HELD[kind]:
                raise NotComparedError(result.cause)
            assert result.status == "equal", result

        each(TARGETS, written)

    each(drawn(range(100), 1, f"models {kind}"), check)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ("GuitarML", "NAM")])
def test_other_numbers_are_wrong(tmp_path: Path, name: str) -> None:
    """What the draws show, they could also fail to show."""
    need_both()
    source = KINDS["amplifier"](next(seed for seed in range(9) if seed % 2), tmp_path)

    def otherwise(call: Any, dtype: str = "", seed: int = 0) -> Any:
        return [y * (0.5 if TARGETS[name].dtype else 1.001) for y in source.run(call, dtype, seed)]

    assert outcome(source, TARGETS[name], tmp_path).status in ("equal", "refused")
    assert outcome(replace(source, run=otherwise), TARGETS[name], tmp_path).status in ("wrong", "refused")
