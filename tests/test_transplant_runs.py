"""Whole models, run and compared: what a transplant's report verifies in onnxruntime."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.running.child import missing
from tests.requirements import need
from tests.whole_models import TAGGER, need_both


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
    found = report.verify(x.numpy())
    assert found and found.unseen == ()
    assert [one.output for one in found.comparisons] == ["gru", "lstm", "output"]
    target.lstm.weight_hh_l0.data.neg_()
    wrong = report.verify(x.numpy())
    assert [one.passed for one in wrong.comparisons] == [True, False, False]
    target.lstm.weight_hh_l0.data.neg_()
    (kept,) = [one.detach().numpy() for one in [target(x)]]
    np.save(tmp_path / "kept.npy", kept)
    for expected in (kept, [kept], tmp_path / "kept.npy"):
        by_outputs = report.verify(x.numpy(), expected=expected)
        assert (
            by_outputs and [one.output for one in by_outputs.comparisons] == ["output"] and len(by_outputs.unseen) == 2
        )
    assert not report.verify(x.numpy(), expected=kept + np.float32(1e-3))
    assert not report.verify(x.numpy(), expected=kept[:1])
    with pytest.raises(rc.UsageError, match="1 outputs and the source 2"):
        report.verify(x.numpy(), expected=[kept, kept])
    with pytest.raises(rc.UnreadableError, match="plain arrays"):
        report.verify(x.numpy(), expected=path)
    target.lstm.weight_hh_l0.data.neg_()
    proto = onnx.load(path)
    assert rc.load_into(proto, target).verify(x.numpy())
    with pytest.raises(rc.UsageError, match="has 1 inputs"):
        report.verify([x.numpy()], source_inputs=[x.numpy(), x.numpy()])
