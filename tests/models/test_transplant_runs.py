"""Whole models, run and compared: what a transplant's report verifies in onnxruntime."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.running.child import missing
from tests.helpers.requirements import need, needed
from tests.helpers.whole_models import TAGGER, need_both


def test_whole_models_are_compared_with_onnxruntime(tmp_path: Path) -> None:
    need_both()
    need("onnxruntime", missing(["onnxruntime"]))
    import torch

    module = TAGGER.torch(torch.nn).eval()
    x = torch.from_numpy(TAGGER.x()).long()
    path = tmp_path / "tagger.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=False, do_constant_folding=False)
    target = TAGGER.torch(torch.nn).eval()
    report = rc.load_into(target, path)
    compared = report.verify(x.numpy())
    assert compared and compared.unseen == ()
    assert [entry.output for entry in compared.comparisons] == ["gru", "lstm", "output"]
    target.lstm.weight_hh_l0.data.neg_()
    wrong = report.verify(x.numpy())
    assert [entry.passed for entry in wrong.comparisons] == [True, False, False]
    target.lstm.weight_hh_l0.data.neg_()
    (outputs,) = [entry.detach().numpy() for entry in [target(x)]]
    np.save(tmp_path / "kept.npy", outputs)
    for expected in (outputs, [outputs], tmp_path / "kept.npy"):
        by_outputs = report.verify(x.numpy(), expected=expected)
        assert by_outputs and [entry.output for entry in by_outputs.comparisons] == ["output"] and len(by_outputs.unseen) == 2
    assert not report.verify(x.numpy(), expected=outputs + np.float32(1e-3))
    assert not report.verify(x.numpy(), expected=outputs[:1])
    with pytest.raises(rc.UsageError, match="1 outputs and the source 2"):
        report.verify(x.numpy(), expected=[outputs, outputs])
    with pytest.raises(rc.UnreadableError, match="plain arrays"):
        report.verify(x.numpy(), expected=path)
    target.lstm.weight_hh_l0.data.neg_()
    proto = onnx.load(path)
    assert rc.load_into(proto, target).verify(x.numpy())
    with pytest.raises(rc.UsageError, match=r"there are 2 inputs and .* takes"):
        report.verify([x.numpy()], source_inputs=[x.numpy(), x.numpy()])


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras
@pytest.mark.parametrize("sequences", [True, False])
def test_steps_after_the_end_of_a_sequence_are_not_compared(sequences: bool, tmp_path: Path) -> None:
    """Keras repeats the last output there, torch and onnxruntime give zeros; the last output is at the end of each sequence."""
    need_both()
    import keras
    import torch

    keras.utils.set_random_seed(0)
    source = keras.Sequential(
        [
            keras.layers.Input((None,)),
            keras.layers.Embedding(9, 4, mask_zero=True),
            keras.layers.GRU(5, return_sequences=True, name="gru"),
            keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=sequences), name="lstm"),
            keras.layers.Dense(2, name="head"),
        ]
    )

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(9, 4)
            self.gru = torch.nn.GRU(4, 5, batch_first=True)
            self.lstm = torch.nn.LSTM(5, 3, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(6, 2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            rnn = torch.nn.utils.rnn
            lengths = (tokens != 0).sum(1)
            packed = rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
            y, (h, _) = self.lstm(self.gru(packed)[0])
            if not sequences:
                return self.head(torch.cat([h[0], h[1]], 1))
            return self.head(rnn.pad_packed_sequence(y, batch_first=True)[0])[:, :1]

    if sequences:
        inputs, outputs = source.inputs[0], source.outputs[0][:, :1]
        source = keras.Model(inputs, outputs)
    mine = Mine()
    report = rc.load_into(mine, source)
    tokens = np.array([[3, 1, 4, 1, 0, 0, 0], [5, 8, 2, 6, 5, 0, 0], [7, 0, 0, 0, 0, 0, 0]])
    compared = report.verify(tokens)
    assert compared and [entry.output for entry in compared.comparisons] == ["gru", "lstm", "output"], str(compared)
    mine.lstm.weight_hh_l0_reverse.data.neg_()
    assert [entry.passed for entry in report.verify(tokens).comparisons] == [True, False, False]


def test_the_lengths_of_an_onnx_model_are_those_of_what_it_gave() -> None:
    need("onnxruntime", missing(["onnxruntime"]))
    torch = needed("torch", "torch")
    module = torch.nn.GRU(3, 4)
    proto = rc.to_onnx(rc.from_torch(module, name="gru"), sequence_lens=True)
    x, lengths = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32), np.array([6, 2], np.int32)

    class Padded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = module

        def forward(self, x: object, lengths: object) -> object:
            rnn = torch.nn.utils.rnn
            y, h = self.gru(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
            return rnn.pad_packed_sequence(y)[0], h

    compared = rc.load_into(proto, Padded()).verify([x, lengths])
    assert compared and "gru" in [entry.output for entry in compared.comparisons], str(compared)


def test_a_layer_by_itself_is_compared_by_its_output() -> None:
    """A bare torch.nn.LSTM gives its states, too, which a model around such a layer keeps to itself."""
    torch = needed("torch", "torch")

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(4, 5, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]

    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    for source, target in ((torch.nn.LSTM(4, 5, 2, batch_first=True), Around()), (Around(), torch.nn.LSTM(4, 5, 2, batch_first=True))):
        report = rc.load_into(target, source)
        compared = report.verify(x)
        assert compared and compared.comparisons[-1].output == "output" and any("last states" in text for text in compared.unseen)
        next(target.parameters()).data[0, 0] += 0.3
        assert not report.verify(x)
