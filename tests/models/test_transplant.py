"""Foreign weights into live models: both run, and what does not go changes nothing."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.models import filling
from rnnconvert.models.model import Model
from rnnconvert.models.pairing import _ModelPairing
from rnnconvert.models.readers import model_of
from rnnconvert.models.units import Owner, plain_units
from tests.helpers.drawn import drawn, each
from tests.helpers.judging import close
from tests.helpers.requirements import needed
from tests.helpers.whole_models import PAIRS, TAGGER, Pair, every, in_keras, last, need_both, randomise, sequential

# TensorFlow and Keras warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    need_both()
    parameter: Pair = request.param
    return parameter


@pytest.fixture
def tagger() -> tuple[Any, Any]:
    need_both()
    return TAGGER.models()


def as_far_as_asked(target: Any, source: Any, **options: Any) -> None:
    """Fill a model, and say of it only what its layers ask for."""
    for key in ("accept", "flatten"):
        if key in options:
            try:
                rc.load_into(target, source, dry_run=True, **options)
            except rc.UsageError as error:
                assert f"{key}=" in str(error) or "flatten=" in str(error), error
                if f"{key}=" in str(error):
                    del options[key]
    rc.load_into(target, source, **options)


def numbers(module: Any) -> dict[str, Array]:
    return {name: np.array(tensor.detach().cpu().double()) for name, tensor in module.state_dict().items()}


def unchanged(module: Any, before: dict[str, Array]) -> bool:
    after = numbers(module)
    return all(np.array_equal(after[name], before[name]) for name in before)


# What goes ------------------------------------------------------------------------------------------


def test_keras_weights_run_in_torch(pair: Pair) -> None:
    model, module = pair.models()
    x = pair.x()
    before = pair.in_torch(module, x)
    expected = in_keras(model, x)
    report = rc.load_into(module, model, **pair.options)
    y = pair.in_torch(module, x)
    assert close(y, expected)
    assert not close(before, expected)
    assert report.kept == report.left == () and report.model is module


def test_torch_weights_run_in_keras(pair: Pair) -> None:
    model, module = pair.models()
    x = pair.x()
    randomise(model, 3)
    rc.load_into(module, model, **pair.options)
    expected = pair.in_torch(module, x)
    randomise(model, 4)
    assert not close(in_keras(model, x), expected)
    report = rc.load_into(model, module, **pair.options)
    assert close(in_keras(model, x), expected)
    assert report.kept == report.left == ()


@pytest.mark.drawn(15)
@pytest.mark.parametrize("ending", [".keras", ".h5", ".weights.h5"])
def test_a_keras_file_fills_a_module(pair: Pair, ending: str, tmp_path: Path) -> None:
    model, module = pair.models()
    path = tmp_path / f"model{ending}"
    (model.save_weights if ending == ".weights.h5" else model.save)(path)
    bare: dict[str, Any] = {}
    if ending == ".weights.h5":  # a file of bare weights does not say how its layers are set
        bare = {"accept": ["epsilon"], "flatten": {"source": "channels_last"}}
        if "RNN" in pair.name:
            bare["activation"] = "relu"
    as_far_as_asked(module, path, **{**pair.options, **bare})
    assert close(pair.in_torch(module, pair.x()), in_keras(model, pair.x()))


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_state_dictionary_fills_a_keras_model(pair: Pair, ending: str, tmp_path: Path) -> None:
    import safetensors.torch
    import torch

    model, module = pair.models()
    rc.load_into(module, model)
    expected = pair.in_torch(module, pair.x())
    path = tmp_path / f"model{ending}"
    if ending == ".pt":
        torch.save({"model_state_dict": module.state_dict(), "epoch": 3}, path)
    else:
        safetensors.torch.save_file(module.state_dict(), path)
    randomise(model, 5)
    bare = {"nonlinearity": "relu"} if "RNN" in pair.name else {}
    as_far_as_asked(model, path, accept=["epsilon"], flatten={"source": "channels_first"}, **bare)
    assert close(in_keras(model, pair.x()), expected)


def test_the_report_says_what_was_done(tagger: tuple[Any, Any]) -> None:
    model, module = tagger
    report = rc.load_into(module, model)
    assert [(entry.target, entry.source) for entry in report.filled] == [
        ("embedding", model.layers[0].name), ("conv", model.layers[1].name), ("norm", model.layers[2].name),
        ("gru", model.layers[3].name), ("lstm", model.layers[4].name), ("behind", model.layers[5].name),
        ("hidden", model.layers[6].name), ("head", model.layers[7].name),
    ]  # fmt: skip
    assert all(entry.evidence and entry.confidence == "sizes" for entry in report.filled)
    assert [step.layer for step in report.steps] == ["lstm"] and report.exact
    assert [(entry.option, entry.matters) for entry in report.differences] == [("momentum", "training")]
    assert any("relu" in note for note in report.notes)
    assert set(report.aside) == {"norm.num_batches_tracked"}
    assert report.made_of["head.weight"] == (f"{model.layers[7].name}/kernel",)
    assert json.loads(json.dumps(report.as_dict()))["filled"][0]["target"] == "embedding"
    assert "head from" in str(report)


def test_a_dry_run_changes_nothing(tagger: tuple[Any, Any]) -> None:
    model, module = tagger
    before = numbers(module)
    report = rc.load_into(module, model, dry_run=True)
    assert len(report.filled) == 8 and unchanged(module, before)


def test_element_type_and_ties_of_the_target_stay(tmp_path: Path) -> None:
    need_both()
    import torch

    class Language(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(11, 6)
            self.lstm = torch.nn.LSTM(6, 6, batch_first=True)
            self.head = torch.nn.Linear(6, 11, bias=False)
            self.head.weight = self.embedding.weight

    source, module = Language(), Language().to(torch.bfloat16)
    report = rc.load_into(module, source)
    assert module.head.weight is module.embedding.weight and module.lstm.weight_hh_l0.dtype == torch.bfloat16
    assert torch.equal(module.lstm.weight_hh_l0, source.lstm.weight_hh_l0.to(torch.bfloat16))
    assert not report.exact and any(step.rewrite == "change the element type" for step in report.steps)
    untied = Language()
    untied.head.weight = torch.nn.Parameter(torch.randn(11, 6))
    before = numbers(module)
    with pytest.raises(rc.TransplantError, match="tied weights"):
        rc.load_into(module, untied)
    assert unchanged(module, before)


def test_weights_too_large_for_the_target_are_refused() -> None:
    need_both()
    import torch

    source, module = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4).half()
    with torch.no_grad():
        source.weight[1, 2] = 1e6
    with pytest.raises(rc.TransplantError, match="too large for the target's float16"):
        rc.load_into(module, source)


def test_a_layer_of_a_stack_and_layers_of_their_own() -> None:
    need_both()
    import torch

    nn = torch.nn
    stack = nn.GRU(4, 5, num_layers=3, bidirectional=True, batch_first=True)
    apart = nn.ModuleDict({f"gru{n}": nn.GRU(4 if n == 0 else 10, 5, bidirectional=True, batch_first=True) for n in range(3)})
    rc.load_into(apart, stack)
    x = torch.randn(2, 7, 4)
    y = x
    for layer in apart.values():
        y = layer(y)[0]
    assert torch.allclose(y, stack(x)[0], atol=1e-6)
    again = nn.GRU(4, 5, num_layers=3, bidirectional=True, batch_first=True)
    rc.load_into(again, apart)
    assert torch.equal(again(x)[0], stack(x)[0])


def test_the_name_of_a_stack_stands_for_its_layers() -> None:
    need_both()
    import torch

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = torch.nn.LSTM(5, 5, num_layers=2)
            self.right = torch.nn.LSTM(5, 5, num_layers=2)

    module, source = Two(), Two()
    rc.load_into(module, source, {"left": "right", "right": "left"})
    assert torch.equal(module.left.weight_hh_l1, source.right.weight_hh_l1)
    assert torch.equal(module.right.weight_ih_l0, source.left.weight_ih_l0)
    with pytest.raises(rc.UsageError, match=r"has no layer 'left'. It has 'left\[0\]'"):
        rc.load_into(module, source, {"left": "right[0]"})


def test_state_dictionaries_and_scripted_modules_are_models_too(tagger: tuple[Any, Any]) -> None:
    import torch

    model, module = tagger
    rc.load_into(module, model)
    state = {name: torch.zeros_like(tensor) for name, tensor in module.state_dict().items()}
    rc.load_into(state, model, accept=["epsilon"])
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items() if "num_" not in name)
    randomise(model, 8)
    rc.load_into(model, state, accept=["epsilon"])
    x = TAGGER.x()
    assert close(in_keras(model, x), TAGGER.in_torch(module, x))
    plain = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5))
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5)))
    rc.load_into(scripted, plain)
    assert torch.equal(scripted(torch.ones(2, 4)), plain(torch.ones(2, 4)))


def test_every_recurrent_layer_of_a_live_model(tagger: tuple[Any, Any]) -> None:
    import torch

    model, module = tagger
    rc.load_into(module, model)
    ours, theirs = rc.from_model(module), rc.from_model(model)
    assert list(ours) == ["gru", "lstm"] and len(theirs) == 2
    for layer, other in zip(ours.values(), theirs.values(), strict=True):
        key = ("input", layer.cell.gates[0])
        assert np.array_equal(np.asarray(layer.first.arrays[key]), np.asarray(other.first.arrays[key]))
    assert list(rc.from_model(torch.nn.ModuleDict({"a": torch.nn.LSTM(3, 4, 2)}))) == ["a[0]", "a[1]"]


def test_the_highway_of_keras_1_is_two_dense_layers() -> None:
    shapes = {"W": (4, 4), "b": (4,), "W_carry": (4, 4), "b_carry": (4,)}
    arrays = {f"highway/{name}": np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}
    names = {name: f"highway/{name}" for name in shapes}
    units = plain_units("keras", Owner("highway", "Highway", names, {"activation": "relu"}.get), arrays)
    assert [(unit.name, unit.kinds) for unit in units] == [("highway/transform", ("dense",)), ("highway/gate", ("dense",))]
    gate = Model("keras", "", tuple(units), arrays).parts(units[1], "dense")
    assert np.array_equal(gate["weight"], arrays["highway/W_carry"].T)
    assert units[0].facts == {"activation": "relu"} and units[1].facts == {}


def test_a_planted_mistake_is_caught(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that lie otherwise, as a wrong layout would have them, do not pass for the right ones."""
    model, module = pair.models()
    put = filling._put

    def turned(done: Any, entry: Any, target: Any, name: str, array: Array, made_of: Any) -> None:
        put(done, entry, target, name, np.flip(array) if array.size > 1 else -array, made_of)

    monkeypatch.setattr(filling, "_put", turned)
    rc.load_into(module, model, **pair.options)
    assert not close(pair.in_torch(module, pair.x()), in_keras(model, pair.x()))


