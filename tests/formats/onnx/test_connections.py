"""Layers that stand one by one in a file that connects them (ONNX) claim what lies between, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.core.verdict import BY_LAYER, EQUAL, NOT_EQUAL
from tests.helpers.requirements import need

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


@pytest.mark.parametrize(("name", "verdict"), [("direct", EQUAL), ("weights", BY_LAYER), ("dense", BY_LAYER), ("thrice", NOT_EQUAL)])
def test_what_one_file_connects_the_other_has_to_connect_alike(name: str, verdict: str, tmp_path: Path) -> None:
    source = models(tmp_path)
    rc.convert(source["direct"], tmp_path / "joined.onnx", **JOINED)
    report = rc.verify(source[name], tmp_path / "joined.onnx")
    assert report.verdict == verdict, str(report)
    assert bool(report) is (verdict == EQUAL)


def test_a_layer_in_a_loop_of_the_model_is_not_joined(tmp_path: Path) -> None:
    """A SavedModel of TensorFlow's own, whose while_loop calls the second layer three times."""
    need("keras", "")
    import tensorflow as tf
    from keras import layers

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (layers.LSTM(4, return_sequences=True, name=name) for name in "ab")
            self.a.build((None, None, 3))
            self.b.build((None, None, 4))
            self.variables_ = [variable.value for layer in (self.a, self.b) for variable in layer.variables]

        @tf.function(input_signature=[tf.TensorSpec((None, 5, 3), tf.float32)])
        def __call__(self, x: Any) -> Any:
            shapes = [tf.TensorShape([]), tf.TensorShape([None, 5, 4])]
            return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, self.b(y)), [0, self.a(x)], shapes)[1]

    model = Model()
    tf.saved_model.save(model, tmp_path / "saved", signatures=model.__call__)
    with pytest.raises(rc.RefusedError, match="a loop or a branch of the model runs it"):
        rc.convert(tmp_path / "saved", tmp_path / "joined.onnx", **JOINED)
