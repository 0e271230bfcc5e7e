"""The packages that a machine without an index receives: this project's wheel, and what it and the tests import.

What such a machine is expected to have by itself: a torch with CUDA, numpy, and for JAX's part a jax with CUDA.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHONS = "3.12"
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17, 12, 5)),
    *(f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")),
)
EXPECTED = ("torch", "jax")
"""Packages that are not carried: they are large, and made for the machine's own CUDA."""

NAMES = {
    "click": "click", "yaml": "PyYAML", "onnx": "onnx", "typing_extensions": "typing-extensions", "google.protobuf": "protobuf",
    "ml_dtypes": "ml-dtypes", "safetensors": "safetensors", "h5py": "h5py", "keras": "keras", "absl": "absl-py", "rich": "rich",
    "namex": "namex", "optree": "optree", "packaging": "packaging", "markdown_it": "markdown-it-py", "mdurl": "mdurl",
    "pygments": "Pygments", "msgpack": "msgpack", "haiku": "dm-haiku", "jmp": "jmp", "tabulate": "tabulate", "equinox": "equinox",
    "jaxtyping": "jaxtyping", "wadler_lindig": "wadler-lindig", "flax": "flax", "optax": "optax", "treescope": "treescope",
}  # fmt: skip
"""What is carried, by the name under which Python imports it."""


class CannotPrepareError(Exception):
    """The folder cannot be filled, or not be used; the message says why."""


def prepare(folder: Path, python: str = PYTHONS) -> list[str]:
    """Fill a folder with wheels for Linux on x86-64 and that Python; return their names. Raises CannotPrepareError."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("rnnconvert-*.whl"):
        old.unlink()
    pins = [_pinned(name) for name in NAMES.values()]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    _run(
        [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python,
         "--implementation", "cp", *platforms, "--dest", str(folder), *pins]
    )  # fmt: skip
    names = sorted(path.name for path in folder.glob("*.whl"))
    lacking = [name for name in (*NAMES.values(), "rnnconvert") if not _of(name, names)]
    if lacking:
        raise CannotPrepareError(f"{folder} lacks {', '.join(lacking)}")
    return names


def _pinned(name: str) -> str:
    """The version that the tests use, where constraints.txt has one."""
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if re.sub(r"[-_.]+", "-", line.partition("==")[0].strip().lower()) == name.lower():
            return line.partition("#")[0].strip()
    return name


def _of(name: str, files: Iterable[str]) -> list[str]:
    plain = re.sub(r"[-_.]+", "_", name).lower()
    return [file for file in files if re.sub(r"[-_.]+", "_", file.split("-")[0]).lower() == plain]


def use(folder: Path | None) -> tuple[str, list[str]]:
    """Unpack the wheels of packages that are missing here; return where, "" if nothing was needed, and what is still missing.

    A package that the machine has is left alone, whatever its version.
    """
    missing = [name for name in ("numpy", "rnnconvert", *NAMES) if not _importable(name)]
    if folder is None or not missing:
        return "", missing
    if not folder.is_dir():
        raise CannotPrepareError(f"{folder} is not a folder: make it with tests/gpu.sh --wheels DIR, where there is an index")
    files = [path.name for path in folder.glob("*.whl")]
    site = tempfile.mkdtemp(prefix="rnnconvert-gpu-")
    try:
        for name in missing:
            for file in filter(_fits, _of(NAMES.get(name, name), files)):
                with zipfile.ZipFile(folder / file) as archive:
                    archive.extractall(site)
    except (OSError, zipfile.BadZipFile) as error:
        shutil.rmtree(site, ignore_errors=True)
        if isinstance(error, OSError):
            raise
        raise CannotPrepareError(f"{folder / file} is damaged: {error}") from None
    sys.path.append(site)
    importlib.invalidate_caches()
    return site, [name for name in missing if not _importable(name)]


def _fits(file: str) -> bool:
    """Whether this Python takes a wheel: its own tag, the stable one, or any."""
    tag = file.removesuffix(".whl").split("-")[-3:]
    tag_here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    stable = tag[1] == "abi3" and re.fullmatch(r"cp3\d+", tag[0]) and int(tag[0][3:]) <= sys.version_info[1]
    return tag_here in tag[0].split(".") or bool(stable) or tag[1] == "none"


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotPrepareError(f"{' '.join(command[2:5])} failed: {' '.join(lines[-3:])}")
