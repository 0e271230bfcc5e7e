"""Models of Keras 1 and 2 rebuilt in PyTorch, whose own classes have none of their cells.

rnnconvert.to_torch makes a module for each recurrent layer. It comes with the layer's weights; they are taken out again
here, so that it is load_into that puts every one of them in its place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import rnnconvert as rc
from tests.gallery.entry import Arrays, Entry
from tests.gallery.from_keras import array, tensor
from tests.helpers.corpus import FOLDER

DL4J = "dl4j-keras-imports"


def empty(path: Path | str, name: str) -> Any:
    """A module that computes what a layer of a file does, with zeros for weights."""
    import torch

    module = rc.to_torch(rc.load(path).layers[name])
    module.batch_first = True
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


def words(path: Path | str, first: str, second: str) -> Any:
    """chars2vec: a vector for a word, of its characters as ones among zeros."""
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = empty(path, first), empty(path, second)

        def forward(self, characters: Any) -> Any:
            return self.second(self.first(characters)[0])[0][:, -1]

    return Words()


def run_words(first: str, second: str) -> Callable[[Any, Arrays], Arrays]:
    def run(module: Any, recorded: Arrays) -> Arrays:
        alone = {f"{name}__y": array(gru(tensor(recorded[f"{name}__x"]))[0])
                 for gru, name in ((module.first, first), (module.second, second))}  # fmt: skip
        return {**alone, "vectors": array(module(tensor(recorded["characters"])))}

    return run


def beats(path: Path | str) -> Any:
    """crema: beats and downbeats of a spectrogram, by convolutions over frequencies and a GRU over time."""
    import torch
    from torch import nn

    class Beats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(1, eps=1e-3)
            self.conv2d_1 = nn.Conv2d(1, 8, 7, padding=3)
            self.conv2d_2 = nn.Conv2d(8, 16, (1, 256))
            self.gru = empty(path, "bidirectional_1")
            self.beat = nn.Conv1d(144, 1, 17, padding=8)
            self.downbeat = nn.Conv1d(144, 1, 17, padding=8)
            self.eval()

        def forward(self, spectrum: Any) -> Any:
            """Of (batch, time, frequency), at each time the two probabilities."""
            x = self.norm(spectrum[:, None])
            y = self.conv2d_2(self.conv2d_1(x).relu()).relu()[..., 0].transpose(1, 2)
            both = self.gru(torch.cat([y, x[:, 0]], -1))[0]
            y = torch.cat([both, y], -1).transpose(1, 2)
            return [end(y).sigmoid().transpose(1, 2) for end in (self.beat, self.downbeat)]

    return Beats()


def run_beats(module: Any, recorded: Arrays) -> Arrays:
    beat, downbeat = module(tensor(recorded["spectrum"][..., 0]))
    both = module.gru(tensor(recorded["bi_gru_1__x"]))[0]
    return {"bi_gru_1__y": array(both), "beat": array(beat), "downbeat": array(downbeat)}


def lstm_and_dense(path: Path | str, name: str, units: int, outputs: int) -> Any:
    """An LSTM and a dense layer."""
    from torch import nn

    return nn.ModuleDict({"lstm": empty(path, name), "dense": nn.Linear(units, outputs)})


def run_dense(name: str, softmax: bool) -> Callable[[Any, Arrays], Arrays]:
    def run(module: Any, recorded: Arrays) -> Arrays:
        last = module["lstm"](tensor(recorded["x"]))[0][:, -1]
        y = module["dense"](last)
        return {f"{name}__y": array(last), "out": array(y.softmax(-1) if softmax else y)}

    return run


def run_both_ways(module: Any, recorded: Arrays) -> Arrays:
    return {"out": array(module(tensor(recorded["x"]))[0])}


def _price(kind: str) -> Entry:
    file = f"{DL4J}/simple_lstm_{kind}_model.h5"
    return Entry(
        file, "torch", lambda: lstm_and_dense(FOLDER / file, "lstm_1", 50, 1), run_dense("lstm_1", softmax=False), ("lstm_1__y", "out")
    )


def _as_its_authors_say(kind: str) -> Entry:
    """The same model beside what its authors recorded of it in Keras 1, with TensorFlow or Theano."""
    entry = _price(kind)

    def run(module: Any, recorded: Arrays) -> Arrays:
        outputs = entry.run(module, recorded)
        return {"lstm_1": outputs["lstm_1__y"], "dense_1": outputs["out"]}

    reference = f"simple_lstm_{kind}_inputs_and_outputs.h5"
    return replace(entry, run=run, expected=("lstm_1", "dense_1"), reference=reference)


_FUNCTIONAL, _BOTH = f"{DL4J}/lstm_functional_tf_keras_2.h5", f"{DL4J}/bidirectional_lstm_tensorflow_1.h5"

ENTRIES = (
    *(
        Entry(
            file, "torch", functools.partial(words, FOLDER / file, first, second),
            run_words(first, second), (f"{first}__y", f"{second}__y", "vectors"),
        )
        for file, first, second in (
            ("chars2vec-50-100/eng_50_weights.h5", "lstm_1", "lstm_2"),
            ("chars2vec-50-100/eng_100_weights.h5", "lstm_3", "lstm_4"),
        )
    ),
    Entry(
        "crema-beats/model.h5", "torch", lambda: beats(FOLDER / "crema-beats" / "model.h5"), run_beats, ("bi_gru_1__y", "beat", "downbeat"),
        options={"flatten": "none"},
    ),
    Entry(_BOTH, "torch", lambda: empty(FOLDER / _BOTH, "bidirectional_1"), run_both_ways, ("out",)),
    Entry(
        _FUNCTIONAL, "torch", lambda: lstm_and_dense(FOLDER / _FUNCTIONAL, "lstm", 8, 5), run_dense("lstm", softmax=True),
        ("lstm__y", "out"),
    ),
    *(_as_its_authors_say(kind) for kind in ("tf_keras_1", "th_keras_1")),
    *(_price(kind) for kind in ("tf_keras_1", "tf_keras_2", "th_keras_1")),
)  # fmt: skip
