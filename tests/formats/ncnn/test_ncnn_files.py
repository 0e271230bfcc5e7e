"""ncnn: it runs what is written, and files in its other ways to store numbers, which the tests write by hand."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.ncnn import run as ncnn_run
from rnnconvert.language.layout import Sizes
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import judge, outputs
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack, random_states

INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)


def file_of(path: Path, stack: Recurrent, **options: Any) -> Path:
    rc.save(Checkpoint("memory", "", {"rnn": stack.replace(name="rnn")}), path, "ncnn", **options)
    return path


def of(kind: str, layers: int = 1, ways: int = 1, more: frozenset[str] = frozenset()) -> Recurrent:
    parts = (BOTH if kind == "gru" else INPUT) | more
    return random_stack(Sizes(kind, 3, 5, layers, ways, 2 * ("projection" in more), parts), 5, np.float32)


def ran(path: Path, x: Array = X, layers: tuple[str, ...] = ()) -> dict[str, Any]:
    judge("ncnn")
    return ncnn_run.answer({"file": str(path), "layers": list(layers), "how": {}, "x": x})


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_states_go_into_layers_that_read_them(kind: str, named: bool, tmp_path: Path) -> None:
    """As pnnx writes a layer whose initial states are inputs of the model; without states these are zeros."""
    stack = of(kind, ways=2)
    path = file_of(tmp_path / "m.param", stack)
    head, _, *lines, layer = path.read_text().splitlines()
    words, states = layer.split(), ["h0", "c0"][: 1 + (kind == "lstm")]
    outs = [f"end{number}" for number in range(len(states))]
    before, after = words[:2], [word for word in words[4:] if "=" in word]
    lines += [f"Input {state} 0 1 {state}" for state in states]
    lines.append(" ".join([*before, str(1 + len(states)), str(1 + len(states)), words[4], *states, "y", *outs, *after]))
    path.write_text("\n".join([head, f"{len(lines)} {len(lines) + 2 * len(states)}", *lines]) + "\n")
    judge("ncnn")
    hidden, cell = random_states(Sizes.of(stack), X.shape[1], 2, np.float32)
    request = {"file": str(path), "layers": [words[1]] if named else [], "how": {}, "x": X}
    states_of: list[dict[str, Any]] = [{}, {"hidden": hidden, **({"cell": cell} if kind == "lstm" else {})}]
    for state_inputs in states_of:
        problem = Problem(stack, X, **state_inputs)
        assert excess(problem, outputs(ncnn_run.answer({**request, **state_inputs}))) <= 1


PROJECTED = frozenset({"projection"})
CASES = [
    *(of(kind, layers, ways) for kind, layers, ways in itertools.product(("rnn", "gru", "lstm"), (1, 2), (1, 2))),
    *(of("lstm", layers, ways, PROJECTED) for layers, ways in itertools.product((1, 2), (1, 2))),
    *(backwards(of(kind)) for kind in ("rnn", "gru", "lstm")),
]  # fmt: skip


def test_ncnn_runs_what_is_written(tmp_path: Path) -> None:
    def check(stack: Recurrent) -> None:
        path = file_of(tmp_path / "m.param", stack, force=True)
        assert excess(Problem(stack, X), outputs(ran(path))) <= 1
        read = rc.load(path)
        assert not read.warnings and not read.unread
        layers = tuple(layer for encoder in read.layers.values() for layer in encoder.layers)
        assert np.abs(reference.run(stack.replace(layers=layers), X).y - reference.run(stack, X).y).max() < 1e-6
        assert excess(Problem(stack, X), outputs(ran(path, layers=tuple(read.layers)))) <= 1

    each(drawn(CASES, 5, "ncnn"), check, str)


def test_a_wrong_gate_would_be_seen(tmp_path: Path) -> None:
    stack = of("lstm")
    first = stack.first
    swapped = first.with_arrays({("input", "o"): first.arrays["input", "g"], ("input", "g"): first.arrays["input", "o"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert excess(Problem(wrong, X), outputs(ran(file_of(tmp_path / "m.param", stack)))) > WRONG


@pytest.mark.parametrize(
    ("cell", "why"), [(Cell("gru", False), "reset"), (Cell("rnn", activation=RELU), "relu"), (Cell("lstm", activation=RELU), "relu")]
)  # fmt: skip
def test_what_ncnn_does_not_compute_is_refused(cell: Cell, why: str, tmp_path: Path) -> None:
    stack = random_stack(Sizes(cell.kind, 3, 5, parts=BOTH if cell.kind == "gru" else INPUT), 5, np.float32, cell)
    with pytest.raises(RefusedError, match=why):
        file_of(tmp_path / "m.param", stack)
    assert not list(tmp_path.iterdir())


def test_half_precision_is_stored_as_such(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.param", of("gru", 1, 2), dtype="float16")
    (read,) = rc.load(path).layers.values()
    assert read.dtype == np.float16
    assert np.abs(ran(path)["y"] - reference.run(read.replace(), X).y).max() < 1e-6


# Files that the tests write by hand -------------------------------------------------------------------------


def written(folder: Path, rows: list[str], *pieces: bytes) -> Path:
    blobs = sum(int(row.split()[3]) for row in rows)
    (folder / "m.param").write_text("\n".join(["7767517", f"{len(rows)} {blobs}", *rows, ""]))
    (folder / "m.bin").write_bytes(b"".join(pieces))
    return folder / "m.param"


def tagged(array: Array, tag: int = 0) -> bytes:
    data = array.tobytes()
    return tag.to_bytes(4, "little") + data + bytes(-len(data) % 4)


def _full(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_int8_is_read_as_what_it_stands_for(kind: str, tmp_path: Path) -> None:
    gates, blocks = {"rnn": (1, 1), "gru": (3, 4), "lstm": (4, 4)}[kind]
    rng = np.random.default_rng(7)
    codes = [rng.integers(-127, 128, (gates * 5, width)).astype(np.int8) for width in (3, 5)]
    scales = [rng.uniform(150, 300, gates * 5).astype(np.float32) for _ in range(2)]
    row = f"{kind.upper()} rnn 1 1 in0 out0 0=5 1={gates * 15} 2=0 8=2"
    path = written(
        tmp_path, ["Input in0 0 1 in0", row], tagged(codes[0], 0x000D4B38), tagged(_full(1, blocks * 5)), tagged(codes[1], 0x000D4B38),
        scales[0].tobytes(), scales[1].tobytes(),
    )  # fmt: skip
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert "int8" in checkpoint.warnings[0] and "not exactly" in checkpoint.warnings[0]
    gate = stack.cell.gates[0]
    expected = codes[1][:5] / scales[1][:5, None]
    assert np.allclose(np.asarray(stack.first.arrays["recurrent", gate]), expected, rtol=1e-6)
    off = np.abs(ran(path)["y"] - reference.run(stack, X).y)
    assert 0 < off.max() < 0.02


def test_a_table_of_numbers_is_read(tmp_path: Path) -> None:
    table, places = _full(2, 256), np.random.default_rng(3).integers(0, 256, (5, 3)).astype(np.uint8)
    first = b"\x01\0\0\0" + table.tobytes() + places.tobytes() + b"\0"
    row = "RNN rnn 1 1 in0 out0 0=5 1=15"
    path = written(tmp_path, ["Input in0 0 1 in0", row], first, tagged(_full(1, 5)), tagged(_full(4, 5, 5)))
    (stack,) = rc.load(path).layers.values()
    assert np.array_equal(np.asarray(stack.first.arrays["input", "n"]), table[places])
    assert excess(Problem(stack, X), outputs({**ran(path), "hidden": reference.run(stack, X).hidden, "cell": []})) <= 1


def _around(folder: Path, before: str, *pieces: bytes) -> Path:
    rows = ["Input in0 0 1 in0", before, "RNN rnn 1 1 a out0 0=5 1=15"]
    return written(folder, rows, *pieces, tagged(_full(1, 5, 3)), tagged(_full(2, 5)), tagged(_full(3, 5, 5)))


AROUND = [
    ("InnerProduct d 1 1 in0 a 0=3 1=1 2=9", tagged(_full(4, 9)) + _full(5, 3).tobytes()),
    ("InnerProduct d 1 1 in0 a 0=3 1=0 2=9", tagged(_full(4, 9).astype(np.float16), 0x01306B47)), ("ReLU r 1 1 in0 a", b""),
    ("LayerNorm n 1 1 in0 a 0=3 1=0.001 2=1", _full(4, 6).tobytes()), ("Permute p 1 1 in0 a 0=0", b""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "numbers"), AROUND)
def test_a_layer_behind_others_is_found(before: str, numbers: bytes, tmp_path: Path) -> None:
    path = _around(tmp_path, before, numbers)
    checkpoint = rc.load(path)
    assert np.array_equal(np.asarray(checkpoint.layers["rnn"].first.arrays["input", "n"]), _full(1, 5, 3))
    assert ran(path, layers=("rnn",))["y"].shape == (6, 2, 5)


def test_a_layer_behind_unknown_numbers_is_named(tmp_path: Path) -> None:
    path = _around(tmp_path, "MultiHeadAttention m 1 1 in0 a 0=3", bytes(40))
    checkpoint = rc.load(path)
    assert not checkpoint.layers and "behind those of layer 'm' (MultiHeadAttention)" in checkpoint.unread[0]
    with pytest.raises(RefusedError):
        rc.convert(path, tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("0=5", "0=4", ""), ("1=45", "1=30", ""), ("2=0", "2=1", "cell"), ("2=0", "2=2", ""), ("2=0", "2=3", ""), ("2=0", "2=0 8=1", ""),
     ("2=0", "2=0 7=1", "parameter 7"), ("2=0", "2=x", ""), ("7767517", "7767518", ""), ("2 3", "3 3", ""), ("GRU", "LSTM", ""),
     ("GRU", "RNN", "")],
)  # fmt: skip
def test_no_fact_is_dropped_in_silence(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.param", of("gru"))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if not message:
        with pytest.raises(UnreadableError):
            rc.load(path, "ncnn")
    elif message == "cell":
        assert rc.load(path).layers["rnn"].first.reverse
    else:
        with pytest.raises(RefusedError, match=message):
            rc.convert(path, tmp_path / "a.onnx")


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = file_of(tmp_path / "m.param", of("lstm", 2, 2, PROJECTED))
    rng, ends = random.Random(1), set()
    for name in ("m.param", "m.bin"):
        file = tmp_path / name
        content = file.read_bytes()
        for _ in range(80):
            damaged = bytearray(content)
            for place in rng.sample(range(len(damaged)), rng.choice((1, 3))):
                damaged[place] = rng.choice(b"0123456789= \n-ab\x00\xff")
            file.write_bytes(bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]))
            try:
                rc.load(path, "ncnn")
                ends.add("read")
            except UnreadableError:
                ends.add("unreadable")
        file.write_bytes(content)
    (tmp_path / "m.bin").unlink()
    with pytest.raises(UnreadableError):
        rc.load(path)
    assert ends == {"read", "unreadable"}
