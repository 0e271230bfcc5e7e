"""Numbers and lists that a program of a model states as formulas: no reader computes more of them than a file of its size can need."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.graphs.sizes import ComputedSymbol, Dim, Size, in_64_bits, open_size, raised, reaches, rounded, truncated
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
BOMBS = {
    "power": ["q = torch.pow(9, 999999999)"],
    "power of a negative number": ["q = torch.pow(-9, 999999999)"],
    "squares": ["q0 = torch.mul(12345678901234567, 1)", *(f"q{n + 1} = torch.mul(q{n}, q{n})" for n in range(24))],
    "squares of a length": ["q0 = torch.size(input, 0)", *(f"q{n + 1} = torch.mul(q{n}, q{n})" for n in range(24))],
    "quotients of squares": [
        "q0 = torch.size(input, 0)",
        *(line for n in range(24) for line in (f"p{n} = torch.mul(q{n}, q{n})", f"q{n + 1} = torch.floordiv(p{n}, 3)")),
    ],
    "a list times a number": ["q = torch.mul([1], 99999999999)"],
    "a text times a number": ["q = torch.mul('a', 99999999999)"],
    "a text that is filled in": ["q = torch.remainder('%99999999999d', 1)"],
    "lists twice as long": ["q0 = [1, 2]", *(f"q{n + 1} = torch.add(q{n}, q{n})" for n in range(60))],
    "unknown lists twice as long": ["q0 = [1, 2]", *(f"q{n + 1} = torch.list_add(q{n}, q{n})" for n in range(60))],
    "lists in lists": ["q0 = [1, 2]", *(f"q{n + 1} = [q{n}, q{n}]" for n in range(60)), "r = torch.eq(q60, q60)"],
    "lists of lengths in lists": ["q0 = [torch.size(input, 0)]", *(f"q{n + 1} = [q{n}, q{n}]" for n in range(60)), "r = torch.len(q60)"],
}
"""Lines of TorchScript, 24 or 60 of which are a number or a list that no memory holds."""
_READ = """
import sys, rnnconvert as rc
for path in sys.argv[1:]:
    try:
        rc.scaffold(path, "pytorch")
        print(path, "written")
    except rc.RnnConvertError as error:
        print(path, type(error).__name__, error)
