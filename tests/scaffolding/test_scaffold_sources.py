"""Whole models of ONNX, TorchScript and torch.export, and live modules, as files of every target: run beside the source, or refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rnnconvert as rc
from rnnconvert.graphs.sizes import Size, divided, open_size
from rnnconvert.scaffolding import operations
from tests.helpers import corpus, random_torch
from tests.helpers.drawn import drawn, each
from tests.helpers.onnx_graphs import numbers, op, recurrent, saved
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold import module_at
from tests.scaffolding.test_scaffold_targets import TARGETS, as_graph, called, require, tagger

CLOSE = 2e-5


def test_lengths_are_divided_where_that_is_exact_for_every_run() -> None:
    batch, time = open_size("batch"), open_size("time")
    length = (batch * 6) * (time - 1)
    assert divided(length, batch * (time - 1)) == 6
    assert divided(length, time) is None
    assert length // 4 == length // 4 and length // 4 != length // 5
    open_sums = (batch * time * 2 - batch * 12, time + 6 - 12, batch - time, time * 5 - 12, batch * 2 - batch * 12)
    common, one_length, two_lengths, no_number, number = (size for size in open_sums if isinstance(size, Size))
    assert isinstance(common.bare, Size) and common.bare.root == one_length.root == ("time", 6)
    assert two_lengths.root == no_number.root == ("", 0) and number.bare == -10
    assert (time + 3) - time == 3 and divided(batch * 0 + 6, 3) == 2


# Modules of torch, by every way into a file, and live


def exported(kind: str, module: Any, embeds: bool, path: Path) -> Any:
    """Return a file of a module, or the module itself."""
    torch = needed("torch", "torch")
    x = random_torch.inputs(embeds, 3, 12)
    if kind == "live":
        return module
    if kind == "script":
        torch.jit.script(module).save(str(path := path.with_suffix(".pt")))
    elif kind == "trace":
        torch.jit.trace(module, x).save(str(path := path.with_suffix(".pt")))
    elif kind == "program":
        dims = {"x": {0: torch.export.Dim("batch")}}
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=dims), path := path.with_suffix(".pt2"))
    else:
        path, opened = path.with_suffix(".onnx"), {"x": {0: "batch", 1: "time"}}
        torch.onnx.export(module, (x,), str(path), dynamo=False, input_names=["x"], dynamic_axes=opened, opset_version=17)
    return path


KINDS = ("onnx", "script", "trace", "program", "live")


@pytest.mark.parametrize("target", [*TARGETS, "onnx"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:::")  # torch.jit.trace warns of comparisons in torch's own modules
def test_random_modules_are_equal_or_refused_by_name(tmp_path: Path, kind: str, target: str) -> None:
    if target != "onnx":
        require(target)

    def check(seed: int) -> None:
        module, embeds = random_torch.module(seed, tmp_path)
        source = exported(kind, module, embeds, tmp_path / f"{kind}_{seed}")
        written = tmp_path / f"{kind}_{seed}_{target}.py"
        x = random_torch.inputs(embeds, 2, 15 if kind in ("onnx", "script") else 12).numpy()  # other sizes than the example's
        example = random_torch.inputs(embeds, 3, 12) if kind == "live" else None
        if target == "onnx":
            axes = x.ndim if kind in ("script", "trace") else None
            got = as_graph(source, tmp_path / f"{seed}.onnx", example, axes)(torch.as_tensor(x))
            (wanted,) = called(module, "pytorch", [x])
            assert got.shape == wanted.shape and np.abs(got.numpy() - wanted).max() < CLOSE
            return
        try:
            rc.scaffold(source, target, written, example=example)
        except rc.RefusedError as error:
            reasons = "an open axis cut into parts", "a length that a run decides", "several open lengths", "a tensor of one axis"
            assert any(reason in str(error) for reason in reasons)
            assert not written.exists()
            return
        filled = module_at(written).load(source if kind == "live" else str(source))
        (got,), (wanted,) = called(filled, target, [x]), called(module, "pytorch", [x])
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() < CLOSE

    torch = needed("torch", "torch")
    each(drawn(range(200), {"pytorch": 3, "onnx": 6}.get(target, 1), f"scaffolded modules {kind} {target}"), check)


@pytest.mark.parametrize("kind", ["trace", "program"])
@pytest.mark.filterwarnings("ignore:::")
def test_a_width_that_weights_ask_for_behind_a_chunk_and_the_proof_of_a_program(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")

    class Gate(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            first, second = x.chunk(2, dim=-1)
            return self.linear(first * torch.sigmoid(second))

    path = tmp_path / ("gate.pt" if kind == "trace" else "gate.pt2")
    if kind == "trace":
        torch.jit.trace(Gate(), torch.zeros(2, 6)).save(str(path))
    else:
        torch.export.save(torch.export.export(Gate(), (torch.zeros(2, 6),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}), path)
    done = rc.scaffold(path, "pytorch", tmp_path / "written.py", verify=True)
    assert done.equal and "x (batch, 6) to (batch, 2)" in done.text


@pytest.mark.filterwarnings("ignore:::")
def test_constants_of_a_program_and_buffers_that_no_state_holds(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.register_buffer("scale", torch.arange(3.0) + 1, persistent=False)

        def forward(self, x: Any) -> Any:
            return self.linear(x * self.scale + torch.tensor([2.0, 3.0, 4.0]))

    done = rc.scaffold(Scaled(), "pytorch", tmp_path / "written.py", example=torch.zeros(2, 3), verify=True)
    assert done.equal and "[2.0, 3.0, 4.0]" in done.text


@pytest.mark.filterwarnings("ignore:::")
def test_a_program_whose_module_is_called_twice_is_written_once(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = tagger(torch)
    tokens = torch.zeros(2, 3, dtype=torch.long)
    torch.export.save(torch.export.export(module, (tokens, tokens)), path := tmp_path / "module.pt2")
    text = rc.scaffold(path, "pytorch").text
    assert text.count("class Encoder") == 1 and text.count("self.encoder(") == 2


def spelled(forward: Any, **parts: Any) -> Any:
    """Return a module of some parts, and what it computes of x and them."""
    torch = needed("torch", "torch")

    class Spelled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    torch.manual_seed(0)
    return Spelled().eval()


def _in_place(m: Any, x: Any) -> Any:
    y = m.layer(x)
    y = y + 1
    y.mul_(2)
    return m.head(y) + y[..., :2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore:::")
def test_weights_outside_of_their_layers(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    nn, tokens, x = torch.nn, torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, 6)
    tied = nn.Linear(6, 11)
    cases = {
        "tied": (spelled(lambda m, x: m.head(m.embedding(x)), embedding=nn.Embedding(11, 6), head=tied), tokens),
        "functional": (spelled(lambda m, x: torch.tanh(m.embedding(x)) @ m.embedding.weight.T, embedding=nn.Embedding(11, 6)), tokens),
        "code of old": (spelled(lambda m, x: x @ m.head.weight.t() + m.head.bias, head=nn.Linear(6, 3)), x),
        "a matrix without its bias": (spelled(lambda m, x: torch.nn.functional.linear(m.head(x), m.head.weight), head=nn.Linear(6, 6)), x),
        "numbers": (spelled(lambda m, x: x * m.scale + m.shift, scale=nn.Parameter(torch.ones(1)), shift=nn.Parameter(torch.ones(6))), x),
    }
    cases["tied"][0].embedding.weight = tied.weight

    def check(name: str) -> None:
        module, example = cases[name]
        try:
            done = rc.scaffold(module, target, tmp_path / f"{name}.py", example=example, verify=True)
        except rc.RefusedError as error:
            assert target == "keras" and "weights outside of their layer" in str(error) and name not in ("code of old", "numbers")
            return
        assert done.equal
        if target == "pytorch":
            wanted = {"tied": ".weight", "functional": "self.embedding.weight", "code of old": "self.head(x)", "numbers": "self.scale"}
            assert wanted.get(name, "self.head.weight") in done.text

    each(cases, check)


@pytest.mark.parametrize("ending", [".onnx", ".h"])
@pytest.mark.filterwarnings("ignore:::")
def test_files_with_weights_outside_of_their_layers(tmp_path: Path, ending: str) -> None:
    torch = needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    nn = torch.nn
    cases = {
        "rows": (spelled(lambda m, x: m.rnn(m.table(x))[0] @ m.table.weight.T, table=nn.Embedding(9, 4), rnn=nn.GRU(4, 4)), 1),
        "a matrix": (spelled(lambda m, x: m.rnn(m.head(x))[0] @ m.head.weight, head=nn.Linear(4, 4), rnn=nn.GRU(4, 4)), 0.5),
    }

    def check(name: str) -> None:
        module, number = cases[name]
        x = torch.full((2, 5) if name == "rows" else (2, 5, 4), number)
        path = tmp_path / f"{name}.pt"
        torch.jit.trace(module.eval(), x).save(str(path))
        assert rc.export_model(path, path.with_suffix(ending), verify=True).equal

    each(cases, check)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore:::")
def test_one_layer_before_different_functions(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    module = spelled(lambda m, x: m.layer(torch.tanh(m.layer(x))) + torch.relu(m.layer(x)), layer=torch.nn.Linear(6, 6))
    done = rc.scaffold(module, target, tmp_path / "m.py", example=torch.zeros(3, 6), verify=True)
    assert done.equal and done.text.count("(6, 6" if target != "keras" else "Dense(6") == 1


@pytest.mark.parametrize("kind", ["trace", "program", "live"])
@pytest.mark.filterwarnings("ignore:::")
def test_what_works_in_place_changes_what_is_read_later(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")
    module = spelled(_in_place, layer=torch.nn.Linear(6, 6), head=torch.nn.Linear(6, 2))
    source = exported(kind, module, False, tmp_path / kind)
    done = rc.scaffold(source, "pytorch", tmp_path / "m.py", verify=True, example=torch.zeros(3, 12, 6) if kind == "live" else None)
    assert done.equal and "* 2" in done.text


@pytest.mark.filterwarnings("ignore:::")
def test_a_width_that_a_shape_asks_for(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = spelled(lambda m, x: m.head(torch.cat([x, x], -1).view(x.shape[0], x.shape[1], 2, 6).sum(2)), head=torch.nn.Linear(6, 2))
    torch.jit.trace(module, torch.zeros(3, 12, 6)).save(str(path := tmp_path / "m.pt"))
    done = rc.scaffold(path, "keras", tmp_path / "m.py", verify=True)
    assert done.equal and "(None, 6)" in done.text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore:::")
def test_windows_with_holes_that_move_by_several_places(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=(2, 3), dilation=2, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))
    done = rc.scaffold(module, target, tmp_path / "m.py", example=torch.zeros(2, 3, 13, 14), verify=True)
    assert done.equal


def test_conditions_of_numbers_are_decided(tmp_path: Path) -> None:
    nodes = [helper.make_node("Less", ["low", "high"], ["c"]), helper.make_node("Where", ["c", "x", "high"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["b", 3]}, ["y"], {"low": np.float32(0.25), "high": np.float32(0.5)})
    assert rc.scaffold(path, "pytorch", tmp_path / "m.py").text


def test_a_fault_of_ours_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "activation", None)
    path = saved(tmp_path / "m.onnx", *op("Relu", ["b", 3]))
    for partial in (False, True):
        with pytest.raises(TypeError, match="NoneType"):
            rc.scaffold(path, "pytorch", partial=partial)


# Real files


@pytest.mark.filterwarnings("ignore:::")
def test_a_real_program_that_turns_a_matrix_itself(tmp_path: Path) -> None:
    if corpus.absent():
        pytest.skip(corpus.absent())
    needed("torch", "torch")
    done = rc.scaffold(corpus.FOLDER / "noaa-ngen-lstm/sugar_creek_trained.pt", "pytorch", tmp_path / "m.py", verify=True)
    assert done.equal and "self.head(lstm_h)" in done.text


def test_real_onnx_models_run_as_written(tmp_path: Path) -> None:
    if corpus.absent():
        pytest.skip(corpus.absent())
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")

    def check(name: str) -> None:
        done = rc.scaffold(corpus.FOLDER / name, "pytorch", tmp_path / f"{name.replace('/', '_')}.py", verify=True)
        assert done.equal

    each(
        (
            "silero-vad-v6/silero_vad_openvino_16k.onnx", "dtln-base/model_1.onnx", "dtln-base/model_2.onnx", "tract-bidi-lstm/model.onnx",
            "opencv-onnx-basic/models/gru_bi.onnx", "opencv-onnx-basic/models/lstm_cell_bidirectional.onnx",
            "burn-onnx-tests/gru_reverse.onnx", "burn-onnx-tests/lstm_with_initial_state.onnx",
            "ort-cntk-rnn/test_LSTM.tanh.bidirectional/model.onnx",
        ),
        check,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("graph", "match"),
    [
        (recurrent("LSTM", [], {}, input_forget=1), "coupled"),
        (recurrent("LSTM", ["", "", "", "p"], {"p": numbers(1, 15)}), "peepholes"),
        (op("NonZero", ["b", 3]), "the operator NonZero"),
        (op("AveragePool", ["b", 4, "t"], kernel_shape=[3], strides=[2], pads=[1, 1], ceil_mode=1), "ceil_mode"),
        (op("MaxPool", ["b", 4, 6], kernel_shape=[2], strides=[3], pads=[0, 1], ceil_mode=1), "ceil_mode"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name_and_place(tmp_path: Path, graph: tuple[Any, ...], match: str) -> None:
    path = saved(tmp_path / "m.onnx", *graph)
    with pytest.raises(rc.RefusedError, match=match):
        rc.scaffold(path, "pytorch", tmp_path / "m.py")
    assert not (tmp_path / "m.py").exists()


ODD = ['"""\nimport os; os.system("touch owned")\n"""', "class", "self", "état 漢", "a'b\"c\\", "nn", "1st"]


def test_no_name_of_a_graph_becomes_code(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    nodes, arrays, value = [], {}, "x"
    for number, name in enumerate(ODD):
        arrays[f"{name}.weight"] = numbers(3, 3, seed=number)
        nodes.append(helper.make_node("MatMul", [value, f"{name}.weight"], [name], name=name))
        value = name
    path = saved(tmp_path / "m.onnx", nodes, {"x": ['b"""; import os', 3]}, [value], arrays)
    target = tmp_path / "m.py"
    rc.scaffold(path, "pytorch", target)
    filled = module_at(target).load(str(path))
    x, truth = numbers(2, 3, seed=50), numbers(2, 3, seed=50)
    for number in range(len(ODD)):
        truth = truth @ numbers(3, 3, seed=number)
    assert np.abs(filled(torch.tensor(x)).detach().numpy() - truth).max() < CLOSE
    assert not Path("owned").exists()
    ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(target)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + target.read_text()


