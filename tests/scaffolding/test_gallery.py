"""Real models, rebuilt whole in another framework: with their weights they give what their own framework gave."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.language.packing import pack
from rnnconvert.models import filling
from rnnconvert.running.child import missing
from tests import ROOT
from tests.gallery import from_keras, from_onnx, from_pytorch, old_keras, old_keras_in_torch
from tests.gallery.entry import Entry
from tests.helpers import corpus
from tests.helpers.requirements import need

# TensorFlow and Keras warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ENTRIES = (*from_pytorch.ENTRIES, *from_keras.ENTRIES, *old_keras.ENTRIES, *old_keras_in_torch.ENTRIES, *from_onnx.ENTRIES)


@pytest.fixture(params=ENTRIES, ids=str)
def entry(request: pytest.FixtureRequest) -> Entry:
    need("corpus", corpus.absent())
    need("torch", missing(["torch"]))
    need("keras", missing(["keras", "tensorflow"]))
    parameter: Entry = request.param
    return parameter


@pytest.mark.drawn(10)
def test_a_rebuilt_model_gives_what_the_original_gave(entry: Entry) -> None:
    model, report = entry.filled()
    assert not report.kept, "some weights of the rebuilt model were not filled"
    comparisons = entry.comparisons(model)
    print(*(f"{comparison.output}: off by {comparison.error:.2g} of {comparison.allowed:.2g}" for comparison in comparisons), sep="\n")
    assert [comparison.message for comparison in comparisons if not comparison.passed] == []
    assert all(comparison.telling for comparison in comparisons)


@pytest.mark.drawn(5)
def test_two_gates_in_each_others_place_are_caught(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbering of another framework: LSTM i f o g for i f g o, GRU z r n for r z n."""

    def swapped(layout: Any, stack: Recurrent) -> Any:
        layers = [Layer(tuple(map(_swapped, layer.directions)), layer.merge) for layer in stack.layers]
        return pack(layout, stack.replace(layers=tuple(layers)))

    monkeypatch.setattr(filling, "pack", swapped)
    model, _ = entry.filled()
    assert not all(comparison.passed for comparison in entry.comparisons(model))


def _swapped(direction: Direction) -> Direction:
    first, second = {"lstm": ("g", "o"), "gru": ("r", "z"), "rnn": ("n", "n")}[direction.cell.kind]
    other = {first: second, second: first}
    arrays = {
        (part, gate if part == "peephole" else other.get(gate, gate)): np.asarray(array) for (part, gate), array in direction.arrays.items()
    }
    if first == second:  # a plain RNN has one gate: its units in another order, but for those of the state
        arrays["input", "n"] = arrays["input", "n"][::-1]
    return direction.replace(arrays=arrays)


def test_the_page_names_every_origin() -> None:
    need("corpus", corpus.absent())
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    words = set(re.split(r"[^\w.-]+", page))
    origins = [json.loads(about.read_text(encoding="utf-8"))["origin_repo"] for about in corpus.FOLDER.glob("*/meta.json")]
    assert origins
    assert [origin for origin in origins if origin.rpartition("/")[2] not in words] == []
