"""What torch's dynamic quantization makes of recurrent layers, in every way to save it: torch runs it, and we read what it stands for."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError
from tests.helpers.drawn import looped
from tests.helpers.requirements import needed

X = np.random.default_rng(0).uniform(-1, 1, (6, 2, 3)).astype(np.float32)


def quantized(name: str, layers: int, ways: int, width: int = 3) -> Any:
    torch = needed("torch", "torch")
    torch.manual_seed(layers + ways)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.Sequential(getattr(torch.nn, name)(width, 5, layers, bidirectional=ways == 2))
        return torch.ao.quantization.quantize_dynamic(module, {getattr(torch.nn, name)}, dtype=torch.qint8)


def saved(module: Any, how: str, path: Path) -> Path:
    torch = needed("torch", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "script":
            torch.jit.script(module).save(str(path))
        else:
            torch.save(module if how == "module" else module.state_dict(), path)
    return path


@looped(3, name=("LSTM", "GRU"), layers=(1, 2), ways=(1, 2), how=("state_dict", "module", "script"))
def test_packed_weights_are_read(name: str, layers: int, ways: int, how: str, tmp_path: Path) -> None:
    """As near to torch's own outputs as its rounding of what is multiplied leaves them; a wrong gate is 50 times farther off."""
    module = quantized(name, layers, ways)
    checkpoint = rc.load(saved(module, how, tmp_path / "m.pt"))
    (stack,) = checkpoint.layers.values()
    assert (stack.num_layers, stack.num_directions) == (layers, ways)
    assert any("not exactly those of this layer" in warning for warning in checkpoint.warnings), checkpoint.warnings
    torch = needed("torch", "torch")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = module(torch.from_numpy(X))[0].numpy()
    assert np.abs(reference.run(stack, X).y - y).max() < 0.015
    gates = stack.cell.gates
    swapped = stack.first.with_arrays({("recurrent", gates[0]): stack.first.arrays["recurrent", gates[1]],
                                       ("input", gates[0]): stack.first.arrays["input", gates[1]]})  # fmt: skip
    if layers == ways == 1:
        wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
        assert np.abs(reference.run(wrong, X).y - y).max() > 0.02
    assert rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx").exact


def statically(stage: str, layers: int, ways: int) -> Any:
    """Return a module whose LSTM static quantization, or training that imitates it, has prepared or converted."""
    torch = needed("torch", "torch")
    torch.manual_seed(10 * layers + ways)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tools = torch.ao.quantization
        trained = stage == "imitated"
        module = torch.nn.Sequential(tools.QuantStub(), torch.nn.LSTM(3, 5, layers, bidirectional=ways == 2)).train(trained)
        engine = torch.backends.quantized.engine
        module.qconfig = (tools.get_default_qat_qconfig if trained else tools.get_default_qconfig)(engine)
        prepared = (tools.prepare_qat if trained else tools.prepare)(module)
        prepared(torch.from_numpy(X))
        return tools.convert(prepared) if stage == "converted" else prepared


@looped(2, stage=("prepared", "imitated", "converted"), layers=(1, 2), ways=(1, 2))
def test_lstms_that_static_quantization_prepared(stage: str, layers: int, ways: int, tmp_path: Path) -> None:
    """Their names are others than those of torch.nn.LSTM; a wrong gate, direction or matrix is farther off than any rounding."""
    torch = needed("torch", "torch")
    module = statically(stage, layers, ways)
    checkpoint = rc.load(saved(module, "state_dict", tmp_path / "m.pt"))
    (stack,) = checkpoint.layers.values()
    assert (stack.num_layers, stack.num_directions) == (layers, ways)
    assert ("integers" in " ".join(checkpoint.warnings)) == (stage != "prepared")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = module.eval()(torch.from_numpy(X))[0]
    y = (y.dequantize() if y.is_quantized else y).numpy()
    off = np.abs(reference.run(stack, X).y - y).max()
    assert off < (1e-6 if stage == "prepared" else 0.03), off
    assert rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx").exact


def test_two_layers_that_look_like_two_directions_are_not_guessed(tmp_path: Path) -> None:
    module = quantized("LSTM", 2, 1, width=5)
    with pytest.raises(RefusedError, match="two directions of one"):
        rc.load(saved(module, "state_dict", tmp_path / "m.pt"))
    (stack,) = rc.load(saved(module, "script", tmp_path / "s.pt")).layers.values()
    assert (stack.num_layers, stack.num_directions) == (2, 1)