# Which belongs to which -----------------------------------------------------------------------------


def two_alike(nn: Any, first: str, second: str) -> Any:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, first, nn.GRU(5, 5, batch_first=True))
            setattr(self, second, nn.GRU(5, 5, batch_first=True))

    return Two()


def keras_two(first: str, second: str) -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential([layers.Input((7, 5)), *(layers.GRU(5, return_sequences=True, name=n) for n in (first, second))])
    randomise(model, 1)
    return model


@pytest.mark.parametrize(
    ("names", "foreign", "evidence"),
    [
        (("gru1", "gru2"), ("gru", "gru_1"), "numbers"),
        (("decode", "encode"), ("encode", "decode"), "names"),
        (("rnn_encode", "rnn_decode"), ("rnn-decode", "rnn-encode"), "names"),
    ],
)
def test_names_and_numbers_decide_between_layers_of_one_size(names: tuple[str, str], foreign: tuple[str, str], evidence: str) -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, *names), keras_two(*foreign)
    report = rc.load_into(module, model)
    assert {entry.confidence for entry in report.filled} == {evidence}
    crossed = names[0].replace("_", "-") != foreign[0].replace("_", "-") and evidence == "names"
    kernel = np.asarray(model.layers[1 if crossed else 0].cell.kernel)
    weight = getattr(module, names[0]).weight_ih_l0.detach().numpy()
    assert np.array_equal(weight[5:10].T, kernel[:, :5])  # torch has r z n, Keras z r n


