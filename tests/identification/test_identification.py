"""Weights of unknown origin: identified by one input and output, or weighed by names, shapes and numbers."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core import reference
from rnnconvert.core.errors import UsageError
from rnnconvert.identification import deadline, naming, search
from rnnconvert.identification.bindings import bindings
from rnnconvert.identification.identify import _Behaviour, identified, same
from rnnconvert.identification.sample import samples
from rnnconvert.identification.search import TIERS, Search
from rnnconvert.identification.structures import template_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from rnnconvert.language.places import shapes
from tests.helpers.drawn import LONG, drawn, looped
from tests.helpers.hidden_weights import hidden, outcome
from tests.helpers.stacks import BOTH, PLAIN, random_stack

LAYOUTS = [layout for layout in registry.layouts().values() if not layout.holds.fixed_clips]


def test_shuffled_conventions_are_never_identified_wrongly() -> None:
    counts: Counter[str] = Counter()
    for seed in drawn(range(3000), 3, "hidden weights"):
        case = hidden(seed)
        verdict = outcome(case, rc.identify(case.arrays, io=case.io, seconds=2))
        assert verdict != "wrong", f"seed {seed}: {case.what}"
        counts[verdict] += 1
    if LONG:
        print(dict(counts))
    assert counts["identified"] or not LONG, counts


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["chainer.n_step_gru", "flax.gru"])
def test_arrays_of_each_gate_in_any_order(name: str, tmp_path: Path) -> None:
    """Which arrays are the two biases of one gate is tried, not every order of the six of one length."""
    case = hidden(7, registry.layouts()[name])
    assert "in any order" in case.what
    identification = rc.identify(case.arrays, io=case.io, seconds=20)
    assert outcome(case, identification) == "identified", str(identification)
    arrays: dict[str, Any] = dict(case.arrays)
    np.savez(tmp_path / "weights.npz", **arrays)
    np.savez(tmp_path / "sample.npz", **case.io)
    words = ["identify", str(tmp_path / "weights.npz"), "--io", str(tmp_path / "sample.npz"), "-o", str(tmp_path / "l.toml")]
    assert CliRunner().invoke(main, words).exit_code == 0
    words = ["convert", str(tmp_path / "weights.npz"), str(tmp_path / "m.onnx"), "--layout", str(tmp_path / "l.toml")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (layer,) = rc.load(tmp_path / "m.onnx").layers.values()
    x = np.random.default_rng(0).normal(size=(5, 2, layer.input_size))
    assert np.allclose(reference.run(layer, x).y, reference.run(case.truth, x).y, atol=1e-5)


@pytest.mark.parametrize(("name", "count"), [("chainer.n_step_gru", 30), ("chainer.n_step_lstm", 105)])
def test_biases_are_dealt_out_in_pairs(name: str, count: int) -> None:
    case = hidden(7 if name.endswith("gru") else 21, registry.layouts()[name])
    shapes_of_arrays = {array: tuple(value.shape) for array, value in case.arrays.items()}
    template = template_of(registry.layouts()[name])
    blocks = shapes(template, Sizes(template.kind, case.truth.input_size, case.truth.hidden_size, parts=BOTH))
    square = case.truth.input_size == case.truth.hidden_size
    dealt = [tuple(sorted(binding.items())) for binding in bindings(template, blocks, shapes_of_arrays, False, False)]
    assert len(dealt) == len(set(dealt)) == count * (70 if square else 1)
    assert all(len(set(binding.values())) == len(blocks) for binding in map(dict, dealt))


@looped(4, layout=LAYOUTS)
def test_every_layout_is_known_by_its_name(layout: Any) -> None:
    case = hidden(7, layout, mixed=False)
    if "final states alone" in case.what:
        case = hidden(8, layout, mixed=False)
    identification = rc.identify(case.arrays, io=case.io, seconds=20)
    assert identification.verdict in ("identified", "ambiguous"), (case.what, str(identification))
    assert outcome(case, identification) == identification.verdict
    assert any(layout.name in function.names for function in identification.functions), (case.what, identification.functions[0].names)


def unknown_layout(seed: int = 0, layers: int = 1, directions: int = 1) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Arrays of an LSTM in a layout that nobody knows, a sample, and the truth."""
    truth = random_stack(Sizes("lstm", 5, 4, layers, directions, 0, PLAIN | {"input_bias"}), seed, np.float32, scale=2)
    order = "ogif"
    arrays = {}
    for layer, way, direction in truth.directions():
        stem = f"rnn.{layer}.{('left', 'right')[way]}."
        for part, name in (("input", "x"), ("recurrent", "h")):
            arrays[stem + name] = np.stack([direction.arrays[part, gate] for gate in order], -1).transpose(1, 0, 2)
            arrays[stem + name] = np.ascontiguousarray(arrays[stem + name].reshape(len(arrays[stem + name]), -1))
        arrays[stem + "b"] = np.stack([direction.arrays["input_bias", gate] for gate in order], -1).ravel()
    x = np.random.default_rng(seed).normal(size=(7, 3, 5)).astype(np.float32)
    return arrays, {"input": x, "output": reference.run(truth, x, dtype=np.float32).y}, truth


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (1, 2)])
def test_a_new_layout_is_printed_as_a_file_that_reads_the_same(tmp_path: Path, layers: int, directions: int) -> None:
    arrays, io, truth = unknown_layout(1, layers, directions)
    identification = rc.identify(arrays, io=io)
    (function,) = identification.functions
    assert (identification.verdict, function.names, function.gates) == ("identified", (), "o g i f")
    (tmp_path / "found.toml").write_text(function.layout)
    np.savez(tmp_path / "weights.npz", **arrays)
    rc.add_layouts(tmp_path / "found.toml")
    (layer,) = rc.load(tmp_path / "weights.npz", "found").layers.values()
    assert same(layer, function.stack)
    computed, wanted = (reference.run(stack, io["input"]).y for stack in (layer, truth))
    assert np.abs(computed - wanted).max() < 1e-6


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_what_of_the_state_stands_first_is_found(kind: str) -> None:
    """Both biases in one array, or both matrices, with the state's above the input's, as code with concat(h, x) has them."""
    truth = random_stack(Sizes(kind, 5, 6, parts=BOTH), 4, np.float32)
    packed = {name: np.asarray(array) for name, array in pack(registry.layouts()[f"pytorch.{kind}"], truth).items()}
    x = np.random.default_rng(4).normal(size=(6, 2, 5)).astype(np.float32)
    io = {"input": x, "output": reference.run(truth, x, dtype=np.float32).y}
    biases = np.stack([packed["bias_hh_l0"], packed["bias_ih_l0"]])
    kernel = np.concatenate([packed["weight_hh_l0"].T, packed["weight_ih_l0"].T])
    for arrays in ({"a": packed["weight_hh_l0"].T, "b": biases, "c": packed["weight_ih_l0"].T}, {"a": kernel, "b": biases}):
        findings = rc.identify(arrays, io=io)
        assert findings.verdict == "identified" and outcome_right(findings, truth), str(findings)


