"""The arguments of tests/gpu.sh, and its exit code: 0 equal, 1 something differs or failed, 2 wrong usage, 5 no GPU."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import wheels
from tests.gpu.parts import PARTS, TOTAL, Part, scaled

NEEDS = {"layout": "cudnn", "questions": "cudnn", "cudnn": "cudnn", "torch": "gpu", "jax": "gpu", "keras": "gpu",
         "onnxruntime": "gpu", "load": "torch", "verify": "torch"}  # fmt: skip
"""What a part is nothing without, as tests.gpu.machine calls it."""

_OF_LIBRARY = ("layout", "questions", "cudnn")
"""The parts that run once for each library of cuDNN."""


def main(words: list[str]) -> int:
    """Run what the words say."""
    parser = argparse.ArgumentParser(
        prog="tests/gpu.sh",
        description="Run everything that needs an NVIDIA GPU, in less than eight minutes and without a network.",
        epilog="Exit codes: 0 done, 1 something differs or failed, 2 wrong usage, 5 no GPU or nothing to run on it, 130 interrupted.",
    )
    parser.add_argument("out", nargs="?", metavar="OUT", help="the folder to write to")
    parser.add_argument("--wheels", metavar="DIR", help="with OUT: take missing packages from it; alone: fill it")
    parser.add_argument("--only", metavar="PART", action="append", default=[], help=f"of {', '.join(p.name for p in PARTS)}")
    parser.add_argument("--cudnn", metavar="FOLDER", action="append", default=[],
                        help="another cuDNN's libraries, asked the same and compared; may be repeated")  # fmt: skip
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: stand-ins in the GPU's place, to try this script; every result is marked")  # fmt: skip
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="run every Nth case only")
    parser.add_argument(
        "--seconds", type=int, default=TOTAL, help=f"how long all of it may take (default {TOTAL}); more lengthens every limit"
    )
    parser.add_argument("--python", default=wheels.PYTHONS, help="with --wheels alone: for which Python (default 3.12)")
    parser.add_argument("--from", dest="cwd", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    unknown = [name for name in options.only if name not in {part.name for part in PARTS}]
    if unknown:
        parser.error(f"Unknown part {unknown[0]!r}. Choose one of: {', '.join(part.name for part in PARTS)}")
    if options.sample < 1:
        parser.error("--sample takes 1 or more")
    here = Path(options.cwd)
    folder = here / options.wheels if options.wheels else None
    if not options.out:
        if folder is None:
            parser.error("name the folder to write to, or --wheels DIR")
        return _prepare(folder, options.python)
    return _run(options, here / options.out, folder, [here / path for path in options.cudnn])


def _prepare(folder: Path, python: str) -> int:
    try:
        names = wheels.prepare(folder, python)
    except (wheels.CannotPrepareError, OSError) as error:
        return _stop(2, str(error))
    size = sum((folder / name).stat().st_size for name in names)
    print(f"{folder}: {len(names)} wheels, {size / 1e6:.0f} MB, for Python {python} on Linux, x86-64")
    print(f"Expected on the machine itself: {', '.join(wheels.EXPECTED)} with CUDA, and numpy")
    return 0


def _stop(code: int, text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


def _run(options: argparse.Namespace, out: Path, folder: Path | None, others: list[Path]) -> int:
    start = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
    except OSError as error:
        return _stop(2, f"{out}: cannot write: {error.strerror}. Name another folder")
    try:
        site, missing = wheels.use(folder)
    except wheels.CannotPrepareError as error:
        return _stop(2, str(error))
    except OSError as error:
        return _stop(2, f"{tempfile.gettempdir()}: {error.strerror}. Name another folder in TMPDIR")
    needed = [name for name in ("numpy", "rnnconvert", "ml_dtypes", "safetensors", "h5py", "onnx", "click", "yaml") if name in missing]
    if needed:
        names = ", ".join(wheels.NAMES.get(name, name) for name in needed)
        hint = f"{folder} does not have it for this Python" if folder else "give them with --wheels DIR"
        return _stop(5, f"missing packages: {names}; {hint}")
    # For the processes that are started, and those that they start.
    places = (str(wheels.ROOT), os.environ.get("PYTHONPATH", ""), site)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    from tests.gpu.session import Session  # only now is everything there that it imports

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends the run gets what was found so far
    work = Path(tempfile.mkdtemp(prefix="rnnconvert-gpu-"))
    try:
        return Session(options, out, work, others, start).run(missing)
    except OSError as error:
        return _stop(2, f"{error.filename or out}: {error.strerror}")
    finally:
        for place in filter(None, (str(work), site)):
            shutil.rmtree(place, ignore_errors=True)


def chosen(only: list[str], others: list[Path], seconds: int) -> list[tuple[Part, str]]:
    """The parts to run, each with the folder of cuDNN that it asks: "" for the one that is installed."""
    selected = [(scaled(part, seconds), "") for part in PARTS if not only or part.name in (*only, "machine")]
    for other in others:
        selected += [
            (dataclasses.replace(part, name=f"{part.name}@{other.name}", title=f"{part.title}: {other.name}"), str(other))
            for part, place in list(selected)
            if part.name in _OF_LIBRARY and not place
        ]
    return selected
