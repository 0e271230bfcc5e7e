"""Loops of Keras's layers as the converters of several years wrote them, with what the layers read and what Keras gave.

python tests/golden/keras_loops/make.py CASE..., for the cases of one of these environments:

tensorflow-cpu 2.3.4, tf2onnx 1.8.5, onnx 1.8.1, Python 3.8:
    hard.tflite before.tflite stacked.tflite masked_one.tflite backwards.onnx masked.onnx convolved.onnx convolved.pb
tensorflow 2.2.0, tf2onnx 1.13.0, onnx 1.12.0, Python 3.7:
    before_9.onnx plain_9.onnx backwards_9.onnx
tensorflow 2.2.0, keras2onnx 1.7.0, onnx 1.8.1, Python 3.7, with TF_KERAS=1:
    keras2onnx_before.onnx keras2onnx_relu.onnx
tensorflow-cpu 2.8.4, Python 3.10:
    masked_lists.tflite integers.tflite
tensorflow-cpu 2.15.1, tf2onnx 1.16.1, onnx 1.15.0, Python 3.11:
    dropped.pb node_backwards.onnx
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

HERE = Path(__file__).resolve().parent
layers = tf.keras.layers
whole = {"return_sequences": True}
convolution = [lambda: layers.Conv1D(3, 3, activation="relu"), lambda: layers.MaxPooling1D(2)]
CASES = {
    "hard.tflite": (5, [lambda: layers.LSTM(4, recurrent_activation="hard_sigmoid", **whole)]),
    "before.tflite": (5, [lambda: layers.GRU(4, reset_after=False, **whole)]),
    "stacked.tflite": (5, [lambda: layers.RNN([layers.LSTMCell(4), layers.LSTMCell(3)], **whole)]),
    "masked_one.tflite": (5, [lambda: layers.Masking(), lambda: layers.LSTM(4, **whole)]),
    "masked_lists.tflite": (5, [lambda: layers.Masking(), lambda: layers.LSTM(4, **whole)]),
    "integers.tflite": (5, [lambda: layers.LSTM(4, **whole)]),
    "backwards.onnx": (5, [lambda: layers.LSTM(4, go_backwards=True, **whole)]),
    "masked.onnx": (5, [lambda: layers.Masking(), lambda: layers.LSTM(4, **whole)]),
    "convolved.onnx": (8, [*convolution, lambda: layers.LSTM(4)]),
    "dropped.pb": (5, [lambda: layers.SimpleRNN(4, dropout=0.2, recurrent_dropout=0.3, **whole)]),
    "node_backwards.onnx": (5, [lambda: layers.LSTM(4, go_backwards=True, **whole)]),
    "convolved.pb": (8, [*convolution, lambda: layers.LSTM(4)]),
    "before_9.onnx": (5, [lambda: layers.GRU(4, reset_after=False, **whole)]),
    "plain_9.onnx": (5, [lambda: layers.SimpleRNN(4, **whole)]),
    "backwards_9.onnx": (5, [lambda: layers.LSTM(4, go_backwards=True)]),
    "keras2onnx_before.onnx": (5, [lambda: layers.GRU(4, reset_after=False, **whole)]),
    "keras2onnx_relu.onnx": (5, [lambda: layers.LSTM(4, activation="relu", **whole)]),
}


def lite(model, name, called):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if name in ("masked_one.tflite", "integers.tflite"):
        converter = tf.lite.TFLiteConverter.from_concrete_functions([called(1)])
    if "lists" in name:
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
        converter._experimental_lower_tensor_list_ops = False
    if name == "integers.tflite":
        random = np.random.RandomState(9)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([random.randn(1, 5, 3).astype(np.float32)] for _ in range(20))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return converter.convert()


def by_keras2onnx(model):
    import keras2onnx

    return keras2onnx.convert_keras(model, model.name).SerializeToString()


def in_onnx(model, steps, opset):
    import tf2onnx

    signature = (tf.TensorSpec((None, steps, 3), tf.float32, name="x"),)
    return tf2onnx.convert.from_keras(model, input_signature=signature, opset=opset)[0].SerializeToString()


for seed, (name, (steps, own)) in enumerate(CASES.items()):
    if name not in sys.argv[1:]:
        continue
    tf.random.set_seed(seed)
    model = tf.keras.Sequential([tf.keras.Input((steps, 3)), *[build() for build in own]])
    random = np.random.RandomState(seed)
    model.set_weights([array + 0.3 * random.randn(*array.shape) for array in model.get_weights()])

    def called(batch, model=model, steps=steps):
        function = tf.function(lambda rows: model(rows)).get_concrete_function(tf.TensorSpec((batch, steps, 3), tf.float32))
        return convert_variables_to_constants_v2(function)

    if name.endswith(".tflite"):
        content = lite(model, name, called)
    elif name.startswith("keras2onnx"):
        content = by_keras2onnx(model)
    elif name.endswith(".onnx"):
        content = in_onnx(model, steps, 9 if "_9" in name else 12)
    else:
        graph = called(None).graph.as_graph_def()
        for node in graph.node:  # where the layers were called in a user's source is of no interest
            node.ClearField("experimental_debug_info")
        content = graph.SerializeToString()
    (HERE / name).write_bytes(content)
    x = random.randn(2, steps, 3).astype(np.float32)
    x[1, 3:] = 0  # in models with a mask, the second sequence has three steps
    read, given = tf.keras.Model(model.inputs, [model.layers[-1].input, model.output]).predict(x)
    np.savez(HERE / (name + ".npz"), x=read, y=given)