def test_a_number_in_a_name_is_no_name() -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, "gru_1", "gru_2"), keras_two("gru", "gru_1")
    report = rc.load_into(module, model)
    assert [(entry.target, entry.source) for entry in report.filled] == [("gru_1", "gru"), ("gru_2", "gru_1")]
    three = torch.nn.ModuleDict({name: torch.nn.GRU(5, 5, batch_first=True) for name in ("gru", "gru_1", "gru_2")})
    with pytest.raises(rc.TransplantError, match="may be filled from"):
        rc.load_into(three, model)


def test_a_module_under_two_names_is_filled_once() -> None:
    need_both()
    import torch

    module = torch.nn.ModuleDict({"encoder": torch.nn.GRU(5, 5)})
    module["again"] = module["encoder"]
    source = torch.nn.ModuleDict({"encoder": torch.nn.GRU(5, 5)})
    report = rc.load_into(module, source)
    assert report.kept == () and len(report.filled) == 1
    assert torch.equal(module["again"].weight_hh_l0, source["encoder"].weight_hh_l0)


@pytest.mark.parametrize("names", [("first", "second"), ("gru2", "gru1")])
def test_what_fits_in_several_ways_is_listed_and_not_guessed(names: tuple[str, str]) -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, *names), keras_two("gru", "gru_1")
    before = numbers(module)
    with pytest.raises(rc.TransplantError, match=f"'{names[0]}', '{names[1]}' may be filled from 'gru', 'gru_1'"):
        rc.load_into(module, model)
    assert unchanged(module, before)
    report = rc.load_into(module, model, strict=False)
    assert report.filled == () and any("ambiguous" in note for note in report.notes) and unchanged(module, before)
    report = rc.load_into(module, model, {names[0]: "gru_1", names[1]: "gru"})
    assert {entry.confidence for entry in report.filled} == {"told"}
    kernel = np.asarray(model.layers[1].cell.kernel)
    assert np.array_equal(getattr(module, names[0]).weight_ih_l0.detach().numpy()[5:10].T, kernel[:, :5])
    assert {entry.confidence for entry in rc.load_into(module, model, trust_order=True).filled} == {"order"}


