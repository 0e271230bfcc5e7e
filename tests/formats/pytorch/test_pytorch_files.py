"""State dictionaries as people save them: whole models, wrappers, norms, pruning, shards, old files, scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.load import load
from tests.helpers.drawn import looped

pytestmark = pytest.mark.filterwarnings(
    # PyTorch's own deprecations of what old files were made with.
    "ignore:.*weight_norm.*:FutureWarning",
    "ignore:.*torch.jit.*:DeprecationWarning",
    "ignore:.*torch.jit.*:FutureWarning",
)

TOLERANCE = 3e-6  # single precision on a dozen steps of a few units; a wrong convention is 1e5 times that


class Model(nn.Module):
    """A recurrent layer with others around it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)
        self.encoder = layer
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.encoder(x)[0]
        return y


def outputs(layer: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return layer(x)[0].numpy()


def only(path: Path, **options: Any) -> tuple[str, Recurrent]:
    checkpoint = load(path, **options)
    assert len(checkpoint.layers) == 1
    return next(iter(checkpoint.layers.items()))


def agrees(stack: Recurrent, layer: nn.Module) -> bool:
    x = torch.randn(7, 3, stack.input_size)
    return bool(np.abs(reference.run(stack, x.numpy()).y - outputs(layer, x)).max() < TOLERANCE)


@pytest.fixture
def lstm() -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(3, 5, num_layers=2, bidirectional=True)


WRAPPINGS: dict[str, Callable[[nn.Module], Any]] = {
    "a module": lambda model: model.state_dict(),
    "DataParallel": lambda model: nn.DataParallel(model).state_dict(),
    "Lightning": lambda model: {
        "epoch": 3,
        "state_dict": model.state_dict(),
        "hyper_parameters": {"lr": 0.1},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]}],
    },
    "a script's own dictionary": lambda model: {"model_state_dict": model.state_dict(), "step": 7},
    "several dictionaries": lambda model: {"net": {"module": model.state_dict()}, "ema": [1, 2]},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_layer_is_found_in_a_wrapper(lstm: nn.LSTM, wrapping: str, tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    torch.save(WRAPPINGS[wrapping](Model(lstm)), path)
    name, stack = only(path)
    assert name.endswith("encoder")
    assert agrees(stack, lstm)


def test_wrappers_are_no_part_of_the_name(lstm: nn.LSTM, tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    torch.save({"state_dict": nn.DataParallel(Model(lstm)).state_dict()}, path)
    assert only(path)[0] == "encoder"


@pytest.mark.parametrize("save", [torch.save, safetensors.torch.save_file], ids=["pt", "safetensors"])
def test_the_module_itself_has_no_name(save: Callable[..., None], tmp_path: Path) -> None:
    gru = nn.GRU(3, 5)
    path = tmp_path / ("gru.pt" if save is torch.save else "gru.safetensors")
    save(gru.state_dict(), path)
    name, stack = only(path)
    assert name == ""
    assert stack.cell.reset_after
    assert agrees(stack, gru)


def test_files_from_before_1_6_are_read(lstm: nn.LSTM, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(Model(lstm).state_dict(), path, _use_new_zipfile_serialization=False)
    assert agrees(only(path)[1], lstm)


@pytest.mark.parametrize("built", [False, True])
def test_parameters_as_pytorch_wrote_them_before_1_0(built: bool, lstm: nn.LSTM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 0.3 the class was called with its tensor and given a state, in 0.4 called with all; then came a function."""

    def reduced(parameter: nn.Parameter, protocol: int) -> tuple[Any, ...]:
        if built:
            return nn.Parameter, (parameter.data,), (parameter.data, True, None)
        return nn.Parameter, (parameter.data, True)

    monkeypatch.setattr(nn.Parameter, "__reduce_ex__", reduced)
    torch.save(Model(lstm), tmp_path / "old.pkl", _use_new_zipfile_serialization=False)
    monkeypatch.undo()
    assert agrees(load(tmp_path / "old.pkl").layers["encoder"], lstm)


def test_a_module_pickled_whole_is_read_without_its_class(lstm: nn.LSTM, tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(Model(lstm), path)
    name, stack = only(path)
    assert name == "encoder"
    assert agrees(stack, lstm)


def test_torchscript_is_read(lstm: nn.LSTM, tmp_path: Path) -> None:
    path = tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.script(Model(lstm)), str(path))
    assert agrees(only(path)[1], lstm)


def test_torchscript_of_pytorch_1_0_is_named(lstm: nn.LSTM, tmp_path: Path) -> None:
    old = tmp_path / "old.pt"
    state = {name: value.detach().clone() for name, value in lstm.state_dict().items()}
    tensors = [
        {
            "dims": [str(size) for size in value.shape], "offset": "0", "strides": [str(step) for step in value.stride()],
            "requiresGrad": True, "dataType": "FLOAT", "data": {"key": f"tensors/{at}"}, "device": "cpu",
        }
        for at, value in enumerate(state.values())
    ]  # fmt: skip
    parameters = [{"tensorId": str(at), "isBuffer": False, "name": name} for at, name in enumerate(state)]
    module = {"name": "encoder", "optimize": True, "parameters": parameters}
    model = {
        "protoVersion": "2", "producerName": "pytorch", "producerVersion": "1.0", "tensors": tensors,
        "mainModule": {"name": "Model", "optimize": True, "submodules": [module]},
    }  # fmt: skip
    writer = torch._C.PyTorchFileWriter(str(old))
    for at, value in enumerate(state.values()):
        data = value.numpy().tobytes()
        writer.write_record(f"tensors/{at}", data, len(data))
    text = json.dumps(model).encode()
    writer.write_record("model.json", text, len(text))
    writer.write_end_of_file()

    with pytest.raises(UnreadableError, match=r"TorchScript as PyTorch 1\.0") as refused:
        load(old)
    assert "In the PyTorch that saved it" in str(refused.value)
    with pytest.raises(RuntimeError, match="Legacy model format"):  # PyTorch of today takes it for the same, and refuses
        torch.jit.load(str(old))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_are_read_and_written(kind: type[Any], tmp_path: Path) -> None:
    cell = kind(3, 5)
    source, target = tmp_path / "cell.pt", tmp_path / "back.safetensors"
    torch.save({"step." + key: value for key, value in cell.state_dict().items()}, source)
    name, _ = only(source)
    assert name == "step"
    summary = rc.convert(source, target, module="cell")
    assert f"step = torch.nn.{kind.__name__}(3, 5)" in summary.recipe
    written = safetensors.torch.load_file(target)
    assert {key: value.tolist() for key, value in written.items()} == {
        f"step.{key}": value.tolist() for key, value in cell.state_dict().items()
    }


def _old_weight_norm(layer: nn.Module) -> None:
    nn.utils.weight_norm(layer, "weight_hh_l0")


def _new_weight_norm(layer: nn.Module) -> None:
    parametrizations.weight_norm(layer, "weight_hh_l0")


def _old_spectral_norm(layer: nn.Module) -> None:
    nn.utils.spectral_norm(layer, "weight_hh_l0")
    layer(torch.randn(2, 1, 3))  # in training: the vectors of the norm move


def _new_spectral_norm(layer: nn.Module) -> None:
    parametrizations.spectral_norm(layer, "weight_hh_l0", dim=1)


def _pruned(layer: nn.Module) -> None:
    prune.random_unstructured(layer, "weight_ih_l0", amount=0.3)


@pytest.mark.parametrize("change", [_old_weight_norm, _new_weight_norm, _old_spectral_norm, _new_spectral_norm, _pruned])
def test_a_changed_parameter_is_what_the_module_computes_with(change: Callable[[nn.Module], None], tmp_path: Path) -> None:
    layer = nn.GRU(3, 5)
    expected_x = torch.randn(7, 3, 3)
    change(layer)
    layer.eval()(expected_x)
    path = tmp_path / "changed.pt"
    torch.save({f"rnn.{key}": value for key, value in layer.state_dict().items()}, path)
    checkpoint = load(path)
    stack = checkpoint.layers["rnn"]
    with torch.no_grad():
        # The attribute is what the forward pass reads; cuDNN's flattened copy is not made on a CPU.
        plain = nn.GRU(3, 5)
        for key in plain.state_dict():
            getattr(plain, key).copy_(getattr(layer, key))
    assert np.abs(reference.run(stack, expected_x.numpy()).y - outputs(plain, expected_x)).max() < TOLERANCE
    assert any("applied" in warning for warning in checkpoint.warnings)


@looped(old=[True, False], dim=[0, 1, None], size=[(3, 5), (5, 5), (1, 1), (1, 4)], name=["weight_ih_l0", "weight_hh_l0"])
def test_weight_norm_is_read_over_the_axis_that_its_magnitudes_show(
    old: bool, dim: int | None, size: tuple[int, int], name: str, tmp_path: Path
) -> None:
    layer = nn.GRU(*size)
    (nn.utils.weight_norm if old else parametrizations.weight_norm)(layer, name, dim=dim)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(torch.rand_like(parameter) + 0.5)
    layer(torch.randn(2, 1, size[0]))
    torch.save(layer.state_dict(), tmp_path / "normed.pt")
    read = load(tmp_path / "normed.pt")
    gates = np.concatenate([np.asarray(read.layers[""].first.arrays["input" if "ih" in name else "recurrent", gate]) for gate in "rzn"])
    np.testing.assert_allclose(gates, getattr(layer, name).detach().numpy(), rtol=1e-5, atol=1e-7)
    assert [question.option for question in read.questions] == ([] if old else ["reparametrised"])


@looped(6, kind=[nn.LSTMCell, nn.GRUCell, nn.LSTM], norm=["gates", "state", "rms", "batch"], save=[torch.save, safetensors.torch.save_file])
def test_a_norm_beside_a_bare_layer_is_refused_wherever_it_stands(
    kind: type[nn.Module], norm: str, save: Callable[..., None], tmp_path: Path
) -> None:
    arrays = kind(5, 6).state_dict()
    wide = 6 if norm == "state" else max(len(array) for array in arrays.values())
    norm_layer: nn.Module = {"rms": nn.RMSNorm, "batch": nn.BatchNorm1d}.get(norm, nn.LayerNorm)(wide)
    for module, refused in ((norm_layer, True), (nn.Linear(6, 3), False)):
        for prefix in ("", "cell."):
            path = tmp_path / "beside.safetensors"
            save(
                {prefix + key: array for key, array in {**arrays, **{f"beside.{k}": v for k, v in module.state_dict().items()}}.items()},
                path,
            )
            if refused:
                with pytest.raises(RefusedError, match="beside"):
                    rc.convert(path, tmp_path / "out.onnx", force=True)
            elif not prefix:
                rc.convert(path, tmp_path / "out.onnx", force=True)


def test_another_parametrization_is_refused(tmp_path: Path) -> None:
    layer = nn.GRU(3, 5)
    parametrizations.orthogonal(layer, "weight_hh_l0")
    path = tmp_path / "orthogonal.pt"
    torch.save(layer.state_dict(), path)
    with pytest.raises(RefusedError, match="remove_parametrizations"):
        load(path)


@pytest.mark.parametrize("transform", [lambda u: -u, lambda u: u * 0, lambda u: u[:-1], lambda u: u.roll(1)])
def test_vectors_of_a_spectral_norm_that_do_not_give_one_are_refused(transform: Callable[[Any], Any], tmp_path: Path) -> None:
    layer = nn.RNN(5, 5)
    nn.utils.spectral_norm(layer, "weight_ih_l0")
    state = layer.state_dict()
    state["weight_ih_l0_orig"] = torch.diag(torch.tensor([5.0, 1, 1, 1, 1])).roll(1, 0)
    state["weight_ih_l0_u"], state["weight_ih_l0_v"] = torch.eye(5)[1], torch.eye(5)[0]
    torch.save(state, tmp_path / "spectral.pt")
    assert np.max(np.asarray(load(tmp_path / "spectral.pt", nonlinearity="tanh").layers[""].first.arrays["input", "n"])) == 1
    torch.save({**state, "weight_ih_l0_u": transform(state["weight_ih_l0_u"])}, tmp_path / "spectral.pt")
    with pytest.raises(UnreadableError, match="which give the norms"):
        load(tmp_path / "spectral.pt", nonlinearity="tanh")


@pytest.mark.parametrize("function", [None, "tanh", "relu"])
def test_the_nonlinearity_of_a_plain_rnn_is_asked_for(function: str | None, tmp_path: Path) -> None:
    layer = nn.RNN(3, 5, nonlinearity=function or "tanh")
    path = tmp_path / "rnn.pt"
    torch.save(layer.state_dict(), path)
    options: dict[str, Any] = {} if function is None else {"nonlinearity": function}
    checkpoint = load(path, **options)
    assert agrees(checkpoint.layers[""], layer)
    assert [question.option for question in checkpoint.questions] == ([] if function else ["nonlinearity"])


def test_a_pickled_module_says_its_nonlinearity(tmp_path: Path) -> None:
    layer = nn.RNN(3, 5, nonlinearity="relu")
    path = tmp_path / "rnn.pt"
    torch.save(layer, path)
    checkpoint = load(path)
    assert not checkpoint.questions
    assert agrees(checkpoint.layers[""], layer)


def test_shards_are_one_checkpoint(lstm: nn.LSTM, tmp_path: Path) -> None:
    state = lstm.state_dict()
    names = list(state)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:5], names[5:])):
        shard = f"model-{number}.safetensors"
        safetensors.torch.save_file({name: state[name] for name in part}, tmp_path / shard)
        weight_map |= dict.fromkeys(part, shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert agrees(only(index)[1], lstm)


@pytest.mark.parametrize("named", ["weight_ih_l0", "bias_hh_l1"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_parameters_of_several_types_are_read_as_a_module_loads_them(named: str, dtype: torch.dtype, tmp_path: Path) -> None:
    source = nn.LSTM(3, 4, num_layers=2)
    state = source.state_dict()
    state[named] = state[named].to(dtype)
    torch.save(state, path := tmp_path / "model.pt")
    layer = nn.LSTM(3, 4, num_layers=2).to(torch.promote_types(torch.float32, dtype))
    layer.load_state_dict(torch.load(path))
    x = np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 2, 3)
    (stack,) = load(path).layers.values()
    expected = outputs(layer, torch.from_numpy(x).to(layer.bias_hh_l0.dtype))
    np.testing.assert_allclose(reference.run(stack, x).y, expected, rtol=0, atol=TOLERANCE)
    report = rc.verify(path, on=["torch-cpu"])
    assert report.equal, str(report)
    assert report.document["layers"][0]["runs"][0]["own_file"]


def test_a_modules_mode_decides_what_it_computes(tmp_path: Path) -> None:
    """torch.nn.RNN computes by its mode, which is set where it is made, and not by an attribute that was changed later."""
    layer = nn.RNN(3, 4)
    layer.nonlinearity = "relu"
    torch.save(nn.Sequential(layer), path := tmp_path / "model.pt")
    x = torch.linspace(-1, 1, 30).reshape(5, 2, 3)
    (stack,) = load(path).layers.values()
    np.testing.assert_allclose(reference.run(stack, x.numpy()).y, outputs(layer, x), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_are_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    layer = nn.LSTM(3, 5, proj_size=2, dtype=dtype)
    source, target = tmp_path / "a.pt", tmp_path / "b.safetensors"
    torch.save(layer.state_dict(), source)
    rc.convert(source, target)
    back = safetensors.torch.load_file(target)
    assert {name: value.dtype for name, value in back.items()} == dict.fromkeys(layer.state_dict(), dtype)
    assert all(torch.equal(back[name], value) for name, value in layer.state_dict().items())


def test_other_tensors_are_carried_between_files_of_pytorch(lstm: nn.LSTM, tmp_path: Path) -> None:
    model = Model(lstm)
    source, target = tmp_path / "a.ckpt", tmp_path / "b.safetensors"
    torch.save({"state_dict": model.state_dict()}, source)
    summary = rc.convert(source, target)
    model.load_state_dict(safetensors.torch.load_file(target))
    assert summary.carried == 4


def test_one_storage_with_many_offsets_is_read(lstm: nn.LSTM, tmp_path: Path) -> None:
    flat = torch.cat([value.reshape(-1) for value in lstm.state_dict().values()])
    state, start = {}, 0
    for name, value in lstm.state_dict().items():
        state[name] = flat[start : start + value.numel()].view(value.shape)
        start += value.numel()
    path = tmp_path / "flattened.pt"
    torch.save(state, path)
    assert agrees(only(path)[1], lstm)


def test_a_missing_bias_is_named(tmp_path: Path) -> None:
    state = nn.LSTM(3, 5).state_dict()
    del state["bias_hh_l0"]
    path = tmp_path / "broken.pt"
    torch.save({f"rnn.{key}": value for key, value in state.items()}, path)
    with pytest.raises(UnreadableError, match=r"broken\.pt.*'rnn\.'.*'bias_hh_l0' is missing"):
        load(path)


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    state = nn.LSTM(3, 5).state_dict()
    state["weight_ih_l0"] = state["weight_ih_l0"].T.contiguous()
    path = tmp_path / "broken.pt"
    torch.save(state, path)
    with pytest.raises(UnreadableError, match=r"'weight_ih_l0' has shape \(3, 20\), expected \(20, "):
        load(path)


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    state = {key: value for key, value in nn.LSTM(3, 5, 3).state_dict().items() if "_l1" not in key}
    path = tmp_path / "broken.pt"
    torch.save(state, path)
    with pytest.raises(UnreadableError, match="weight_ih_l1"):
        load(path)


def test_one_tensor_is_not_several(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, tmp_path / "m.pt")
    with pytest.raises(UnreadableError, match=r"it has no recurrent layer, only 1 other tensor\. "):
        rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx")
