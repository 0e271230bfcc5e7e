"""verify looks at what is not recurrent: other numbers and settings there are not equal, the same ones in another form are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import rnnconvert as rc
from rnnconvert.comparison.other_layers import compare_others
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.drawn import drawn, each
from tests.helpers.stacks import random_stack

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
]

State = dict[str, torch.Tensor]


class Tagger(torch.nn.Module):
    """An embedding, a norm, a GRU, two dense layers of one size and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.norm, self.rnn = torch.nn.Embedding(11, 3), torch.nn.LayerNorm(3), torch.nn.GRU(3, 4, batch_first=True)
        self.mid, self.conv, self.head = torch.nn.Linear(4, 4), torch.nn.Conv1d(4, 5, 3, padding=1), torch.nn.Linear(5, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.mid(self.rnn(self.norm(self.emb(tokens)))[0]))
        return self.head(self.conv(y.transpose(1, 2)).transpose(1, 2))


OTHERS = ("emb.weight", "norm.weight", "norm.bias", "mid.weight", "mid.bias", "conv.weight", "conv.bias", "head.weight", "head.bias")
CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "negated": torch.neg,
    "set to zero": torch.zeros_like,
    "one number changed": lambda array: array + torch.eye(1, array.numel()).reshape(array.shape) * 1e-3,
    "one unit in the last place": lambda array: torch.nextafter(array, array + 1),
    "rolled": lambda array: array.roll(1, 0),
}


def written(state: State, path: Path) -> Path:
    """The model as a file of its ending."""
    if path.suffix == ".pt":
        torch.save(state, path)
    elif path.suffix == ".safetensors":
        save_file({f"model.{name}": tensor.contiguous() for name, tensor in state.items()}, path)
    else:
        model = Tagger()
        model.load_state_dict(state)
        torch.onnx.export(model.eval(), (torch.zeros(1, 5, dtype=torch.long),), path, dynamo=False)
    return path


@pytest.fixture(scope="module")
def state() -> State:
    torch.manual_seed(0)
    model = Tagger()
    for array in model.parameters():
        torch.nn.init.normal_(array)
    return model.state_dict()


@pytest.mark.parametrize("endings", [(".pt", ".pt"), (".pt", ".safetensors"), (".onnx", ".onnx"), (".pt", ".onnx")], ids="-".join)
def test_another_number_outside_of_recurrent_layers_is_not_equal(endings: tuple[str, str], state: State, tmp_path: Path) -> None:
    a = rc.load(written(state, tmp_path / f"a{endings[0]}"))
    same = compare_others(a, rc.load(written(state, tmp_path / f"same{endings[1]}")))
    assert not same.different and same.equal >= 3

    def check(case: tuple[str, str]) -> None:
        name, change = case
        changed = CHANGES[change](state[name])
        b = written({**state, name: changed}, tmp_path / f"b{endings[1]}")
        differ = compare_others(a, rc.load(b)).different
        assert not torch.equal(changed, state[name]) and len(differ) == 1 and name.partition(".")[0] in differ[0], differ

    each(drawn([(name, change) for name in OTHERS for change in CHANGES], 12, "-".join(endings)), check)


def test_other_element_types_are_equal_as_far_as_they_round(state: State, tmp_path: Path) -> None:
    a = rc.load(written(state, tmp_path / "a.pt"))
    half = {name: array.half() for name, array in state.items()}
    assert not compare_others(a, rc.load(written(half, tmp_path / "half.pt"))).different
    half["head.weight"] = half["head.weight"] * 1.01
    assert [words.split(":")[0] for words in compare_others(a, rc.load(written(half, tmp_path / "half.pt"))).different] == ["'head'"]


def test_what_one_model_lacks_is_named(state: State, tmp_path: Path) -> None:
    a = rc.load(written(state, tmp_path / "a.pt"))
    bare = rc.load(written({name: array for name, array in state.items() if "head" not in name}, tmp_path / "bare.pt"))
    assert [others.uncompared for others in (compare_others(a, bare), compare_others(bare, a))] == [
        ("'head', only in A",),
        ("'head', only in B",),
    ]


def _keras(**head: object) -> keras.Model:
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((None,)),
            layers.Embedding(9, 3, name="emb"),
            layers.LSTM(4, name="rec"),
            layers.Dense(**{"units": 2, "name": "head", **head}),
        ]
    )


def test_verify_of_whole_models_says_which_layer_differs(tmp_path: Path) -> None:
    _keras().save(tmp_path / "a.keras")
    _keras(activation="softmax").save(tmp_path / "activation.keras")
    negated = _keras()
    negated.get_layer("head").set_weights([-array for array in negated.get_layer("head").get_weights()])
    negated.save(tmp_path / "negated.keras")
    _keras().save(tmp_path / "same.keras")
    for name, reason in (
        ("activation", "activation is linear in A and softmax in B"),
        ("negated", "its weight differs by up to"),
        ("same", ""),
    ):
        report = rc.verify(tmp_path / "a.keras", tmp_path / f"{name}.keras", on=["keras-torch"], cases=["default states"], explain=False)
        assert report.verdict == ("not equal" if reason else "equal"), (name, str(report))
        assert (report.exit_code, bool(report)) == ((1, False) if reason else (0, True))
        assert reason in " ".join(report.document["reasons"]) and ("'head'" in str(report)) == bool(reason)
        for finding in (rc.diff, rc.diagnose):
            findings = finding(tmp_path / "a.keras", tmp_path / f"{name}.keras")
            assert findings.verdict.word == ("not equal" if reason else "equal"), (finding, str(findings))
            assert reason in str(findings)
    chosen = rc.verify(tmp_path / "a.keras", tmp_path / "negated.keras", layers=["rec"], on=["keras-torch"], cases=["default states"])
    assert chosen.verdict == "equal"


def test_a_normalization_in_one_model_alone_leaves_it_open(state: State, tmp_path: Path) -> None:
    folded = {name: array for name, array in state.items() if not name.startswith("norm")}
    folded["head.weight"] = folded["head.weight"] * 2
    others = compare_others(rc.load(written(state, tmp_path / "a.pt")), rc.load(written(folded, tmp_path / "b.pt")))
    assert others.folded and len(others.different) == 1


def test_weights_that_stand_in_no_layer_are_compared_or_named() -> None:
    """As the constants of a TFLite model: nothing else reads them, and a file without them is not equal in every weight."""
    stacks = {"layer": random_stack(Sizes("lstm", 3, 4), 0, np.float32)}
    head = np.arange(6, dtype=np.float32).reshape(2, 3)

    def file(**tensors: np.ndarray) -> Checkpoint:
        return Checkpoint("model", "tflite", stacks, tensors={**tensors, "axes": np.array([1, 2])})

    same, other, alone = (compare_others(file(constant=head), b) for b in (file(constant=head), file(constant=head + 1), file()))
    assert (same.equal, same.refuted, same.limits) == (1, (), ())
    assert other.refuted == ("'constant': its numbers differ by up to 1",)
    assert alone.only_in == ("A",) and [str(limit) for limit in alone.limits] == ["not compared: 'constant', only in A"]
