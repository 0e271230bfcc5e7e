"""Every word of a described layout counts: the order of its axes, and the bounds of its clips."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
import rnnconvert.core.arrays
import rnnconvert.language.packing
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.reference import run
from rnnconvert.core.weights import gates_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes, Tensor
from rnnconvert.language.layout_file import read
from rnnconvert.language.packing import pack, unpack
from rnnconvert.language.places import shapes
from tests.helpers.foreign import READ_BOUNDS
from tests.helpers.stacks import random_stack
from tests.language.test_layout_file import forgotten as forgotten

WORDS = ("section", "layer", "direction", "part", "gate", "hidden", "in")
Element = tuple[int, int, str, str, tuple[int, ...]]  # layer, direction, part, gate, index in the part


def elements(tensor: Tensor, layout: Layout, form: Sizes) -> Iterator[tuple[dict[str, int], Element]]:
    """Every number of an array that holds all layers and directions: the value of each of its words, and which it is."""
    order = [gate.lstrip("-") for gate in layout.gates.split()]
    for section, parts in enumerate(tensor.parts.split("|")):
        for part, (name, inner) in enumerate(re.findall(r"(\w+)(?:\[([^]]*)\])?", parts)):
            gates = inner.split() or [letter for letter in order if letter in gates_of(layout.kind, name)] or [""]
            for layer, direction in np.ndindex(form.num_layers, form.num_directions):
                shape = form.shape(layer, name)
                for gate, index in itertools.product(range(len(gates)), np.ndindex(shape or (0,))):
                    values = {"section": section, "part": part, "layer": layer, "direction": direction, "gate": gate}
                    values |= dict(zip(("hidden", "in"), map(int, index), strict=False))
                    yield values, (layer, direction, name, gates[gate], tuple(map(int, index)))


def ranked(axes: str, tensor: Tensor, layout: Layout, form: Sizes) -> dict[Element, tuple[int, ...]] | None:
    """Where each number lies, read off the axes alone: along each axis, numbers are sorted by its words, slowest first.

    None if they do not fill a box.
    """
    groups = [group.split() for group in axes.replace("(", "|").replace(")", "|").split("|") if group.strip()]
    if "(" not in axes:
        groups = [[word] for word in axes.split()]
    listed = list(elements(tensor, layout, form))
    ranks: dict[Element, list[int]] = {element: [] for _, element in listed}
    lengths = []
    for group in groups:
        keys = [tuple(values.get(word, 0) for word in group) for values, _ in listed]
        rank = {key: position for position, key in enumerate(sorted(set(keys)))}
        lengths.append(len(rank))
        for (_, element), key in zip(listed, keys, strict=True):
            ranks[element].append(rank[key])
    places = {element: tuple(place) for element, place in ranks.items()}
    full = len(set(places.values())) == len(listed) == int(np.prod(lengths))
    return places if full else None


def alike(tensor: Tensor, layout: Layout, form: Sizes) -> bool:
    """Return whether all parts in an array have as many gates, rows and columns."""
    sizes: dict[tuple[int, ...], dict[str, int]] = {}
    for values, _ in elements(tensor, layout, form):
        leaf = sizes.setdefault(tuple(values[word] for word in WORDS[:4]), {})
        leaf |= {word: max(leaf.get(word, 0), values.get(word, 0)) for word in WORDS[4:]}
    return all(leaf == next(iter(sizes.values())) for leaf in sizes.values())


def drawn(rng: np.random.Generator, words: list[str]) -> str:
    """The words in a random order, in random groups; a section before its parts."""
    order = [str(word) for word in rng.permutation(words)]
    if {"section", "part"} <= set(order) and order.index("part") < order.index("section"):
        a, b = order.index("part"), order.index("section")
        order[a], order[b] = order[b], order[a]
    cuts = [] if rng.random() < 0.4 else sorted(rng.choice(range(1, len(order)), rng.integers(1, len(order)), False))
    groups = [order[a:b] for a, b in itertools.pairwise([0, *map(int, cuts), len(order)])]
    return " ".join(f"({' '.join(group)})" for group in groups)


PARTS = [
    "input recurrent", "input_bias recurrent_bias", "input | recurrent", "input recurrent | input_bias recurrent_bias",
    "input recurrent input_bias", "input", "recurrent | recurrent_bias", "peephole[i o f] input_bias", "initial_hidden initial_cell",
]  # fmt: skip


def case(seed: int) -> tuple[Layout, Sizes]:
    """A layout that gathers some parts in one random array, and the others in one vector each."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["rnn", "gru", "lstm"]))
    usable = [parts for parts in PARTS if kind == "lstm" or ("peephole" not in parts and "initial" not in parts)]
    parts = str(rng.choice(usable))
    gates = [str(gate) for gate in rng.permutation({"rnn": ["n"], "gru": ["r", "z", "n"], "lstm": ["i", "f", "g", "o"]}[kind])]
    words = ["layer", "direction", "gate", "hidden"]
    words += ["in"] if "input " in f"{parts} " or "recurrent " in f"{parts} " else []
    words += ["section"] if "|" in parts else []
    words += ["part"] if any(len(section.split()) > 1 for section in parts.replace("[i o f]", "").split("|")) else []
    axes = drawn(rng, words)
    held = set(parts.replace("|", "").replace("[i o f]", "").split())
    rest = [part for part in ("input", "recurrent", "input_bias", "recurrent_bias") if part not in held]
    flat = [Tensor(part, part, "(layer direction gate hidden in)") for part in rest]
    layout = Layout(
        f"drawn.{kind}", kind, " ".join(gates), (Tensor("all", parts, axes), *flat), "", reset_after=True if kind == "gru" else None,
    )  # fmt: skip
    width, hidden, layers, directions = rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 3), rng.integers(1, 3)
    return layout, Sizes(kind, int(width), int(hidden), int(layers), int(directions), parts=frozenset(held | {*rest}))


