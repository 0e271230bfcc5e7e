"""Plant faults in copies of the program, one at a time, and see which of them the tests catch.

    python -m tests.mutants --save before.json          draw mutants, run the tests on each, save what became of them
    python -m tests.mutants --again before.json         run those again that were caught, and list those whose line no longer
                                                        exists; exit code 1 if one is missed now

A mutant is one change of one line: another sign, another comparison, a `not` dropped, a number off by one, two gates swapped,
a transposition or an assignment dropped; or one of the faults in PLANTED, which are written by hand. Each is planted in a copy of
the working tree; what it imports must be installed here. The draw follows a seed, which is printed and saved.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GATES = frozenset("ifgorzn")


@dataclass(frozen=True)
class Group:
    """Modules that are changed, and the tests of them, the quick ones first.

    share  how many of a hundred mutants are drawn from these modules
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    share: int


GROUPS = {
    "language": Group(
        ("rnnconvert/language/layout.py", "rnnconvert/language/places.py", "rnnconvert/language/packing.py"),
        (
            "rewrites/test_represent",
            "language/test_literal",
            "language/test_layouts",
            "files/test_element_types",
            "formats/cudnn/test_flat_buffer",
            "formats/test_native",
        ),
        35,
    ),
    "rewrites": Group(
        ("rnnconvert/rewrites/*.py", "rnnconvert/rewrites/fit_to_layout/*.py"),
        (
            "rewrites/test_rewrites",
            "rewrites/test_represent",
            "rewrites/test_rewrite_conditions",
            "files/test_options",
            "formats/test_differential",
            "files/test_silent",
            "files/test_element_types",
        ),
        35,
    ),
    "layouts": Group(
        ("formats/*/layouts*.py",), ("language/test_literal", "language/test_layouts", "formats/test_libraries", "formats/test_native"), 10
    ),
    "writers": Group(
        (
            "formats/keras/write.py",
            "formats/onnx/proto/write.py",
            "formats/pytorch/archives/zip_writer.py",
            "formats/torch7/torch7_write.py",
            "formats/mxnet/mxnet_params.py",
        ),
        (
            "formats/pytorch/test_torch_zip",
            "formats/onnx/test_onnx_file",
            "formats/torch7/test_torch7_files",
            "formats/keras/test_keras_zip",
            "formats/keras/test_keras_names",
            "formats/keras/test_keras_files",
            "formats/mxnet/test_mxnet_files",
            "files/test_element_types",
        ),
        20,
    ),
    "judging": Group(
        ("rnnconvert/judging/*.py", "rnnconvert/comparison/*.py", "rnnconvert/verification/weighing.py"),
        (
            "judging/test_case_words",
            "judging/test_claims",
            "judging/test_amplified_rounding",
            "verification/test_verdicts",
            "verification/test_truths",
            "verification/test_stated_differences",
            "comparison/test_diff",
            "comparison/test_pairing",
            "comparison/test_other_layers",
            "judging/test_beyond",
            "verification/test_whole_proofs",
            "scaffolding/test_whole_rounded",
        ),
        20,
    ),
    "recognition": Group(
        ("rnnconvert/recognition/*.py",),
        (
            "recognition/test_same_values",
            "recognition/test_wrong_steps",
            "recognition/test_wrong_loops",
            "formats/onnx/test_fuse_conditions",
            "formats/onnx/test_onnx_computed",
            "formats/tflite/test_tflite_unrolled",
        ),
        20,
    ),
}

PLANTED = (
    ("language", "rnnconvert/language/packing.py", "view[rows, columns]", "view[columns, rows]"),
    ("language", "rnnconvert/language/packing.py", "reverse=d == 1", "reverse=d == 0"),
    ("language", "rnnconvert/language/packing.py", "1 + max(layer", "max(layer"),
    ("language", "rnnconvert/language/packing.py", "return self.source[window]", "return np.asarray(self.source)"),
    ("language", "rnnconvert/core/arrays.py", "turn = 1 - turn", "turn = 0"),
    ("language", "rnnconvert/language/layout.py", "self.num_directions * self.output_size", "self.output_size"),
    ("language", "rnnconvert/language/layout.py", 'part == "initial_hidden" else', 'part == "initial_cell" else'),
    ("language", "rnnconvert/language/places.py", '(self.layer or 0) * self.sizes.num_directions + (', "(self.layer or 0) + ("),
    ("language", "rnnconvert/language/layout.py", "-1 if gate[0]", "1 if gate[0]"),
    ("rewrites", "rnnconvert/rewrites/sum_biases.py", "biases[1].astype(np.float64)).astype", "biases[0].astype(np.float64)).astype"),
    ("rewrites", "rnnconvert/rewrites/fold_projection.py", "below[number : number + 1]", "below"),
    ("rewrites", "rnnconvert/rewrites/fold_projection.py", "@ right", "@ right.T"),
    ("rewrites", "rnnconvert/rewrites/fold_projection.py", '("initial_hidden", ""): None', '("projection", ""): None'),
    ("rewrites", "rnnconvert/rewrites/coupled_gate.py", "deferred(source, np.negative)", "source"),
    ("rewrites", "rnnconvert/rewrites/coupled_gate.py", "-constants[stored_gate]", "constants[stored_gate]"),
    ("rewrites", "rnnconvert/rewrites/move_reset_gate.py", "if value:", "if value > 1e-3:"),
    ("layouts", "formats/onnx/layouts.py", '"i o f g"', '"i f o g"'),
    ("layouts", "formats/onnx/layouts.py", "peephole[i o f]", "peephole[i f o]"),
    ("layouts", "formats/pytorch/layouts.py", '"i f g o"', '"f i g o"'),
    ("layouts", "formats/keras/layouts.py", '"z r n"', '"r z n"'),
    ("writers", "formats/keras/config.py", "if counts[kind] else kind", "if True else kind"),
)  # fmt: skip
"""Faults by hand: group, module, and a text of it that becomes another. Where the text is found no more, it is reported."""


