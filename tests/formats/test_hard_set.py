"""What trips converters up: each goes to every target and gives there what its own framework gave, or is refused for the right reason."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites import join_stack
from tests import environments
from tests.helpers import native_files
from tests.helpers.requirements import need
from tests.helpers.sources import GATES, legacy_h5, onnx_arrays, onnx_node, sequential, uniform

TARGETS = {"pytorch": "out.pt", "keras": "out.keras", "onnx": "out.onnx", "cudnn": "out.bin"}
NEEDS = {"pytorch": "torch", "keras": "keras", "onnx": "onnxruntime"}
TIME, BATCH, IN, UNITS = 7, 3, 3, 4

# Outputs of two frameworks in single precision, compared in units of what our own float32 reference errs.
FACTOR = 16
ULPS = 8


def input_batch() -> Array:
    """What goes in, (time, batch, in)."""
    return uniform(99, TIME, BATCH, IN) * np.float32(3)


Source = tuple[Path, Array]
Make = Callable[[Path], Source]


@dataclass(frozen=True)
class Case:
    """A source file and its own framework's output for `given()`, and the targets that must refuse it, by a word of why."""

    make: Make
    refused: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[str] = ()


# PyTorch --------------------------------------------------------------------------------------------


def _seeded(module: Any) -> Any:
    import torch

    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(torch.from_numpy(uniform(number, *parameter.shape)))
    return module


def torch_stack(kind: str, **options: Any) -> Make:
    def make(folder: Path) -> Source:
        need("torch", "")
        import torch

        module = _seeded(getattr(torch.nn, kind)(IN, UNITS, **options))
        torch.save(module.state_dict(), folder / "source.pt")
        with torch.no_grad(), warnings.catch_warnings():
            # PyTorch says once that it takes a slower path, to the same numbers.
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN", UserWarning)
            return folder / "source.pt", module(torch.from_numpy(input_batch()))[0].numpy()

    return make


def torch_cell(kind: str, **options: Any) -> Make:
    def make(folder: Path) -> Source:
        need("torch", "")
        import torch

        module = _seeded(getattr(torch.nn, kind)(IN, UNITS, **options))
        torch.save({"state_dict": {f"cell.{k}": v for k, v in module.state_dict().items()}}, folder / "source.pt")
        state, steps = None, []
        with torch.no_grad():
            for x in torch.from_numpy(input_batch()):
                state = module(x, state)
                steps.append((state[0] if isinstance(state, tuple) else state).numpy())
        return folder / "source.pt", np.stack(steps)

    return make


# Keras ----------------------------------------------------------------------------------------------


def _keras_output(layers: Sequence[Any], path: Path | None = None) -> Array:
    """The output of a model of these layers with random weights, saved at the path."""
    import keras

    with warnings.catch_warnings():
        # TensorFlow and Keras warn of their own future.
        warnings.simplefilter("ignore")
        model = keras.Sequential([keras.layers.Input((None, IN)), *layers])
        if path is not None:
            model.set_weights([uniform(number, *weight.shape) for number, weight in enumerate(model.get_weights())])
            model.save(path)
        outputs = model(np.ascontiguousarray(input_batch().swapaxes(0, 1)))
        return np.asarray(keras.ops.convert_to_numpy(outputs)).swapaxes(0, 1)


def keras_model(layers: Callable[[Any], Sequence[Any]], suffix: str = ".keras") -> Make:
    def make(folder: Path) -> Source:
        need("keras", "")
        import keras

        path = folder / f"source{suffix}"
        return path, _keras_output(layers(keras.layers), path)

    return make