@pytest.mark.parametrize("seeds", [range(start, start + 150) for start in range(0, 1500, 150)], ids=str)
def test_the_order_of_words_is_honoured_or_refused(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    held = 0
    for seed in seeds:
        layout, form = case(seed)
        tensor, where = layout.tensors[0], f"seed {seed}: {layout.tensors[0]}, {form}"
        expected = ranked(tensor.axes, tensor, layout, form)
        try:
            shape = shapes(layout, form)["all"]
        except ValueError:
            assert expected is None or not alike(tensor, layout, form), f"{where} is refused"
            continue
        assert expected is not None, f"{where} is held"
        held += 1
        stack = random_stack(form, seed)
        wanted = np.full(shape, np.nan)
        for (layer, direction, part, gate, index), place in expected.items():
            wanted[place] = np.asarray(stack[layer, direction].arrays[part, gate])[index]
        packed = pack(layout, stack)
        np.testing.assert_array_equal(wanted, np.asarray(packed["all"]), where)
        for room in (1, 64):
            monkeypatch.setattr(rnnconvert.language.packing, "PIECE_BYTES", room)
            monkeypatch.setattr(rnnconvert.core.arrays, "PIECE_BYTES", room)
            pieces = np.concatenate([piece.copy() for piece in packed["all"].pieces()])
            np.testing.assert_array_equal(wanted.reshape(-1), pieces, where)
        again = unpack(layout, form, {name: np.asarray(array) for name, array in packed.items()})
        for layer, direction, weights in stack.directions():
            for key, array in weights.arrays.items():
                np.testing.assert_array_equal(np.asarray(array), np.asarray(again[layer, direction][key]), where)
    assert held > len(seeds) // 3


PARTED = ("input", "recurrent")
BIASES = "input_bias recurrent_bias"
MATRICES = [(part, "(gate hidden) in") for part in PARTED]


def described(tensors: list[tuple[str, str]], directions: int, path: Path) -> Path:
    lines = [f'{{ name = "a{i}", parts = "{parts}", axes = "{axes}" }},' for i, (parts, axes) in enumerate(tensors)]
    head = '[[layout]]\nname = "drawn.lstm"\nkind = "lstm"\ngates = "i f g o"\n'
    holds = f"holds = {{ layers = false, directions = {directions} }}"
    path.write_text("\n".join([head, "tensors = [", *lines, "]", holds]))
    return path


@pytest.mark.parametrize(
    ("tensors", "directions"),
    [
        ([*MATRICES, (BIASES, "(gate part hidden)")], 1),
        ([*MATRICES, (BIASES, "(gate hidden part)")], 1),
        ([*MATRICES, (BIASES, "(hidden part) gate")], 1),
        ([("input recurrent", "(gate hidden part in)"), ("input_bias recurrent_bias", "part (gate hidden)")], 1),
        ([("input recurrent | input_bias recurrent_bias", "(section gate part hidden in)")], 1),
        ([("input recurrent | input_bias recurrent_bias", "(section hidden direction part gate in)")], 2),
        ([(part, "(gate direction hidden) in") for part in PARTED] + [(BIASES, "(gate direction part hidden)")], 2),
        ([(part, "(gate hidden direction) in") for part in PARTED] + [(BIASES, "(gate part) (hidden direction)")], 2),
    ],
)  # fmt: skip
def test_a_described_file_is_read_in_the_order_of_its_words(tensors: list[tuple[str, str]], directions: int, tmp_path: Path) -> None:
    registry.add(read(described(tensors, directions, tmp_path / "drawn.toml")))
    layout = registry.layouts()["drawn.lstm"]
    form = Sizes("lstm", 2, 3, 1, directions)
    stack = random_stack(form, 0)
    arrays = {}
    for tensor in layout.tensors:
        places = ranked(tensor.axes, tensor, layout, form)
        assert places is not None
        lengths = [1 + max(place[axis] for place in places.values()) for axis in range(len(tensor.groups))]
        arrays[tensor.name] = np.zeros(lengths)
        for (layer, direction, part, gate, index), place in places.items():
            arrays[tensor.name][place] = np.asarray(stack[layer, direction].arrays[part, gate])[index]
    named: dict[str, Any] = {f"encoder/{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "file.npz", **named)
    sizes: dict[str, Any] = {"cell": "lstm", "input_size": 2, "hidden_size": 3, "bidirectional": directions == 2} if layout.flat else {}
    loaded = rc.load(tmp_path / "file.npz", "drawn", **sizes).layers["encoder"]
    x = np.random.default_rng(1).normal(size=(5, 2, 2))
    np.testing.assert_array_equal(run(stack, x).y, run(loaded, x).y)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("(part gate section hidden in)", "write section before part"),
        ("(section in part gate hidden)", r"cannot hold parts that differ in 'in' \(3 and 5\)"),
    ],
)
def test_an_order_that_has_no_even_steps_is_refused_when_it_is_read(axes: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=message):
        read(described([("input recurrent | input_bias recurrent_bias", axes)], 1, tmp_path / "drawn.toml"))


