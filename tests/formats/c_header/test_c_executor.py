"""The executor for C headers: what it runs is what was written, and code that rnnconvert did not write is never compiled."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.cells import RELU, Activation, Cell, Clip
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.running import registry
from rnnconvert.running.parent import Process
from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, random_stack
from tests.helpers.workers import running

INPUT = PLAIN | {"input_bias"}
FULL = INPUT | {"peephole", "projection"}
GRU = Cell("gru", True)


def of(cell: Cell, parts: frozenset[str] = INPUT, layers: int = 1, dtype: Any = np.float32, seed: int = 5) -> Any:
    parts = BOTH if cell.reset_after else parts
    stack = random_stack(Sizes(cell.kind, 3, 5, layers, 1, 2 * ("projection" in parts), parts), seed, dtype, cell)
    return stack.replace(name="rnn")


def saved(path: Path, stack: Any, **options: Any) -> Path:
    rc.save(Checkpoint("memory", "", {stack.name: stack}), path, force=True, **options)
    return path


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    executor = registry.built_in()["c-cc"]
    need("gcc", executor.absent)
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(running(executor))


def compiler() -> None:
    need("gcc", registry.built_in()["c-cc"].absent)


CASES: list[tuple[Any, dict[str, Any]]] = [
    (of(Cell("rnn")), {}), (of(Cell("rnn").replace(activation=RELU)), {}),
    (of(GRU), {}), (of(Cell("gru", False)), {}), (of(Cell("lstm")), {}),
    (of(Cell("lstm"), FULL), {}), (of(Cell("lstm"), FULL, 3), {}), (of(GRU, layers=2), {}), (of(Cell("lstm"), FULL, 1, np.float64), {}),
    (of(GRU.replace(activation=Activation("softsign"))), {}), (of(GRU, layers=2), {}),
    (of(Cell("lstm").replace(clips=(Clip("state", -0.1, 0.2), Clip("gates", -0.5, 1.0))), FULL), {}),
]  # fmt: skip


def test_it_gives_what_the_reference_gives_with_states_and_lengths(process: Process, tmp_path: Path) -> None:
    def check(case: tuple[Any, dict[str, Any]]) -> None:
        stack, options = case
        path = saved(tmp_path / "m.h", stack, **options)
        draw = np.random.default_rng(3)
        x = draw.uniform(-1, 1, (6, 3, 3)).astype(stack.dtype)
        lengths = np.array([6, 1, 4])
        widths = [(d.output_size, d.hidden_size) for *_, d in stack.directions()]
        hidden = [draw.normal(size=(3, out)).astype(stack.dtype) for out, _ in widths]
        cell = [draw.normal(size=(3, units)).astype(stack.dtype) for _, units in widths if stack.cell.kind == "lstm"]
        for first, second in ((None, None), (hidden, cell or None)):
            for some in (None, lengths):
                answer = process.ask(
                    file=str(path), layers=[], how={}, x=x, hidden=first, cell=second, lengths=some, cotangents=None
                )  # fmt: skip
                truth = reference.run(stack, x.astype(np.float64), first, second, some)
                assert np.abs(answer["y"] - truth.y).max() < 1e-5
                for state, true in (*zip(answer["hidden"], truth.hidden, strict=True), *zip(answer["cell"], truth.cell, strict=True)):
                    assert np.abs(state - true).max() < 1e-5
        exact = process.ask(file=str(path), layers=[], how={}, x=x)
        problem = Problem(stack, x)
        solved = problem.solved()
        assert excess(problem, reference.Outputs(exact["y"], solved.hidden, solved.cell)) <= 1
        # A wrong gate would be seen.
        parts = frozenset(part for part, _ in stack.first.arrays)
        wrong = saved(tmp_path / "w.h", of(stack.cell, parts, stack.num_layers, stack.dtype, 6))
        other = process.ask(file=str(wrong), layers=[], how={}, x=x)["y"]
        assert excess(problem, reference.Outputs(other, solved.hidden, solved.cell)) > WRONG

    each(drawn(CASES, 3, "c-cc"), check, lambda case: f"{case[0]} {case[1]}")


def test_convert_verify_proves_a_header(tmp_path: Path) -> None:
    compiler()
    model = saved(tmp_path / "m.onnx", of(GRU))
    result = call("convert", model, tmp_path / "m.h", "--verify")
    assert result.exit_code == 0 and re.search(r"B on c-cc +equal", result.output), result.output
    assert re.search(r"(?m)^// to run it in C:$", result.stderr) and '#include "m.h"' in result.stderr
    assert "rnn_step(x + t * RNN_INPUT, &rnn_s, rnn_y);" in result.stderr
    assert rc.verify(model, tmp_path / "m.h").equal


def test_the_recipe_runs(tmp_path: Path) -> None:
    """The lines that are printed, in a program around them, give what the layers give."""
    compiler()
    stack = of(GRU, layers=2)
    recipe = rc.save(Checkpoint("memory", "", {"rnn": stack}), tmp_path / "m.h").recipe
    last = next(line.split()[-1].rstrip(");") for line in reversed(recipe) if "_step(" in line)
    x = np.random.default_rng(1).uniform(-1, 1, (6, 1, 3)).astype(np.float32)
    body = "\n".join([*recipe[1:-1], f'for (int i = 0; i < 5; i++) printf("%.9g ", {last}[i]);', recipe[-1]])
    numbers = ", ".join(f"{value:.9g}" for value in x.ravel())
    (tmp_path / "main.c").write_text(
        f"{recipe[0]}\n#include <stdio.h>\nint main(void) {{ int steps = 6; float x[] = {{{numbers}}};\n{body}\nreturn 0; }}\n"
    )
    words = f"{shutil.which('gcc') or shutil.which('cc')} -std=c99 -Wall -Wextra -Werror -o main main.c -lm".split()
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=60)
    printed = np.array(done.stdout.split(), np.float64).reshape(6, 1, 5)
    assert np.abs(printed - reference.run(stack, x.astype(np.float64)).y).max() < 1e-6


def test_int8_is_proved_as_what_it_stands_for_and_its_cost_is_named(tmp_path: Path) -> None:
    compiler()
    model, header = saved(tmp_path / "m.onnx", of(Cell("lstm"), FULL - {"projection"})), tmp_path / "m.h"
    result = call("convert", model, header, "--set", "storage=int8", "--verify")
    assert result.exit_code == 0 and "equal but for" in result.output and "held in int8" in result.output
    report = rc.verify(model, header, strict=True)
    assert report.verdict == "equal but for" and report.exit_code == 6 and not report.equal
    (layer,) = report.document["layers"]
    ran = {run["executor"]: run["verdict"] for run in layer["runs"]}
    assert ran["c-cc"] == "equal" and ran["reference"] == "equal"
    # Another number than the nearest is no rounding.
    code = re.search(r"rnn_R\[\d+\] = \{\s+(-?\d+),", text := header.read_text())
    assert code is not None
    number = int(code[1])
    header.write_text(text[: code.start(1)] + str(number - 2 if number > 0 else number + 2) + text[code.end(1) :])
    changed = rc.verify(model, header)
    assert changed.verdict == "not equal"


EDITS = [
    ("tanhf", "sinhf"), ("#include <math.h>", "#include <math.h>\n#include <stdlib.h>"),
    ("state->h[j];\n}", "state->h[j];\n    system(\"id\");\n}"),
    ("/* rnn:", "/* mine:"), ("#endif\n", "static int more(void) { return 1; }\n#endif\n"),
    ("    float number = x[i];", "    float number = x[i]; // \\"),
    ("#define RNN_INPUT 3", "#define RNN_INPUT 3\n#define exp sin"), (" = x[i]", "=x[i]"),
    ("#ifndef RNNCONVERT_M_H", "#ifndef RNNCONVERT_M_Q"),
    ("/* Written", "int written;\n/* Written"),
]  # fmt: skip


def test_code_that_was_changed_is_never_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is a script that leaves a mark: every form of the file is told apart before it runs."""
    mark, model = tmp_path / "mark", saved(tmp_path / "m.onnx", of(Cell("gru", False)))
    (fake := tmp_path / "fake-cc").write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    text = saved(tmp_path / "m.h", of(Cell("gru", False))).read_text()

    def check(edit: tuple[str, str]) -> None:
        old, new = edit
        assert old in text
        (tmp_path / "m.h").write_text(text.replace(old, new, 1))
        result = call("verify", model, tmp_path / "m.h")
        assert result.exit_code == 4 and "is not what rnnconvert writes" in result.output, result.output
        assert not mark.exists()
        (warning, *_) = rc.load(tmp_path / "m.h").warnings
        assert "only its numbers and its description are read: line" in warning

    each(EDITS, check, str)
    # As it was written it goes to the compiler; so it does with a carriage return before each line's end.
    for ends in ("\n", "\r\n"):
        (tmp_path / "m.h").write_bytes(text.replace("\n", ends).encode())
        assert call("verify", model, tmp_path / "m.h").exit_code == 1 and mark.exists()
        assert not rc.load(tmp_path / "m.h").warnings
        mark.unlink()


