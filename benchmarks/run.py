"""Benchmarks as Markdown tables.

python benchmarks/run.py [speed|memory|start|export|whole|reference|verify|prove|transplant] [--size small|full]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"small": (1, 256, 1024), "full": (4, 1024, 2048)}
"""Layers, inputs and units of a bidirectional float32 LSTM: 42 MB and 1.4 GB."""
WHAT = ("speed", "memory", "start", "export", "whole", "reference", "verify", "prove", "transplant")
MAIN = "from rnnconvert.cli.main import main; main()"


def child(*words: str) -> str:
    """Return what a separate Python process prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def make(path: Path, layers: int, inputs: int, units: int, projection: int = 0) -> None:
    """Write a PyTorch LSTM's state_dict, as .pt."""
    child(
        "-c",
        f"""
import torch
torch.manual_seed(0)
lstm = torch.nn.LSTM({inputs}, {units}, {layers}, bidirectional=True, proj_size={projection})
torch.save(lstm.state_dict(), {str(path)!r})""",
    )


def converted(source: Path, target: Path, *words: str) -> Path:
    """Convert a file, and return the new one."""
    child("-c", MAIN, "convert", "-q", "--force", str(source), str(target), *words)
    return target


def table(head: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a Markdown table."""
    print(f"\n| {head} |\n|{'---|' * (head.count('|') + 1)}")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def gate_permutation(folder: Path, size: tuple[int, int, int], rounds: int) -> None:
    """Compare straight and transposed conversions with cp of the same bytes."""
    from rnnconvert import convert

    make(folder / "a.pt", *size)
    source = converted(folder / "a.pt", folder / "a.safetensors")
    out = folder / "out"
    out.mkdir()

    def timed(work: Callable[[], object]) -> float:
        # Memory that a hypervisor took back is slow to touch: the first run warms what the second one uses.
        for _ in range(2):
            for old in out.iterdir():
                old.unlink()
            start = time.perf_counter()
            work()
            took = time.perf_counter() - start
        return took

    def copy() -> None:
        subprocess.run(["cp", source, out / "copy"], check=True)

    rows = []
    targets = ((".onnx", 0.9), (".bin", 0.9), (".weights.h5", 0.7), (".h5", 0.7), (".keras", None))
    for ending, wanted in targets:
        pairs = []
        for number in range(rounds):
            order = (copy, lambda: convert(source, out / f"b{ending}"))  # noqa: B023
            times = [timed(work) for work in (order if number % 2 else order[::-1])]
            pairs.append(times if number % 2 else times[::-1])
        cps, ours = zip(*pairs, strict=True)
        ratio, middle = min(cps) / min(ours), statistics.median(a / b for a, b in pairs)
        rows.append((f".safetensors to {ending}", f"{min(cps):.3f} s", f"{min(ours):.3f} s", f"{ratio:.2f}",
                     f"{middle:.2f}", "-" if wanted is None else f"{wanted:.2f}"))  # fmt: skip
    table("conversion | cp, best | rnnconvert, best | ratio of the best | median ratio of pairs | wanted", rows)


_MEASURE = """
import sys
sys.path.insert(0, {folder!r})
from run import Sampler
{before}
with Sampler() as sampler:
    {code}
print(sampler.report())
"""


class Sampler:
    """The growth of this process's anonymous memory while a block runs, and its time."""

    @staticmethod
    def _anonymous() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    def __enter__(self) -> Sampler:
        self.base = self.peak = self._anonymous()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        self.start = time.perf_counter()
        return self

    def _watch(self) -> None:
        while not self.over.wait(0.001):
            self.peak = max(self.peak, self._anonymous())

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.start
        self.over.set()
        self.thread.join()

    def report(self) -> str:
        """Return the measurements as JSON, in MiB and seconds; `total` includes the pages of mapped files."""
        total = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return json.dumps({"anonymous": self.peak / 1024, "grown": (self.peak - self.base) / 1024, "total": total,
                           "seconds": self.seconds})  # fmt: skip


def measured(before: str, code: str) -> dict[str, float]:
    """Run code in a separate Python process, after `before`, and return its measurements."""
    text = _MEASURE.format(folder=str(Path(__file__).parent), before=before, code=code)
    figures: dict[str, float] = json.loads(child("-c", text).splitlines()[-1])
    return figures


def memory(folder: Path, size: tuple[int, int, int]) -> None:
    """Measure how far anonymous memory grows in conversions that do more than move numbers."""
    units = size[2]
    gate = units * 2 * units * 4 / 2**20
    make(folder / "a.pt", *size)
    make(folder / "p.pt", *size, projection=units // 2)
    make(folder / "warm.pt", 1, 8, 8)
    safetensors = converted(folder / "a.pt", folder / "a.safetensors")
    onnx = converted(folder / "a.pt", folder / "a.onnx")
    keras = converted(folder / "a.pt", folder / "a.weights.h5")
    hard = ("--set", "recurrent_activation=hard_sigmoid", "--set", "hard_sigmoid=keras2")
    hard_onnx = converted(keras, folder / "hard.onnx", *hard)
    cases = (
        ("straight", folder / "a.pt", ".onnx", ""),
        ("straight", safetensors, ".bin", ""),
        ("straight", onnx, ".safetensors", ""),
        ("transposed", folder / "a.pt", ".weights.h5", ""),
        ("transposed", safetensors, ".h5", ""),
        ("transposed", onnx, ".keras", ""),
        ("transposed back", keras, ".pt", "stack='join'"),
        ("float16", safetensors, ".onnx", "dtype='float16'"),
        ("float16, transposed", folder / "a.pt", ".weights.h5", "dtype='float16'"),
        ("hard_sigmoid scaled, transposed", hard_onnx, ".weights.h5", ""),
        ("projections folded", folder / "p.pt", ".onnx", ""),
        ("projections folded, transposed", folder / "p.pt", ".weights.h5", ""),
    )
    rows = []
    for what, source, ending, words in cases:
        before = f"from rnnconvert import convert; convert({str(folder / 'warm.pt')!r}, {str(folder / ('w' + ending))!r})"
        if source.suffix not in (".pt", ".safetensors"):
            before += f"; from rnnconvert import load; load({str(folder / ('w' + ending))!r})"
        target = folder / f"b{ending}"
        try:
            figures = measured(before, f"convert({str(source)!r}, {str(target)!r}, force=True, {words})")
        except RuntimeError as error:
            rows.append((what, source.name, ending, str(error).strip().splitlines()[-1], "", ""))
            continue
        finally:
            for old in (target, folder / f"w{ending}"):
                old.unlink(missing_ok=True)
        over = "" if figures["grown"] <= 64 + gate else " (too much)"
        rows.append((what, source.name.partition(".")[2], ending, f"{figures['grown']:.0f} MiB{over}", f"{64 + gate:.0f} MiB",
                     f"{figures['seconds']:.2f} s"))  # fmt: skip
    table("conversion | from | to | anonymous memory grows by | allowed | time", rows)


def export(folder: Path, size: tuple[int, int, int]) -> None:
    """Convert the same LSTM to ONNX through torch.onnx and through `rnnconvert convert`, whole processes."""
    layers, inputs, units = size
    make(folder / "a.pt", *size)
    source = str(folder / "a.pt")
    torch_code = (
        f"import torch; m = torch.nn.LSTM({inputs}, {units}, {layers}, bidirectional=True); "
        f"m.load_state_dict(torch.load({source!r})); m.eval(); "
        f"torch.onnx.export(m, (torch.zeros(2, 1, {inputs}),), {str(folder / 'b.onnx')!r}, dynamo=%s)"
    )
    ours_code = f"from rnnconvert import convert; convert({source!r}, {str(folder / 'c.onnx')!r}, force=True)"
    runs = {"rnnconvert": ours_code, "torch.onnx, dynamo=False": torch_code % False}
    if importlib.util.find_spec("onnxscript"):
        runs["torch.onnx, dynamo=True"] = torch_code % True
    rows, ours = [], None
    for name, code in runs.items():
        took, figures = [], {}
        for _ in range(3):
            start = time.perf_counter()
            figures = measured("", code)
            took.append(time.perf_counter() - start)
        ours = ours or (min(took), figures["anonymous"])
        rows.append((name, f"{min(took):.1f} s", f"{min(took) / ours[0]:.1f}", f"{figures['anonymous']:.0f} MiB",
                     f"{figures['anonymous'] / ours[1]:.0f}", f"{figures['total']:.0f} MiB"))  # fmt: skip
    table("way | time, best of 3 | times ours | peak of anonymous memory | times ours | with pages of mapped files", rows)
    if "torch.onnx, dynamo=True" not in runs:
        print("\ntorch.onnx with dynamo=True needs onnxscript, which is not installed here: not measured.")


def whole_models(folder: Path, size: tuple[int, int, int], rounds: int) -> None:
    """Export a whole model, an LSTM with a dense layer, to each target that streams its weights: anonymous memory, and the time of `cp`."""
    layers, inputs, units = size
    source, warm = folder / "model.pt", folder / "warm.pt"
    lines = f"""
import torch

class Model(torch.nn.Module):
    def __init__(self, inputs, units, layers):
        super().__init__()
        self.lstm = torch.nn.LSTM(inputs, units, layers, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(2 * units, 16)

    def forward(self, x):
        return self.head(self.lstm(x)[0])

torch.manual_seed(0)
torch.jit.script(Model({inputs}, {units}, {layers}).eval()).save({str(source)!r})
torch.jit.script(Model(4, 4, 1).eval()).save({str(warm)!r})"""
    script = folder / "make.py"  # a script of TorchScript's needs its source
    script.write_text(lines)
    child(str(script))
    rows = []
    for ending, dtype in ((".onnx", ""), (".xml", ""), (".tflite", ""), (".tflite", "float16"), (".tflite", "int8"), (".h", "")):
        word = f", dtype={dtype!r}" if dtype else ""
        before = (
            f"from rnnconvert import export_model as export; export({str(warm)!r}, {str(folder / ('warm' + ending))!r}{word}, force=True)"
        )
        figures, speeds = list[dict[str, float]](), list[float]()
        for _ in range(1 if ending == ".h" else rounds):  # in pairs, so that other work on the machine weighs on both
            begun = time.perf_counter()
            subprocess.run(["cp", str(source), str(folder / "copy")], check=True)
            copied = time.perf_counter() - begun
            (folder / "copy").unlink()
            figures.append(measured(before, f"export({str(source)!r}, {str(folder / ('b' + ending))!r}{word}, force=True)"))
            speeds.append(copied / figures[-1]["seconds"])
            written = sum(path.stat().st_size for path in folder.glob("b.*"))
            for path in (*folder.glob("b.*"), *folder.glob("warm.*")):
                if path != warm:
                    path.unlink()
        grown, fastest = max(each["grown"] for each in figures), min(each["seconds"] for each in figures)
        rows.append((f"{ending}{f', {dtype}' if dtype else ''}", f"{written / 1e9:.2f} GB", f"{grown:.0f} MiB", "96 MiB",
                     f"{fastest:.1f} s", f"{statistics.median(speeds):.2f}"))  # fmt: skip
    table("target | written | anonymous memory grows by | allowed | time | of cp's speed for its source", rows)


def start(folder: Path, rounds: int) -> None:
    """Measure what starting costs: the help, and files of 1 MB and of 40 KB."""
    make(folder / "a.pt", 1, 128, 128)
    make(folder / "small.pt", 1, 16, 24)
    safetensors = converted(folder / "a.pt", folder / "a.safetensors")
    (folder / "empty.py").write_text("import click\n\n\n@click.command()\ndef main():\n    pass\n\n\nmain()\n")
    (folder / "ours.py").write_text(f"{MAIN}\n")
    ours = str(folder / "ours.py")

    def command(source: Path, ending: str) -> list[str]:
        return [ours, "convert", "-q", "--force", str(source), str(folder / f"b{ending}")]

    torch = ("`import torch`", ["-c", "import torch"])
    needed = ("`import numpy, click`", ["-c", "import numpy, click"])
    cases = (
        ("40 KB .pt to .safetensors", command(folder / "small.pt", ".safetensors"), needed, 2.0),
        ("40 KB .pt to .keras", command(folder / "small.pt", ".keras"), needed, 3.0),
        ("`rnnconvert --help`", [ours, "--help"], ("an empty click program", [str(folder / "empty.py"), "--help"]), 1.5),
        ("1 MB .pt to .onnx", command(folder / "a.pt", ".onnx"), torch, 1 / 3),
        ("1 MB .safetensors to .bin", command(safetensors, ".bin"), torch, 1 / 3),
        ("1 MB .pt to .weights.h5", command(folder / "a.pt", ".weights.h5"), torch, 1 / 3),
    )
    rows = []
    for name, words, (other, other_words), allowed in cases:
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for spent, call in zip(times, (words, other_words), strict=True):
                begin = time.perf_counter()
                child(*call)
                spent.append(time.perf_counter() - begin)
        best, two = (min(spent) for spent in times)
        rows.append((name, f"{best:.3f} s", other, f"{two:.3f} s", f"{best / two:.2f}", f"{allowed:.2f}"))
    table("what | time, best | compared with | time, best | ratio | allowed", rows)


def reference(rounds: int) -> None:
    """Compare the float32 reference with PyTorch on the CPU: 32 sequences of 100 steps, 512 to 512."""
    import numpy as np
    import torch

    from rnnconvert import from_torch
    from rnnconvert.core import reference as judge

    x = np.random.default_rng(0).normal(size=(100, 32, 512)).astype(np.float32)
    rows = []
    for name in ("LSTM", "GRU", "RNN"):
        module = getattr(torch.nn, name)(512, 512)
        stack = from_torch(module)

        def native() -> None:
            with torch.no_grad():
                module(torch.from_numpy(x))  # noqa: B023

        def ours() -> None:
            judge.run(stack, x, dtype=np.float32)  # noqa: B023

        times: list[list[float]] = [[], []]
        for _ in range(rounds + 1):
            for spent, work in zip(times, (ours, native), strict=True):
                begin = time.perf_counter()
                work()
                spent.append(time.perf_counter() - begin)
        best, two = (min(spent[1:]) for spent in times)
        rows.append((name, f"{best * 1000:.0f} ms", f"{two * 1000:.0f} ms", f"{best / two:.2f}", "3.00"))
    table("cell | reference, best | torch, best | ratio | wanted", rows)


def verifying(folder: Path, rounds: int) -> None:
    """Measure `verify` for a 2-layer bidirectional LSTM, 256 to 256, on two executors, whole processes; and for 100
    layers.
    """
    make(folder / "a.pt", 2, 256, 256)
    converted(folder / "a.pt", folder / "a.onnx")
    words = [str(folder / "a.pt"), str(folder / "a.onnx"), "--on", "torch-cpu", "--on", "onnxruntime-cpu"]
    rows = []
    for what, more in (("verify", []), ("verify --gradients", ["--gradients"])):
        best: tuple[float, dict[str, float]] | None = None
        for _ in range(rounds):
            begin = time.perf_counter()
            child("-c", MAIN, "verify", *words, *more, "--quiet", "--report", str(folder / "r.json"))
            took = time.perf_counter() - begin
            if best is None or took < best[0]:
                best = took, json.loads((folder / "r.json").read_text())["seconds"]
        assert best is not None
        seconds = best[1]
        split = [f"{seconds[key]:.2f} s" for key in ("load", "start", "convert", "run", "compare", "explain")]
        rows.append((what, f"{best[0]:.2f} s", f"{best[0] - seconds['total']:.2f} s", *split))
    table("what | all, best | our own imports | load | start | convert | run | compare | explain", rows)
    child("-c", f"""
import torch
torch.manual_seed(0)
layers = torch.nn.ModuleDict({{f"layer{{n}}": torch.nn.GRU(16, 16) for n in range(100)}})
torch.save(layers.state_dict(), {str(folder / "many.pt")!r})""")  # fmt: skip
    times = []
    for more in ([], ["--report", str(folder / "many.html"), "--report", str(folder / "many.xml"), "--report", str(folder / "many.md")]):
        begin = time.perf_counter()
        child("-c", MAIN, "verify", str(folder / "many.pt"), "--on", "torch-cpu", "--quiet", *more)
        times.append(time.perf_counter() - begin)
    size = (folder / "many.html").stat().st_size / 1e6
    table("100 layers | all | with three reports | the page", [("GRU 16 to 16, torch", *(f"{t:.1f} s" for t in times), f"{size:.1f} MB")])


PROOFS = {"small": ((2, 512, 512),), "full": ((2, 512, 512), (4, 1024, 1024))}
"""Layers, inputs and units of the bidirectional LSTMs that are proved: up to 370 MB."""

_TORCH = """
import numpy as np, torch
lstm = torch.nn.LSTM({inputs}, {units}, {layers}, bidirectional=True)
lstm.load_state_dict(torch.load({pt!r}))
for steps in (1, 12, 12, 12, 12, 12):
    with torch.no_grad():
        lstm(torch.zeros(steps, 4, {inputs}))"""
_ONNXRUNTIME = """
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession({onnx!r}, providers=["CPUExecutionProvider"])
for steps in (1, 12, 12, 12, 12, 12):
    session.run(None, {{session.get_inputs()[0].name: np.zeros((steps, 4, {inputs}), np.float32)}})"""


def spent(*words: str) -> tuple[float, float, float]:
    """Return the wall time, the processor time and the largest memory of a process, in seconds and MiB."""
    code = "import resource, subprocess, sys, time; t = time.perf_counter(); subprocess.run(sys.argv[1:], check=True); "
    code += "r = resource.getrusage(resource.RUSAGE_CHILDREN); "
    code += "print(time.perf_counter() - t, r.ru_utime + r.ru_stime, r.ru_maxrss / 1024)"
    wall, processor, memory = map(float, child("-c", code, sys.executable, *words).splitlines()[-1].split())
    return wall, processor, memory


def proving(folder: Path, size: str, rounds: int) -> None:
    """Measure `verify` beside what the frameworks themselves need to import, load and run the same six cases."""
    rows = []
    for layers, inputs, units in PROOFS[size]:
        pt, onnx = folder / f"{units}.pt", folder / f"{units}.onnx"
        make(pt, layers, inputs, units)
        converted(pt, onnx)
        words = {"layers": layers, "inputs": inputs, "units": units, "pt": str(pt), "onnx": str(onnx)}
        ours = ["-c", MAIN, "verify", str(pt), str(onnx), "--quiet"]
        ways = {
            "torch alone": ["-c", _TORCH.format(**words)],
            "onnxruntime alone": ["-c", _ONNXRUNTIME.format(**words)],
            "verify": ours,
            "verify --no-explain": [*ours, "--no-explain"],
            "verify --cache, unchanged": [*ours, "--cache", str(folder / "cache")],
        }
        spent(*ways["verify --cache, unchanged"])  # the proof that is kept
        best: dict[str, tuple[float, float, float]] = {}
        for _ in range(rounds):
            for name, command in ways.items():
                pair_spent = spent(*command)
                best[name] = min(best.get(name, pair_spent), pair_spent, key=lambda pair: pair[1])
        both = best["torch alone"][1] + best["onnxruntime alone"][1]
        for name, (wall, processor, memory_used) in best.items():
            rows.append((f"{layers} x {units}", name, f"{processor:.1f} s", f"{processor / both:.2f}", f"{wall:.1f} s",
                         f"{memory_used:,.0f} MiB"))  # fmt: skip
    table("LSTM | way | processor time | beside both frameworks | wall | most memory of one process", rows)


def transplanting(folder: Path, size: tuple[int, int, int], rounds: int) -> None:
    """Compare `load_into` a live module with torch's own load_state_dict, alternately in one process, from the same
    file.
    """
    make(folder / "a.pt", *size)
    times_of_both = json.loads(child("-c", f"""
import json, time, torch
import rnnconvert as rc
layers, inputs, units = {size}
module = torch.nn.LSTM(inputs, units, layers, bidirectional=True)
path = {str(folder / "a.pt")!r}
works = (lambda: module.load_state_dict(torch.load(path, mmap=True)), lambda: rc.load_into(module, path))
times = [[], []]
for _ in range({rounds} + 1):
    for number, work in enumerate(works):
        begin = time.perf_counter()
        work()
        times[number].append(time.perf_counter() - begin)
print(json.dumps([one[1:] for one in times]))"""))  # fmt: skip
    theirs, ours = (min(times) for times in times_of_both)
    ratios = statistics.median(two / seconds for seconds, two in zip(*times_of_both, strict=True))
    rows = [("LSTM from .pt", f"{theirs:.3f} s", f"{ours:.3f} s", f"{ours / theirs:.1f}", f"{ratios:.1f}")]
    table("what | load_state_dict, best | load_into, best | times, of the best | times, median of pairs", rows)


def versions() -> str:
    """Return the versions that the measurements used."""
    names = ("numpy", "onnx", "h5py", "click", "torch", "onnxscript")
    packages = [f"{n} {importlib.metadata.version(n)}" for n in names if importlib.util.find_spec(n)]
    return f"Python {platform.python_version()}, {', '.join(packages)}; {platform.system()}, {os.cpu_count()} CPUs"


def main() -> None:
    """Run what is asked for, in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=WHAT)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", help="a folder on the disk to measure; by default that of temporary files")
    chosen = parser.parse_args()
    size = SIZES[chosen.size]
    sys.path.insert(0, str(ROOT))
    print(f"{versions()}; {size[0]}-layer bidirectional LSTM, {size[1]} to {size[2]}")
    runs: dict[str, Callable[[Path], None]] = {
        "speed": lambda folder: gate_permutation(folder, size, chosen.rounds),
        "memory": lambda folder: memory(folder, size),
        "export": lambda folder: export(folder, size),
        "whole": lambda folder: whole_models(folder, size, max(2, chosen.rounds // 3)),
        "start": lambda folder: start(folder, chosen.rounds),
        "reference": lambda folder: reference(chosen.rounds),
        "verify": lambda folder: verifying(folder, max(2, chosen.rounds // 3)),
        "prove": lambda folder: proving(folder, chosen.size, max(2, chosen.rounds // 3)),
        "transplant": lambda folder: transplanting(folder, size, chosen.rounds),
    }
    for name, run in runs.items():
        if chosen.what in (None, name):
            folder = Path(tempfile.mkdtemp(dir=chosen.folder))
            try:
                run(folder)
            finally:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
