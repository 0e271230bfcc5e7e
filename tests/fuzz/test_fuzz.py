"""The fuzzer finds what it should find, and nothing in what was found before."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rnnconvert as rc
from fuzz import __main__ as fuzzer
from fuzz import execution, seeds, stated
from fuzz.execution import Finding, Limits, changed, execute, put
from fuzz.seeds import Seed
from fuzz.steering import Decisions
from rnnconvert.containers import msgpack_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.scaffolding.sources import described_source
from rnnconvert.scaffolding.sources import sources as whole_sources
from tests.helpers import drawn
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.reads_apart

FOLDER = Path(fuzzer.__file__).parent / "found"
CASES = sorted(child for child in FOLDER.iterdir() if child.is_dir())
LIMITS = Limits(10, 1 << 30)


@pytest.fixture(scope="module")
def built_seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    return seeds.build(tmp_path_factory.mktemp("seeds"), corpus=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_found_stays_mended(case: Path, tmp_path: Path) -> None:
    """Each case by itself, read by the container alone and as the command line reads it."""
    (entry,) = (file for file in case.iterdir() if file.name.startswith(("m.", "model.", "whole_")))
    for turn in range(30 if entry.name.startswith("whole_") else 8):
        end, finding = execute(entry, random.Random(turn), None, tmp_path, LIMITS)
        assert finding is None, finding.trace
        assert end


def test_what_was_found_names_no_path_of_a_machine() -> None:
    """Frameworks write where a program stood into what they save: a traceback names files by their full paths."""
    full = re.compile(rb"(?<![\w.-])/[\w./-]+\.py\b")
    assert full.search(b"at /home/someone/train.py(3)")
    assert [(case.name, path) for case in CASES for file in case.iterdir() for path in full.findall(file.read_bytes())] == []


def test_seeds_are_of_every_kind_and_readable(built_seeds: list[Seed], tmp_path: Path) -> None:
    kinds = {seed.kind for seed in built_seeds}
    assert len(kinds) >= 20 and len(built_seeds) >= 100, kinds
    ends: dict[str, int] = {}
    for number, seed in enumerate(built_seeds):
        path = put(tmp_path / str(number), seed.files, seed.entry)
        for draw in range(10 if seed.kind.startswith("whole-") else 1):  # one of its uses, of which some are refused
            end, finding = execute(path, random.Random(draw), seed.format, tmp_path, LIMITS)
            assert finding is None, (seed.kind, finding.trace)
            ends[seed.kind] = ends.get(seed.kind, 0) + (end in ("read", "container read", "fused", "whole read"))
    assert not [kind for kind, count in ends.items() if not count and kind != "special"]  # where files are made pipes and links


def test_whole_models_of_every_room_are_seeds(built_seeds: list[Seed], tmp_path: Path) -> None:
    rooms = set()
    for number, seed in enumerate(seed for seed in built_seeds if seed.kind.startswith("whole-")):
        path = put(tmp_path / str(number), seed.files, seed.entry)
        with contextlib.suppress(rc.RnnConvertError):
            rooms.add(described_source(path).model.framework)
    assert rooms >= set(whole_sources()), set(whole_sources()) - rooms


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), rng=st.randoms(use_true_random=False))
def test_hypothesis_finds_no_file_that_ends_otherwise(
    data: Any, rng: random.Random, built_seeds: list[Seed], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "drawn"
    (folder / "out").mkdir(parents=True, exist_ok=True)
    seed = built_seeds[data.draw(st.integers(0, len(built_seeds) - 1))]
    path = put(folder / "case", changed(seed, rng), seed.entry)
    _, finding = execute(path, rng, seed.format, folder / "out", LIMITS)
    assert finding is None, finding.trace


def test_what_no_array_has_is_refused_or_read(built_seeds: list[Seed], tmp_path: Path) -> None:
    """Numbers, shapes and names of types in files of every kind, exchanged one by one (fuzz.stated)."""

    def check(seed: Seed) -> None:
        step = 1 if drawn.LONG else 23
        first = random.Random(f"{drawn.SEED} {seed.kind} {seed.entry}").randrange(step)
        for files in itertools.islice(stated.cases(seed), first, None if drawn.LONG else first + 8 * step, step):
            stated.ended(seed, files, tmp_path)

    each(drawn.drawn(built_seeds, 20, "stated"), check, lambda seed: f"{seed.kind} {seed.entry} {seed.format}")


def test_what_is_exchanged_lies_in_a_file_of_its_form(built_seeds: list[Seed], tmp_path: Path) -> None:
    """A safetensors file whose shape is exchanged is refused for that shape, not for the length of its header."""
    seed = next(seed for seed in built_seeds if seed.kind == "safetensors" and seed.format == "pytorch")
    ends = {stated.ended(seed, files, tmp_path) for files in itertools.islice(stated.cases(seed), 60)}
    assert {"unreadable", "read"} <= ends or {"unreadable", "no layers"} <= ends, ends
    changed = next(files for files in stated.cases(seed) if b"-1, -1" in files[seed.entry])
    put(tmp_path, changed, seed.entry)
    with pytest.raises(UnreadableError, match="shape"):
        rc.load(tmp_path / seed.entry)


def test_bytes_decide_and_end_without_an_error(built_seeds: list[Seed]) -> None:
    by_kind = {seed.kind: seed for seed in built_seeds}
    for seed in by_kind.values():
        for data in (b"", bytes(100), bytes(range(256))):
            assert changed(seed, Decisions(data)) == changed(seed, Decisions(data))


FAULTS = {
    "KeyError": lambda *_: dict[str, int]()["x"], "time": lambda *_: [None for _ in iter(int, 1) if False],
    "memory": lambda *_: [bytearray(100 << 20).count(1)][1:],
    "process": lambda *_: os.kill(os.getpid(), signal.SIGSEGV),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_kept(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(msgpack_file, "_leaves", FAULTS[fault])
    monkeypatch.setattr(execution, "CONTAINERS", 1.0)
    limit = "0.5" if fault == "time" else "2"
    words = ["--executions", "6", "--kinds", "msgpack", "--no-corpus", "--seed", "1", "--limit", limit, "--memory", "64"]
    words += ["--keep", str(tmp_path / "kept")]
    assert fuzzer.main([*words, "--figures", str(tmp_path / "figures.json")]) == 1
    assert f"FOUND msgpack: {fault}" in capsys.readouterr().out
    cases = [folder for folder in (tmp_path / "kept").iterdir() if f"msgpack-{fault}" in folder.name]
    assert cases and (cases[0] / "m.msgpack").stat().st_size
    (run,) = json.loads((tmp_path / "figures.json").read_text())
    assert run["executions"] > 0 and run["findings"][0][1] == fault


def test_a_run_without_a_fault_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzzer.main(["--executions", "40", "--kinds", "safetensors", "--no-corpus", "--seed", "3"]) == 0
    assert "\n40 executions in " in capsys.readouterr().out


def test_an_end_that_is_documented_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"x")
    assert execute(path, random.Random(0), None, tmp_path, LIMITS) == ("unreadable", None)

    def fails(path: Path) -> None:
        raise ValueError("plain")

    def refuses(path: Path) -> None:
        raise UnreadableError(path, "so")

    monkeypatch.setattr(execution, "container", lambda path: fails)
    monkeypatch.setattr(execution, "CONTAINERS", 1.0)
    end, finding = execute(path, random.Random(0), None, tmp_path, LIMITS)
    assert (end, isinstance(finding, Finding) and finding.what) == ("", "ValueError")
    monkeypatch.setattr(execution, "container", lambda path: refuses)
    assert execute(path, random.Random(0), None, tmp_path, LIMITS)[0] == "unreadable"


@pytest.mark.parametrize("level", ["_parameters", "_buffers", "_modules"])
@pytest.mark.parametrize("value", [[1], "x", ("a", "b")])
def test_a_module_whose_parts_are_no_dictionary_is_read_or_unreadable(level: str, value: Any, tmp_path: Path) -> None:
    """What the fuzzer found in a pickled torch module: an AttributeError."""
    torch = needed("torch", "torch")
    module = torch.nn.Sequential(torch.nn.LSTM(2, 3))
    module[0].__dict__["_non_persistent_buffers_set"] = 5
    (module if level == "_modules" else module[0]).__dict__[level] = value
    torch.save(module, tmp_path / "module.pt")
    try:
        rc.load(tmp_path / "module.pt")
    except rc.RnnConvertError as error:
        assert error.exit_code in (2, 3, 4)


def test_an_array_whose_shape_is_an_array_is_unreadable(tmp_path: Path) -> None:
    """What the fuzzer found in a .msgpack: an IndexError."""

    def extension(content: bytes) -> bytes:
        return bytes((0xC7, len(content), 1)) + content

    name, numbers = b"\xa7float32", b"\xc4\x08" + bytes(8)
    inner = extension(b"\x93\x91\x02" + name + numbers)
    path = tmp_path / "x.msgpack"
    path.write_bytes(b"\x81\xa1a" + extension(b"\x93" + inner + name + numbers))
    with pytest.raises(UnreadableError, match="does not consist of a shape"):
        msgpack_file.read(path)