@pytest.mark.parametrize("prefix", ["rnn_W[1]={0};int q", "a b", "1a", "a\\n#include", "\u00e9", "a" * 200, ""], ids=ascii)
def test_a_name_in_the_description_is_a_name(prefix: str, tmp_path: Path) -> None:
    text = saved(tmp_path / "m.h", of(Cell("rnn"))).read_text()
    old = '"prefix": "rnn"'
    assert old in text
    upper, body = prefix.upper(), text.replace(old, f'"prefix": "{prefix}"')
    (tmp_path / "m.h").write_text(body.replace("rnn_", f"{prefix}_").replace("RNN_", f"{upper}_"))
    with pytest.raises(rc.UnreadableError):
        rc.load(tmp_path / "m.h")


def test_every_header_is_read_as_it_was_written(tmp_path: Path) -> None:
    """To the byte, whatever its type, storage and names; so a warning means a change."""
    cells = (Cell("rnn"), GRU, Cell("gru", False), Cell("lstm"))
    cases = [
        (of(cell, dtype=dtype).replace(name=name), storage)
        for cell in cells
        for dtype in (np.float16, np.float32, np.float64)
        for storage in ("float", "int8")
        for name in ("rnn", "", "a*/b", "\u00fc")
    ]

    def check(case: tuple[Any, str]) -> None:
        path = saved(tmp_path / "some-file.h", case[0], storage=case[1])
        checkpoint = rc.load(path)
        assert [warning for warning in checkpoint.warnings if "is not what rnnconvert writes" in warning] == []
        other = path.rename(tmp_path / "renamed.h")
        assert [warning for warning in rc.load(other).warnings if "is not what rnnconvert writes" in warning] == []

    each(drawn(cases, 6, "headers"), check, str)