def test_layout_files_of_shuffled_conventions_read_the_same(tmp_path: Path) -> None:
    tried = 0
    for seed in drawn(range(400), 8, "layout files"):
        case = hidden(seed)
        identification = rc.identify(case.arrays, io=case.io, seconds=2)
        if identification.verdict != "identified" or len(identification.functions[0].binding) < len(case.arrays):
            continue
        function = identification.functions[0]
        if not function.layout:
            assert identification.functions[0].stack.first.skip_input or "mgu" in case.what, case.what
            continue
        renamed = {line[4:].split(" -> ")[0]: line.split(" -> ")[1] for line in function.layout.splitlines() if line.startswith("#   ")}
        (tmp_path / f"{seed}.toml").write_text(function.layout)
        registry.forget()
        rc.add_layouts(tmp_path / f"{seed}.toml")
        arrays: dict[str, Any] = {renamed.get(name, name): array for name, array in case.arrays.items()}
        settings = ["go_backwards=true"] if "go_backwards" in function.layout else []
        settings += (
            [f"output_activation={function.stack.cell.output_activation.name}"] if 'output_activation = "any"' in function.layout else []
        )
        if len(arrays) > 1:
            np.savez(tmp_path / f"{seed}.npz", **arrays)
            layers = rc.load(tmp_path / f"{seed}.npz", "found", settings=settings).layers
            assert len(layers) == 1, case.what
            assert same(next(iter(layers.values())), function.stack), case.what
        tried += 1
    assert tried


def test_a_flat_buffer_needs_no_sizes() -> None:
    truth = random_stack(Sizes("gru", 6, 5, 2, 2, 0, BOTH), 3, np.float32)
    buffer = np.asarray(pack(registry.layouts()["cudnn.gru"], truth)["params"])
    x = np.random.default_rng(3).normal(size=(4, 9, 6)).astype(np.float32)
    identification = rc.identify(buffer, x, reference.run(truth, x, dtype=np.float32).y)
    assert identification.verdict == "identified" and "cudnn.gru" in identification.functions[0].names
    assert same(identification.functions[0].stack, truth)
    sizes = {candidate.sizes for candidate in rc.identify(buffer).candidates}
    assert len(sizes) > 1 and any("6 -> 5" in text for text in sizes)


