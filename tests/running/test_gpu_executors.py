"""What a machine without a GPU can say of the executors that need one: their calls, made to stand-ins."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import rnnconvert
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.cudnn import run as cudnn
from rnnconvert.formats.cudnn import run_jax as jax
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.formats.cudnn.description import BIAS_MODES
from rnnconvert.formats.keras import run as keras
from rnnconvert.formats.keras.run_model import Chain
from rnnconvert.formats.onnx import run as onnx
from rnnconvert.formats.onnx import run_session
from rnnconvert.formats.onnx import run_witness as onnx_whole
from rnnconvert.formats.onnx.run_session import Session
from rnnconvert.formats.pytorch import run_flat as torch_flat
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from rnnconvert.running.child import flat_buffer, missing
from rnnconvert.running.sequences import Sequences
from rnnconvert.running.witness import SIZES, Witness
from tests.gpu.standins import laid_out
from tests.helpers.cudnn_standin import HostMemory, StandIn
from tests.helpers.frameworks import outputs, sequences
from tests.helpers.judging import Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, random_stack, random_states

CELLS = {"lstm": Cell("lstm"), "gru": Cell("gru", True), "rnn_tanh": Cell("rnn"), "rnn_relu": Cell("rnn", activation=RELU)}


def described(stack: Recurrent, tmp_path: Path, **options: Any) -> tuple[Array, dict[str, Any]]:
    """A stack's buffer as its bits, and the description beside it."""
    path = tmp_path / "weights.bin"
    rnnconvert.save(Checkpoint("", "canonical", {"random": stack}), path, "cudnn", **options)
    return flat_buffer(str(path), [], "rnnconvert.cudnn")


def problem_of(cell: str, dtype: str, lengths: Any, states: bool, projection: int = 0, parts: Any = BOTH) -> Problem:
    form = Sizes(CELLS[cell].kind, 4, 5, 2, 2, projection, parts)
    x = np.random.default_rng(1).uniform(-1, 1, (5, 3, 4)).astype(dtype)
    hidden, cells = random_states(form, 3, 2, dtype)
    stack = random_stack(form, 3, dtype, CELLS[cell])
    return Problem(stack, x, hidden if states else None, cells if states and cell == "lstm" else None, lengths)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("lengths", [None, (5, 1, 3)], ids=["whole", "lengths"])
@pytest.mark.parametrize("states", [True, False], ids=["given", "default"])
@pytest.mark.parametrize(
    ("cell", "projection", "bias_mode"),
    [(cell, 0, "double") for cell in CELLS] + [("lstm", 2, "double"), ("gru", 0, "none"), ("gru", 0, "single_rec")],
)
def test_cudnn_is_called_as_its_header_says(
    cell: str, projection: int, bias_mode: str, states: bool, lengths: Any, dtype: str, tmp_path: Path
) -> None:
    need("torch", missing(["torch"]))  # the reference's gradients
    parts = PLAIN | {*BIAS_MODES[bias_mode]} | ({"projection"} if projection else set())
    problem = problem_of(cell, dtype, None if lengths is None else np.array(lengths), states, projection, parts)
    params, description = described(problem.stack, tmp_path, bias_mode=bias_mode)
    host, library = HostMemory(), StandIn(description)
    weighed, cotangents = problem.cotangents(4)
    plain = cudnn.run(params, description, sequences(problem), cudnn.Device(library, cudnn_library.Memory(host)))
    assert excess(problem, outputs(plain)) <= 1
    assert plain["notes"] == {"cuDNN": "9.28.0", "algorithm": "standard", "bytes": params.nbytes, "offsets": []}
    assert (host.blocks, library.descriptors) == ({}, {})
    memory = cudnn_library.Memory(host)
    device, fed = cudnn.Device(library, memory), sequences(problem, cotangents=cotangents)
    answer = cudnn.run(params, description, fed, device, cudnn.VARIANTS["cudnn-persistent-dynamic"])
    assert library.called.count("cudnnBuildRNNDynamic") == 1
    assert (host.blocks, library.descriptors) == ({}, {})
    zeros = tuple(np.zeros_like(state) for state in problem.solved().hidden)
    cells = tuple(np.zeros_like(state) for state in problem.solved().cell)
    hidden, cells = problem.hidden or zeros, problem.cell or cells
    truth = reference.Reference(problem.stack).gradients(problem.x, hidden, cells, problem.lengths, weighed)
    eps = float(ml_dtypes.finfo(dtype).eps)
    slopes = answer["gradients"]
    np.testing.assert_allclose(slopes["x"], truth.x, rtol=0, atol=8 * eps)
    for gradients, other in ((slopes["hidden"], truth.hidden), (slopes["cell"], truth.cell)):
        assert len(gradients) == (len(other) if states else 0)
        for mine, exact in zip(gradients, other, strict=False):
            np.testing.assert_allclose(mine, exact, rtol=0, atol=16 * eps)
    weights = iter(truth.weights)
    slope = each(problem.stack, lambda direction: direction.with_arrays(dict(next(weights))))
    flat = np.asarray(rnnconvert.pack(slope, "cudnn", bias_mode=bias_mode), np.float64)
    assert np.abs(slopes["weights"][""]["params"] - flat).max() <= 8 * eps * max(1.0, np.abs(flat).max())


