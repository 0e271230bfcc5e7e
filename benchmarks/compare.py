"""Compare rnnconvert with what people use instead, in one run: python benchmarks/compare.py [--size small|full] [--folder FOLDER]

Writes benchmarks/results.json, and from it docs/benchmarks.md with its pictures (benchmarks/page.py).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))
RESULTS = HERE / "results.json"
COMPILED = Path(tempfile.gettempdir()) / f"rnnconvert-benchmark-{os.getuid()}"
"""Where Python keeps what it compiled; the first of the runs that are compared is not counted."""
SIZES = {"full": ((4, 1024, 2048), (2, 512, 1024), 4), "small": ((1, 256, 1024), (1, 128, 256), 3)}
"""Layers, inputs and units of the bidirectional LSTM that is copied, of the one that is exported, and the rounds."""
OTHERS = ((1, 256, 1024), (1, 128, 512))
"""Smaller files that are copied too: 42 and 10 MB."""
ENDINGS = (".onnx", ".bin", ".weights.h5", ".h5", ".keras")
TOOLS = {
    "rnnconvert": ["rnnconvert"], "torch.onnx": ["torch", "onnx", "onnxscript"], "keras.export": ["tensorflow", "keras", "onnx", "tf2onnx"],
    "both frameworks": ["torch", "tensorflow", "keras"],
}  # fmt: skip
"""What has to be installed for a way, besides Python."""


def python(code: str) -> list[str]:
    """Return the command that runs some code with this Python."""
    return [sys.executable, "-c", code]


def environment() -> dict[str, str]:
    """Return the variables of every process: Python keeps what it compiled, as it does where packages are installed."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(COMPILED), "TF_CPP_MIN_LOG_LEVEL": "3",
        "KERAS_BACKEND": "tensorflow",
    }  # fmt: skip


def process(command: list[str]) -> dict[str, Any]:
    """Run a process, and return its wall and processor time in seconds and the most anonymous memory of it, in MiB."""
    with tempfile.TemporaryFile("w+") as messages:
        start = time.perf_counter()
        child = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=messages)
        most = 0
        while True:
            ended, _, usage = os.wait4(child.pid, os.WNOHANG)
            if ended:
                break
            try:
                status = Path(f"/proc/{child.pid}/status").read_text()
            except OSError:
                status = ""
            if match := re.search(r"RssAnon:\s+(\d+)", status):
                most = max(most, int(match[1]))
            time.sleep(0.002)
        took = time.perf_counter() - start
        child.returncode = status
        if status:
            messages.seek(0)
            raise RuntimeError(messages.read()[-1500:])
    return {"wall": took, "processor": usage.ru_utime + usage.ru_stime, "memory": most / 1024}


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least of each measure."""
    return {key: min(run[key] for run in runs) for key in runs[0]}


_SERVER = """
import sys, time
from rnnconvert import convert
for line in sys.stdin:
    source, target = line.rstrip("\\n").split("\\t")
    wall, processor = time.perf_counter(), time.process_time()
    convert(source, target, force=True)
    print(time.perf_counter() - wall, time.process_time() - processor, flush=True)
"""


class Converter:
    """A Python that runs on and converts files when asked."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(python(_SERVER), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, source: Path, target: Path) -> tuple[float, float]:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{source}\t{target}\n")
        self._child.stdin.flush()
        wall, processor = map(float, self._child.stdout.readline().split())
        return wall, processor

    def close(self) -> None:
        """End it."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


def copied(source: Path, target: Path) -> tuple[float, float]:
    """Copy a file with cp, and return the wall and the processor time."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    took, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return took, processor


def forget(path: Path) -> None:
    """Have the system forget what it holds of a file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copying(folder: Path, sizes: list[tuple[int, int, int]], rounds: int) -> list[dict[str, Any]]:
    """Compare conversions with cp of the same file, in alternating pairs: the first ones, then with the source read from the disk."""
    convert, rows = Converter(), []
    for size in sizes:
        source = checkpoint(folder, size, ".safetensors")
        mib = source.stat().st_size / (1 << 20)
        for cold in (False, True):
            for ending in ENDINGS if not cold else (".onnx", ".keras"):
                times: dict[str, list[tuple[float, float]]] = {"cp": [], "ours": []}
                for _ in range((2 if cold else rounds) if mib > 500 else 3 * rounds):
                    for name, work in (("cp", copied), ("ours", convert)):
                        out = folder / "out"
                        shutil.rmtree(out, ignore_errors=True)
                        out.mkdir()
                        if cold:
                            forget(source)
                        times[name].append(work(source, out / f"m{ending}"))
                shutil.rmtree(out)
                rows.append({"mib": mib, "ending": ending, "cold": cold, **times})
                print(f"  {mib:.0f} MiB to {ending}{', cold' if cold else ''}", flush=True)
    convert.close()
    return rows


def checkpoint(folder: Path, size: tuple[int, int, int], ending: str = ".pt") -> Path:
    """Return a file of a bidirectional LSTM of PyTorch's."""
    layers, inputs, units = size
    path = folder / f"{layers}-{units}.pt"
    if not path.exists():
        process(python(
            f"import torch; torch.manual_seed(0); m = torch.nn.LSTM({inputs}, {units}, {layers}, bidirectional=True); "
            f"torch.save(m.state_dict(), {str(path)!r})"
        ))  # fmt: skip
    target = path.with_suffix(ending)
    if not target.exists():
        process(python(f"import rnnconvert as rc; rc.convert({str(path)!r}, {str(target)!r}, target_format='pytorch')"))
    return target