def test_two_copies_of_a_model_in_one_file_are_named_with_what_decides(tmp_path: Path) -> None:
    need_both()
    import torch

    def model(*names: str) -> Any:
        return torch.nn.ModuleDict(dict(zip(names, (torch.nn.LSTM(3, 4, num_layers=2), torch.nn.Linear(4, 2)), strict=True)))

    state, average = model("rnn", "out").state_dict(), model("rnn", "out").state_dict()
    torch.save({"model": {f"module.{name}": value for name, value in state.items()}, "ema": average}, tmp_path / "last.pth")
    with pytest.raises(rc.TransplantError) as refused:
        rc.load_into(model("body", "head"), tmp_path / "last.pth")
    (remedy,) = (line for line in refused.value.problems if "mapping" in line)
    assert "fill from one of 'model.module', 'ema' alone" in remedy and "trust_order" not in remedy
    report = rc.load_into(model("body", "head"), tmp_path / "last.pth", trust_order=True, strict=False)
    assert not report.filled and not any("trust_order was not needed" in note for note in report.notes)
    assert len(rc.load_into(model("body", "head"), average).filled) == 3


def test_branches_of_one_size_have_no_order() -> None:
    need_both()
    import keras

    layers = keras.layers

    def siamese(prefix: str) -> Any:
        first, second = layers.Input((4,)), layers.Input((4,))
        left, right = layers.Dense(3, name=f"{prefix}left")(first), layers.Dense(3, name=f"{prefix}right")(second)
        return keras.Model([first, second], layers.Concatenate()([left, right]))

    with pytest.raises(rc.TransplantError, match="may be filled from"):
        rc.load_into(siamese("my"), siamese("their"))
    same = siamese("my")
    rc.load_into(same, siamese("my"))


def test_what_is_left_is_an_error_unless_it_is_allowed() -> None:
    need_both()
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 2))
    source = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    before = numbers(module)
    with pytest.raises(rc.TransplantError) as caught:
        rc.load_into(module, source)
    assert "nothing in the source fits '1'" in str(caught.value) and "the nearest is '1'" in str(caught.value)
    assert unchanged(module, before) and len(caught.value.problems) == 2 and caught.value.exit_code == 4
    report = rc.load_into(module, source, strict=False)
    assert report.kept == ("1.weight", "1.bias") and report.left == ("1.weight", "1.bias")
    assert torch.equal(module[0].weight, source[0].weight)


# Mapping files --------------------------------------------------------------------------------------


def test_a_mapping_is_proposed_edited_and_stable(tmp_path: Path) -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, "first", "second"), keras_two("gru", "gru_1")
    text = rc.propose_mapping(module, model)
    assert text == rc.propose_mapping(module, model)
    assert "  # first: gru  # or gru_1\n" in text
    path = tmp_path / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(rc.TransplantError):
        rc.load_into(module, model, path)
    chosen = text.replace("  # first: gru ", "  first: gru_1 ").replace("  # second: gru_1 ", "  second: gru ")
    path.write_text(chosen, encoding="utf-8")
    report = rc.load_into(module, model, path)
    assert [(entry.target, entry.source) for entry in report.filled] == [("first", "gru_1"), ("second", "gru")]
    again = rc.propose_mapping(module, model, mapping=path)
    assert "  first: gru_1" in again and "chosen by a person" in again
    path.write_text(again, encoding="utf-8")
    assert rc.propose_mapping(module, model, mapping=path) == again


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layers: [a]", "'layers' has the name of a source"),
        ("layers:\n  first: 3", "quote names"),
        ("layers:\n  first: gru\n  first: gru_1", "'first' appears twice"),
        ("rows: {}", "unknown key 'rows'"),
        ("- a", "has keys"),
        ("layers: {", "not valid YAML"),
        ("leave: first", "list of names"),
        ("trust_order: maybe", "true or false"),
        ("layers: !!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_a_mapping_that_is_none(text: str, says: str, tmp_path: Path) -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, "first", "second"), keras_two("gru", "gru_1")
    path = tmp_path / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(rc.UnreadableError, match=says):
        rc.load_into(module, model, path)


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"third": "gru"}, "has no layer 'third'"),
        ({"first": "lstm"}, "has no layer 'lstm'"),
        ({"first": "gru", "second": "gru"}, "two layers"),
    ],
)
def test_a_mapping_of_what_is_not_there(mapping: dict[str, str], says: str) -> None:
    need_both()
    import torch

    module, model = two_alike(torch.nn, "first", "second"), keras_two("gru", "gru_1")
    before = numbers(module)
    with pytest.raises(rc.UsageError, match=says):
        rc.load_into(module, model, mapping)
    assert unchanged(module, before)


