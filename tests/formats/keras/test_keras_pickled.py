"""Models that Keras 2.3 pickled: read as data, with the configuration that the object's state holds."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from rnnconvert.core import reference
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.load import load
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "keras_pickled"


def test_layers_give_what_keras_gave() -> None:
    checkpoint = load(GOLDEN / "model.pkl")
    assert not checkpoint.questions and checkpoint.format == "keras"
    both, last = checkpoint.layers.values()
    assert both.cell.activation.name == "relu"
    with np.load(GOLDEN / "model.npz") as recorded:
        x, truth = recorded["x"].swapaxes(0, 1), recorded["y"]
    hidden = reference.run(last, reference.run(both, x).y).hidden[0]
    kernel, bias = (
        next(array for name, array in checkpoint.tensors.items() if name.endswith(end)) for end in ("dense_1/kernel:0", "dense_1/bias:0")
    )
    np.testing.assert_allclose(hidden @ kernel + bias, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pickle.dumps({"a": 1}, 2), "is not an array"),
        (b"\x80\x02(", "pickle"),
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.", "os.system"),
    ],
)
def test_what_lies_in_the_place_of_an_array_is_named(array: bytes, words: str, tmp_path: Path) -> None:
    state = {"model_config": b"{}", "model_weights": {"lstm": {"k": array, "_k_pickled": True}}}
    inner = pickle.dumps(state, 3)[2:-1]
    (tmp_path / "model.pkl").write_bytes(b"\x80\x03ckeras.engine.sequential\nSequential\n)\x81" + inner + b"b.")
    with pytest.raises(UnreadableError, match=words):
        load(tmp_path / "model.pkl")
