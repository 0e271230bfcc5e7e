"""verify of pairs of models: another computation anywhere in them is not equal, and the same one in another form is."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import keras
import numpy as np
import onnx
import pytest
import torch

import rnnconvert as rc
from rnnconvert import reports
from rnnconvert.reports.findings import finding
from rnnconvert.running.parent import Process, running
from rnnconvert.running.registry import executor
from rnnconvert.verification.collect import prepare
from rnnconvert.verification.models import RunningModel, compare_models
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import ModelsCompared
from tests.helpers import drawn as drawing
from tests.helpers import report_documents as documents
from tests.helpers.commands import call
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.model_specs import CHANGES, INPUT, Spec, expected, keras_model, random_spec, save
from tests.helpers.requirements import need

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
"""Outputs that differ by as much differ by more than rounding."""

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
        models.append(RunningModel.recorded(processes[EXECUTORS[path.suffix]], subjects, folder, 0))
    result = compare_models(models[0], models[1], {})
    assert result is not None
    return result


def changed_spec(seed: int, change: str) -> tuple[Spec, Spec, float]:
    """A model, one with a change, and how far their outputs are apart. Raises NotComparedError where rounding alone does not decide."""
    spec = random_spec(seed)
    try:
        other = CHANGES[change](spec)
    except (LookupError, StopIteration):
        raise NotComparedError(change) from None
    x = np.random.default_rng(seed).normal(size=(4, 6, INPUT)).astype(np.float32)
    values = [expected(each_spec, x) for each_spec in (spec, other)]
    off = np.inf if values[0].shape != values[1].shape else float(np.abs(values[0] - values[1]).max())
    if 1e-6 < off < LARGE:
        raise NotComparedError("too little to be seen, and more than rounding")
    return spec, other, off


@pytest.mark.parametrize("endings", ENDINGS, ids="-".join)
@pytest.mark.parametrize("part", range(8 if drawing.LONG else 1))
def test_a_pair_is_equal_exactly_where_its_outputs_are(
    endings: tuple[str, str], part: int, processes: dict[str, Process], tmp_path: Path
) -> None:
    """With --long 8 models in each of the 7 pairs of forms: 2,240 pairs."""
    seeds: Sequence[int] = range(1000)
    if drawing.LONG:
        seeds = random.Random(f"{drawing.SEED} {endings} {part}").sample(seeds, 1)

    def check(case: tuple[int, str]) -> None:
        seed, change = case
        spec, other, off = changed_spec(seed, change)
        folder = tmp_path / f"{seed}-{change}"
        folder.mkdir()
        paths = [
            save(each_spec, folder / f"{label}{ending}") for each_spec, label, ending in zip((spec, other), "ab", endings, strict=True)
        ]
        result = compared(paths[0], paths[1], processes, folder)
        assert result.status == ("equal" if off < LARGE else "not equal"), (result, off, spec.steps)

    cases = list(itertools.product(seeds, CHANGES))
    each(drawn(cases, 8, "-".join(endings)), check)


def test_equal_says_what_it_speaks_of(tmp_path: Path) -> None:
    """The whole models, every weight, or the recurrent layers: in the text, the exit code, JUnit, Python, and of diff and diagnose."""
    spec = next(each_spec for each_spec in map(random_spec, range(100)) if each_spec.steps[-1] == ("act", "softmax"))
    model = keras_model(spec)
    model.save(tmp_path / "a.keras")
    model.save(tmp_path / "same.keras")
    keras_model(replace(spec, steps=spec.steps[:-1])).save(tmp_path / "open.keras")
    model.save_weights(tmp_path / "weights.weights.h5")
    rc.convert(tmp_path / "a.keras", tmp_path / "layers.onnx")

    def verified(b: str, *more: str) -> tuple[int, str, dict[str, Any]]:
        words = ["verify", tmp_path / "a.keras", tmp_path / b, "--report", tmp_path / "report.json", "--report", tmp_path / "report.xml"]
        result = call(*words, "--on", "keras-tensorflow", "--on", "onnxruntime-cpu", "--no-explain", "--case", "default states", *more)
        return result.exit_code, result.stdout, reports.read(tmp_path / "report.json")

    def case(name: str) -> str:
        """The state of a test case of the verdict's suite."""
        cases = ElementTree.parse(tmp_path / "report.xml").iter("testcase")
        return next(next((child.tag for child in testcase), "passed") for testcase in cases if testcase.get("name") == name)

    code, text, document = verified("same.keras", "--strict")
    assert (code, document["verdict"], document["scope"]) == (0, "equal", "whole")
    assert text.splitlines()[-1].endswith("; both models ran whole, and give the same") and case("whole models") == "passed"
    code, text, document = verified("open.keras")
    assert (code, document["verdict"], case("whole models"), case("verdict")) == (1, "not equal", "failure", "failure")
    assert "what differs lies between or around them" in " ".join(text.split())
    code, text, document = verified("weights.weights.h5")
    assert (code, document["verdict"], document["scope"]) == (0, "equal", "weights") and "; every weight was compared" in text
    assert (verified("layers.onnx", "--strict")[0], verified("layers.onnx")[0]) == (8, 0)
    code, text, document = verified("layers.onnx")
    assert (document["verdict"], document["scope"], case("verdict")) == ("recurrent layers equal", "layers", "skipped")
    assert "'head', only in A" in text.splitlines()[-1] and not rc.Report(document)
    assert str(rc.diff(tmp_path / "a.keras", tmp_path / "same.keras")).splitlines()[-1].startswith("every weight of ")
    findings = rc.diff(tmp_path / "a.keras", tmp_path / "layers.onnx")
    assert str(findings).splitlines()[-1].startswith("the recurrent layers of ") and not findings
    assert "the recurrent layers of " in str(rc.diagnose(tmp_path / "a.keras", tmp_path / "layers.onnx"))