def test_a_pair_that_cannot_be_is_refused() -> None:
    need_both()
    import torch

    module, source = torch.nn.Sequential(torch.nn.Linear(4, 5)), torch.nn.Sequential(torch.nn.Linear(4, 6))
    with pytest.raises(rc.UsageError, match="dense layer of 5x4, but the other is dense layer of 6x4"):
        rc.load_into(module, source, {"0": "0"})


# What changes the function --------------------------------------------------------------------------

Make = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("keras_layer", "module", "says"),
    [
        (lambda k: k.GRU(5, reset_after=False), lambda nn: nn.GRU(4, 5, batch_first=True), "reset gate before"),
        (lambda k: k.LSTM(5, activation="relu"), lambda nn: nn.LSTM(4, 5, batch_first=True), "candidate through relu"),
        (lambda k: k.SimpleRNN(5), lambda nn: nn.RNN(4, 5, nonlinearity="relu", batch_first=True), "through tanh"),
        (lambda k: k.LSTM(5), lambda nn: nn.LSTM(4, 5), "batch_first is False in the target"),
        (lambda k: k.LSTM(5), lambda nn: nn.LSTM(4, 5, bias=False, batch_first=True), "without biases"),
        (lambda k: k.LSTM(5, go_backwards=True), lambda nn: nn.LSTM(4, 5, batch_first=True), "processing order"),
        (lambda k: k.Bidirectional(k.LSTM(5), merge_mode="sum"),
         lambda nn: nn.LSTM(4, 5, bidirectional=True, batch_first=True), "joined by sum"),
        (lambda k: k.LayerNormalization(), lambda nn: nn.LayerNorm(4), "make the layer with eps=0.001"),
        (lambda k: k.BatchNormalization(), lambda nn: nn.BatchNorm1d(4, track_running_stats=False, eps=1e-3), "batch norm"),
        (lambda k: k.GroupNormalization(2), lambda nn: nn.GroupNorm(4, 4, eps=1e-3), "groups is 4 in the target and 2"),
        (lambda k: k.Conv1D(5, 3, strides=2), lambda nn: nn.Conv1d(4, 5, 3), "stride"),
        (lambda k: k.Conv1D(5, 3, dilation_rate=2), lambda nn: nn.Conv1d(4, 5, 3), "dilation"),
        (lambda k: k.Conv1D(5, 3, padding="same"), lambda nn: nn.Conv1d(4, 5, 3), "padding"),
        (lambda k: k.Conv1D(5, 4, padding="same"), lambda nn: nn.Conv1d(4, 5, 4, padding=2), "padding"),
        (lambda k: k.Conv1D(5, 3, padding="causal"), lambda nn: nn.Conv1d(4, 5, 3, padding=1), "padding"),
        (lambda k: k.Dense(5), lambda nn: nn.Linear(4, 5, bias=False), "has a bias"),
    ],
)  # fmt: skip
def test_what_changes_the_function_is_refused_with_its_fix(keras_layer: Make, module: Make, says: str) -> None:
    need_both()
    import torch

    model = sequential(keras_layer, shape=(7, 4))(__import__("keras").layers)
    randomise(model, 2)
    target = torch.nn.Sequential(module(torch.nn))
    before = numbers(target)
    with pytest.raises(rc.TransplantError, match=says):
        rc.load_into(target, model)
    assert unchanged(target, before)


@pytest.mark.parametrize(
    ("make", "other", "says"),
    [
        (lambda k: k.LSTM(5, return_sequences=True), lambda k: k.LSTM(5), "return_sequences is True in the target"),
        (lambda k: k.Dense(5, activation="relu"), lambda k: k.Dense(5), "activation is relu in the target"),
        (lambda k: k.LSTM(5, recurrent_activation="hard_silu"), lambda k: k.LSTM(5), "sigmoid"),
    ],
)
def test_two_keras_layers_that_are_set_otherwise(make: Make, other: Make, says: str) -> None:
    need_both()
    import keras

    target, source = (sequential(layer, shape=(7, 4))(keras.layers) for layer in (make, other))
    with pytest.raises(rc.TransplantError, match=says):
        rc.load_into(target, source)


def test_a_difference_can_be_taken_over() -> None:
    need_both()
    import keras
    import torch

    model = sequential(lambda k: k.LSTM(5), shape=(7, 4))(keras.layers)
    module = every(torch.nn, torch.nn.LSTM(4, 5))
    report = rc.load_into(module, model, accept=["batch_first"])
    assert [difference.option for difference in report.differences] == ["batch_first"]
    x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    y = module(torch.from_numpy(x).transpose(0, 1))[-1].detach().numpy()
    assert close(y, in_keras(model, x))