@dataclass
class Mutant:
    """A text between two positions of a module that becomes another one, and what became of it."""

    group: str
    module: str
    line: int
    start: int
    end: int
    before: str
    after: str
    text: str
    outcome: str = ""
    column: int = 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What stays the same when other lines change: the line that it is in; of a fault by hand, its text alone."""
        by_hand = (self.group, self.module, self.before, self.after) in PLANTED
        return (self.module, "" if by_hand else self.text, self.before, self.after)

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before!r} -> {self.after!r}"


SWAPPED: dict[type[ast.AST], type[Any]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def changes(node: ast.AST) -> Iterator[ast.AST | str]:
    """What a node may become."""
    copy = ast.parse(ast.unparse(node)).body[0] if isinstance(node, ast.stmt) else None
    match node:
        case ast.BinOp(left, op, right) if type(op) in SWAPPED and not any(map(is_text, (left, right))):
            yield ast.BinOp(left, SWAPPED[type(op)](), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(SWAPPED[type(op)](), values)
        case ast.Compare(left, [op], comparators) if type(op) in SWAPPED:
            yield ast.Compare(left, [SWAPPED[type(op)]()], comparators)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value):
            words = value.split()
            if len(words) > 1 and {word.lstrip("-") for word in words} <= GATES:
                yield ast.Constant(" ".join([words[1], words[0], *words[2:]]))
        case ast.Attribute(value, "T"):
            yield value
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]) if copy is not None:
            yield "pass"


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are computed: no annotation, no text of an error and nothing that is only said."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(child, ast.FunctionDef) and child.name in ("__repr__", "__str__"):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        if isinstance(child, ast.FunctionDef):
            for part in (*child.args.defaults, *filter(None, child.args.kw_defaults), *child.body):
                yield part
                yield from nodes(part)
        elif isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield child.value
                yield from nodes(child.value)
        elif not isinstance(child, ast.arg):
            yield from nodes(child)


def mutants_of(group: str, module: str) -> list[Mutant]:
    """Every mechanical mutant of a module."""
    source = (ROOT / module).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    mutants: dict[tuple[int, int, str], Mutant] = {}
    for node in nodes(ast.parse(source)):
        for change in changes(node):
            start = place(node.lineno, node.col_offset)  # type: ignore[attr-defined]
            end = place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
            after = change if isinstance(change, str) else ast.unparse(ast.fix_missing_locations(change))
            if isinstance(change, ast.expr) and not isinstance(change, ast.Constant):
                after = f"({after})"
            line = node.lineno  # type: ignore[attr-defined]
            text, column = lines[line - 1].strip(), start - starts[line - 1]
            mutants[start, end, after] = Mutant(group, module, line, start, end, source[start:end], after, text, column=column)
    return list(mutants.values())


def planted() -> Iterator[Mutant]:
    """The faults by hand."""
    for group, module, before, after in PLANTED:
        source = (ROOT / module).read_text(encoding="utf-8")
        if source.count(before) < 1:
            raise SystemExit(f"{module} has no {before!r}: mend PLANTED in tests/mutants.py")
        start = source.index(before)
        line = source.count("\n", 0, start) + 1
        text = source.splitlines()[line - 1].strip()
        yield Mutant(group, module, line, start, start + len(before), before, after, text)


def every() -> dict[str, list[Mutant]]:
    """Every mechanical mutant, by group."""
    return {
        name: [
            mutant
            for pattern in group.modules
            for path in sorted(ROOT.glob(pattern))
            for mutant in mutants_of(name, path.relative_to(ROOT).as_posix())
        ]
        for name, group in GROUPS.items()
    }


class Copy:
    """A copy of the working tree, in which one mutant at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tracked = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, tracked.split("\0")):
            source = ROOT / name
            if source.exists() or source.is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, folder / name, follow_symlinks=False)
        for name in (".environments", ".venv-tests"):
            if (ROOT / name).exists() and not (folder / name).exists():
                (folder / name).symlink_to((ROOT / name).resolve())
        self.clock = time.time()

    def run(self, tests: tuple[str, ...], limit: float) -> str:
        """What the tests say: "" if all pass, else the first that does not."""
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--durations=0",
            "--durations-min=1e9", *(f"tests/{name}.py" for name in tests),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "ran past its time"
            output.seek(0)
            printed = output.read()
        if status == 0:
            return ""
        named = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return named[0][:160] if named else printed.strip()[-160:] or f"exit code {status}"

    def plant(self, mutant: Mutant | None, module: str) -> None:
        """Write a module with a mutant in it, or as it was."""
        source = (ROOT / module).read_text(encoding="utf-8")
        if mutant is not None:
            assert source[mutant.start : mutant.end] == mutant.before
            source = source[: mutant.start] + mutant.after + source[mutant.end :]
        path = self.folder / module
        path.write_text(source, encoding="utf-8")
        # Python takes compiled code for the module's if size and second agree.
        self.clock += 2
        os.utime(path, (self.clock, self.clock))

    def judge(self, mutant: Mutant, limit: float) -> str:
        """What the tests say of a mutant."""
        self.plant(mutant, mutant.module)
        try:
            return self.run(GROUPS[mutant.group].tests, limit)
        finally:
            self.plant(None, mutant.module)