def test_without_a_framework_the_package_is_named(tmp_path: Path) -> None:
    document = documents.document([documents.layer("a", [])])
    document["missing_packages"] = ["keras", "tensorflow"]
    assert finding(document).endswith("To run them: pip install keras tensorflow")
    assert "pip install keras tensorflow" in str(rc.NotEqualError("a.onnx", rc.Report(document)))


def _onnx(path: Path, nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto] = (), outputs: Sequence[str] = ("o",)) -> Path:
    """An LSTM, whose joined outputs M further nodes read."""
    numbers = np.random.default_rng(0)
    weights = {name: numbers.normal(size=shape).astype("f4") for name, shape in (("W", (1, 16, 3)), ("R", (1, 16, 4)), ("D", (4, 2)))}
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in {**weights, "axis": np.array([1])}.items()]
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    first = [make("LSTM", ["x", "W", "R"], ["Y"], hidden_size=4), make("Squeeze", ["Y", "axis"], ["S"]), make("MatMul", ["S", "D"], ["M"])]
    stated = [value("x", onnx.TensorProto.FLOAT, ["T", "N", 3]), *inputs]
    graph = onnx.helper.make_graph(
        [*first, *nodes],
        "g",
        stated,
        [value(name, onnx.TensorProto.STRING if name == "t" else onnx.TensorProto.FLOAT, None) for name in outputs],
        initializers,
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_models_that_differ_where_few_inputs_show_it(processes: dict[str, Process], tmp_path: Path) -> None:
    """Masks that are drawn, exchanged outputs, other axes, and what cannot be run or is random."""
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    mask = [value("mask", onnx.TensorProto.BOOL, ["T", "N"])]
    zeros = [make("Sub", ["M", "M"], ["Z"]), make("Constant", [], ["last"], value_ints=[2])]
    pairs = {
        "mask": (
            [*zeros, make("Unsqueeze", ["mask", "last"], ["m"]), make("Where", ["m", "M", "Z"], ["o"])],
            [
                *zeros,
                make("Not", ["mask"], ["n"]),
                make("Or", ["mask", "n"], ["w"]),
                make("Unsqueeze", ["w", "last"], ["m"]),
                make("Where", ["m", "M", "Z"], ["o"]),
            ],
            mask,
            "not equal",
        ),
        "random": (
            [make("Identity", ["M"], ["o"])],
            [make("RandomNormalLike", ["M"], ["r"]), make("Add", ["M", "r"], ["o"])],
            [],
            "not compared",
        ),
        "single": (
            [make("Identity", ["M"], ["o"])],
            [
                *(
                    make("Shape", ["M"], ["shape"]),
                    make("Constant", [], ["one"], value_ints=[1]),
                    make("Gather", ["shape", "one"], ["length"]),
                ),
                *(make("Equal", ["length", "one"], ["alone"]), make("Neg", ["M"], ["n"]), make("Where", ["alone", "n", "M"], ["o"])),
            ],
            [],
            "not equal",
        ),
        "same": ([make("Neg", ["M"], ["o"])], [make("Neg", ["M"], ["o"])], [], "equal"),
    }
    for name, (nodes, others, inputs, status) in pairs.items():
        paths = [_onnx(tmp_path / f"{name}{label}.onnx", side, inputs) for label, side in (("a", nodes), ("b", others))]
        result = compared(paths[0], paths[1], processes, tmp_path)
        assert result.status == status, (name, result)
    exchanged = [make("Relu", ["M"], ["a"]), make("Neg", ["M"], ["b"])], [make("Neg", ["M"], ["u"]), make("Relu", ["M"], ["v"])]
    paths = [_onnx(tmp_path / f"{names[0]}.onnx", side, outputs=names) for side, names in zip(exchanged, ("ab", "uv"), strict=True)]
    result = compared(paths[0], paths[1], processes, tmp_path)
    assert (result.status, result.notes) == ("equal", ("its outputs stand in another order",))


def test_a_model_that_cannot_run_is_not_called_equal(tmp_path: Path) -> None:
    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    text = [value("s", onnx.TensorProto.STRING, ["N"])]
    first, second = [
        _onnx(tmp_path / f"{kind}.onnx", [make("Identity", ["s"], ["t"]), make(kind, ["M"], ["o"])], text, ("o", "t"))
        for kind in ("Identity", "Neg")
    ]
    report = rc.verify(first, second, on=["onnxruntime-cpu"], cases=["default states"], explain=False)
    assert report.verdict == "recurrent layers equal" and "not compared: what the whole models give" in " ".join(str(report).split())
    twofold, threefold = [
        _onnx(tmp_path / f"{number}.onnx", [make("Constant", [], ["k"], value_float=number), make("Mul", ["M", "k"], ["o"])])
        for number in (2.0, 3.0)
    ]
    assert rc.verify(twofold, threefold, on=["onnxruntime-cpu"], cases=["default states"], explain=False).verdict == "not equal"


def test_settings_that_another_layer_makes_up_for(tmp_path: Path) -> None:
    def model(*head: keras.layers.Layer) -> keras.Model:
        result = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4, name="l"), *head])
        numbers = np.random.default_rng(0)
        result.set_weights([numbers.normal(size=array.shape) for array in result.get_weights()])
        return result

    model(keras.layers.Dense(6, "relu", name="d")).save(tmp_path / "a.keras")
    model(keras.layers.Dense(6, name="d"), keras.layers.ReLU()).save(tmp_path / "b.keras")
    model(keras.layers.Dense(6, name="d")).save(tmp_path / "c.keras")
    small = (
        model(keras.layers.Dense(6, name="d"), keras.layers.Rescaling(1e-6)),
        model(keras.layers.Dense(6, name="d"), keras.layers.Rescaling(1e-6, 1e-7)),
    )
    for name, each_model in zip("de", small, strict=True):
        each_model.save(tmp_path / f"{name}.keras")
    for a, b, word in (("a", "b", "equal"), ("a", "c", "not equal"), ("d", "e", "not equal")):
        report = rc.verify(
            tmp_path / f"{a}.keras", tmp_path / f"{b}.keras", on=["keras-tensorflow"], cases=["default states"], explain=False
        )
        assert report.verdict == word, (a, b, str(report))


