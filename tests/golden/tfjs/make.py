"""Have tensorflowjs_converter and TensorFlow.js write layers models, with inputs and outputs.

Run it with `python make.py CONVERTER NODE_MODULES`: CONVERTER has tensorflowjs 4.22.0, installed with --no-deps --target; NODE_MODULES has
@tensorflow/tfjs-core, -layers and -backend-cpu 4.22.0; tf_keras and TensorFlow are 2.21.0, Keras is 3.15.1. models.tar.xz has each model
in a folder of the saver's name, and a graph model: model.json, its weights, and io.json, the inputs and outputs in what made it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RNG = np.random.default_rng(1)


def models(keras: Any) -> dict[str, Any]:
    """The models, by name."""
    layers, given = keras.layers, keras.Input

    def sequence() -> Any:
        return keras.Sequential(
            [
                given((6,)),
                layers.Embedding(11, 4, mask_zero=True),
                layers.LSTM(5, return_sequences=True),
                layers.Bidirectional(layers.GRU(3, return_sequences=True, reset_after=False)),
                layers.SimpleRNN(4, return_sequences=True),
                layers.TimeDistributed(layers.Dense(3, activation="relu")),
                layers.LSTM(2, go_backwards=True),
                layers.Dense(2, activation="softmax"),
            ]
        )

    def reset_after() -> Any:
        both = layers.Bidirectional(layers.GRU(3, return_sequences=True))
        return keras.Sequential([given((6, 3)), both, layers.GRU(4), layers.Dense(2)])

    def convolution() -> Any:
        return keras.Sequential(
            [
                given((8, 3)),
                layers.Conv1D(6, 3, padding="same", activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling1D(2),
                layers.Dropout(0.3),
                layers.LayerNormalization(),
                layers.GRU(4, reset_after=False, recurrent_activation="hard_sigmoid"),
                layers.LeakyReLU(),
                layers.Dense(1, use_bias=False),
            ]
        )

    def two_inputs() -> Any:
        x, z = given((5, 3), name="x"), given((2,), name="z")
        y = layers.LSTM(4)(layers.LSTM(4, return_sequences=True)(layers.Masking()(x)))
        y = layers.Concatenate()([y, z])
        return keras.Model([x, z], [layers.Dense(3, activation="hard_sigmoid")(y), layers.Dense(2, activation="sigmoid")(y)])

    def nested() -> Any:
        inner = keras.Sequential([given((5, 3)), layers.LSTM(4, return_sequences=True), layers.Dense(3, activation="tanh")])
        x = given((5, 3))
        return keras.Model(x, layers.GlobalAveragePooling1D()(inner(x)))

    def states() -> Any:
        x, z = given((5, 3)), given((7, 2))
        _, *finals = layers.LSTM(4, return_state=True)(x)
        return keras.Model([x, z], layers.LSTM(4, return_sequences=True)(z, initial_state=finals))

    def shared() -> Any:
        x, z, layer = given((5, 3), name="x"), given((5, 3), name="z"), layers.GRU(4, reset_after=False)
        return keras.Model([x, z], layers.Add()([layer(x), layer(z)]))

    def functions() -> Any:
        """What the converter writes as one operation with a bias and a function."""
        return keras.Sequential(
            [
                given((6, 6, 2)),
                layers.Conv2D(3, 3, activation="relu6"),
                layers.DepthwiseConv2D(3, activation="relu"),
                layers.PReLU(shared_axes=[1, 2]),
                layers.Conv2D(2, 1, activation="elu"),
                layers.Flatten(),
                layers.Dense(5, activation="sigmoid"),
                layers.Dense(4),
                layers.LeakyReLU(0.1),
                layers.Dense(3),
                layers.PReLU(),
                layers.Reshape((3, 1)),
                layers.LSTM(2),
                layers.Dense(2, activation="tanh"),
            ]
        )

    return {make.__name__: make() for make in (sequence, reset_after, convolution, two_inputs, nested, states, shared, functions)}


def run(model: Any, name: str, folder: Path) -> None:
    """Keep inputs and outputs of a model."""
    x = [RNG.integers(1, 11, (2, 6)) if name == "sequence" else RNG.uniform(-1, 1, (2, *each.shape[1:])) for each in model.inputs]
    if name == "sequence":
        x[0][0, 4:] = 0
    y = model.predict(x if len(x) > 1 else x[0], verbose=0)
    sample = {"x": [each.tolist() for each in x], "y": [each.tolist() for each in (y if isinstance(y, list) else [y])]}
    (folder / "io.json").write_text(json.dumps(sample))


def fill(model: Any) -> None:
    """Draw a model's weights."""
    model.set_weights([RNG.uniform(0.1 if "variance" in weight.name else -0.8, 0.9, weight.shape) for weight in model.weights])


def main(folder: Path, converter_place: str, modules: str) -> None:
    """Write all models below a folder."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path.insert(0, converter_place)
    for name, word in {
        "tensorflowjs.converters.jax_conversion": "convert_jax",  # what converts JAX's programs needs more packages
        "tensorflow_decision_forests": "",
        "tensorflow_hub": "",
    }.items():
        sys.modules[name] = types.ModuleType(name)
        setattr(sys.modules[name], word or "_", None)
    import keras
    import tf_keras
    from tensorflowjs.converters import converter, tf_saved_model_conversion_v2

    by_h5 = converter.dispatch_keras_h5_to_tfjs_layers_model_conversion
    source = folder / "model"
    for version, package in ((2, tf_keras), (3, keras)):
        for name, model in models(package).items():
            fill(model)
            ways = {f"keras_{version}_h5": (".h5", by_h5, {})}
            if version == 3:
                ways["keras_3"] = (".keras", converter.dispatch_keras_keras_to_tfjs_layers_model_conversion, {})
            elif name == "sequence":
                shards = {"weight_shard_size_bytes": 200}
                ways |= {
                    kind: (".h5", by_h5, {"quantization_dtype_map": {kind: True}, **shards}) for kind in ("uint8", "uint16", "float16")
                }
                ways["by_layer"] = (".h5", by_h5, {"split_weights_by_layer": True})
            for way, (ending, convert, options) in ways.items():
                out = folder / way / name
                out.mkdir(parents=True)
                model.save(source.with_suffix(ending))
                convert(str(source.with_suffix(ending)), str(out), **options)
                run(model, name, out)
            if version == 2 and name in ("two_inputs", "functions"):
                model.save(source, save_format="tf")
                tf_saved_model_conversion_v2.convert_tf_saved_model(str(source), str(folder / "graph" / name), control_flow_v2=True)
                run(model, name, folder / "graph" / name)
                shutil.rmtree(source)
    for left in folder.glob("model.*"):
        left.unlink()
    subprocess.run(["node", str(HERE / "make.js"), modules, str(folder / "javascript")], check=True)
    with tarfile.open(HERE / "models.tar.xz", "w:xz") as archive:
        archive.add(folder, ".")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder), *sys.argv[1:])