def test_scales_of_rows(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    weight = torch.quantize_per_channel(torch.randn(20, 3), torch.linspace(0.01, 0.2, 20).double(), torch.zeros(20).long(), 0, torch.qint8)
    state = torch.nn.LSTM(3, 5).state_dict() | {"weight_ih_l0": weight}
    torch.save(state, tmp_path / "m.pt")
    checkpoint = rc.load(tmp_path / "m.pt")
    (stack,) = checkpoint.layers.values()
    matrix = np.concatenate([np.asarray(stack.first.arrays["input", gate]) for gate in "ifgo"])
    assert np.allclose(matrix, weight.dequantize().numpy(), rtol=1e-6) and "stored as integers" in " ".join(checkpoint.warnings)


def test_a_state_dictionary_of_quantized_weights_becomes_one_of_floats(tmp_path: Path) -> None:
    module = quantized("LSTM", 1, 1)
    rc.convert(saved(module, "state_dict", tmp_path / "q.pt"), tmp_path / "float.pt")
    torch = needed("torch", "torch")
    state = torch.load(tmp_path / "float.pt", weights_only=True)
    lstm = torch.nn.LSTM(3, 5)
    lstm.load_state_dict({key.partition(".")[2]: value for key, value in state.items()})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (lstm(torch.from_numpy(X))[0] - module(torch.from_numpy(X))[0]).abs().max() < 0.015


def headed(name: str, bias: bool) -> Any:
    """A module with a recurrent layer of both directions, or a cell in a loop, below a dense layer."""
    torch = needed("torch", "torch")

    class Headed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
            self.fc = torch.nn.Linear(8, 2, bias=bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.fc(self.rnn(x)[0][-1])
            return y

    class Stepped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = getattr(torch.nn, name)(3, 4)
            self.fc = torch.nn.Linear(4, 2, bias=bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros(x.size(1), 4)
            for step in range(x.size(0)):
                h = self.cell(x[step], h)
            y: torch.Tensor = self.fc(h)
            return y

    class LongTerm(Stepped):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h, c = torch.zeros(x.size(1), 4), torch.zeros(x.size(1), 4)
            for step in range(x.size(0)):
                h, c = self.cell(x[step], (h, c))
            y: torch.Tensor = self.fc(h)
            return y

    torch.manual_seed(len(name) + bias)
    return (LongTerm if name == "LSTMCell" else Stepped if name.endswith("Cell") else Headed)().eval()


def in_floats(quantized: Any, module: Any) -> Any:
    """Return a module of floats with the numbers that torch itself reads off a quantized one."""
    torch = needed("torch", "torch")
    state: dict[str, Any] = {}
    for path, part in quantized.named_modules():
        if hasattr(part, "get_weight"):
            state |= {f"{path}.{key}": value for key, value in [*part.get_weight().items(), *part.get_bias().items()]}
        elif path == "fc":
            state |= {"fc.weight": part.weight(), **({} if part.bias() is None else {"fc.bias": part.bias()})}
    module.load_state_dict({key: value.dequantize() if value.is_quantized else value for key, value in state.items()})
    assert len(torch.nn.utils.parameters_to_vector(module.parameters()))
    return module


@looped(6, name=("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell"), how=("trace", "script"), bias=(True, False), dtype=("qint8", "float16"))
def test_whole_models_are_written_in_the_floats_that_their_integers_stand_for(
    name: str, how: str, bias: bool, dtype: str, tmp_path: Path
) -> None:
    torch = needed("torch", "torch")
    if dtype == "float16" and name.endswith("Cell"):
        dtype = "qint8"  # torch runs no cell in float16
    module = headed(name, bias)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = {getattr(torch.nn, name), torch.nn.Linear}
        quantized = torch.ao.quantization.quantize_dynamic(module, kinds, dtype=getattr(torch, dtype))
        program = torch.jit.script(quantized) if how == "script" else torch.jit.trace(quantized, torch.from_numpy(X), check_trace=False)
        program.save(str(tmp_path / "m.pt"))
    with torch.no_grad():
        truth = in_floats(quantized, module)(torch.from_numpy(X)).numpy()
    exported = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    assert any("rounds what it multiplies" in note for note in exported.notes), exported
    assert "equal but for: its source computes with integers of 8 bits" in str(exported)
    session = needed("onnxruntime", "onnxruntime").InferenceSession(tmp_path / "m.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: X})
    assert np.abs(y - truth).max() < 1e-6


def test_a_difference_that_integers_may_explain_is_not_put_between_the_layers(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = headed("LSTM", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.ao.quantization.quantize_dynamic(module, {torch.nn.LSTM}, dtype=torch.qint8)
        torch.jit.script(quantized).save(str(tmp_path / "m.pt"))
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx")
    report = rc.verify(tmp_path / "m.pt", tmp_path / "m.onnx")
    text = " ".join(str(report).split())
    assert report.verdict == "not equal" and "A computed with integers" in text and "between or around" not in text


def test_a_module_that_computes_in_integers_is_refused(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = torch.nn.Sequential(
        torch.ao.quantization.QuantStub(), torch.nn.Linear(3, 3), torch.ao.quantization.DeQuantStub(), torch.nn.GRU(3, 2)
    ).eval()
    module[1].qconfig = module[0].qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ao.quantization.prepare(module, inplace=True)
        module(torch.from_numpy(X))
        torch.ao.quantization.convert(module, inplace=True)
        torch.jit.script(module).save(str(tmp_path / "m.pt"))
    with pytest.raises(rc.RefusedError, match="of a module that computes in integers"):
        rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx")


def test_a_state_dictionary_of_quantized_layers_is_a_chain(tmp_path: Path) -> None:
    """Its dense layers have a scale and a zero point of outputs, which say that these are floats."""
    torch = needed("torch", "torch")
    module = headed("GRU", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.ao.quantization.quantize_dynamic(module, {torch.nn.GRU, torch.nn.Linear}, dtype=torch.qint8)
    state = quantized.state_dict()
    assert state["fc.scale"] == 1 and state["fc.zero_point"] == 0
    torch.save(state, tmp_path / "m.pt")
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", chain="rnn last fc")
    with torch.no_grad():
        truth = in_floats(quantized, module)(torch.from_numpy(X)).numpy()
    session = needed("onnxruntime", "onnxruntime").InferenceSession(tmp_path / "m.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: X.swapaxes(0, 1)})
    assert np.abs(y - truth).max() < 1e-6
