"""What a caller says of a transplant or a verification decides something, or is an error that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Cell
from rnnconvert.language.layout import Sizes
from rnnconvert.verification.plan import FLAGS, Plan, check
from tests.helpers.commands import call
from tests.helpers.requirements import needed
from tests.helpers.stacks import BOTH, random_stack


def modules() -> tuple[Any, Any]:
    torch = needed("torch", "torch")

    def module() -> Any:
        return torch.nn.ModuleDict({"rnn": torch.nn.GRU(3, 4), "head": torch.nn.Linear(4, 2)})

    return module(), module()


WISHES = [
    ({"flatten": {"target": "channels_first"}}, "--flatten target=channels_first decides nothing"),
    ({"flatten": {"source": "channels_last"}}, "--flatten source=channels_last decides nothing"),
    ({"flatten": "none"}, "--flatten none decides nothing"),
    ({"accept": ["epsilon"]}, "--accept epsilon decides nothing"),
    ({"accept": ["epsilonn"]}, "--accept epsilonn decides nothing"),
    ({"accept": ["initial_state"]}, "--accept initial_state decides nothing"),
    ({"nonlinearity": "relu"}, "nonlinearity=relu decides nothing"),
    ({"settings": ["rnn:nonlinearity=relu"]}, "rnn:nonlinearity=relu decides nothing"),
    ({"source_format": "keras"}, "the format 'keras' decides nothing"),
]


@pytest.mark.parametrize(("options", "words"), WISHES)
def test_what_decides_nothing_is_an_error_and_nothing_is_filled(options: dict[str, Any], words: str) -> None:
    target, source = modules()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(rc.UsageError, match=words) as caught:
        rc.load_into(target, source, **options)
    assert caught.value.exit_code == 2
    assert all(before[name].equal(value) for name, value in target.state_dict().items())
    rc.load_into(target, source)


def test_a_difference_is_suggested_for_a_word_like_it() -> None:
    torch = needed("torch", "torch")
    target, source = (torch.nn.ModuleDict({"norm": torch.nn.LayerNorm(4, eps=eps)}) for eps in (1e-5, 1e-3))
    with pytest.raises(rc.UsageError, match="Did you mean 'epsilon'"):
        rc.load_into(target, source, accept=["epsilon", "epsilons"])
    rc.load_into(target, source, accept=["epsilon"])


def test_a_mapping_file_and_a_call_that_contradict_one_another(tmp_path: Path) -> None:
    target, source = modules()
    path = tmp_path / "mapping.yaml"
    path.write_text("flatten: {target: channels_first}\naccept: [epsilon]\n")
    with pytest.raises(rc.UsageError, match="Give it once"):
        rc.load_into(target, source, path, flatten={"target": "channels_last"})
    with pytest.raises(rc.UsageError, match="decides nothing"):
        rc.load_into(target, source, path)


def test_an_order_that_nobody_needed_is_said() -> None:
    target, source = modules()
    assert any("trust_order was not needed" in note for note in rc.load_into(target, source, trust_order=True).notes)
    assert not any("trust_order" in note for note in rc.load_into(target, source).notes)


def test_a_mapping_for_a_live_model_says_nothing_of_files() -> None:
    target, source = modules()
    with pytest.raises(rc.UsageError, match="decides nothing"):
        rc.propose_mapping(target, source, target_format="pytorch")


def test_the_command_line_spells_it_as_it_was_said(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    for name, module in zip("ab", modules(), strict=True):
        torch.save(module.state_dict(), tmp_path / f"{name}.pt")
    for options in (["--flatten", "target=channels_first"], ["--flatten", "none"], ["--accept", "epsilon"]):
        result = call("transplant", tmp_path / "a.pt", "--into", tmp_path / "b.pt", "-o", tmp_path / "c.pt", *options)
        assert result.exit_code == 2 and " ".join(options) + " decides nothing" in result.stderr
        assert not (tmp_path / "c.pt").exists()


# Verification


def test_every_field_of_a_plan_has_its_flag() -> None:
    assert set(FLAGS) == set(Plan.__dataclass_fields__)


IDLE = [
    (Plan(pairs=["a=b"]), 1, "pairs"),
    (Plan(settings_b=["clip=none"]), 1, "settings_b"),
    (Plan(format_b="onnx"), 1, "format_b"),
    (Plan(inputs="x.npz", lengths=[3, 4, 5, 6]), 2, "lengths"),
    (Plan(inputs="x.npz", cases=["long"]), 2, "cases"),
    (Plan(inputs="x.npz", batch=7), 2, "batch"),
    (Plan(inputs="x.npz", time=7), 2, "time"),
    (Plan(cases=["states"], lengths=[3, 4, 5, 6]), 2, "lengths"),
    (Plan(lengths=[3, 4], batch=7), 2, "batch"),
]


@pytest.mark.parametrize(("plan", "models", "name"), IDLE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_plan_that_would_decide_nothing_is_wrong_usage(plan: Plan, models: int, name: str) -> None:
    with pytest.raises(rc.UsageError, match=rf"^{name} \(--[a-z-]+\) decides nothing"):
        check(plan, models)


@pytest.mark.parametrize("plan", [Plan(), Plan(lengths=[3, 4, 5, 6]), Plan(lengths=(1, 2, 3, 4), cases=["lengths"])])
def test_a_plan_that_decides_is_none(plan: Plan) -> None:
    check(plan, 1)


def test_results_are_judged_as_they_were_kept(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    stack = random_stack(Sizes("gru", 3, 4, parts=BOTH), 1, np.float32, Cell("gru", True)).replace(name="enc")
    rc.save(rc.Checkpoint("(made)", "canonical", {"enc": stack}), tmp_path / "m.onnx")
    results = rc.run(tmp_path / "m.onnx", on=["onnxruntime-cpu"], cases=["states"])
    assert rc.verify(results).equal
    options: dict[str, Any]
    for options in ({"seed": 3}, {"gradients": True}, {"settings": ["clip=none"]}, {"on": ["onnxruntime-cpu"]}):
        with pytest.raises(rc.UsageError, match="judged without running anything"):
            rc.verify(results, **options)
    on: dict[str, Any] = {"on": ["onnxruntime-cpu"]}
    for options in ({"seed": 3}, {"gradients": True}, {"cases": ["long"]}, {"lengths": [2, 3, 4, 5]}, {"pairs": ["enc=enc"]},
                    {"settings_a": ["clip=none"]}, {"format_a": "onnx"}):  # fmt: skip
        with pytest.raises(rc.UsageError, match="decides nothing"):
            rc.verify(results, tmp_path / "m.onnx", **on, **options)
    assert rc.verify(results, tmp_path / "m.onnx", **on).equal
