"""A SavedModel with a layer of its author's own class: what its graph lacks is the reason, since its graph is the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.formats.keras.describe import model, served


def _raising(feature: str) -> Callable[..., Any]:
    def describe(*_: Any) -> Any:
        raise rc.RefusedError(feature, "a model written as code", "no line is known for it", "", "")

    return describe


@pytest.mark.parametrize(
    "feature, reason", [("a layer of class 'Spectra'", "the operator RFFT"), ("return_sequences of a loop", "return_sequences of a loop")]
)
def test_the_reason_of_the_graph_is_given_for_a_class(feature: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_layered", _raising(feature))
    monkeypatch.setattr(served, "describe", _raising("the operator RFFT"))
    with pytest.raises(rc.RefusedError) as caught:
        model.describe(tmp_path)
    assert caught.value.feature == reason
    assert "SavedModel" not in caught.value.remedy