def keras_2_hard_sigmoid(folder: Path) -> Source:
    """Keras 2 is no more: its file is made by hand, and its function given to Keras 3 as one of the user's own."""
    need("keras", "")
    import keras

    weights = [uniform(1, IN, 4 * UNITS), uniform(2, UNITS, 4 * UNITS), uniform(3, 4 * UNITS)]
    names = [f"lstm/{name}:0" for name in ("kernel", "recurrent_kernel", "bias")]
    config = sequential(("LSTM", {"name": "lstm", "units": UNITS, "recurrent_activation": "hard_sigmoid"}))
    path = legacy_h5(folder / "source.h5", {"lstm": list(zip(names, weights, strict=True))}, config, "2.3.1")
    layer = keras.layers.LSTM(UNITS, return_sequences=True, recurrent_activation=lambda x: keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0))
    layer.build((None, None, IN))
    layer.set_weights(weights)
    return path, _keras_output([layer])


def keras_cudnn(kind: str) -> Make:
    """A layer that ran on GPUs only: its file is made by hand, and TensorFlow's own code turns its weights."""

    def make(folder: Path) -> Source:
        need("keras", "")
        import keras

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorflow.python.keras.saving.hdf5_format import _convert_rnn_weights

        gates = GATES[kind]
        weights = [uniform(1, IN, gates * UNITS), uniform(2, UNITS, gates * UNITS), uniform(3, 2 * gates * UNITS)]
        name = f"cu_dnn{kind.lower()}"
        names = [f"{name}/{part}:0" for part in ("kernel", "recurrent_kernel", "bias")]
        config = sequential((f"CuDNN{kind}", {"name": name, "units": UNITS}))
        path = legacy_h5(folder / "source.h5", {name: list(zip(names, weights, strict=True))}, config, "2.2.4")
        stand_in = type(kind, (types.SimpleNamespace,), {})(units=UNITS, reset_after=True)
        layer = getattr(keras.layers, kind)(UNITS, return_sequences=True)
        layer.build((None, None, IN))
        layer.set_weights(_convert_rnn_weights(stand_in, weights))
        return path, _keras_output([layer])

    return make


# ONNX -----------------------------------------------------------------------------------------------


def onnx_file(
    operator: str, directions: int = 1, opset: int = 14, inputs: str = "WRB", batch_first: bool = False, **attributes: Any
) -> Make:
    """A file of one node with these inputs: P for peepholes."""

    def make(folder: Path) -> Source:
        need("onnxruntime", "")
        import onnxruntime

        arrays = onnx_arrays(operator, directions, "P" in inputs)
        if "B" not in inputs:
            del arrays["B"]
        if directions == 2:
            attributes["direction"] = "bidirectional"
        path = onnx_node(folder / "source.onnx", operator, arrays, opset, batch_first=batch_first, **attributes)
        # onnxruntime does not run batches first; the weights mean the same.
        plain = onnx_node(folder / "plain.onnx", operator, arrays, opset, **attributes)
        session = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"])
        y = np.asarray(session.run(["Y"], {"X": input_batch()})[0])
        plain.unlink()
        return path, y.transpose(0, 2, 1, 3).reshape(TIME, BATCH, -1)

    return make


def _gru(keras: Any, **more: Any) -> Any:
    return keras.GRU(UNITS, return_sequences=True, **more)


def _lstm(keras: Any, **more: Any) -> Any:
    return keras.LSTM(UNITS, return_sequences=True, **more)


_RESET = dict.fromkeys(["pytorch", "cudnn"], "reset gate before the product")
_SIGMOID = dict.fromkeys(["pytorch", "cudnn"], "its gates through hard_sigmoid")
_PEEPHOLES = dict.fromkeys(["pytorch", "keras", "cudnn"], "peepholes")
_CLIP = dict.fromkeys(["pytorch", "keras", "cudnn"], "clip")
_HARD: dict[str, Any] = {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.3], "activation_beta": [0.4]}