CLIPPED = """
[[layout]]
name = "drawn.lstm"
kind = "lstm"
gates = "i f g o"
tensors = [
    { name = "W", parts = "input recurrent", axes = "(part in) (gate hidden)" },
    { name = "b", parts = "input_bias", axes = "(gate hidden)" },
    { name = "P", parts = "projection", axes = "in hidden" },
]
holds = { biases = ["input"], layers = false, directions = 1, HOLDS }
"""


def trained(tmp_path: Path, holds: str) -> tuple[Path, dict[str, Array]]:
    """A file of the layout above, whose cell state and projection are large."""
    (tmp_path / "drawn.toml").write_text(CLIPPED.replace("HOLDS", holds))
    registry.add(read(tmp_path / "drawn.toml"))
    rng = np.random.default_rng(5)
    arrays = {"W": rng.normal(size=(3 + 2, 16)), "b": np.full(16, 0.5), "P": rng.normal(size=(4, 2)) * 2}
    named: dict[str, Any] = {f"encoder/{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "file.npz", **named)
    return tmp_path / "file.npz", arrays


def by_hand(arrays: dict[str, Array], x: Array, cell: float = np.inf, projection: float = np.inf, added: float = 0) -> Array:
    """The outputs of such a layer for one sequence."""
    h, c, outputs = np.zeros(2), np.zeros(4), []
    for step in x:
        i, f, g, o = np.split(np.concatenate([step, h]) @ arrays["W"] + arrays["b"], 4)
        c = np.clip(c / (1 + np.exp(-f - added)) + np.tanh(g) / (1 + np.exp(-i)), -cell, cell)
        h = np.clip((np.tanh(c) / (1 + np.exp(-o))) @ arrays["P"], -projection, projection)
        outputs.append(h)
    return np.array(outputs)


BOUNDED = 'clips = [{ kind = "cell", low = -0.4, high = 0.4 }, { kind = "projection", low = -0.3, high = 0.3 }]'
X = np.random.default_rng(6).normal(size=(6, 3))


def test_bounds_in_a_layout_are_computed(tmp_path: Path) -> None:
    path, arrays = trained(tmp_path, BOUNDED)
    expected = by_hand(arrays, X, 0.4, 0.3)
    assert np.abs(expected - by_hand(arrays, X)).max() > 0.5
    np.testing.assert_allclose(run(rc.load(path).layers["encoder"], X[:, None]).y[:, 0], expected, rtol=1e-12)
    assert rc.unpack(arrays, "drawn").cell.clips == (Clip("cell", -0.4, 0.4), Clip("projection", -0.3, 0.3))


@pytest.mark.parametrize(
    ("settings", "cell", "projection"),
    [
        ({"cell_clip": 0.4, "proj_clip": 0.3}, 0.4, 0.3),
        ({"cell_clip": "none", "proj_clip": 0.3}, np.inf, 0.3),
        ({"clip": "none"}, np.inf, np.inf),
    ],
)
def test_bounds_that_a_layout_leaves_open_must_be_said(settings: dict[str, object], cell: float, projection: float, tmp_path: Path) -> None:
    path, arrays = trained(tmp_path, 'clips = ["cell", "projection"]')
    silent = rc.load(path)
    assert not silent.layers and "give --set cell_clip=NUMBER or none, or write the bounds" in silent.warnings[0]
    with pytest.raises(RefusedError, match="--set cell_clip=NUMBER"):
        rc.convert(path, tmp_path / "out.onnx")
    layer = rc.load(path, settings=[f"{key}={value}" for key, value in settings.items()]).layers["encoder"]
    np.testing.assert_allclose(run(layer, X[:, None]).y[:, 0], by_hand(arrays, X, cell, projection), rtol=1e-12)


def test_a_clip_of_gates_is_said_in_the_layout(tmp_path: Path) -> None:
    path, _ = trained(tmp_path, 'clips = ["gates"]')
    assert 'write the bounds in the layout: clips = [{ kind = "gates"' in rc.load(path).warnings[0]


def test_a_class_that_always_clips_holds_no_other_cell(tmp_path: Path) -> None:
    path, arrays = trained(tmp_path, BOUNDED)
    clipped = rc.load(path)
    rc.save(clipped, tmp_path / "again.npz", "drawn")
    with np.load(tmp_path / "again.npz") as again:
        np.testing.assert_array_equal(again["encoder/W"], arrays["W"])
    free = clipped.replace(layers={"encoder": rc.load(path, clip="none").layers["encoder"]})
    with pytest.raises(RefusedError, match=r"a cell that does not clip.*always computes"):
        rc.save(free, tmp_path / "other.npz", "drawn")
    (tmp_path / "drawn.toml").write_text(CLIPPED.replace("HOLDS", BOUNDED.replace("0.4", "0.5")))
    registry.add(read(tmp_path / "drawn.toml"))
    with pytest.raises(RefusedError, match=r"cell clipped to \[-0.4, 0.4\].*the target always has cell clipped to \[-0.5, 0.5\]"):
        rc.save(clipped, tmp_path / "other.npz", "drawn")


def test_what_a_class_is_given_and_does_not_store_is_asked(tmp_path: Path) -> None:
    path, arrays = trained(tmp_path, 'constants = { f = 1.0 }, chosen = ["f"], coupled = ["f"], reverse = true')
    silent = rc.load(path)
    assert [(question.option, question.assumed) for question in silent.questions] == [
        ("forget_bias", "1.0"),
        ("input_forget", "none"),
        ("go_backwards", "false"),
    ]
    np.testing.assert_allclose(run(silent.layers["encoder"], X[:, None]).y[:, 0], by_hand(arrays, X, added=1), rtol=1e-12)
    checkpoint = rc.load(path, forget_bias=0.5, go_backwards=True, input_forget="f")
    assert not checkpoint.questions
    (direction,) = checkpoint.layers["encoder"].layers[0].directions
    assert (direction.reverse, direction.cell.coupled) == (True, "f")
    checkpoint = rc.load(path, forget_bias=0.5, go_backwards=True)
    np.testing.assert_allclose(run(checkpoint.layers["encoder"], X[::-1, None]).y[::-1, 0], by_hand(arrays, X, added=0.5), rtol=1e-12)


@pytest.mark.parametrize("bounds", READ_BOUNDS)
def test_bounds_beside_a_buffer_are_json_that_every_parser_reads(bounds: tuple[float, float], tmp_path: Path) -> None:
    clip = Clip("state", *bounds)
    stack = random_stack(Sizes("lstm", 2, 3), 1, np.float32, Cell("lstm", clips=(clip,)))
    rc.save(rc.Checkpoint("", "canonical", {"layer": stack}), tmp_path / "m.bin", "cudnn")
    (layer,) = json.loads((tmp_path / "m.bin.json").read_text(), parse_constant=pytest.fail)["layers"]
    assert layer["clip"] == [bound if np.isfinite(bound) else None for bound in bounds]
    assert next(iter(rc.load(tmp_path / "m.bin").layers.values())).first.cell.clips == (clip,)