NAMED = {
    **dict.fromkeys(("head negated", "head rolled", "head's units rolled", "head's bias moved", "head's bias zero"), "head"),
    **{"before changed": "before", "recurrence changed": "first", "one bias changed": "first"},
    **dict.fromkeys(
        ("input scaled", "scaled behind the first", "reversed behind the first", "softmax at the end", "scaled at the end", "doubled"), ""
    ),
}
"""Which layer a change is in; "" for what lies between or around them."""


def _changed(change: str, seed: int) -> tuple[Spec, Spec]:
    """The first model from a seed on that has what a change is made to, and the changed one; their outputs are clearly apart."""
    for number in range(seed, seed + 200):
        spec = random_spec(number)
        with contextlib.suppress(LookupError, StopIteration):
            other = CHANGES[change](spec)
            x = np.random.default_rng(number).normal(size=(4, 6, INPUT)).astype(np.float32)
            if np.abs(expected(spec, x) - expected(other, x)).max() > LARGE:
                return spec, other
    raise AssertionError(change)


def test_the_layer_that_differs_is_named_and_no_other(tmp_path: Path) -> None:
    def check(case: tuple[tuple[str, str], str]) -> None:
        endings, change = case
        specs = _changed(change, random.Random(f"{drawing.SEED} {case}").randrange(1000))
        first, second = [save(spec, tmp_path / f"{label}{ending}") for spec, label, ending in zip(specs, "ab", endings, strict=True)]
        report = rc.verify(first, second, cases=["default states"], explain=False)
        text = "; ".join(report.document["reasons"])
        named = {name for name in ("before", "first", "second", "head") if re.search(rf"\b{name}\b", text)}
        assert report.verdict == "not equal" and named == {NAMED[change]} - {""}, (case, str(report))
        assert ("lies between or around them" in text) == (not NAMED[change]), (case, text)

    pairs = [(".keras", ".keras"), (".onnx", ".onnx"), (".pt", ".pt"), (".keras", ".onnx")]
    each(drawn(itertools.product(pairs, NAMED), 6, "named", lambda case: case == ((".pt", ".pt"), "scaled at the end")), check)