def test_one_step_does_not_decide_the_recurrent_matrices() -> None:
    arrays, io, truth = unknown_layout(2)
    short = {"input": io["input"][:1], "output": io["output"][:1]}
    identification = rc.identify(arrays, io=short)
    assert identification.verdict == "ambiguous" and outcome_right(identification, truth)
    assert any("recurrent" in question for question in identification.questions)


def outcome_right(identification: Any, truth: Any) -> bool:
    return any(same(truth, function.stack) for function in identification.functions)


def test_small_numbers_hide_the_functions() -> None:
    truth = random_stack(Sizes("rnn", 3, 4, 1, 1, 0, PLAIN), 5, np.float32, scale=1e-4)
    x = 1e-3 * np.random.default_rng(5).normal(size=(5, 2, 3)).astype(np.float32)
    arrays = {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.rnn"], truth).items()}
    identification = rc.identify(arrays, x, reference.run(truth, x, dtype=np.float32).y)
    assert identification.verdict == "ambiguous"
    assert {f.stack.cell.activation.name for f in identification.functions} >= {"tanh", "linear"}


def test_comparing_what_gives_the_outputs_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant outputs fit hundreds of functions: after the search they were compared and named without a look at the clock."""
    truth = random_stack(Sizes("lstm", 1, 1, 1, 1, 0, PLAIN), 6, np.float32, scale=1e4)
    x = np.ones((8, 2, 1), np.float32)
    arrays = {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], truth).items()}
    now, searched, compared = [0.0], Search.run, []

    def clock() -> float:
        now[0] += 0.1
        return now[0]

    def run(self: Search, *tiers: Any) -> Any:
        result = searched(self, *tiers)
        now[0] = 1000.0
        return result

    def behaviour(stack: Any, deadline: Any) -> Any:
        compared.append(stack)
        return behaviour_of(stack, deadline)

    behaviour_of = _Behaviour.of
    monkeypatch.setattr(deadline, "clock", clock)
    monkeypatch.setattr(Search, "run", run)
    monkeypatch.setattr(_Behaviour, "of", behaviour)
    search_of = Search(arrays, samples({"input": x, "output": reference.run(truth, x, dtype=np.float32).y}))
    result = identified("arrays", search_of, TIERS[:1])
    assert len(search_of.findings.readings) > 10
    assert len(compared) == 1 and len(result.functions) == 1
    assert result.verdict == "ambiguous" and not result.complete


@pytest.mark.parametrize("directions", [1, 2])
def test_a_long_sample_does_not_outlast_the_time(monkeypatch: pytest.MonkeyPatch, directions: int) -> None:
    """One run over a long sample took longer than the whole search was to take: the clock is looked at before every step."""
    truth = random_stack(Sizes("lstm", 1, 1, 1, directions, 0, PLAIN), 8, np.float32)
    x = np.random.default_rng(8).normal(size=(20_000, 2, 1)).astype(np.float32)
    arrays = {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], truth).items()}
    outputs = reference.run(truth, x, dtype=np.float32).y
    monkeypatch.setattr(deadline, "clock", time.process_time)  # whatever else the machine has to do
    start = time.process_time()
    result = rc.identify(arrays, x, outputs, seconds=0.4)
    assert time.process_time() - start < 1.6
    assert not result.complete and result.verdict != "identified"


def test_large_arrays_are_neither_copied_nor_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's arrays are in memory once; besides, parts of them in double precision, and what the reference computes with."""
    truth = random_stack(Sizes("gru", 700, 512, 1, 1, 0, BOTH), 9, np.float32)
    x = np.random.default_rng(9).normal(size=(4, 2, 700)).astype(np.float32)
    (flat,) = pack(registry.layouts()["cudnn.gru"], truth).values()
    outputs = reference.run(truth, x, dtype=np.float32).y
    monkeypatch.setattr(search, "_MOST_DOUBLED", 1000)
    looked_through = Search({"flat": np.asarray(flat)}, samples({"input": x, "output": outputs}))
    looked_through.run(TIERS[:1])
    (reading,) = looked_through.findings.readings
    assert not looked_through.arrays.cache
    tracemalloc.start()
    text = naming.layout_file(reading, looked_through.stored)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "[[array]]" in text and peak < 1 << 20 < np.asarray(flat).nbytes


def test_arrays_that_cannot_be_the_layer_are_not_copied() -> None:
    truth = random_stack(Sizes("lstm", 5, 4, 1, 1, 0, PLAIN), 7, np.float32)
    x = np.random.default_rng(7).normal(size=(6, 2, 5)).astype(np.float32)
    arrays = {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], truth).items()}
    arrays["embedding"] = np.ones((7, 11, 13), np.float32)
    looked_through = Search(arrays, samples({"input": x, "output": reference.run(truth, x, dtype=np.float32).y}))
    looked_through.run([tier for tier in TIERS if not tier.whole_file][:1])
    assert looked_through.findings.readings
    assert set(looked_through.arrays.cache) == set(arrays) - {"embedding"}


