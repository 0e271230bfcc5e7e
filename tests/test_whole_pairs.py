"""verify of pairs of models: another computation anywhere in them is not equal, and the same one in another form is."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import executor
from rnnconvert.verification.collect import prepare
from rnnconvert.verification.lanes import running_model
from rnnconvert.verification.models import compare_models
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import ModelsCompared
from tests import drawn as drawing
from tests.drawn import NotComparedError, drawn, each
from tests.model_specs import CHANGES, INPUT, given, random_spec, save

EXECUTORS = {".keras": "keras-tensorflow", ".onnx": "onnxruntime-cpu", ".pt": "torch-cpu", ".pt2": "torch-cpu"}
ENDINGS = [
    (".keras", ".keras"),
    (".onnx", ".onnx"),
    (".pt", ".pt"),
    (".pt2", ".pt2"),
    (".keras", ".onnx"),
    (".pt", ".keras"),
    (".onnx", ".pt2"),
]
LARGE = 1e-3
"""A difference of outputs that is no rounding."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
]


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Process]]:
    with contextlib.ExitStack() as ended:
        yield {name: ended.enter_context(running(executor(name))) for name in sorted(set(EXECUTORS.values()))}


def compared(a: Path, b: Path, processes: dict[str, Process], folder: Path) -> ModelsCompared:
    """What both models show when they run whole, as verify has them run."""
    prepared = prepare(str(a), str(b), Plan())
    models = []
    for label, path in (("A", a), ("B", b)):
        subjects = [subject for subject in prepared.subjects if subject.model == label]
        models.append(running_model(processes[EXECUTORS[path.suffix]], subjects, folder, 0))
    return compare_models(models[0], models[1], {})


@pytest.mark.parametrize("endings", ENDINGS, ids="-".join)
def test_a_pair_is_equal_exactly_where_its_outputs_are(endings: tuple[str, str], processes: dict[str, Process], tmp_path: Path) -> None:
    seeds = range(40 if drawing.LONG else 1000)

    def check(case: tuple[int, str]) -> None:
        seed, change = case
        spec = random_spec(seed)
        try:
            other = CHANGES[change](spec)
        except (LookupError, StopIteration):
            raise NotComparedError(change) from None
        x = np.random.default_rng(seed).normal(size=(4, 6, INPUT)).astype(np.float32)
        values = [given(each_spec, x) for each_spec in (spec, other)]
        off = np.inf if values[0].shape != values[1].shape else float(np.abs(values[0] - values[1]).max())
        if 1e-6 < off < LARGE:
            raise NotComparedError("too little to be seen, and more than rounding")
        folder = tmp_path / f"{seed}-{change}"
        folder.mkdir()
        paths = [
            save(each_spec, folder / f"{label}{ending}") for each_spec, label, ending in zip((spec, other), "ab", endings, strict=True)
        ]
        result = compared(paths[0], paths[1], processes, folder)
        assert result.status == ("equal" if off < LARGE else "not equal"), (result, off, spec.steps)

    cases = list(itertools.product(seeds, CHANGES))
    each(drawn(cases, 8, "-".join(endings)), check)