def test_cudnns_final_states_of_an_empty_sequence_are_refused() -> None:
    request = {"x": np.zeros((5, 2, 4), np.float32), "lengths": np.array((5, 0))}
    with pytest.raises(NotImplementedError, match="length zero: cuDNN returns zeros instead of its initial state"):
        cudnn.answer(request)


def test_everything_is_freed_when_a_call_fails(tmp_path: Path) -> None:
    problem = problem_of("lstm", "float32", None, True)
    params, description = described(problem.stack, tmp_path)
    host, library = HostMemory(), StandIn(description)
    library.RNNForward = lambda *_: 3000  # type: ignore[method-assign,assignment]
    with pytest.raises(NotImplementedError, match="cuDNN: cudnnRNNForward: status 3000"):
        cudnn.run(params, description, Sequences(problem.x), cudnn.Device(library, cudnn_library.Memory(host)))
    library.RNNForward = lambda *_: 5000  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError, match="cudnnRNNForward: status 5000"):
        cudnn.run(params, description, Sequences(problem.x), cudnn.Device(library, cudnn_library.Memory(host)))
    with pytest.raises(RuntimeError, match=r"the buffer has .* bytes, but cuDNN's has"):
        cudnn.run(params[:-1], description, Sequences(problem.x), cudnn.Device(library, cudnn_library.Memory(host)))
    with pytest.raises(TypeError, match="cudnnDestroy takes 1 arguments"):
        library("cudnnDestroy")
    assert (host.blocks, library.descriptors) == ({}, {})


@pytest.mark.parametrize(("stated", "set_"), [([-0.5, 0.25], (-0.5, 0.25)), ([None, 1], (-np.inf, 1)), ([0, None], (0, np.inf))])
def test_a_clip_is_set_on_an_lstm_only(stated: list[float | None], set_: tuple[float, float], tmp_path: Path) -> None:
    problem = problem_of("lstm", "float32", None, True)
    params, description = described(problem.stack, tmp_path)
    library = StandIn({**description, "clip": stated})
    cudnn.run(params, library.description, Sequences(problem.x), cudnn.Device(library, cudnn_library.Memory(HostMemory())))
    (clip,) = (arguments[1:] for arguments in library.set.values() if len(arguments) == 4)
    assert clip == (1, *set_)
    with (
        pytest.raises(NotImplementedError, match="a clip of a gru"),
        cudnn_library.configured(library, None, {**description, "cell": "gru", "clip": [0, 1]}),
    ):
        pass


def test_settings_of_a_descriptor() -> None:
    plain = {"cell": "gru", "input_size": 3, "hidden_size": 5}
    assert cudnn_library.settings(plain) == [0, 3, 2, 0, 0, 0, 0, 3, 3, 5, 5, 1, 0]
    more = {"cell": "lstm", "hidden_size": 5, "bidirectional": True, "bias_mode": "single_rec", "input_mode": "skip"}
    more |= {"dtype": "bfloat16", "projection_size": 2, "num_layers": 4}
    assert cudnn_library.settings(more, "persist_static", True) == [1, 2, 3, 1, 1, 9, 0, 0, 5, 5, 2, 4, 1]
    assert cudnn_library.settings({**plain, "dtype": "float64"})[5:8] == [1, 1, 3]
    assert cudnn_library.settings({**plain, "dtype": "float16"})[5:8] == [2, 0, 0]


def test_bfloat16_is_rounded_as_elsewhere() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e3
    values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38]
    bits = cudnn_library.encoded(values, "bfloat16")
    expected = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(cudnn_library._decoded(bits, "bfloat16"), expected.astype(np.float32))