def test_without_a_compiler_nothing_is_called_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path / "m.onnx", of(GRU))
    for name, value, words in (("CC", "no-such-compiler -O2", "no-such-compiler"), ("PATH", "", "no C compiler")):
        monkeypatch.setenv(name, value)
        if name == "PATH":
            monkeypatch.delenv("CC")
        registry.built_in.cache_clear()
        result = call("convert", model, tmp_path / "m.h", "--verify")
        assert result.exit_code == 5 and words in result.output and not (tmp_path / "m.h").exists(), result.output
        result = call("verify", model, "--on", "c-cc")
        assert result.exit_code == 5 and words in result.output
    registry.built_in.cache_clear()


def test_cc_names_a_compiler_as_a_shell_would_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a blank, or by a path from the current folder; a quotation mark alone is no name."""
    compiler()
    saved(tmp_path / "m.h", of(GRU))
    (tmp_path / "a b").mkdir()
    script = tmp_path / "a b" / "my-cc"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("gcc") or shutil.which("cc")} "$@"\n')
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for value, code in (("'a b/my-cc' -O2", 0), ("'", 5)):
        monkeypatch.setenv("CC", value)
        registry.built_in.cache_clear()
        result = call("verify", "m.h", "--on", "c-cc")
        assert result.exit_code == code, result.output
    registry.built_in.cache_clear()
    assert "was not found" in result.output


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler()
    monkeypatch.setenv("CC", f"{shutil.which('gcc') or shutil.which('cc')} -fno-such-option")
    model, header = (saved(tmp_path / name, of(GRU)) for name in ("m.onnx", "m.h"))
    result = call("verify", model, header)
    assert result.exit_code == 1 and "does not compile the header" in result.output


def test_tables_of_others_are_run_as_what_is_read_from_them(tmp_path: Path) -> None:
    compiler()
    (tmp_path / "a.c").write_text(
        "static const rnn_weight a_w[6] = {1, -2, 3, 4, 5, 6};\nstatic const rnn_weight a_r[3] = {7, 8, 9};\n"
        "static const rnn_weight a_b[3] = {256, 0, -256};\nstatic const GRULayer a = {a_b, a_w, a_r, 2, 1, ACTIVATION_TANH};\n"
    )
    report = rc.verify(tmp_path / "a.c", on=["c-cc"])
    (layer,) = report.document["layers"]
    run = next(entry for entry in layer["runs"] if entry["executor"] == "c-cc")
    assert run["verdict"] == "equal" and not run["own_file"] and "no code" in run["notes"]["own file"]


def test_nothing_is_left_in_the_folders(tmp_path: Path) -> None:
    compiler()
    model = saved(tmp_path / "m.onnx", of(GRU))
    assert call("convert", model, tmp_path / "m.h", "--verify").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.h", "m.onnx"]
    assert {"c-cc"} <= {line.split()[0] for line in call("executors").output.splitlines() if line.split()}


_HALVES = """#include "m.h"
#include <stdio.h>
int main(void) {
    long i;
    for (i = 0; i < 1 << 16; i++) printf("%.9g\\n", rnnconvert_half((uint16_t)i));
    return 0;
}
"""
_FUNCTIONS = """#include "m.h"
#include <stdio.h>
int main(void) {
    static float x[1 << 14];
    while (fread(x, sizeof *x, 1 << 14, stdin)) {
        int i;
        for (i = 0; i < 1 << 14; i++) printf("%.9g %.9g\\n", rnnconvert_sigmoidf(x[i]), rnnconvert_tanhf(x[i]));
    }
    return 0;
}
"""


@pytest.mark.parametrize("flags", [["-std=c99", "-O1"], ["-O3", "-ffast-math"]])
def test_its_functions_of_float_are_those_of_double(flags: list[str], tmp_path: Path) -> None:
    """Over floats of all sizes within 3 units in the last place, which is how exact a C library's own are; NaN and infinities are as there.

    What is smaller than 2e-38, nearly the smallest normal number, may be that or zero.
    """
    compiler()
    saved(tmp_path / "m.h", of(Cell("rnn")))
    (tmp_path / "main.c").write_text(_FUNCTIONS)
    subprocess.run(["gcc", *flags, "-Wall", "-Werror", "-o", "main", "main.c", "-lm"], cwd=tmp_path, check=True)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-100, 100, (1 << 16) - 4, dtype=np.float32),
                        np.array([0, np.nan, np.inf, -np.inf], np.float32)])  # fmt: skip
    result = subprocess.run([tmp_path / "main"], input=x.tobytes(), capture_output=True, check=True)
    gives = np.array(result.stdout.split(), np.float32).reshape(-1, 2).T.astype(np.float64)
    with np.errstate(all="ignore"):
        truths = 1 / (1 + np.exp(-x.astype(np.float64))), np.tanh(x.astype(np.float64))
    smallest = 2e-38
    for value, truth in zip(gives, truths, strict=True):
        assert np.array_equal(np.isnan(value), np.isnan(x))
        unit = np.spacing(np.maximum(np.abs(truth), smallest).astype(np.float32)).astype(np.float64)
        assert np.nanmax((np.abs(value - truth) - smallest) / unit) < 3


@pytest.mark.parametrize("flags", [["-std=c99", "-O1"], ["-O3", "-ffast-math"]])
def test_every_half_is_its_float(flags: list[str], tmp_path: Path) -> None:
    compiler()
    saved(tmp_path / "m.h", of(Cell("rnn")), dtype="float16")
    (tmp_path / "main.c").write_text(_HALVES)
    subprocess.run(["gcc", *flags, "-Wall", "-Werror", "-o", "main", "main.c", "-lm"], cwd=tmp_path, check=True)
    gives = np.array(subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout.split(), np.float32)
    truths = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    assert np.array_equal(gives, truths, equal_nan=True) and not (np.signbit(gives) != np.signbit(truths))[~np.isnan(truths)].any()
