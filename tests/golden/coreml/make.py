"""The files beside this one: models that coremltools 9.0 made of PyTorch's layers, and of its own operations and layers.

pip install coremltools==9.0 torch==2.13.0 scikit-learn && python tests/golden/coreml/make.py

numbers.npz holds what is in them: PyTorch's weights and outputs, the arrays that were given to operations and layers, and what the
arrays that coremltools compressed stand for, by its own account.
"""

import pathlib
import shutil

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder, quantization_utils

FOLDER = pathlib.Path(__file__).resolve().parent
NUMBERS = {}
RNG = np.random.default_rng(7)
IN, UNITS = 3, 4
_LINEAR, _TABLE = ct.models._QUANTIZATION_MODE_LINEAR_QUANTIZATION, ct.models._QUANTIZATION_MODE_LOOKUP_TABLE_LINEAR


def numbers(name, *shape):
    NUMBERS[name] = RNG.uniform(-1, 1, shape).astype(np.float32)
    return NUMBERS[name]


def save(model, name):
    path = FOLDER / name
    if path.is_dir():
        shutil.rmtree(path)
    model.save(str(path))


class Model(torch.nn.Module):
    """Layers that read one another."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(IN, UNITS, 2, bidirectional=True)
        self.relu = torch.nn.RNN(2 * UNITS, UNITS, nonlinearity="relu")
        self.tanh = torch.nn.RNN(UNITS, UNITS)
        self.head = torch.nn.Linear(UNITS, 2)

    def forward(self, x):
        return self.head(self.tanh(self.relu(self.lstm(x)[0])[0])[0])


class Loop(torch.nn.Module):
    """A GRU, which coremltools writes as a loop."""

    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(IN, UNITS)

    def forward(self, x):
        return self.gru(x, torch.zeros(1, 1, UNITS))[0]


def of_torch():
    torch.manual_seed(3)
    model = Model().eval()
    x = torch.rand(6, 1, IN) * 2 - 1
    NUMBERS["torch/x"], NUMBERS["torch/y"] = x.numpy(), model(x).detach().numpy()
    NUMBERS.update({f"torch/{name}": value.numpy() for name, value in model.state_dict().items()})
    traced = torch.jit.trace(model, x)

    def converted(module, kind, **how):
        return ct.convert(module, convert_to=kind, inputs=[ct.TensorType("x", shape=x.shape)], skip_model_load=True, **how)

    wide = {"compute_precision": ct.precision.FLOAT32, "minimum_deployment_target": ct.target.iOS15}
    program = converted(traced, "mlprogram", **wide)
    save(program, "torch.mlpackage")
    half = converted(traced, "mlprogram", minimum_deployment_target=ct.target.iOS17)
    save(half, "half.mlpackage")
    save(converted(traced, "neuralnetwork"), "torch.mlmodel")
    gru = torch.jit.trace(Loop().eval(), x)
    save(converted(gru, "mlprogram", **wide), "loop.mlpackage")


def operations():
    def weights(name, gates, width, peephole=False):
        made = {
            "weight_ih": numbers(f"{name}/weight_ih", gates * UNITS, width),
            "weight_hh": numbers(f"{name}/weight_hh", gates * UNITS, UNITS),
            "bias": numbers(f"{name}/bias", gates * UNITS),
        }
        return made | ({"peephole": numbers(f"{name}/peephole", 3 * UNITS)} if peephole else {})

    zero = np.zeros((1, UNITS), np.float32)

    @mb.program(input_specs=[mb.TensorSpec(shape=(6, 1, IN))], opset_version=ct.target.iOS15)
    def program(x):
        y = mb.lstm(
            x=x,
            initial_h=numbers("peeping/initial_h", 1, UNITS),
            initial_c=numbers("peeping/initial_c", 1, UNITS),
            **weights("peeping", 4, IN, True),
            clip=np.float32(0.3),
            output_sequence=True,
            recurrent_activation="hard_sigmoid",
            activation="relu",
            name="peeping",
        )[0]
        y = mb.lstm(
            x=y,
            initial_h=zero,
            initial_c=zero,
            **weights("backwards", 4, UNITS),
            direction="reverse",
            output_sequence=True,
            name="backwards",
        )[0]
        y = mb.gru(x=y, initial_h=zero, **weights("gru", 3, UNITS), output_sequence=True, name="gru")[0]
        return mb.rnn(x=y, initial_h=zero, **weights("rnn", 1, UNITS), output_sequence=True, activation="sigmoid", name="rnn")[0]

    model = ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS15,
        skip_model_load=True,
        compute_precision=ct.precision.FLOAT32,
    )
    save(model, "operations.mlpackage")
    compressed(model)


def compressed(model):
    import coremltools.optimize.coreml as cto

    linear = cto.OpLinearQuantizerConfig(mode="linear", weight_threshold=0)
    table = cto.OpPalettizerConfig(mode="uniform", nbits=4, weight_threshold=0)
    for name, make, config in (("linear", cto.linear_quantize_weights, linear), ("table", cto.palettize_weights, table)):
        packed = make(model, cto.OptimizationConfig(global_config=config))
        save(packed, f"{name}.mlpackage")
        plain = cto.decompress_weights(packed)
        for weight, described in cto.get_weights_metadata(plain, weight_threshold=0).items():
            NUMBERS[f"{name}/{weight}"] = described.val


def layers():
    def gates(name, count, width, peepholes=False):
        made = {
            "W_h": [*numbers(f"{name}/R", count, UNITS, UNITS)],
            "W_x": [*numbers(f"{name}/W", count, UNITS, width)],
            "b": [*numbers(f"{name}/b", count, UNITS)],
        }
        return made | ({"peep": [*numbers(f"{name}/p", 3, UNITS)]} if peepholes else {})

    builder = NeuralNetworkBuilder([("x", datatypes.Array(IN))], [("y", datatypes.Array(UNITS))])
    size = {"hidden_size": UNITS, "output_all": True}

    def names(below, above, states):
        return {
            "input_names": [below, *(f"{above}_{one}_in" for one in states)],
            "output_names": [above, *(f"{above}_{one}_out" for one in states)],
        }

    builder.add_unilstm(
        name="peeping",
        **gates("nn_peeping", 4, IN, True),
        input_size=IN,
        **names("x", "a", "hc"),
        **size,
        inner_activation="SIGMOID_HARD",
        output_activation="SIGMOID",
        forget_bias=True,
        cell_clip_threshold=2.5,
    )
    builder.add_unilstm(
        name="coupled",
        **gates("nn_coupled", 4, UNITS),
        input_size=UNITS,
        **names("a", "b", "hc"),
        **size,
        coupled_input_forget_gate=True,
        reverse_input=True,
    )
    back = {f"{key}_back": value for key, value in gates("nn_both_back", 4, UNITS).items()}
    builder.add_bidirlstm(name="both", **gates("nn_both", 4, UNITS), **back, input_size=UNITS, **names("b", "c", "hcde"), **size)
    builder.add_gru(
        name="gru", **gates("nn_gru", 3, 2 * UNITS), input_size=2 * UNITS, **names("c", "d", "h"), **size, inner_activation="SIGMOID"
    )
    rnn = {"W_h": numbers("nn_rnn/R", UNITS, UNITS), "W_x": numbers("nn_rnn/W", UNITS, UNITS), "b": numbers("nn_rnn/b", UNITS)}
    builder.add_simple_rnn(name="rnn", **rnn, input_size=UNITS, **names("d", "y", "h"), **size, activation="RELU")
    model = ct.models.MLModel(builder.spec, skip_model_load=True)
    save(model, "layers.mlmodel")
    for name, bits, mode in (("bits16", 16, _LINEAR), ("bits8", 8, _LINEAR), ("bits3", 3, _TABLE)):
        packed = quantization_utils._quantize_spec_weights(type(builder.spec).FromString(builder.spec.SerializeToString()), bits, mode)
        save(ct.models.MLModel(packed, skip_model_load=True), f"{name}.mlmodel")
        if bits == 16:
            continue
        plain = type(packed).FromString(packed.SerializeToString())
        # coremltools cannot undo its own tables in every layer
        for layer in [one for one in plain.neuralNetwork.layers if one.name != "gru"]:
            plain.neuralNetwork.layers.remove(layer)
        quantization_utils._dequantize_nn_spec(plain.neuralNetwork)
        (gru,) = (one.gru for one in plain.neuralNetwork.layers)
        NUMBERS[f"{name}/W_r"] = np.array(gru.resetGateWeightMatrix.floatValue, np.float32)
        NUMBERS[f"{name}/b_o"] = np.array(gru.outputGateBiasVector.floatValue, np.float32)


if __name__ == "__main__":
    of_torch()
    operations()
    layers()
    np.savez_compressed(FOLDER / "numbers.npz", **NUMBERS)