def test_the_libraries_of_wheels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert cudnn_library.libraries("cudnn") == []
    message = cudnn.absent({})
    assert message.startswith("libcudnn.so is not found: pip install nvidia-cudnn-cu12 (for CUDA 13: nvidia-cudnn-cu13); ")
    assert "libcudart.so is not found: " in message
    places = {"cudnn": ["libcudnn.so.9", "libcudnn_adv.so.9"], "cuda_runtime": ["libcudart.so.12"]}
    for package, names in places.items():
        folder = tmp_path / "nvidia" / package / "lib"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    importlib.invalidate_caches()
    assert cudnn.absent({}) == ""
    assert [Path(path).name for path in cudnn_library.libraries("cudnn")] == ["libcudnn_adv.so.9", "libcudnn.so.9"]
    assert [Path(path).name for path in cudnn_library.libraries("cudart")] == ["libcudart.so.12"]


# JAX


def test_jaxs_cudnn_is_called_as_it_is_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("jax", missing(jax.NEEDS))
    from jax.experimental import rnn
    from jax.lax import Precision

    names: tuple[str, ...] = ("x", "h_0", "c_0", "weights", "seq_lengths", "input_size", "hidden_size", "num_layers", "dropout")
    names += ("bidirectional", "precision")
    assert tuple(inspect.signature(rnn.lstm).parameters) == names

    def stand_in(
        x: Any, h: Any, c: Any, weights: Any, lengths: Any, inputs: int, hidden: int, layers: int, dropout: float,
        bidirectional: bool, precision: Any,
    ) -> Any:  # fmt: skip
        assert precision == Precision.HIGHEST
        sizes = (inputs, hidden, layers)
        split = rnn.unpack_lstm_weights(weights, *sizes, bidirectional)
        return (*rnn.lstm_ref(x, h, c, *split, lengths, *sizes, dropout, bidirectional), "reserve space")

    monkeypatch.setattr(rnn, "lstm", stand_in)
    problem = problem_of("lstm", "float32", np.array((5, 1, 3)), True)
    params, description = described(problem.stack, tmp_path)
    assert excess(problem, outputs(jax.run(params, description, sequences(problem), cuda=True))) <= 1


# PyTorch's own packing, with the buffer laid out by hand as on a GPU PyTorch lays it out.


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk:UserWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("lengths", [None, (5, 1, 3)], ids=["whole", "lengths"])
@pytest.mark.parametrize(("cell", "projection"), [*((cell, 0) for cell in CELLS), ("lstm", 2)])
def test_numbers_go_where_pytorch_says(
    cell: str, projection: int, lengths: Any, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("torch", missing(torch_flat.NEEDS))
    monkeypatch.setattr(torch_flat, "_packed", laid_out)
    parts = BOTH | ({"projection"} if projection else set())
    problem = problem_of(cell, dtype, None if lengths is None else np.array(lengths), True, projection, parts)
    params, description = described(problem.stack, tmp_path)
    params = params.view(torch_flat.STORED[dtype])
    weighed, cotangents = problem.cotangents(4)
    answer = torch_flat.run(params, description, sequences(problem, cotangents=cotangents), "cpu")
    assert excess(problem, outputs(answer)) <= 1
    if dtype == "bfloat16":
        return
    assert problem.hidden is not None
    truth = reference.Reference(problem.stack).gradients(problem.x, problem.hidden, problem.cell or (), problem.lengths, weighed)
    weights = iter(truth.weights)
    exact = each(problem.stack, lambda direction: direction.with_arrays(dict(next(weights))))
    flat = np.asarray(rnnconvert.pack(exact, "cudnn"), np.float64)
    allowed = 64 * float(np.finfo(dtype).eps) * max(1.0, float(np.abs(flat).max()))
    assert np.abs(answer["gradients"]["weights"][""]["params"] - flat).max() <= allowed
    np.testing.assert_allclose(answer["gradients"]["x"], truth.x, rtol=0, atol=allowed)


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def left_to_the_cpu(model: str | bytes, provider: str, profiled: bool = False) -> Session:
    """A session of a provider that has no kernel for any node: the CPU's computes all of them."""
    session = Session(model, CPU, profiled)
    session.provider = provider
    return session


def test_cuda_is_loaded_once_and_for_its_provider_only(monkeypatch: pytest.MonkeyPatch) -> None:
    need("onnxruntime", missing(["onnxruntime"]))
    onnxruntime = importlib.import_module("onnxruntime")
    calls: list[str] = []
    ready = SimpleNamespace(get_providers=lambda: [CPU, CUDA])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: calls.append("CUDA"), raising=False)

    def session(*_: Any, **__: Any) -> Any:
        calls.append("session")
        return ready

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    run_session._load_cuda.cache_clear()
    for provider in (CPU, CUDA, CUDA):
        Session("a.onnx", provider)
    run_session._load_cuda.cache_clear()
    assert calls == ["session", "CUDA", "session", "session"]


