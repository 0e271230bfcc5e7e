"""Have tf_keras write old models with their outputs: run it with `python make.py` where tf_keras 2.21 is installed.

Each model is NAME.h5 as `model.save` writes it, and NAME.npz: its inputs as x0, x1 ... and its outputs as y0, y1 ... The
CuDNN layers do not run without a GPU: tf_keras itself loads their weights into its plain layers, and runs those.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tf_keras as keras
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

L = keras.layers
HERE = Path(__file__).resolve().parent
MADE = {}


def made(build):
    MADE[build.__name__] = build
    return build


def line(*layers):
    return keras.Sequential(list(layers))


@made
def plain_lstm():
    return line(L.Input((6, 3)), L.LSTM(4, return_sequences=True), L.LSTM(3, recurrent_activation="hard_sigmoid"), L.Dense(2, "softmax"))


@made
def gru_hard():
    return line(
        L.Input((6, 3)),
        L.GRU(4, return_sequences=True, recurrent_activation="hard_sigmoid", reset_after=False),
        L.GRU(3, recurrent_activation="hard_sigmoid", activation="hard_sigmoid", return_sequences=True, use_bias=False),
        L.SimpleRNN(3, activation="hard_sigmoid", go_backwards=True),
        L.Dense(3, "hard_sigmoid"),
        L.Activation("hard_sigmoid"),
        L.Dense(2, use_bias=False),
    )


@made
def tagger():
    return line(
        L.Embedding(12, 4, mask_zero=True, input_length=7),
        L.SpatialDropout1D(0.2),
        L.Bidirectional(L.LSTM(3, return_sequences=True, dropout=0.1, recurrent_dropout=0.2)),
        L.Dropout(0.3),
        L.LayerNormalization(),
        L.TimeDistributed(L.Dense(5, "softmax")),
    )


@made
def merge_modes():
    x = L.Input((5, 3))
    y = L.Masking(-1.0)(x)
    out = [L.Bidirectional(L.GRU(2, return_sequences=True), merge_mode=mode)(y) for mode in ("sum", "mul", "ave", "concat")]
    both = L.Bidirectional(L.LSTM(3), merge_mode=None)(y)
    other = L.Bidirectional(L.LSTM(2), backward_layer=L.LSTM(2, go_backwards=True, activation="relu"))(y)
    return keras.Model(x, [*out, *both, other])


@made
def shared():
    a, b = L.Input((5, 3), name="a"), L.Input((4, 3), name="b")
    encoder, dense, last = (L.LSTM(4, return_state=True, name="encoder"), L.Dense(4, "tanh", name="z"), L.Dense(4, name="c"))
    one, h, c = encoder(a)
    two, _, _ = encoder(b)
    decoded = L.LSTM(4, return_sequences=True, name="decoder")(b, initial_state=[h, c])
    joined = L.Concatenate()([dense(one), dense(two), L.Add()([one, two]), L.Multiply()([one, two]), L.Subtract()([h, two])])
    more = [L.Average()([one, two, h]), L.Maximum()([one, two]), L.Minimum()([one, two]), L.Dot(-1, normalize=True)([one, two])]
    return keras.Model([a, b], [joined, last(decoded), last(joined[:, :4]) if False else last(dense(h)), *more])


@made
def nested():
    inner = line(L.Input((4,)), L.Dense(3), L.BatchNormalization(), L.Dense(3, "relu"))
    frozen = line(L.Input((3,)), L.BatchNormalization(), L.Dense(4), L.BatchNormalization())
    frozen.layers[1].trainable = False
    u, v = L.Input((3,)), L.Input((4,))
    graph = keras.Model([u, v], [L.Add()([L.Dense(4)(u), v]), L.Dense(2)(v)])
    x, y = L.Input((4,)), L.Input((4,))
    first, second = inner(x), inner(y)
    p, q = graph([first, frozen(second)])
    r, _ = graph([second, p])
    return keras.Model([x, y], [frozen(first), p, q, r])


@made
def frozen_nested():
    inner = line(L.Input((4,)), L.Dense(3), L.BatchNormalization(), L.Dense(4), L.BatchNormalization())
    inner.trainable = False
    return line(L.Input((4,)), inner, L.Dense(2))


@made
def stateful():
    return line(L.Input(batch_shape=(2, 4, 3)), L.LSTM(3, stateful=True, return_sequences=True), L.GRU(2, stateful=True))


@made
def cells():
    x = L.Input((5, 3))
    stacked = L.RNN([L.LSTMCell(4, recurrent_activation="hard_sigmoid"), L.GRUCell(3), L.LSTMCell(2)], return_sequences=True)(x)
    single = L.RNN(L.GRUCell(3, reset_after=False))(x)
    both = L.Bidirectional(L.RNN(L.SimpleRNNCell(2)))(x)
    return keras.Model(x, [stacked, single, both])


@made
def images():
    return line(
        L.Input((12, 10, 2)),
        L.ZeroPadding2D(((1, 0), (2, 1))),
        L.Conv2D(4, 3, padding="same", dilation_rate=2),
        L.BatchNormalization(),
        L.LeakyReLU(0.2),
        L.SeparableConv2D(5, 3, depth_multiplier=2, activation="hard_sigmoid"),
        L.DepthwiseConv2D(2, activation="relu"),
        L.MaxPooling2D(2),
        L.Conv2DTranspose(3, 2, strides=2, activation="elu"),
        L.PReLU(shared_axes=[1, 2]),
        L.UpSampling2D(2, interpolation="bilinear"),
        L.AveragePooling2D(2, padding="same"),
        L.Cropping2D(1),
        L.SpatialDropout2D(0.1),
        L.Flatten(),
        L.Dense(3, "hard_sigmoid"),
    )


@made
def convolving():
    x = L.Input((4, 6, 5, 2))
    y, h, c = L.ConvLSTM2D(3, (3, 2), padding="same", return_state=True, return_sequences=True)(x)
    z = L.ConvLSTM2D(3, 3, padding="same", recurrent_activation="sigmoid", use_bias=False)(y, initial_state=[h, c])
    both = L.Bidirectional(L.ConvLSTM2D(2, 3, strides=2, activation="relu"))(x)
    flat = L.ConvLSTM1D(2, 3, go_backwards=True)(L.Reshape((4, 30, 2))(x))
    return keras.Model(x, [z, both, flat])


@made
def sequences():
    x = L.Input((12, 3))
    y = L.Conv1D(4, 3, padding="causal", activation="relu", dilation_rate=2)(x)
    y = L.MaxPooling1D(2)(y)
    y = L.SeparableConv1D(4, 2)(y)
    y = L.Conv1D(4, 2, groups=2, padding="same", activation="swish")(y)
    y = L.UpSampling1D(2)(L.ZeroPadding1D(1)(y))
    y = L.Conv1DTranspose(3, 2)(L.AveragePooling1D(2)(y))
    y = L.Cropping1D((1, 0))(y)
    z = L.Permute((2, 1))(y)
    w = L.RepeatVector(3)(L.GlobalMaxPooling1D()(y))
    return keras.Model(x, [y, z, L.Reshape((-1, 3))(z), w, L.GlobalAveragePooling1D()(y), L.UnitNormalization()(y)])


@made
def activations():
    x = L.Input((4, 3))
    layers = [
        L.ReLU(6.0, 0.1, 0.2),
        L.ThresholdedReLU(0.4),
        L.ELU(0.7),
        L.Softmax(axis=1),
        L.PReLU(),
        L.GaussianNoise(0.1),
        L.GaussianDropout(0.1),
        L.AlphaDropout(0.1),
        L.ActivityRegularization(l1=0.1),
    ]
    names = [
        "elu",
        "selu",
        "softplus",
        "softsign",
        "exponential",
        "gelu",
        "swish",
        "mish",
        "relu",
        "tanh",
        "sigmoid",
        "softmax",
        "hard_sigmoid",
        "linear",
    ]
    return keras.Model(x, [layer(x) for layer in layers] + [L.Activation(name)(x) for name in names])


@made
def attention():
    q, v = L.Input((5, 4)), L.Input((6, 4))
    masked = L.Masking()(v)
    heads = [
        L.Attention(use_scale=True)([q, v]),
        L.Attention()([L.LSTM(4, return_sequences=True)(masked), masked]),
        L.AdditiveAttention()([q, masked]),
    ]
    return keras.Model([q, v], heads)


@made
def masked():
    x = L.Input((6,))
    e = L.Embedding(9, 4, mask_zero=True)(x)
    d = L.Dense(4, "relu")(L.Dropout(0.1)(e))
    joined = L.Concatenate()([e, d, L.Add()([e, d])])
    return keras.Model(x, [L.LSTM(3)(joined), L.GlobalAveragePooling1D()(joined), L.Bidirectional(L.GRU(2))(e),
                           L.GRU(2, go_backwards=True)(e)])  # fmt: skip


@made
def masked_merges():
    # Keras 3's own Multiply, Maximum and Minimum compute something else at masked steps.
    x = L.Input((6, 4))
    one, two = L.Masking(-1.0)(x), L.Dense(4)(x)
    last = L.Masking(0.5)(L.Activation("relu")(two))
    merged = [L.Multiply()([one, two]), L.Maximum()([one, two, last]), L.Minimum()([one, one]), L.Subtract()([one, last])]
    inner = line(L.Input((6, 4)), L.BatchNormalization(), L.GRU(3))
    return keras.Model(x, [*merged, L.LSTM(2)(L.Add()(merged)), inner(merged[0]), L.Multiply()([merged[0], merged[1]])])


@made
def deep_order():
    # Equal shapes everywhere: only the right order of Keras 3's numbers gives the right outputs.
    x, y = L.Input((3,), name="y"), L.Input((3,), name="x")
    dense = [L.Dense(3, "tanh", name=f"d{9 - n}") for n in range(8)]
    a = dense[0](x)
    b = dense[1](dense[2](y))
    c = dense[3](a)
    d = dense[0](b)
    e = dense[4](L.Add()([dense[5](dense[5](c)), d]))
    return keras.Model([x, y], [dense[6](e), dense[7](a), e])


@made
def compiled():
    model = line(L.Input((4,)), L.Dense(3, kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(2)), L.Dense(2, "softmax"))
    model.compile(keras.optimizers.Adam(0.01), "categorical_crossentropy", ["accuracy"])
    return model


def cudnn(layer):
    def build(kind):
        return keras.Sequential([L.Input((5, 3)), L.Bidirectional(kind(4, return_sequences=True)), kind(2), L.Dense(2)])

    old = {"lstm": CuDNNLSTM, "gru": CuDNNGRU}[layer]
    return build(old), build({"lstm": L.LSTM, "gru": L.GRU}[layer])


def zipped():
    x = L.Input((5, 3))
    y = L.Bidirectional(L.GRU(3, return_sequences=True, recurrent_activation="hard_sigmoid"))(x)
    inner = line(L.Input((5, 6)), L.BatchNormalization(), L.TimeDistributed(L.Dense(4)))(y)
    z = L.Concatenate()([L.LSTM(3)(inner), L.LSTM(3)(L.Dense(2)(y))])
    model = keras.Model(x, L.Dense(2)(z))
    shake(model, 3)
    return model


def shake(model, seed):
    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = random.normal(0, 0.6, weight.shape)
        weight.assign(np.abs(values) + 0.5 if "variance" in weight.name else values)


def inputs(model, seed):
    random = np.random.default_rng(seed)
    found = []
    for tensor in model.inputs:
        shape = [one or 3 for one in tensor.shape]
        embeds = any(isinstance(layer, L.Embedding) for layer in model.layers)
        x = random.integers(1, 8, shape).astype("float32") if embeds else random.normal(0, 1, shape).astype("float32")
        if len(shape) > 1:
            masking = [layer.mask_value for layer in model.layers if isinstance(layer, L.Masking)]
            if embeds or (masking and len(model.inputs) < 2) or (masking and tensor is model.inputs[1]):
                x[0, -2:] = masking[0] if masking else 0
                x[1, 1] = masking[0] if masking else 0
        found.append(x)
    return found


def keep(name, model, runs, seed=0, suffix=".h5"):
    x = inputs(runs, seed)
    y = runs(x if len(x) > 1 else x[0], training=False)
    y = list(y) if isinstance(y, (list, tuple)) else [y]
    model.save(HERE / f"{name}{suffix}")
    arrays = {f"x{n}": one for n, one in enumerate(x)} | {f"y{n}": np.asarray(one) for n, one in enumerate(y)}
    np.savez(HERE / f"{name}.npz", **arrays)


def main(wanted):
    for name, build in MADE.items():
        if wanted and name not in wanted:
            continue
        keras.backend.clear_session()
        model = build()
        shake(model, len(name))
        keep(name, model, model)
    keras.backend.clear_session()
    model = zipped()
    keep("zip_of_keras_2", model, model, suffix=".keras")
    for layer in ("lstm", "gru"):
        keras.backend.clear_session()
        old, plain = cudnn(layer)
        shake(old, 5)
        old.save(HERE / f"cudnn_{layer}.h5")
        plain.load_weights(HERE / f"cudnn_{layer}.h5")
        keep(f"cudnn_{layer}", old, plain)


if __name__ == "__main__":
    main(sys.argv[1:])