def judge_all(mutants: list[Mutant], jobs: int, limit: float | None) -> None:
    """Run every mutant, each in a copy that no other uses at the time.

    limit  seconds for each; None to run the tests without a fault first, and to allow three times as many as they take
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as base:
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(jobs):
            copies.put(Copy(Path(base) / str(number)))
        limits = {}
        for name in sorted({mutant.group for mutant in mutants}):
            if limit is not None:
                limits[name] = limit
                continue
            copy = copies.get()
            begun = time.monotonic()
            failed = copy.run(GROUPS[name].tests, 900)
            limits[name] = 60 + 3 * (time.monotonic() - begun)
            print(f"{name}: the tests take {time.monotonic() - begun:.0f} s without a fault", flush=True)
            if failed:
                raise SystemExit(f"{name}: a test fails without any fault: {failed}")
            copies.put(copy)
        waiting: queue.Queue[Mutant] = queue.Queue()
        for mutant in mutants:
            waiting.put(mutant)

        def work() -> None:
            copy = copies.get()
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                begun = time.monotonic()
                mutant.outcome = copy.judge(mutant, limits[mutant.group])
                print(f"{time.monotonic() - begun:5.0f} s  {mutant}  {mutant.outcome or 'MISSED'}", flush=True)

        workers = [threading.Thread(target=work) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def drawn(count: int, seed: int) -> list[Mutant]:
    """All faults by hand, and that many mechanical mutants."""
    chance = random.Random(seed)
    chosen = list(planted())
    for name, mutants in every().items():
        chosen += chance.sample(mutants, min(len(mutants), round(count * GROUPS[name].share / 100)))
    return chosen


def again(path: Path) -> tuple[list[Mutant], list[Mutant]]:
    """The mutants of a saved run that were caught, where they stand now; and those whose line no longer exists."""
    now: dict[tuple[str, str, str, str], list[Mutant]] = {}
    for mutant in [*planted(), *(mutant for group in every().values() for mutant in group)]:
        now.setdefault(mutant.key, []).append(mutant)
    present, removed = [], []
    for saved in json.loads(path.read_text())["mutants"]:
        old = Mutant(**saved)
        if old.outcome and old.key not in now:
            removed.append(old)
        elif old.outcome:
            present.append(min(now[old.key], key=lambda new: (abs(new.line - old.line), abs(new.column - old.column))))
    return present, removed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=70, help="how many mechanical mutants to draw (default: 70)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the draw (default: by chance)")
    parser.add_argument("--jobs", type=int, default=1, help="how many to run at the same time (default: 1)")
    parser.add_argument("--limit", type=float, help="seconds for a mutant (default: by a run without a fault)")
    parser.add_argument("--group", choices=GROUPS, action="append", help="only of these modules; may be repeated")
    parser.add_argument("--save", type=Path, help="write what became of each mutant to this file")
    parser.add_argument("--again", type=Path, metavar="FILE", help="run those again that were caught in a saved run")
    options = parser.parse_args()
    mutants, removed = again(options.again) if options.again else (drawn(options.count, options.seed), [])
    mutants = [mutant for mutant in mutants if options.group is None or mutant.group in options.group]
    print(f"{len(mutants)} mutants" + ("" if options.again else f", --seed {options.seed}"), flush=True)
    judge_all(mutants, options.jobs, options.limit)
    missed = [mutant for mutant in mutants if not mutant.outcome]
    counts = Counter(mutant.group for mutant in mutants if mutant.outcome)
    print("caught", len(mutants) - len(missed), "of", len(mutants), dict(counts))
    for mutant in missed:
        print("missed", mutant)
    for mutant in removed:
        print("its line no longer exists:", mutant)
    if options.save:
        saved = {"seed": options.seed, "mutants": [asdict(mutant) for mutant in mutants]}
        options.save.write_text(json.dumps(saved, indent=1) + "\n")
    return 1 if options.again and missed else 0


if __name__ == "__main__":
    sys.exit(main())