_BY_HAND = """
import numpy as np, torch, keras
layers, inputs, units = {size}
state = torch.load({pt!r})
model = keras.Sequential([keras.Input((None, inputs))] + [
    keras.layers.Bidirectional(keras.layers.LSTM(units, return_sequences=True)) for _ in range(layers)])
for number, layer in enumerate(model.layers):
    for one, end in ((layer.forward_layer, ""), (layer.backward_layer, "_reverse")):
        get = lambda name: state[f"{{name}}_l{{number}}{{end}}"].numpy()
        one.set_weights([get("weight_ih").T, get("weight_hh").T, get("bias_ih") + get("bias_hh")])
model.save({target!r})
"""
_TORCH_ONNX = """
import torch
layers, inputs, units = {size}
m = torch.nn.LSTM(inputs, units, layers, bidirectional=True)
m.load_state_dict(torch.load({pt!r}))
torch.onnx.export(m.eval(), (torch.zeros(2, 1, inputs),), {target!r}, dynamo={dynamo})
"""
_KERAS_EXPORT = """
import keras, numpy as np
model = keras.models.load_model({keras!r})
model(np.zeros((1, 2, {size}[1]), "float32"))
model.export({target!r}, format="onnx", verbose=False)
"""
_TF2ONNX = """
import numpy as np
if not hasattr(np, "cast"):  # tf2onnx 1.17 was made for numpy 1
    np.cast = {{kind: (lambda values, kind=kind: np.asarray(values, kind)) for kind in (np.float32, np.float16, np.int32, np.int64)}}
import keras, tensorflow as tf, tf2onnx
model = keras.models.load_model({keras!r})
given = tf.TensorSpec((None, None, {size}[1]), tf.float32)
tf2onnx.convert.from_function(tf.function(model, [given]), [given], output_path={target!r})
"""
_OURS = "import rnnconvert as rc; rc.convert({source!r}, {target!r}, force=True)"


def ways(folder: Path, size: tuple[int, int, int], rounds: int) -> list[dict[str, Any]]:
    """Measure the ways from a file of one framework to one of another, as whole processes."""
    source = checkpoint(folder, size)
    keras_file = folder / "by_hand.keras"
    words = {"size": size, "pt": str(source), "keras": str(keras_file)}
    tasks: dict[str, list[tuple[str, str, str]]] = {
        "PyTorch to Keras": [("rnnconvert", "rnnconvert", _OURS), ("loading both, copying by hand", "both frameworks", _BY_HAND)],
        "PyTorch to ONNX": [
            ("rnnconvert", "rnnconvert", _OURS), ("torch.onnx, dynamo=False", "torch.onnx", _TORCH_ONNX),
            ("torch.onnx, dynamo=True", "torch.onnx", _TORCH_ONNX),
        ],
        "Keras to ONNX": [
            ("rnnconvert", "rnnconvert", _OURS), ("keras.export", "keras.export", _KERAS_EXPORT), ("tf2onnx", "keras.export", _TF2ONNX),
        ],
    }  # fmt: skip
    rows = []
    for module in ("torch, onnx, onnxscript", "tensorflow, keras, onnx, tf2onnx", "rnnconvert.formats.keras.files"):
        process(python(f"import {module}"))  # compiles it
    for task, some in tasks.items():
        ending = ".keras" if task.endswith("Keras") else ".onnx"
        start = keras_file if task.startswith("Keras") else source
        for name, tool, code in some:
            # What was made by hand is what is exported from Keras.
            target = keras_file if code is _BY_HAND else folder / f"out{ending}"
            text = code.format(source=str(start), target=str(target), dynamo="dynamo=True" in name, **words)
            row: dict[str, Any] = {"task": task, "way": name, "tool": tool}
            try:
                row |= best([process(python(text)) for _ in range(rounds if name == "rnnconvert" else 1)])
                row["written"] = sum(path.stat().st_size for path in folder.glob(f"{target.name}*"))
            except RuntimeError as error:
                row["failed"] = str(error).strip().splitlines()[-1][:200]
            for old in folder.glob("out.*"):
                old.unlink()
            rows.append(row)
            print(f"  {task}: {name}", flush=True)
    return rows