def test_an_order_of_flattening_that_no_shape_shows_is_asked_for() -> None:
    need_both()
    import keras
    import torch

    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 6, 3)
            self.lstm = nn.LSTM(18, 5, batch_first=True)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)  # batch, channel, time, place
            return self.lstm(y.transpose(1, 2).flatten(2))[0][:, -1]

    model = keras.Sequential(
        [keras.layers.Input((7, 5, 4)), keras.layers.Conv2D(6, 3), keras.layers.Reshape((5, 18)), keras.layers.LSTM(5)]
    )
    randomise(model, 1)
    module = Net()
    with pytest.raises(rc.TransplantError, match="reads 18 values that seem to be flattened from 6 channels"):
        rc.load_into(module, model)
    x = np.random.default_rng(0).normal(size=(3, 7, 5, 4)).astype(np.float32)
    rc.load_into(module, model, flatten={"target": "channels_first"})
    y = module(torch.from_numpy(x).permute(0, 3, 1, 2)).detach().numpy()
    assert close(y, in_keras(model, x))
    rc.load_into(module, model, flatten={"target": "channels_last"})
    assert not close(module(torch.from_numpy(x).permute(0, 3, 1, 2)).detach().numpy(), in_keras(model, x))
    with pytest.raises(rc.UsageError, match="channels_first or channels_last"):
        rc.load_into(module, model, flatten="rows")


def test_what_a_statedict_does_not_say_of_a_convolution_is_noted(tmp_path: Path) -> None:
    need_both()
    import keras
    import torch

    path = tmp_path / "conv.pt"
    torch.save(torch.nn.Sequential(torch.nn.Conv1d(4, 5, 3)).state_dict(), path)
    model = sequential(lambda k: k.Conv1D(5, 3, strides=2), shape=(7, 4))(keras.layers)
    report = rc.load_into(model, path)
    assert any("does not state its stride, padding, dilation" in note for note in report.notes)


def test_a_statedict_does_not_say_its_epsilon(tmp_path: Path) -> None:
    need_both()
    import keras
    import torch

    path = tmp_path / "norm.pt"
    torch.save(torch.nn.Sequential(torch.nn.LayerNorm(4)).state_dict(), path)
    model = sequential(lambda k: k.LayerNormalization(), shape=(4,))(keras.layers)
    with pytest.raises(rc.TransplantError, match="the source does not state it, and 1e-05"):
        rc.load_into(model, path)
    rc.load_into(sequential(lambda k: k.LayerNormalization(epsilon=1e-5), shape=(4,))(keras.layers), path)
    rc.load_into(torch.nn.Sequential(torch.nn.LayerNorm(4, eps=1e-3)), path)  # as torch's own load_state_dict has it


# Targets that cannot be filled ----------------------------------------------------------------------


def quantised(nn: Any) -> Any:
    import torch

    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 5)), {nn.Linear})


def parametrized(nn: Any) -> Any:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda nn: nn.Sequential(nn.Linear(4, 5, device="meta")), "meta device"),
        (lambda nn: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 5, device="meta")), "meta device"),
        (lambda nn: nn.Sequential(nn.LazyLinear(5)), "has no size yet"),
        (parametrized, "parametrized"),
        (quantised, "quantized"),
    ],
)
def test_targets_that_cannot_be_filled(make: Make, says: str) -> None:
    need_both()
    import torch

    with pytest.raises(rc.UsageError, match=says):
        rc.load_into(make(torch.nn), torch.nn.Sequential(torch.nn.Linear(4, 5)))


def test_objects_that_are_no_models() -> None:
    need_both()
    import keras
    import torch

    with pytest.raises(rc.UsageError, match="not a known kind of model"):
        rc.load_into(object(), torch.nn.Linear(3, 4))
    with pytest.raises(rc.UsageError, match="not built yet"):
        rc.load_into(keras.Sequential([keras.layers.Dense(4)]), torch.nn.Linear(3, 4))


