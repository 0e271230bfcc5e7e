"""Every way out that an error names leads further: it is typed, on the file at hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import ROOT
from tests.helpers.drawn import drawn
from tests.helpers.drawn import each as every
from tests.helpers.ways_out import FAULT, REFUSALS, Answer, answered

COMMANDS = (
    "convert FILE out.onnx", "convert FILE out.pt", "convert FILE out.keras", "convert FILE out.tflite", "convert FILE out.h",
    "convert FILE out.json --to rtneural", "convert FILE out.param", "export FILE out.onnx", "export FILE out.tflite",
    "export FILE out.h", "export FILE out.param", "export FILE model.json --to tfjs", "scaffold FILE --to pytorch", "inspect FILE",
    "upgrade FILE out.keras", "identify FILE", "convert FILE out.bin --to cudnn", "convert FILE out.npz --to lasagne",
    "convert FILE out.onnx --strict", "convert FILE out.pt --dtype float16", "export FILE out.json --to rtneural",
    "export FILE out.zip --to dl4j", "scaffold FILE --to keras", "fuse FILE out.onnx", "diff FILE FILE", "batch FILE --to keras",
)  # fmt: skip
"""What people type first."""
RUN = 60
"""How many of the files and commands are tried in a run."""


def _files() -> list[Path]:
    """The files that frameworks wrote, and the parts of those that are folders."""
    names = subprocess.run(["git", "ls-files", "tests/golden"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if Path(name).suffix not in (".py", ".npz", ".md", ".txt", ".xz")]


def _check(case: tuple[Path, str], folder: Path) -> None:
    file, command = case
    first = answered([str(file) if word == "FILE" else word for word in command.split()], folder)
    assert first.code != FAULT, first.error
    if first.code in REFUSALS:
        _check_ways(first, folder)


def _check_ways(refused: Answer, folder: Path) -> None:
    for number, (way, words) in enumerate(refused.typed()):
        place = folder / str(number)
        place.mkdir()
        (place / "layout.toml").write_text(refused.layout)
        after = answered(words, place)
        assert after.code != FAULT, after.error
        assert after.text != refused.text, f"{way} is answered by the same error: {after.error}"
        # A further question is no misuse: it names a way on.
        assert after.code != 2 or refused.code == 2 or after.remedies, f"{way} is answered by a misuse: {after.error}\nof {refused.error}"
        if way.startswith("--to "):
            assert after.code not in REFUSALS, f"{way} is refused, too: {after.error}\nof {refused.error}"


def test_every_way_out_that_an_error_names_leads_further(tmp_path: Path) -> None:
    cases = drawn([(file, command) for file in _files() for command in COMMANDS], RUN, "ways out")

    def check(case: tuple[Path, str]) -> None:
        folder = tmp_path / str(cases.index(case))
        folder.mkdir()
        _check(case, folder)

    every(cases, check, lambda case: f"{case[1]} of {case[0].relative_to(ROOT)}")