def filling(folder: Path, size: tuple[int, int, int], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Compare load_into with load_state_dict of the same file, in alternating pairs in one process."""
    source = checkpoint(folder, size)
    code = f"""
import json, time, torch
import rnnconvert as rc
module = torch.nn.LSTM({size[1]}, {size[2]}, {size[0]}, bidirectional=True)
works = {{"load_state_dict": lambda: module.load_state_dict(torch.load({str(source)!r}, mmap=True)),
         "ours": lambda: rc.load_into(module, {str(source)!r})}}
times = {{name: [] for name in works}}
for _ in range({rounds} + 1):
    for name, work in works.items():
        wall, processor = time.perf_counter(), time.process_time()
        work()
        times[name].append((time.perf_counter() - wall, time.process_time() - processor))
print(json.dumps({{name: some[1:] for name, some in times.items()}}))"""
    done = subprocess.run(python(code), env=environment(), capture_output=True, text=True, check=True)
    seconds: dict[str, list[tuple[float, float]]] = json.loads(done.stdout)
    return seconds


def starting(folder: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Compare the conversion of a small file with the import of numpy and click: whole processes, in alternating pairs."""
    source = checkpoint(folder, (1, 16, 24))
    main = "from rnnconvert.cli.main import main; main()"
    commands = {
        "import numpy, click": python("import numpy, click"),
        "ours": [*python(main), "convert", "-q", "--force", str(source), str(folder / "small.safetensors")],
        "import torch": python("import torch"),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            run = process(command)
            times[name].append((run["wall"], run["processor"]))
    return {name: some[1:] for name, some in times.items()}


def installed(names: list[str]) -> float:
    """Return the bytes of packages and of all that they need, in MB."""
    from packaging.requirements import Requirement

    done: set[str] = set()
    total, waiting = 0, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in done:
            continue
        done.add(name)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        needed = [Requirement(text) for text in package.requires or ()]
        waiting += [requirement.name for requirement in needed if requirement.marker is None or requirement.marker.evaluate({"extra": ""})]
        if name == "rnnconvert":
            total += sum(path.stat().st_size for top in ("rnnconvert", "formats", "cli") for path in (ROOT / top).rglob("*.py"))
            continue
        total += sum(Path(str(file.locate())).stat().st_size for file in package.files or () if Path(str(file.locate())).is_file())
    return total / 1e6


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    names = ("numpy", "torch", "tensorflow", "keras", "onnx", "onnxscript", "tf2onnx", "h5py")
    packages = {}
    for name in names:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(), "system": f"{platform.system()} {platform.release()}", "processors": os.cpu_count(),
        "processor": model[1] if model else platform.machine(), "packages": packages,
    }  # fmt: skip


def main() -> None:
    """Measure, write the results, and make the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--folder", help="a folder on the disk to measure; by default that of temporary files")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    large, medium, rounds = SIZES[arguments.size]
    begun, load = time.time(), [os.getloadavg()[0]]
    results: dict[str, Any] = {"size": arguments.size, "machine": machine(), "when": time.strftime("%Y-%m-%d", time.gmtime())}
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    steps: dict[str, Callable[[], object]] = {
        "start": lambda: starting(folder, 10),
        "copy": lambda: copying(folder, [*OTHERS, large] if arguments.size == "full" else list(OTHERS), rounds),
        "fill": lambda: filling(folder, large, rounds),
        "ways": lambda: ways(folder, medium, rounds),
        "installed": lambda: {tool: installed(names) for tool, names in TOOLS.items()},
    }
    try:
        for name, step in steps.items():
            print(name, flush=True)
            results[name] = step()
            load.append(os.getloadavg()[0])
    finally:
        shutil.rmtree(folder)
    layers, inputs, units = medium
    results |= {"load": load, "seconds": time.time() - begun, "exported": f"{layers} x {inputs} to {units}"}
    arguments.results.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.results == RESULTS:
        subprocess.run([sys.executable, str(HERE / "page.py")], check=True)


if __name__ == "__main__":
    main()