"""
"""Scaffolds files one after the other."""


def with_lines(parts: dict[str, bytes], lines: list[str], path: Path) -> Path:
    """Write a TorchScript file with lines before the one that returns, whose value nothing reads."""
    name = next(name for name in parts if "modules/container" in name and name.endswith(".py"))
    head, line, tail = parts[name].decode().partition("    return ")
    code = head + "".join(f"    {text}\n" for text in lines) + line + tail
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in {**parts, name: code.encode()}.items():
            archive.writestr(member, data)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_a_program_computes_is_bounded(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()).eval()
    torch.jit.save(torch.jit.trace(net, torch.zeros(2, 4)), tmp_path / "net.pt")
    parts = members(tmp_path / "net.pt")
    files = [with_lines(parts, lines, tmp_path / f"{number}.pt") for number, lines in enumerate(BOMBS.values())]
    torch.export.save(torch.export.export(net, (torch.zeros(2, 4),)), tmp_path / "net.pt2")
    program = members(tmp_path / "net.pt2")
    model = next(name for name in program if name.endswith("models/model.json"))

    def node(target: str, value: Any, other: Any, output: str) -> dict[str, Any]:
        arguments = [{"as_int": each} if isinstance(each, int) else {"as_tensor": {"name": each}} for each in (value, other)]
        inputs = [{"name": word, "arg": argument, "kind": 1} for word, argument in zip(("self", "other"), arguments, strict=True)]
        return {"target": f"torch.ops.aten.{target}", "metadata": {}, "inputs": inputs, "outputs": [{"as_tensor": {"name": output}}]}

    squares = [node("mul.Tensor", 12345678901234567, 1, "q0"), *(node("mul.Tensor", f"q{n}", f"q{n}", f"q{n + 1}") for n in range(26))]
    for name, nodes in (("power", [node("pow.Scalar", 9, 999999999, "q")]), ("squares", squares)):
        graph = json.loads(program[model])
        graph["graph_module"]["graph"]["nodes"][:0] = nodes
        with zipfile.ZipFile(tmp_path / f"{name}.pt2", "w") as archive:
            for member, data in {**program, model: json.dumps(graph).encode()}.items():
                archive.writestr(member, data)
        files += [tmp_path / f"{name}.pt2"]
    read = subprocess.run([sys.executable, "-c", _READ, *map(str, files)], capture_output=True, text=True, timeout=120)
    assert read.returncode == 0, read.stderr
    assert len(read.stdout.splitlines()) >= len(files), read.stdout


def test_loops_in_a_loop_take_work_in_proportion_to_what_is_followed(tmp_path: Path) -> None:
    """Loops of unknown lengths in one of 65,535 steps: what one loop does is not looked for among all that was done before."""
    resource = pytest.importorskip("resource", reason="the limit on CPU time is one of POSIX systems")
    torch = needed("torch", "torch")
    torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 2), torch.zeros(2, 4)), tmp_path / "net.pt")
    lines = ["for i in range(65535):", "  for j in range(torch.size(input, 0)):", "    q = torch.add(input, input)"]
    parts = members(tmp_path / "net.pt")
    name = next(name for name, text in parts.items() if name.endswith(".py") and b"    return " in text)
    head, line, tail = parts[name].decode().partition("    return ")
    parts[name] = (head + "".join(f"    {text}\n" for text in lines) + line + tail).encode()
    with zipfile.ZipFile(tmp_path / "loops.pt", "w") as archive:
        for member, data in parts.items():
            archive.writestr(member, data)
    read = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path / "loops.pt")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (15, 15)),  # all that is followed takes 3 s
    )
    assert read.returncode == 0 and "statements" in read.stdout, (read.returncode, read.stdout, read.stderr)


def squared(number: Dim) -> Dim:
    for _ in range(24):
        number = number * number
    return number


def test_whole_numbers_have_64_bits() -> None:
    computations: dict[str, Callable[[], object]] = {
        "squares of a length": lambda: squared(open_size("n")),
        "squares of twice a length": lambda: squared(open_size("n") * 2),
        "a power": lambda: raised(9, 999999999),
        "a power of two": lambda: raised(2, 64),
        "a number": lambda: in_64_bits(1 << 64),
    }

    def check(name: str) -> None:
        with pytest.raises(ValueError, match=r"bits|too many others"):
            computations[name]()

    each(computations, check, str)
    assert [raised(2, 62), raised(-3, 3), raised(2, -1), raised(1, 999999999), raised(0, 5)] == [1 << 62, -27, 0.5, 1, 0]


def test_numbers_of_a_graph_that_are_spread_over_one_another_are_charged(tmp_path: Path) -> None:
    """Two rows of n numbers, one of them upright, are n * n: more than a file of that size may take."""
    import onnx

    make, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    numbers = np.arange(20000)
    arrays = {"a": numbers[:, None], "b": numbers[None], "c": np.ones((1, 1), bool), "W": np.ones((3, 2), np.float32)}
    for node, kind in ((make("Where", ["c", "a", "b"], ["q"]), "INT64"), (make("Greater", ["a", "b"], ["q"]), "BOOL")):
        graph = onnx.helper.make_graph(
            [node, make("Identity", ["q"], ["o"]), make("MatMul", ["x", "W"], ["y"])],
            "g",
            [value("x", onnx.TensorProto.FLOAT, ["n", 3])],
            [value("y", onnx.TensorProto.FLOAT, None), value("o", getattr(onnx.TensorProto, kind), None)],
            [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
        )
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "spread.onnx")
        with pytest.raises(rc.UnreadableError, match=r"takes more than .* of memory"):
            rc.scaffold(tmp_path / "spread.onnx", "pytorch")


def at(length: Dim, lengths: dict[str, int]) -> int:
    """Return a length in a run, by those of the axes."""
    if isinstance(length, int):
        return length
    total = 0
    for names, count in length.terms:
        for name in names:
            count *= computed(name, lengths) if isinstance(name, ComputedSymbol) else lengths[name]
        total += count
    return total


def computed(symbol: ComputedSymbol, lengths: dict[str, int]) -> int:
    first, second = (at(operand, lengths) for operand in symbol.operands)
    functions = {
        "//": lambda: first // second,
        "trunc": lambda: math.trunc(Fraction(first, second)),
        "min": lambda: min(first, second),
        "max": lambda: max(first, second),
    }
    return functions.get(symbol.function, lambda: round(Fraction(first, second)))()


def test_quotients_of_lengths_are_those_of_numbers() -> None:
    """Of lengths that are less than nothing, too: what is rounded towards zero is not what is rounded down."""
    batch, time = open_size("batch"), open_size("time")
    values: list[Dim] = [batch, time - 5, batch * 2 - 7, time * 3 - batch * 4, batch * time - 9, Size({}) + 7, Size({}) - 7]
    rounding: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[Fraction], int]]] = {
        "towards zero": (truncated, math.trunc),
        "down": (lambda value, by: value // by, math.floor),
        "to the nearest": (rounded, round),
    }

    def check(case: tuple[str, Dim, int]) -> None:
        words, value, by = case
        lengths_of, number_of = rounding[words]
        quotient = lengths_of(value, by)
        least = max((number for number in range(-30, 30) if reaches(quotient, number)), default=-100)
        for run in itertools.product(range(1, 8), repeat=2):
            lengths = dict(zip(("batch", "time"), run, strict=True))
            assert at(quotient, lengths) == number_of(Fraction(at(value, lengths), by)) >= least, lengths

    each(itertools.product(rounding, values, (1, 2, 3, -2, -3)), check, str)
    length: Dim = time
    for _ in range(10):  # as many convolutions in a row
        length = truncated(length - 3, 2) + 1
    assert at(length, {"time": 4000}) == 2