def test_outputs_that_no_convention_gives_are_unknown() -> None:
    arrays, io, _ = unknown_layout(3)
    other = {**io, "output": np.random.default_rng(0).uniform(-1, 1, io["output"].shape).astype(np.float32)}
    identification = rc.identify(arrays, io=other, seconds=2)
    assert identification.verdict == "unknown" and not identification.functions and identification.questions


def test_rounded_outputs_are_near_and_not_identified() -> None:
    arrays, io, truth = unknown_layout(4)
    identification = rc.identify(arrays, io={**io, "output": np.round(io["output"], 3)}, seconds=6)
    assert identification.verdict == "near" and same(identification.functions[0].stack, truth)
    assert 1e-5 < identification.functions[0].error < 1e-2


def test_other_arrays_of_a_file_are_left_alone() -> None:
    arrays, io, truth = unknown_layout(5)
    identification = rc.identify({**arrays, "head.weight": np.ones((4, 9), np.float32), "step": np.arange(3)}, io=io)
    assert identification.verdict == "identified" and same(identification.functions[0].stack, truth)
    assert "head.weight" not in identification.functions[0].binding


def test_without_a_sample_nothing_is_decided() -> None:
    stack = random_stack(Sizes("lstm", 5, 8, 1, 1, 0, PLAIN | {"input_bias"}), 0, np.float32)
    named = {name: np.asarray(array) for name, array in pack(registry.layouts()["keras.lstm"], stack).items()}
    named["bias"][8:16] = 1
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))
    named["recurrent_kernel"] = np.concatenate([np.linalg.qr(q[8 * k : 8 * k + 8, :8])[0] for k in range(4)], 1).astype(np.float32)
    identification = rc.identify(named)
    assert identification.verdict == "candidates" and not identification.functions and identification.questions
    best = identification.candidates[0]
    assert "keras.lstm" in best.names and all(word in str(best) for word in ("forget", "orthogonal", "names"))
    listed = rc.identify({f"a{n}": array for n, array in enumerate(named.values())}).candidates
    assert any("keras.lstm" in candidate.names for candidate in listed)
    assert listed[0].score < best.score


@pytest.mark.parametrize(
    ("io", "says"),
    [
        ({"input": np.ones((3, 2))}, "outputs y or final states h_n"),
        ({"input": np.ones((3, 2)), "output": np.ones((4, 5))}, "do not fit together"),
        ({"input": np.ones((3, 2)), "output": np.ones((3, 5)), "hiden": np.ones(3)}, "has an array 'hiden'"),
        ({"input": np.ones((3, 2, 4)), "output": np.ones((3, 2, 5)), "lengths": np.array([9, 9])}, "do not fit together"),
    ],
)
def test_a_wrong_sample_is_named(io: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        rc.identify({"a": np.ones((4, 4), np.float32)}, io=io)


def test_the_command(tmp_path: Path) -> None:
    arrays, io, _ = unknown_layout(6)
    np.savez(tmp_path / "w.npz", **arrays)
    np.savez(tmp_path / "s.npz", **io)

    def call(*words: str) -> Any:
        return CliRunner().invoke(main, ["identify", str(tmp_path / "w.npz"), *words])

    done = call("--io", str(tmp_path / "s.npz"), "-o", str(tmp_path / "found.toml"))
    assert done.exit_code == 0 and "gates o g i f" in done.output
    assert registry.layouts() and "[[layout]]" in (tmp_path / "found.toml").read_text()
    document = json.loads(call("--io", str(tmp_path / "s.npz"), "--json").output)
    assert document["verdict"] == "identified" and document["functions"][0]["gates"] == "o g i f"
    assert call().exit_code == 0 and call("-o", "x.toml").exit_code == 2
    np.savez(tmp_path / "s.npz", input=io["input"][:1], output=io["output"][:1])
    assert call("--io", str(tmp_path / "s.npz")).exit_code == 1


def test_512_units_take_seconds() -> None:
    truth = random_stack(Sizes("lstm", 80, 512, 1, 1, 0, BOTH), 1, np.float32)
    arrays = [np.asarray(array) for array in pack(registry.layouts()["pytorch.lstm"], truth).values()]
    x = np.random.default_rng(1).normal(size=(12, 2, 80)).astype(np.float32)
    y = reference.run(truth, x, dtype=np.float32).y
    start = time.process_time()
    identification = rc.identify({f"a{n}": array for n, array in enumerate(arrays)}, x, y, seconds=600.0)
    assert identification.verdict == "identified" and "pytorch.lstm" in identification.functions[0].names
    assert time.process_time() - start < 20
