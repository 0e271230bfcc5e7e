"""Layers that stand one by one in a file that connects them (ONNX) claim what lies between, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.core.verdict import BY_LAYER, EQUAL
from tests.requirements import need

pytestmark = pytest.mark.filterwarnings("ignore")
JOINED: dict[str, Any] = {"stack": "join", "assume_defaults": True, "force": True}


def models(folder: Path) -> dict[str, Path]:
    """Keras models of two LSTMs, with nothing, Dense, and three calls between and of them, whole and as weights alone."""
    need("keras", "")
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    x = keras.Input((5, 3))
    below, dense = layers.LSTM(4, return_sequences=True, name="a"), layers.Dense(4, name="d")
    above = layers.LSTM(4, return_sequences=True, name="b")
    y = below(x)
    paths = {}
    for name, output in (("direct", above(y)), ("dense", above(dense(y))), ("thrice", above(above(above(y))))):
        paths[name] = folder / f"{name}.keras"
        keras.Model(x, output).save(paths[name])
    paths["weights"] = folder / "alone.weights.h5"
    keras.Model(x, above(y)).save_weights(paths["weights"])
    return paths


def test_weights_alone_are_not_proved_to_be_one_stack(tmp_path: Path) -> None:
    source = models(tmp_path)
    for ending in (".onnx", ".pt"):
        with pytest.raises(rc.NotEqualError, match="what lies between"):
            rc.convert(source["weights"], tmp_path / f"joined{ending}", verify=True, **JOINED)
        assert not (tmp_path / f"joined{ending}").exists()


@pytest.mark.parametrize(
    ("name", "verdict"), [("direct", EQUAL), ("weights", BY_LAYER), ("dense", BY_LAYER), ("thrice", BY_LAYER)]
)
def test_what_one_file_connects_the_other_has_to_connect_alike(name: str, verdict: str, tmp_path: Path) -> None:
    source = models(tmp_path)
    rc.convert(source["direct"], tmp_path / "joined.onnx", **JOINED)
    report = rc.verify(source[name], tmp_path / "joined.onnx")
    assert report.verdict == verdict, str(report)
    assert bool(report) is (verdict == EQUAL)
