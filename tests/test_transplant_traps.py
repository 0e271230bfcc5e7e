"""Models that look alike and are not: each of these once went through with wrong numbers, and nobody said so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.arrays import Array
from tests.whole_models import in_keras, need_both, randomise

# TensorFlow and Keras warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def close(found: Array, expected: Array) -> bool:
    """Whether two outputs are equal but for rounding, and say something."""
    assert np.abs(expected).max() > 0.05, "these outputs show nothing"
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max())


def numbers(*shape: int) -> Array:
    """Inputs of a shape, the same at every call."""
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def line(shape: tuple[int, ...], *layers: Any) -> Any:
    """A Keras model of layers one after the other."""
    import keras

    model = keras.Sequential([keras.layers.Input(shape), *layers])
    randomise(model, 1)
    return model


def in_torch(module: Any, *inputs: Array) -> Array:
    """What a torch module makes of inputs; images come as Keras has them."""
    import torch

    tensors = [torch.from_numpy(np.moveaxis(x, -1, 1) if x.ndim == 4 else x) for x in inputs]
    with torch.no_grad():
        found = module.eval()(*tensors).numpy()
    return np.asarray(np.moveaxis(found, 1, -1) if found.ndim == 4 else found)


# Variables of Keras models --------------------------------------------------------------------------


def scaled_dense(keras: Any) -> Any:
    class Scaled(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(4,), name="scale")
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            return self.dense(x) * self.scale

    return Scaled()


def two_of_one_name(keras: Any) -> Any:
    class Two(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one = keras.layers.Dense(4, name="same")
            self.two = keras.layers.Dense(4, name="same")

        def build(self, shape: Any) -> None:
            self.one.build(shape)
            self.two.build(shape)

        def call(self, x: Any) -> Any:
            return self.two(keras.ops.tanh(self.one(x)))

    return Two()


def two_weights_of_one_name(keras: Any) -> Any:
    class Two(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(4,), name="w")
            self.shift = self.add_weight(shape=(4,), name="w")

        def call(self, x: Any) -> Any:
            return x * self.scale + self.shift

    return Two()


@pytest.mark.parametrize("make", [scaled_dense, two_of_one_name, two_weights_of_one_name])
def test_no_variable_of_a_keras_model_is_lost(make: Callable[[Any], Any]) -> None:
    need_both()
    import keras

    target, source = line((7, 4), make(keras)), line((7, 4), make(keras))
    randomise(target, 2)
    x = numbers(2, 7, 4)
    rc.load_into(target, source)
    assert close(in_keras(target, x), in_keras(source, x))