def test_an_interrupt_while_filling_leaves_the_module_as_it_was(tagger: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    model, module = tagger
    before = numbers(module)
    copies = torch.Tensor.copy_
    count = 0

    def interrupted(tensor: Any, other: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return copies(tensor, other)

    monkeypatch.setattr(torch.Tensor, "copy_", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rc.load_into(module, model)
    assert count == 5 and unchanged(module, before)


def test_an_interrupt_while_filling_leaves_the_keras_model_as_it_was(tagger: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    model, module = tagger
    before = [np.array(weight) for weight in model.weights]
    assign = keras.Variable.assign
    count = 0

    def interrupted(variable: Any, value: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return assign(variable, value)

    monkeypatch.setattr(keras.Variable, "assign", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rc.load_into(model, module)
    assert count > 5
    assert all(np.array_equal(np.array(weight), old) for weight, old in zip(model.weights, before, strict=True))


# Verification of whole models -----------------------------------------------------------------------


def test_whole_models_are_compared_layer_by_layer(tagger: tuple[Any, Any], tmp_path: Path) -> None:
    model, module = tagger
    path = tmp_path / "model.keras"
    model.save(path)
    report = rc.load_into(module, path)
    compared = report.verify(TAGGER.x())
    assert compared and compared.equal and compared.unseen == ()
    assert [entry.output for entry in compared.comparisons] == ["gru", "lstm", "output"]
    assert all(entry.telling and entry.error <= entry.allowed for entry in compared.comparisons)
    module.gru.weight_hh_l0.data[[0, 1]] = module.gru.weight_hh_l0.data[[1, 0]]
    wrong = report.verify(TAGGER.x())
    assert not wrong and "not equal" in str(wrong)
    back = copy.deepcopy(module)
    assert rc.load_into(back, module).verify(TAGGER.x())
    assert rc.load_into(model, module).verify(TAGGER.x())


def test_last_outputs_of_two_directions_are_compared() -> None:
    need_both()
    import keras
    import torch

    model = sequential(lambda k: k.Bidirectional(k.LSTM(5)), shape=(7, 4))(keras.layers)
    randomise(model, 1)
    module = every(torch.nn, torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True))
    report = rc.load_into(module, model)
    x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    compared = report.verify(x)
    layer, output = compared.comparisons
    assert layer.output == "rnn" and layer.passed
    assert not output.passed  # the module gives every step, the model the last


def test_a_statedict_has_no_code_to_run(tagger: tuple[Any, Any], tmp_path: Path) -> None:
    import torch

    model, module = tagger
    rc.load_into(module, model)
    torch.save(module.state_dict(), tmp_path / "m.pt")
    report = rc.load_into(model, tmp_path / "m.pt", accept=["epsilon"])
    with pytest.raises(rc.UsageError, match="weights without code"):
        report.verify(TAGGER.x())
    assert report.verify(TAGGER.x(), source=module)


def test_last_is_what_keras_gives() -> None:
    need_both()
    import torch

    module = last(torch.nn, torch.nn.LSTM(4, 5, batch_first=True))
    assert module(torch.zeros(2, 3, 4)).shape == (2, 5)


# Cells that torch.nn and Keras lack -----------------------------------------------------------------


def test_modules_of_ours_are_filled_too(tmp_path: Path) -> None:
    need_both()
    import keras
    import torch

    model = sequential(
        lambda k: k.Bidirectional(k.GRU(5, reset_after=False, recurrent_activation="hard_sigmoid", return_sequences=True)),
        lambda k: k.Dense(3),
        shape=(7, 4),
    )(keras.layers)
    randomise(model, 1)
    model.save(tmp_path / "model.keras")
    other = rc.load(tmp_path / "model.keras").layers[model.layers[0].name]
    zeros = other.replace(layers=tuple(
        layer.__class__(tuple(d.with_arrays({key: np.zeros_like(a) for key, a in d.arrays.items()}) for d in layer.directions), layer.merge)
        for layer in other.layers
    ))  # fmt: skip
    module = torch.nn.Sequential(every(torch.nn, rc.to_torch(zeros)), torch.nn.Linear(10, 3))
    module[0].rnn.batch_first = True
    report = rc.load_into(module, tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    assert close(module(torch.from_numpy(x)).detach().numpy(), in_keras(model, x))
    assert report.kept == () and "0.rnn.outline" in report.aside
    assert report.verify(x)
    randomise(model, 2)
    rc.load_into(model, module)
    assert close(in_keras(model, x), module(torch.from_numpy(x)).detach().numpy())
    torch.save(module.state_dict(), tmp_path / "module.pt")
    randomise(model, 3)
    rc.load_into(model, tmp_path / "module.pt")
    assert close(in_keras(model, x), module(torch.from_numpy(x)).detach().numpy())
    plain = torch.nn.Sequential(every(torch.nn, torch.nn.GRU(4, 5, bidirectional=True, batch_first=True)), torch.nn.Linear(10, 3))
    with pytest.raises(rc.TransplantError, match="reset gate before"):
        rc.load_into(plain, module)
    with pytest.raises(rc.TransplantError, match="reset"):
        rc.load_into(module, plain)


def test_a_file_with_a_layer_of_ours_keeps_its_weights(tmp_path: Path) -> None:
    need_both()
    import keras

    layers = keras.layers
    cell = sequential(lambda k: k.GRU(5, return_sequences=True), shape=(7, 4))(layers).layers[0]
    stack = rc.from_keras(cell)
    clipped = stack.first.replace(cell=stack.cell.replace(clips=(rc.Clip("gates", -1, 1),)))
    ours = rc.to_keras(stack.replace(layers=(stack.layers[0].__class__((clipped,)),))).layers[-1]
    model = keras.Sequential([layers.Input((7, 4)), ours, layers.Dense(3)])
    randomise(model, 1)
    model.save(tmp_path / "target.keras")
    randomise(model, 2)
    model.save(tmp_path / "source.keras")
    rc.transplant_file(tmp_path / "source.keras", tmp_path / "target.keras", tmp_path / "out.keras")
    x = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    loaded = keras.models.load_model(tmp_path / "out.keras", compile=False)
    assert np.array_equal(in_keras(loaded, x), in_keras(model, x))


def test_a_checkpoint_that_was_read_is_a_source(tmp_path: Path) -> None:
    need_both()
    import torch

    source, target = torch.nn.GRU(3, 4), torch.nn.GRU(3, 4)
    torch.save(source.state_dict(), tmp_path / "gru.pt")
    rc.load_into(target, rc.load(tmp_path / "gru.pt"))
    assert all(torch.equal(array, target.state_dict()[name]) for name, array in source.state_dict().items())


def test_layers_that_may_fill_one_another_are_one_set() -> None:
    """As a search over all pairs of layers finds them."""
    torch = needed("torch", "torch")
    kinds = (
        lambda size: torch.nn.Linear(size, size), lambda size: torch.nn.LayerNorm(size), lambda size: torch.nn.BatchNorm1d(size),
        lambda size: torch.nn.GRU(size, size), lambda size: torch.nn.Embedding(size, size),
    )  # fmt: skip

    def module(draw: random.Random) -> Any:
        result = torch.nn.Sequential(*(draw.choice(kinds)(draw.choice((2, 3))) for _ in range(draw.randrange(1, 8))))
        for name in draw.sample(("scale", "shift", "table"), draw.randrange(3)):
            result.register_parameter(name, torch.nn.Parameter(torch.zeros(draw.choice((2, 3)))))
        return result

    def check(seed: int) -> None:
        draw = random.Random(seed)
        work = _ModelPairing(model_of(module(draw)), model_of(module(draw)))
        fits = [(target, source) for target in work.targets for source in work.sources if work.common(target, source)]
        sets = work.components()
        own_set = {id(unit): number for number, both in enumerate(sets) for units in both for unit in units}
        assert all(own_set[id(target)] == own_set[id(source)] for target, source in fits)
        assert {*own_set} == {id(unit) for both in fits for unit in both}
        left = {id(unit) for unit in (*work.pairing.unfilled, *work.pairing.unused)}
        assert left == {id(unit) for unit in (*work.targets, *work.sources)} - {*own_set}
        for targets, sources in sets:  # none is several that have nothing to do with one another
            reached, before = {id(targets[0])}, 0
            while len(reached) > before:
                before = len(reached)
                reached |= {id(unit) for both in fits for unit in both if {id(each) for each in both} & reached}
            assert reached == {id(unit) for unit in (*targets, *sources)}

    each(drawn(range(1000), 60, "sets"), check)


def test_one_number_fills_one_number_whatever_its_axes() -> None:
    """Keras keeps a scale as (), modules of PyTorch often as (1,): refused by itself, with the mapping that confirms it, then filled."""
    torch = needed("torch", "torch")
    mine = torch.nn.Module()
    mine.scale = torch.nn.Parameter(torch.ones(1))
    mine.rnn = torch.nn.GRU(3, 4)
    theirs = {f"encoder.{name}": array.detach() for name, array in torch.nn.GRU(3, 4).named_parameters()}
    theirs["attention.factor"] = torch.tensor(2.5)
    with pytest.raises(rc.TransplantError, match=r"confirm with the mapping scale: attention\.factor"):
        rc.load_into(mine, theirs)
    rc.load_into(mine, theirs, mapping={"rnn": "encoder", "scale": "attention.factor"})
    assert mine.scale.shape == (1,) and mine.scale.item() == 2.5


@pytest.mark.parametrize("names", [("fw", "bw"), ("a_bwd", "z_fwd")])
def test_two_directions_of_a_layer_are_offered_to_two_layers_by_their_names(names: tuple[str, str]) -> None:
    """In both ways, the forward one first whatever the order of the layers; what is offered is taken."""
    need_both()
    import torch

    forward, backward = sorted(names, key=lambda name: "bw" in name)
    ways = torch.nn.ModuleDict({name: torch.nn.LSTM(3, 4) for name in names})
    both = torch.nn.ModuleDict({"enc": torch.nn.LSTM(3, 4, bidirectional=True)})
    for target, source, pair in ((ways, both, (f"{forward} + {backward}", "enc")), (both, ways, ("enc", f"{forward} + {backward}"))):
        with pytest.raises(rc.TransplantError) as caught:
            rc.load_into(target, source)
        assert f"confirm with the mapping {pair[0]}: {pair[1]}" in str(caught.value)
        rc.load_into(target, source, mapping=dict([pair]))
        assert torch.equal(ways[backward].weight_hh_l0, both["enc"].weight_hh_l0_reverse)