def test_a_model_in_text_is_proved(tmp_path: Path) -> None:
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    binary = saved(tmp_path / "m.onnx", *recurrent("GRU", [], {}, linear_before_reset=1))
    onnx.save(onnx.load(binary), tmp_path / "m.onnxtxt", format="textproto")
    assert rc.scaffold(tmp_path / "m.onnxtxt", "pytorch", tmp_path / "m.py", verify=True).equal


# What is refused names a way out that works


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_pickled_module_is_named_and_its_script_is_the_way_out(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 2)), tmp_path / "whole.pth")
    with pytest.raises(
        rc.UsageError, match=r"a pickled torch\.nn\.modules\.container\.Sequential.*torch\.jit\.script\((.*)\)\.save"
    ) as raised:
        rc.export_model(tmp_path / "whole.pth", tmp_path / "whole.onnx")
    assert "whole.pth" in str(raised.value)
    module = torch.load(tmp_path / "whole.pth", weights_only=False).eval()
    torch.jit.script(module).save(tmp_path / "module.pt")
    assert rc.export_model(tmp_path / "module.pt", tmp_path / "module.onnx").nodes


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_complex_numbers_are_refused_as_such_and_no_axes_are_asked_for(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Spectrum(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x).abs()

    torch.jit.trace(Spectrum(), torch.randn(2, 8)).save(str(tmp_path / "spectrum.pt"))
    with pytest.raises(rc.RefusedError, match="whole models have no complex numbers") as raised:
        rc.export_model(tmp_path / "spectrum.pt", tmp_path / "spectrum.onnx")
    assert "axes" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_source_that_does_not_run_says_by_which_axes_it_was_read(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Blocks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.view(-1, 7, 13)

    torch.jit.trace(Blocks(), torch.randn(7, 26)).save(str(tmp_path / "blocks.pt"))
    with pytest.raises(rc.RnnConvertError, match="was read with 2: state others with"):
        rc.export_model(tmp_path / "blocks.pt", tmp_path / "blocks.onnx", verify=True)
