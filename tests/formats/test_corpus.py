"""Real files: read, converted to every target that can hold them, run there, and compared with their own framework."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert import rewrites
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import INPUT, Recurrent
from rnnconvert.files.load import load
from rnnconvert.files.summary import Summary
from rnnconvert.running import registry
from rnnconvert.verification.verify import verify
from tests.helpers import corpus, native_files
from tests.helpers.corpus import PROBES, Probe
from tests.helpers.requirements import need

TARGETS = {"pytorch": "out.pt", "keras": "out.keras", "onnx": "out.onnx", "cudnn": "out.bin"}

# The expected outputs were made in single precision by other runtimes, whose sums run in another order. They are
# compared in units of the error that our own float32 reference makes on the same numbers, plus a few ULP.
FACTOR = 16
ULPS = 8


@pytest.fixture(params=PROBES, ids=str)
def probe(request: pytest.FixtureRequest) -> Probe:
    need("corpus", corpus.absent())
    parameter: Probe = request.param
    return parameter


def stack_of(probe: Probe) -> Recurrent:
    checkpoint = load(probe.file, settings=probe.reading)
    return rewrites.join_stack([checkpoint.layers[name] for name in probe.layers])


def allowed(stack: Recurrent, probe: Probe) -> tuple[float, Array]:
    """How far an output may be from what is expected, and what the float64 reference makes of the layer."""
    x, states = probe.input(), probe.initial()
    hidden = None if states is None else tuple(states[0])
    cell = tuple(states[1]) if states is not None and len(states) > 1 else None
    truth = reference.run(stack, x, hidden, cell).y
    rough = reference.run(stack, x, hidden, cell, dtype=np.float32).y
    noise = float(np.abs(rough - truth).max())
    return FACTOR * noise + ULPS * float(np.finfo(np.float32).eps) * max(1.0, float(np.abs(truth).max())), truth


def same_steps(y: Array, probe: Probe) -> Array:
    return y[-1] if probe.axes[1] == "bf" else y


def test_the_reference_agrees_with_the_files_own_framework(probe: Probe) -> None:
    stack = stack_of(probe)
    bound, truth = allowed(stack, probe)
    expected = probe.expected()
    outputs = same_steps(truth, probe)
    assert expected.shape == outputs.shape
    assert np.abs(outputs - expected).max() <= bound


@pytest.mark.drawn(75)
@pytest.mark.parametrize("target", TARGETS)
def test_a_converted_file_gives_what_the_source_gave(probe: Probe, target: str, tmp_path: Path) -> None:
    path = tmp_path / TARGETS[target]
    settings = [*probe.settings, *(["stack=join"] if len(probe.layers) > 1 else [])]
    if target == "onnx" and probe.initial() is not None:
        settings.append("states=input")
    elif target == "onnx" and target not in probe.refused and any(call.states == INPUT for call in stack_of(probe).calls):
        settings.append("states=zeros")  # the reference was run from them

    def convert() -> Summary:
        return rc.convert(probe.file, path, layers=probe.layers, target_format=target, settings=settings, assume_defaults=True)

    if target in probe.refused:
        with pytest.raises(RefusedError):
            convert()
        assert list(tmp_path.iterdir()) == []
        return
    states = probe.initial()
    for name in {"pytorch": ["torch"], "keras": ["keras"], "onnx": ["onnxruntime"], "cudnn": ["mxnet"]}[target]:
        need(name, "")
    summary = convert()
    stack = stack_of(probe)
    bound, _ = allowed(stack, probe)
    expected = probe.expected()
    if target == "keras" and states is not None:
        # A .keras model is called without states. What it gives from zero, only the reference knows, which agrees
        # with the file's own framework from the states.
        expected, states = reference.run(stack, probe.input()).y, None
    outputs = same_steps(native_files.run(summary, probe.input(), states), probe)
    assert np.abs(outputs - expected).max() <= bound


def test_every_kind_of_file_is_probed() -> None:
    assert {Path(probe.path).suffix for probe in PROBES} == {
        ".th", ".ckpt", ".pt", ".safetensors", ".h5", ".hdf5", ".keras", ".onnx", ".onnxtxt", ".params",
        ".index", ".pb", ".bson", ".t7", ".json", ".nam",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["scripted", "traced", "state_dict"])
def test_quantised_weights_are_what_torch_takes_them_for(name: str) -> None:
    need("corpus", corpus.absent())
    folder = corpus.FOLDER / "pytorch-quantized-lstm"
    checkpoint = load(folder / f"TestSerialization.test_lstm.{name}.pt")
    ((layer, stack),) = checkpoint.layers.items()
    assert any(warning.startswith(f"{layer}: its matrices are stored as integers") for warning in checkpoint.warnings)
    with np.load(folder / "TestSerialization.test_lstm.ref.npz") as recorded:
        for part, key in (("input", "w_ih_dequant"), ("recurrent", "w_hh_dequant"), ("input_bias", "b_ih")):
            matrix = np.concatenate([np.asarray(stack.first.arrays[part, gate]) for gate in "ifgo"])
            assert np.array_equal(matrix, recorded[key])
        # Its first step has not been through the kernel's own rounding of the state.
        assert np.abs(reference.run(stack, recorded["x"]).y[0] - recorded["y_torch"][0]).max() < 1e-3


def test_a_file_of_outputs_has_no_layers() -> None:
    need("corpus", corpus.absent())
    assert not load(corpus.FOLDER / "pytorch-quantized-lstm" / "TestSerialization.test_lstm.expected.pt").layers


FOREIGN = [
    "chainer-char-rnn/charrnn_epoch_15.88.chainermodel",
    "chars2vec-50-100/eng_50_model.pkl", "g2p-en/checkpoint20.npz",
]  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_read_yet_is_said_so(name: str) -> None:
    need("corpus", corpus.absent())
    with pytest.raises(UnreadableError):
        load(corpus.FOLDER / name)


RUN = [
    ("allennlp-fixtures/simple_tagger_best.th", "torch-cpu"),
    ("cad-predictor/lstm.ckpt", "torch-cpu"),
    ("ergo-tcr/lstm_model.pt", "torch-cpu"),
    ("silero-vad-v6/silero_vad_16k.safetensors", "torch-cpu"),
    ("lstm-qqq-keras3/gru_model.keras", "keras-tensorflow"),
    ("lstm-qqq-keras3/lstm_model.keras", "keras-tensorflow"),
    ("burn-onnx-tests/gru_bidirectional.onnx", "onnxruntime-cpu"),
    ("tract-bidi-lstm/model.onnx", "onnxruntime-cpu"),
    ("opencv-onnx-basic/models/lstm_cell_bidirectional.onnx", "onnxruntime-cpu"),
]
"""Real files, and the executor that runs them as they are."""


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("path", "executor"), RUN, ids=lambda value: str(value))
def test_a_real_file_is_verified_by_its_own_framework(path: str, executor: str) -> None:
    need("corpus", corpus.absent())
    need({"torch-cpu": "torch", "keras-tensorflow": "keras"}.get(executor, "onnxruntime"), registry.executors()[executor].absent)
    report = verify(corpus.FOLDER / path, on=[executor])
    assert report.equal, str(report)
    assert all(run["own_file"] for layer in report.document["layers"] for run in layer["runs"])