CASES = {
    "torch GRU, 2 layers both ways": Case(torch_stack("GRU", num_layers=2, bidirectional=True)),
    "torch GRU without bias": Case(torch_stack("GRU", bias=False)),
    "torch LSTM without bias, both ways": Case(torch_stack("LSTM", bias=False, bidirectional=True)),
    "torch LSTM, projected": Case(torch_stack("LSTM", proj_size=2)),
    "torch LSTM, 2 layers both ways, projected": Case(torch_stack("LSTM", num_layers=2, bidirectional=True, proj_size=2)),
    "torch RNN relu, 2 layers both ways": Case(
        torch_stack("RNN", num_layers=2, bidirectional=True, nonlinearity="relu"), settings=["nonlinearity=relu"]
    ),
    "torch LSTMCell": Case(torch_cell("LSTMCell")),
    "torch GRUCell": Case(torch_cell("GRUCell")),
    "torch RNNCell without bias": Case(torch_cell("RNNCell", bias=False)),
    "keras GRU, reset before": Case(keras_model(lambda k: [_gru(k, reset_after=False)]), _RESET),
    "keras GRU, reset after": Case(keras_model(lambda k: [_gru(k)])),
    "keras GRU without bias": Case(keras_model(lambda k: [_gru(k, use_bias=False)])),
    "keras LSTM, hard_sigmoid": Case(
        keras_model(lambda k: [_lstm(k, recurrent_activation="hard_sigmoid")]), _SIGMOID
    ),
    "keras LSTM, hard_sigmoid, legacy file": Case(
        keras_model(lambda k: [_lstm(k, recurrent_activation="hard_sigmoid")], ".h5"), _SIGMOID
    ),
    "keras 2 LSTM, hard_sigmoid": Case(keras_2_hard_sigmoid, _SIGMOID),
    "keras Bidirectional GRU, masked": Case(keras_model(lambda k: [k.Masking(), k.Bidirectional(_gru(k))])),
    "keras Bidirectional LSTM, summed": Case(
        keras_model(lambda k: [k.Bidirectional(_lstm(k), merge_mode="sum")]),
        dict.fromkeys(["pytorch", "cudnn"], "directions joined by sum"),
    ),
    "keras LSTM going backwards": Case(
        keras_model(lambda k: [_lstm(k, go_backwards=True)]),
        dict.fromkeys(["pytorch", "cudnn"], "outputs in processing order"),
    ),
    "keras SimpleRNN softsign": Case(
        keras_model(lambda k: [k.SimpleRNN(UNITS, activation="softsign", return_sequences=True)]),
        dict.fromkeys(["pytorch", "cudnn"], "its candidate through softsign"),
    ),
    "keras CuDNNLSTM": Case(keras_cudnn("LSTM")),
    "keras CuDNNGRU": Case(keras_cudnn("GRU")),
    "onnx GRU, reset before, batch first, opset 14": Case(
        onnx_file("GRU", batch_first=True, linear_before_reset=0), _RESET
    ),
    "onnx GRU, reset after, both ways": Case(onnx_file("GRU", 2, linear_before_reset=1)),
    "onnx GRU without bias, opset 7": Case(onnx_file("GRU", opset=7, inputs="WR", linear_before_reset=1)),
    "onnx LSTM with peepholes": Case(onnx_file("LSTM", inputs="WRBP"), _PEEPHOLES),
    "onnx LSTM with peepholes, both ways": Case(onnx_file("LSTM", 2, inputs="WRBP"), _PEEPHOLES),
    "onnx LSTM, coupled gates": Case(onnx_file("LSTM", input_forget=1), settings=["input_forget=f"]),
    "onnx LSTM, clipped": Case(onnx_file("LSTM", clip=0.5), _CLIP),
    "onnx LSTM, HardSigmoid": Case(onnx_file("LSTM", **_HARD), _SIGMOID),
    "onnx RNN relu, both ways": Case(onnx_file("RNN", 2, activations=["Relu", "Relu"])),
    "onnx LSTM in reverse": Case(
        onnx_file("LSTM", direction="reverse"), dict.fromkeys(["pytorch", "cudnn"], "reads only from the end")
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Source]:
    """Source files, each made once."""
    cache: dict[str, Source] = {}

    def make(name: str) -> Source:
        if name not in cache:
            cache[name] = CASES[name].make(tmp_path_factory.mktemp("hard"))
        return cache[name]

    return make


def bound(stack: Recurrent) -> tuple[float, Array]:
    """How far an output may be off, and what the float64 reference makes of the layer."""
    truth = reference.run(stack, input_batch()).y
    noise = float(np.abs(reference.run(stack, input_batch(), dtype=np.float32).y - truth).max())
    return FACTOR * noise + ULPS * float(np.finfo(np.float32).eps) * max(1.0, float(np.abs(truth).max())), truth


@pytest.mark.parametrize("name", CASES)
def test_the_reference_agrees_with_the_source(name: str, sources: Callable[[str], Source]) -> None:
    path, y = sources(name)
    (stack,) = rc.load(path, settings=CASES[name].settings).layers.values()
    allowed, truth = bound(stack)
    assert truth.shape == y.shape
    assert np.abs(truth - y).max() <= allowed
    assert np.abs(y).max() > 0.05


@pytest.mark.drawn(30)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_it_goes_to_every_target_or_is_refused_for_what_it_is(
    name: str, target: str, sources: Callable[[str], Source], tmp_path: Path
) -> None:
    case = CASES[name]
    source, y = sources(name)
    path = tmp_path / TARGETS[target]
    verdicts = {v.target: v for v in rc.targets(rc.load(source, settings=case.settings))}
    if target in case.refused:
        with pytest.raises(RefusedError) as caught:
            rc.convert(source, path, settings=case.settings)
        assert case.refused[target] in caught.value.feature
        assert caught.value.layer and caught.value.reason and caught.value.remedy
        assert list(tmp_path.iterdir()) == []
        assert verdicts[target].verdict == "refused" and verdicts[target].detail == str(caught.value)
        return
    summary = rc.convert(source, path, settings=case.settings, assume_defaults=True)
    assert verdicts[target].verdict == ("exact" if summary.exact else "rewritten")
    (stack,) = rc.load(source, settings=case.settings).layers.values()
    allowed, _ = bound(stack)
    assert np.abs(output(summary, case) - y).max() <= allowed


def output(summary: rc.Summary, case: Case) -> Array:
    """What the written file gives."""
    if summary.target_format == "cudnn" and environments.missing("mxnet"):
        # Its layout is held against the library elsewhere; here our own reading of it is what can be run.
        return reference.run(join_stack(list(rc.load(summary.target).layers.values())), input_batch()).y
    if summary.target_format in NEEDS:
        need(NEEDS[summary.target_format], "")
    return native_files.run(summary, input_batch())


def test_a_learned_state_and_a_projection_cannot_both_be_folded(tmp_path: Path) -> None:
    from tests.helpers.sources import checkpoint, stack

    parts = frozenset({"input", "recurrent", "input_bias", "recurrent_bias", "projection", "initial_hidden"})
    both = checkpoint(stack(parts=parts, projection_size=2, name="encoder"))
    with pytest.raises(RefusedError, match=r"layer 'encoder': .*a learned initial state"):
        rc.save(both, tmp_path / "out.onnx")
    folded = rc.save(both, tmp_path / "out.onnx", settings=["initial_state=call"])
    assert "those before the projection" in str(folded.steps), folded.steps  # which the caller passes, too
    assert rc.save(both, tmp_path / "out.pt", initial_state="call").written


def test_the_two_meanings_of_hard_sigmoid_are_not_the_same(sources: Callable[[str], Source]) -> None:
    """If they were, a test that takes one for the other could not fail."""
    path, y = sources("keras 2 LSTM, hard_sigmoid")
    right, wrong = (rc.load(path, hard_sigmoid=era).layers["lstm"] for era in ("keras2", "keras3!"))
    allowed, truth = bound(right)
    assert np.abs(truth - y).max() <= allowed
    assert np.abs(reference.run(wrong, input_batch()).y - y).max() > 100 * allowed