class Around(torch.nn.Module):
    """A GRU and a dense layer, with functions of what they read and give; of numbers, or of tokens by an embedding."""

    def __init__(self, behind: Callable[..., Any] = lambda y, x: y, before: Callable[[Any], Any] = lambda x: x, tokens: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.behind = before, behind
        self.table = torch.nn.Embedding(tokens, INPUT) if tokens else None
        self.rnn, self.head = torch.nn.GRU(INPUT, 4, batch_first=True), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        read = self.before(x) if self.table is None else self.table(x)
        return self.behind(self.head(self.rnn(read)[0]), x)

    def saved(self, path: Path) -> Path:
        x = torch.zeros(2, 6, INPUT) if self.table is None else torch.ones(2, 6, dtype=torch.int64)
        if path.suffix == ".pt":
            torch.jit.trace(self.eval(), x, check_trace=False).save(path)
        else:
            axes = {"x": {0: "batch", 1: "time"}}
            torch.onnx.export(self.eval(), (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)
        return path


def _logarithm(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.log(y)


FEW_INPUTS: dict[str, tuple[Callable[[], Around], Callable[[], Around], str]] = {
    "clipped": (Around, lambda: Around(before=lambda x: x.clamp(-6, 6)), "on large inputs alone"),
    "padding tokens": (
        lambda: Around(tokens=20),
        lambda: Around(lambda y, x: torch.where((x == 0).unsqueeze(-1), torch.zeros(()), y), tokens=20),
        "on sequences that end with padding alone",
    ),
    "padding": (
        Around,
        lambda: Around(lambda y, x: torch.where((x == 0).all(-1, keepdim=True), torch.zeros(()), y)),
        "on sequences that end with padding alone",
    ),
    "no number in A": (lambda: Around(_logarithm), lambda: Around(lambda y, x: torch.log(y.abs())), "is nan in A where it is"),
    "no number in B": (lambda: Around(lambda y, x: torch.log(y.abs())), lambda: Around(_logarithm), "where it is nan in B"),
    "infinite": (
        lambda: Around(lambda y, x: torch.log(y.relu())),
        lambda: Around(lambda y, x: torch.log(y.relu().clamp(min=1e-7))),
        "is -inf in A where it is",
    ),
    "overflow": (
        lambda: Around(lambda y, x: y + 3 * x.sum(-1, keepdim=True)),
        lambda: Around(lambda y, x: y + torch.log(torch.exp(3 * x.sum(-1, keepdim=True)))),
        "on large inputs alone",
    ),
    "below zero": (
        lambda: Around(before=lambda x: x - x.amax(dim=(0, 1, 2), keepdim=True).relu()),
        lambda: Around(before=lambda x: x - x.amax(dim=(0, 1, 2), keepdim=True)),
        "on negative inputs alone",
    ),
    "nothing": (lambda: Around(_logarithm), lambda: Around(_logarithm), ""),
}


def test_models_that_differ_for_large_or_padded_inputs_or_where_they_give_no_number(processes: dict[str, Process], tmp_path: Path) -> None:
    def check(case: tuple[str, str]) -> None:
        name, ending = case
        *models, words = FEW_INPUTS[name]
        paths = [model().saved(tmp_path / f"{label}{ending}") for label, model in zip("ab", models, strict=True)]
        result = compared(paths[0], paths[1], processes, tmp_path)
        assert result.status == ("not equal" if words else "equal") and words in result.reason, result

    each(itertools.product(FEW_INPUTS, (".pt", ".onnx")), check)


def test_a_model_of_one_sequence_runs_and_spoils_no_other(processes: dict[str, Process], tmp_path: Path) -> None:
    """Torch itself ends the process where a state of one sequence meets several."""

    class OfOne(Around):
        def forward(self, x: torch.Tensor) -> Any:
            return self.head(self.rnn(x, torch.zeros(1, 1, 4))[0])

        def saved(self, path: Path) -> Path:
            torch.jit.trace(self.eval(), torch.zeros(1, 6, INPUT), check_trace=False).save(path)
            return path

    negated = OfOne()
    negated.head.weight.data.neg_()
    paths = [model.saved(tmp_path / f"{number}.pt") for number, model in enumerate((OfOne(), OfOne(), negated))]
    assert compared(paths[0], paths[1], processes, tmp_path).status == "equal"
    assert compared(paths[0], paths[2], processes, tmp_path).status == "not equal"


def test_a_limit_explains_a_difference_only_where_there_is_none_without_it(tmp_path: Path) -> None:
    """A mask, or a state that is carried, of one model alone; and beside it another activation."""
    layers = keras.layers

    def saved(name: str, *stack: Any) -> Path:
        keras.utils.clear_session()
        model = keras.Sequential([keras.Input(batch_shape=(2, 6, 3)), *stack])
        model.set_weights([np.random.default_rng(array.size).normal(size=array.shape) for array in model.get_weights()])
        model.save(tmp_path / f"{name}.keras")
        return tmp_path / f"{name}.keras"

    def word(a: Path, b: Path) -> tuple[str, list[str]]:
        report = rc.verify(a, b, on=["keras-tensorflow", "onnxruntime-cpu"], cases=["default states"], explain=False)
        return report.verdict, report.document["whole"]["explained"]

    def stack(*before: Any, stateful: bool = False) -> list[Any]:
        return [*before, layers.LSTM(4, stateful=stateful, name="l"), layers.Dense(2, name="head")]

    plain, softened = saved("plain", *stack()), saved("softened", *stack(), layers.Softmax())
    masked, carrying = saved("masked", *stack(layers.Masking())), saved("kept", *stack(stateful=True))
    elsewhere = saved("elsewhere", *stack(layers.Masking(1.0)))
    rc.export_model(elsewhere, tmp_path / "elsewhere.onnx")
    assert word(masked, plain) == ("equal but for", ["mask"]) and word(masked, softened) == ("not equal", [])
    assert word(masked, elsewhere) == ("not equal", []), "each leaves out other steps"
    assert word(masked, tmp_path / "elsewhere.onnx") == ("not equal", [])
    assert word(carrying, plain) == ("equal but for", ["states"]) and word(carrying, softened) == ("not equal", [])


def test_outputs_of_other_shapes_and_in_another_order(tmp_path: Path) -> None:
    def saved(name: str, units: int, outputs: Callable[[Any, Any], Any]) -> Path:
        keras.utils.clear_session()
        x = keras.Input((None, 3), name="x")
        h = keras.layers.LSTM(4, name="l")(x)
        heads = keras.layers.Dense(2, name="p")(h), keras.layers.Dense(units, name="q")(h)
        model = keras.Model(x, outputs(*heads))
        model.set_weights([np.random.default_rng(array.size).normal(size=array.shape) for array in model.get_weights()])
        model.save(tmp_path / f"{name}.keras")
        return tmp_path / f"{name}.keras"

    pair = saved("list", 3, lambda p, q: [p, q])
    for b, verdict, words in (
        (saved("wide", 5, lambda p, q: [p, q]), "not equal", "A gives 'q (5, 3)', and B 'q (5, 5)'"),
        (saved("turned", 3, lambda p, q: [q, p]), "equal but for", "its outputs stand in another order"),
        (saved("named", 3, lambda p, q: {"q": q, "p": p}), "equal", ""),
    ):
        report = rc.verify(pair, b, on=["keras-tensorflow"], cases=["default states"], explain=False)
        assert report.verdict == verdict and words in " ".join(str(report).split()), str(report)


def _branched(factor: float) -> keras.Model:
    """An LSTM, and beside it a GRU of which a factor remains in the output: 0 for nothing."""
    keras.utils.set_random_seed(0)
    layers, x = keras.layers, keras.Input((None, INPUT))
    head = layers.Dense(2, name="head")(layers.LSTM(4, name="first")(x))
    return keras.Model(x, layers.Add()([head, layers.Rescaling(factor)(layers.GRU(2, name="beside")(x))]))


def _alone() -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential([keras.Input((None, INPUT)), layers.LSTM(4, name="first"), layers.Dense(2, name="head")])


def test_models_whose_layers_cannot_be_paired_run_whole(tmp_path: Path) -> None:
    """A layer that only one of them has leaves nothing to compare one by one; what both give decides."""
    alone = _alone()
    alone.save(tmp_path / "a.keras")
    for name, factor in (("same", 0.0), ("other", 1.0)):
        model = _branched(factor)
        for layer in ("first", "head"):
            model.get_layer(layer).set_weights(alone.get_layer(layer).get_weights())
        model.save(tmp_path / f"{name}.keras")
    rc.convert(tmp_path / "same.keras", tmp_path / "layers.npz", target_format="flax")

    def verified(b: str, *more: str) -> tuple[int, str]:
        result = call("verify", tmp_path / "a.keras", tmp_path / b, "--report", tmp_path / "r.json", "--report", tmp_path / "r.xml", *more)
        return result.exit_code, " ".join((result.stdout + result.stderr).split())

    code, text = verified("same.keras", "--strict")
    assert code == 0 and "equal: no layers were compared one by one; both models ran whole, and give the same" in text
    report = reports.read(tmp_path / "r.json")
    assert (report["verdict"], report["scope"], report["layers"]) == ("equal", "whole", [])
    assert "'beside' of B" in report["limits"][0]["words"]
    code, text = verified("other.keras")
    assert code == 1 and "the whole models give something else: the output is off by" in text and "recurrent layers are equal" not in text
    for words in (("same.keras", "--pair", "first=beside"), ("same.keras", "--layer", "beside"), ("layers.npz",)):
        code, text = verified(*words)
        assert code == 2, text
    assert "cannot tell what corresponds to" in text and "The whole models were not compared either: no executor here ran both" in text


TARGETS = {
    ".h": ("gcc", "c-cc"),
    ".tflite": ("litert", "litert-cpu"),
    ".xml": ("openvino", "openvino-cpu"),
    ".onnx": ("onnxruntime", "onnxruntime-cpu"),
}


@pytest.mark.parametrize("ending", TARGETS)
def test_a_model_and_what_export_wrote_of_it_are_equal(ending: str, tmp_path: Path) -> None:
    """Whether a format holds both directions as one layer, and whether its framework runs each layer alone."""
    name, executor_name = TARGETS[ending]
    need(name, executor(executor_name).absent)
    keras.utils.set_random_seed(0)
    layers, x = keras.layers, keras.Input((None, INPUT))
    both = layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both")(x)
    model = keras.Model(x, layers.Dense(2, "softmax", name="head")(layers.GRU(4, name="gru")(both)))
    model.save(tmp_path / "a.keras")
    written = tmp_path / f"a{ending}"
    rc.export_model(tmp_path / "a.keras", written)
    options: dict[str, Any] = {"cases": ["default states"], "explain": False}
    equal = rc.verify(tmp_path / "a.keras", written, strict=True, **options)
    assert (equal.verdict, equal.document["scope"], equal.exit_code) == ("equal", "whole", 0), str(equal)
    assert rc.verify(tmp_path / "a.keras", written, on=["keras-tensorflow", executor_name], **options).verdict == "equal"
    kernel, bias = model.get_layer("head").get_weights()
    model.get_layer("head").set_weights([kernel[:, ::-1], bias])
    model.save(tmp_path / "b.keras")
    assert rc.verify(tmp_path / "b.keras", written, **options).verdict == "not equal"


class Looped(torch.nn.Module):
    """A module that torch.jit.script does not compile."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head, self.options = torch.nn.LSTM(INPUT, 4, batch_first=True), torch.nn.Linear(4, 2), {"scale": scale, "name": "x"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0]) * self.options["scale"]


def test_live_models_run_whole_as_their_frameworks_save_them(tmp_path: Path) -> None:
    options: dict[str, Any] = {"cases": ["default states"], "explain": False}
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(INPUT, 3))
    plain, changed = Plain(), Plain()
    changed.head.weight.data.neg_()
    written = Around().saved(tmp_path / "a.onnx")
    example = torch.zeros(2, 6, INPUT)
    pairs: list[tuple[Any, Any, Any, str]] = [
        (plain, Plain(), None, "equal"),
        (plain, changed, None, "not equal"),
        (plain, onnx.load(written), None, "equal"),
        (_alone(), _branched(0.0), None, "not equal"),
        (Looped(), Looped(), example, "equal"),
        (Looped(), Looped(2.0), example, "not equal"),
    ]

    def check(case: tuple[Any, Any, Any, str]) -> None:
        a, b, inputs, verdict = case
        report = rc.verify(a, b, example=inputs, **options)
        assert report.verdict == verdict, str(report)
        assert report.document["models"][0]["path"] == f"{type(a).__name__} (in memory)"

    each(pairs, check, lambda case: f"{type(case[0]).__name__} {type(case[1]).__name__} {case[3]}")
    weights = rc.verify(plain.state_dict(), Plain().state_dict(), **options)
    assert (weights.verdict, weights.document["scope"]) == ("equal", "weights"), str(weights)
    for value, match in ((Looped(), r"Hand in example=\(its first input, ...\)"), (module.state_dict, "is not a known kind of model")):
        with pytest.raises(rc.UsageError, match=match):
            rc.verify(value, written)
    with pytest.raises(rc.UsageError, match="decides nothing"):
        rc.verify(written, written, example=example)


class Plain(torch.nn.Module):
    """The layers of Around."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = torch.nn.GRU(INPUT, 4, batch_first=True), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])


@pytest.mark.parametrize("ending", TARGETS)
def test_a_model_and_what_export_wrote_of_another_are_equal_exactly_where_their_outputs_are(ending: str, tmp_path: Path) -> None:
    name, executor_name = TARGETS[ending]
    need(name, executor(executor_name).absent)

    def check(case: tuple[int, str]) -> None:
        seed, change = case
        spec, other, off = changed_spec(seed, change)
        folder = tmp_path / f"{seed}-{change}"
        folder.mkdir()
        a, b = (save(each_spec, folder / f"{label}.keras") for each_spec, label in ((spec, "a"), (other, "b")))
        try:
            rc.export_model(b, folder / f"b{ending}")
        except rc.RefusedError as error:
            raise NotComparedError(str(error)) from None
        report = rc.verify(a, folder / f"b{ending}", cases=["default states"], explain=False)
        assert report.verdict == ("equal" if off < LARGE else "not equal"), (str(report), off, spec.steps)

    each(drawn(itertools.product(range(20), CHANGES), 2, f"exported {ending}"), check)