@pytest.mark.parametrize("how", ["model", "node", "whole"])
@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_a_node_that_cudas_provider_leaves_to_the_cpu_is_refused(
    how: str, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the model is run, and as often as it is asked for: what was made ready is used again for the next case."""
    need("onnxruntime", missing(["onnxruntime"]))
    for module in (onnx, onnx_whole):
        monkeypatch.setattr(module, "Session", left_to_the_cpu)
    monkeypatch.setattr(onnx, "refuse_absent", lambda provider: None)
    stack = random_stack(Sizes("gru", 4, 5, parts=PLAIN), 3, "float32", Cell("gru", False))
    file = tmp_path / "a.onnx"
    rnnconvert.save(Checkpoint("", "canonical", {"random": stack}), file)
    request: dict[str, Any] = {
        "file": str(file),
        "variant": {"provider": provider},
        "layers": [] if how == "model" else ["random"],
        "how": {},
    }
    request |= {"x": np.zeros((3, 2, 4), np.float32), "hidden": None, "cell": None, "lengths": None, "cotangents": None}
    for _ in range(2):
        with contextlib.ExitStack() as stated:
            if provider == CUDA:
                stated.enter_context(pytest.raises(NotImplementedError, match=f"runs (random|GRU) by {CPU}: {CUDA} has no such kernel"))
            if how == "whole":
                onnx.witness({**request, "witness": Witness(["random"], 0, SIZES[0])})
            else:
                assert set(onnx.answer(request)["notes"]["providers"].values()) == {CPU}


@pytest.mark.parametrize("name", ["a", "", "a_kernel_time", "_kernel_time_b"])
def test_a_profile_names_nodes_as_the_model_does(name: str) -> None:
    need("onnxruntime", missing(["onnxruntime"]))
    rng = np.random.default_rng(1)
    arrays = {letter: rng.uniform(-1, 1, shape).astype(np.float32) for letter, shape in (("W", (1, 5, 4)), ("R", (1, 5, 5)))}
    node = helper.make_node("RNN", ["X", "W", "R"], ["Y"], name, hidden_size=5)
    x, y = (helper.make_tensor_value_info(letter, 1, [None] * axes) for letter, axes in (("X", 3), ("Y", 4)))
    weights = [numpy_helper.from_array(array, letter) for letter, array in arrays.items()]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = Session(model.SerializeToString(), CPU, profiled=True)
    session.run(["Y"], {"X": np.zeros((3, 2, 4), np.float32)})
    assert session.providers == {name or "RNN_0": CPU}


def test_pytorch_lays_nothing_out_on_a_cpu(tmp_path: Path) -> None:
    need("torch", missing(torch_flat.NEEDS))
    problem = problem_of("lstm", "float32", None, True)
    params, description = described(problem.stack, tmp_path)
    with pytest.raises(NotImplementedError, match=r"does not lay parameters of torch\.float32 out"):
        torch_flat.run(params, description, Sequences(problem.x), "cpu")
    with pytest.raises(NotImplementedError, match=r"torch\.nn does not have them"):
        torch_flat.run(params, {**description, "bias_mode": "single_inp"}, Sequences(problem.x), "cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_keras_falls_back_to_its_own_loop_and_says_so() -> None:
    need("keras", missing([*keras.NEEDS, "tensorflow"]))
    from keras import layers

    layer = layers.Bidirectional(layers.LSTM(4), name="both")
    layer.build((2, 3, 5))
    chain = Chain([layer])
    keras._choose(layer, True)
    assert keras._path(layer) == "cuDNN"
    x = np.random.default_rng(0).uniform(-1, 1, (3, 2, 5)).astype(np.float32)
    answer = keras._solved(chain, Sequences(x))
    assert keras._path(layer) == "generic"  # cuDNN is not there
    keras._choose(layer, False)
    np.testing.assert_array_equal(keras._solved(chain, Sequences(x))["y"], answer["y"])
