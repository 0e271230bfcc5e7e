"""tests/gpu.sh, run with stand-ins in the GPU's place: what it does where things are missing, hang, crash or differ."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites import each
from rnnconvert.running.child import missing
from tests import ROOT
from tests.gpu import flat, kept, machine, parts, questions, records, standins, supervisor, wheels
from tests.gpu.problems import Config, Solved, configs, flat_of, judged, vector
from tests.gpu.records import ANSWERED, BAD, EQUAL, FAILED, OPEN, REFUSED, SKIPPED, UNRUN, Record
from tests.gpu.work import Work
from tests.helpers import drawn
from tests.helpers.cudnn_standin import StandIn
from tests.helpers.foreign import swapped
from tests.helpers.requirements import need

CPU = kept.FOLDER / "cpu.safetensors"


def script(*words: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = ["bash", str(ROOT / "tests" / "gpu.sh"), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def work(tmp_path: Path, part: str = "questions", device: str = "cpu") -> Work:
    return Work(part, device, tmp_path)


# The whole


def test_the_whole_run_with_stand_ins(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    words = [] if drawn.LONG else ["--sample", "60", "--only", "cudnn", "--only", "questions", "--only", "torch"]
    done = script("out", "--device", "cpu", *words, *(["--seconds", "2000"] if drawn.LONG else []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert standins.MARK in done.stderr
    out = tmp_path / "out"
    names = {"report.html", "junit.xml", "results.safetensors", "versions.json", "answers.json", "log"}
    assert {path.name for path in out.iterdir()} == names
    assert f"Every result here is of a {standins.MARK}" in (out / "report.html").read_text()
    suites = ElementTree.parse(out / "junit.xml").getroot()
    assert all(standins.MARK in suite.attrib["name"] for suite in suites)
    assert not suites.findall(".//failure") + suites.findall(".//error")
    arrays, about = kept.read(out / "results.safetensors")
    assert about["about"]["stand-in"] is True
    assert any(name.startswith("cudnn | ") for name in arrays)
    assert json.loads((out / "versions.json").read_text())["stand-in"] is True
    answered = json.loads((out / "answers.json").read_text())
    assert answered["stand-in"] is True
    assert answered["questions"][0]["answer"] == "inside the reset product"


def test_without_a_gpu_everything_is_named_and_nothing_fails(tmp_path: Path) -> None:
    if machine_has_gpu():
        pytest.skip("there is a GPU here")
    done = script(str(tmp_path / "out"), "--only", "cudnn", "--only", "load", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 5, done.stderr
    assert "in the way: driver: " in done.stderr
    suites = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert not suites.findall(".//failure") + suites.findall(".//error")
    assert len(suites.findall(".//skipped")) >= 2


def machine_has_gpu() -> bool:
    from rnnconvert.running.child import gpu

    return bool(gpu())


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    # Tests in the background ignore SIGINT, and so would this process.
    heard = "import runpy, signal; signal.signal(2, signal.default_int_handler); runpy.run_module('tests.gpu', run_name='__main__')"
    command = [sys.executable, "-c", heard, str(tmp_path / "out"), "--device", "cpu", "--only", "cudnn"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert any(line.startswith("machine: ") for line in run.stderr)
        time.sleep(6)
        run.send_signal(signal.SIGINT)
        message = run.stderr.read()
    assert run.returncode == 130, message
    assert "interrupted: what was found so far is written" in message
    arrays, _ = kept.read(tmp_path / "out" / "results.safetensors")
    assert 0 < len(arrays) < len(configs())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the folder to write to"),
        (["{file}/out"], "cannot write"),
        (["out", "--only", "gpu"], "Unknown part 'gpu'. Choose one of: machine, layout"),
        (["out", "--sample", "0"], "--sample takes 1 or more"),
        (["--wheels", "{file}"], "exists"),
    ],
)
def test_wrong_usage_is_named(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = script(*[word.replace("{file}", str(tmp_path / "file")) for word in words], cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


# One process a part


def supervised(tmp_path: Path, seconds: int = 60, each: int = 3) -> dict[str, Record]:
    part = parts.Part("faults", "Faults", "tests.helpers.gpu_faults", seconds, each, 20)
    task = supervisor.Task(part, "cuda", tmp_path, {})
    results = supervisor.run(task, time.monotonic() + seconds, lambda case: None)
    return {record.case: record for record in results}


def test_a_crash_or_a_hang_ends_one_case(tmp_path: Path) -> None:
    results = supervised(tmp_path)
    assert {name: record.verdict for name, record in results.items() if not name.startswith("after")} == {
        "first": EQUAL, "hang": FAILED, "crash": FAILED, "exit": FAILED, "CUDA": FAILED, "mistake": FAILED, "no": REFUSED,
        "gone": SKIPPED,
    }  # fmt: skip
    assert all(record.verdict == EQUAL for name, record in results.items() if name.startswith("after"))
    assert results["hang"].why == "no answer within 3 seconds"
    assert results["crash"].why.startswith("its process was ended by SIGSEGV")
    assert results["exit"].why == "its process ended with 3"
    assert results["CUDA"].why == "RuntimeError: cudaMemcpy returned 700"
    number = int((tmp_path / "grandchild").read_text())
    time.sleep(0.2)
    status = Path(f"/proc/{number}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert len(kept.collected("faults", tmp_path)) == 8


def test_a_part_ends_with_its_time(tmp_path: Path) -> None:
    began = time.monotonic()
    results = supervised(tmp_path, seconds=4, each=30)
    assert time.monotonic() - began < 12
    assert results["first"].verdict == EQUAL
    assert results["hang"].verdict == UNRUN
    assert results["after gone"].why == "its time was over"
    assert len(results) == 15


def test_the_parts_fit_into_eight_minutes() -> None:
    assert sum(part.seconds for part in parts.PARTS) <= parts.TOTAL < 480
    assert parts.scaled(parts.PARTS[0], 2 * parts.TOTAL).seconds == 2 * parts.PARTS[0].seconds
    assert parts.scaled(parts.PARTS[0], 10) == parts.PARTS[0]


# What is in the way

GPU = {"device": "Some GPU", "cuda": [13, 0], "capability": [9, 0], "free": 10**10, "total": 10**11}
HERE: dict[str, Any] = {
    "driver": GPU, "cudnn": {"version": "9.20.0", "cuda": [13, 0]}, "torch": {"version": "2.11.0", "cuda": "13.0"},
    "jax": {"version": "0.11.2"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "names", "message"),
    [
        ({}, set(), ""),
        ({"driver": {"cuda": [12, 4]}}, {"cudnn", "torch"}, "the driver is older than the libraries: it knows CUDA 12.4, but"),
        ({"driver": {"cuda": [12, 4]}}, {"cudnn", "torch"}, "Install driver 580 or newer"),
        ({"driver": {"capability": [7, 0]}}, {"cudnn", "torch"}, "the GPU is too old: Some GPU (compute capability 7.0)"),
        ({"driver": {"capability": [7, 0]}, "cudnn": {"cuda": [12, 9]}}, {"torch"}, "begins at 7.5"),
        ({"driver": {"free": 10**8}}, {"gpu", "cudnn", "torch", "jax"}, "too little memory: 0.10 GB of the GPU's are free"),
        ({"driver": None}, {"gpu", "cudnn", "torch", "jax"}, "the driver is gone"),
        ({"cudnn": None}, {"cudnn"}, "the cudnn is gone"),
        ({"torch": {"cuda": ""}}, {"torch"}, "torch 2.11.0 is made for the CPU"),
        ({"jax": {"error": "no plugin"}}, {"jax"}, "jax does not run on Some GPU (compute capability 9.0): no plugin"),
    ],
)
def test_what_is_in_the_way_is_named(changes: Mapping[str, Any], names: set[str], message: str) -> None:
    facts = {name: {**fact, **(changes.get(name) or {})} for name, fact in HERE.items() if changes.get(name, 0) is not None}
    why = {name: f"the {name} is gone" for name in HERE if name not in facts}
    obstacles = machine.blocked(facts, why, "cuda")
    assert set(obstacles) == names
    assert all(message in text for text in obstacles.values())


# Experiments


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_the_experiment_finds_what_the_library_computes(place: str, tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    parts = {"inside": "recurrent_bias", "outside": "input_bias"}

    def reading(stack: Recurrent) -> Recurrent:
        return each(stack, lambda d: d.replace(arrays={(parts[place] if "bias" in p else p, g): a for (p, g), a in d.arrays.items()}))

    answer = questions.single_bias(work(tmp_path), "single_rec", reading)
    assert (answer.verdict, answer.facts["answer"]) == (ANSWERED, f"{place} the reset product")


def test_an_experiment_without_one_answer_stays_open() -> None:
    far, near, match = (1e4, 1.0), (20.0, 1e-4), (0.5, 1e-8)
    answers: dict[str, dict[str, tuple[float, float]]] = {
        ANSWERED: {"a": match, "b": far}, "two match": {"a": match, "b": match}, "none matches": {"a": far, "b": far},
        "another is near": {"a": match, "b": near},
    }  # fmt: skip
    verdicts = {name: questions.settled("?", {"one": each, "two": each}).verdict for name, each in answers.items()}
    assert verdicts == {ANSWERED: ANSWERED, "two match": OPEN, "none matches": OPEN, "another is near": OPEN}
    assert questions.settled("?", {"one": {"a": match, "b": far}, "two": {"a": far, "b": match}}).verdict == OPEN


def test_every_place_of_a_clip_gives_other_numbers() -> None:
    need("torch", missing(["torch"]))
    solved = Solved(Config("lstm", 2, 2, clip=questions.CLIP, dtype="float64"))
    rows = {place: questions.clipped_lstm(solved, place)[0] for place in questions.PLACES}
    np.testing.assert_allclose(rows["where it is read"], solved.truth.y, rtol=0, atol=1e-12)
    finals = ("final only", "where it is read, and the final one")  # which differ from others in the final state alone
    names = [name for name in rows if name not in finals]
    for number, place in enumerate(names):
        for other in names[:number]:
            assert np.abs(rows[place] - rows[other]).max() > 1e-3
    slopes = [questions.clipped_lstm(solved, "where it is read", slope)[-1] for slope in ("zero", "passed on")]
    np.testing.assert_allclose(slopes[0], solved.gradients().cell[-1], rtol=0, atol=1e-12)
    assert np.abs(slopes[0] - slopes[1]).max() > 1e-3


def test_the_experiments_on_a_clip_find_what_the_stand_in_computes(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    answers = [experiment(work(tmp_path)) for experiment in (questions.clip_of_lstm, questions.clip_gradient)]
    assert [answer.facts["answer"] for answer in answers] == ["where it is read", "where it is read, zero"]
    assert questions.empty_sequence(work(tmp_path)).facts["answer"] == "zeros"


# Judging


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_wrong_gate_order_is_caught(cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("torch", missing(["torch"]))
    solved = Solved(Config(cell, 2, 2))
    wrong = flat_of(swapped(solved.configured), cell)
    monkeypatch.setattr(Solved, "buffer", property(lambda self: wrong))
    answer = flat.solve(work(tmp_path, "cudnn"), solved, cotangents=solved.cotangents)
    assert judged(solved, answer).ratio > 100
    ratios = judged(solved, answer).each
    assert ratios["gradient of x"][0] > 100 and ratios["gradient of weights"][0] > 100


def test_numbers_that_are_none_are_different() -> None:
    solved = Solved(Config("gru"))
    truth = solved.truth
    broken: Array = truth.y.copy()
    broken[0, 0, 0] = np.nan
    assert judged(solved, {"y": truth.y, "hidden": list(truth.hidden), "cell": []}).ratio < 1
    assert judged(solved, {"y": broken, "hidden": list(truth.hidden), "cell": []}).ratio == float("inf")
    assert judged(solved, {"y": truth.y[:2], "hidden": list(truth.hidden), "cell": []}).ratio == float("inf")


def test_the_configurations_cover_every_mode() -> None:
    every = configs()
    assert len(every) == len({config.name for config in every})
    for field, values in {
        "cell": {"rnn_relu", "rnn_tanh", "lstm", "gru"}, "directions": {1, 2}, "layers": {1, 2, 3}, "skip": {True, False},
        "biases": {"none", "single_inp", "single_rec", "double"}, "dtype": {"float32", "float64", "float16", "bfloat16"},
        "io": {"unpadded", "padded", "packed"}, "states": {True, False}, "projection": {0, 2},
        "algorithm": {"standard", "persist_static", "persist_static_small_h", "persist_dynamic"},
    }.items():  # fmt: skip
        assert {getattr(config, field) for config in every} == values
    assert any(config.clip for config in every)


# Kept results


def test_the_cpus_kept_results_are_the_references() -> None:
    arrays, about = kept.read(CPU)
    assert about["about"]["stand-in"] is True
    by_name = {config.name: config for config in configs()}
    names = [name for name in arrays if name.startswith("cudnn | ")]
    assert len(names) > 400
    check_cudnn(arrays, drawn.drawn(names, 60, "kept of the CPU"), by_name)
    assert {name.partition(" | ")[0] for name in arrays} == {"cudnn", "torch", "jax", "keras", "onnxruntime"}


def check_cudnn(arrays: Mapping[str, Array], names: list[str], by_name: Mapping[str, Config]) -> None:
    """Compare the kept answers of cuDNN's buffer with the reference of today."""
    need("torch", missing(["torch"]))
    for name in names:
        config = by_name[name.partition(" | ")[2]]
        solved = Solved(config)
        truth = solved.truth
        answer = {"y": truth.y, "hidden": truth.hidden, "cell": truth.cell, "gradients": {"x": solved.gradients().x}}
        record = Record("cudnn", config.name, EQUAL)
        row = vector(config, answer)
        assert kept.compare([record], {name: row}, arrays) == [], config.name
        assert kept.compare([record], {name: -row}, arrays)


@pytest.mark.parametrize("path", kept.of_gpus() or [None], ids=lambda path: path.stem if path else "none")
def test_the_kept_results_of_gpus_are_the_references_and_the_cpus(path: Path | None) -> None:
    if path is None:
        pytest.skip(
            "NO RESULT OF A GPU IS KEPT: nothing here is proved on a GPU. On a machine with one run "
            "`bash tests/gpu.sh OUT` and put OUT/results.safetensors into tests/results/gpu"
        )
    arrays, about = kept.read(path)
    assert not [name for name, verdict in about["verdicts"].items() if verdict in BAD]
    by_name = {config.name: config for config in configs()}
    names = [name for name in arrays if name.startswith("cudnn | ") and name.partition(" | ")[2] in by_name]
    assert names
    check_cudnn(arrays, names, by_name)
    of_cpu, _ = kept.read(CPU)
    records_ = [Record(part, case, EQUAL) for part, _, case in (name.partition(" | ") for name in arrays)]
    assert kept.compare(records_, arrays, of_cpu) == []


def test_a_result_that_differs_from_the_kept_ones_fails() -> None:
    before = {"torch | lstm float32": np.ones(4, np.float32)}
    result = Record("torch", "lstm float32", EQUAL)
    assert kept.compare([result], {"torch | lstm float32": np.ones(4, np.float32) + 1e-6}, before) == []
    assert result.drift is not None and result.drift < 1
    assert kept.compare([result], {"torch | lstm float32": np.ones(4, np.float32) + 1e-3}, before)
    assert kept.compare([result], {"torch | lstm float32": np.ones(3, np.float32)}, before)
    assert kept.compare([result], {"torch | other": np.ones(3, np.float32)}, before) == []


# Wheels


def test_a_wheel_is_taken_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert wheels._fits(f"h5py-3.14.0-{tag}-{tag}-manylinux_2_28_x86_64.whl")
    assert wheels._fits("onnx-1.23.2-cp310-abi3-manylinux_2_28_x86_64.whl")
    assert wheels._fits("click-8.5.1-py3-none-any.whl")
    assert not wheels._fits("h5py-3.14.0-cp27-cp27m-manylinux_2_28_x86_64.whl")
    assert not wheels._fits("onnx-1.23.2-cp399-abi3-manylinux_2_28_x86_64.whl")
    monkeypatch.setattr(wheels, "NAMES", {"nowhere_to_be_found": "nowhere"})
    assert wheels.use(None) == ("", ["nowhere_to_be_found"])
    with pytest.raises(wheels.CannotPrepareError, match="is not a folder"):
        wheels.use(tmp_path / "none")
    (tmp_path / "nowhere-1-py3-none-any.whl").write_bytes(b"no archive")
    with pytest.raises(wheels.CannotPrepareError, match="is damaged"):
        wheels.use(tmp_path)


def test_the_folder_of_wheels_is_complete(tmp_path: Path) -> None:
    if not drawn.LONG:
        pytest.skip("it asks an index for wheels: --long")
    done = script("--wheels", str(tmp_path / "wheels"))
    assert done.returncode == 0, done.stderr
    names = [path.name for path in (tmp_path / "wheels").glob("*.whl")]
    assert len(names) == len(wheels.NAMES) + 1
    assert sum(path.stat().st_size for path in (tmp_path / "wheels").glob("*.whl")) < 50e6


# Executors by name


def test_every_executor_for_cuda_is_run_and_stood_in_for() -> None:
    from rnnconvert.running import registry
    from tests.gpu import frameworks

    cuda = {name for name, executor in registry.built_in().items() if executor.device == "cuda"}
    assert {name for models in frameworks.MODELS.values() for name in models} == cuda
    assert {*standins.EXECUTORS, "cudnn", "cudnn-persistent", "cudnn-persistent-dynamic", "torch-flat"} == cuda


def test_a_stand_in_computes_what_the_description_says(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    config = Config("lstm", 1, 2, projection=2, io="packed")
    solved = Solved(config)
    about = solved.description
    answer = flat.solve(work(tmp_path, "cudnn"), solved, standing_in=StandIn(about), cotangents=solved.cotangents)
    assert judged(solved, answer).ratio <= 1
    other = Solved(dataclasses.replace(config, biases="none"))
    assert judged(other, answer).ratio > 100


def test_the_records_of_a_killed_process_are_read(tmp_path: Path) -> None:
    journal = records.Journal(tmp_path / "journal")
    assert (journal.lines(), journal.begun()) == ([], "")
    journal.start("a")
    journal.add(Record("part", "a", EQUAL))
    journal.start("b")
    with journal.path.open("a") as file:
        file.write('{"part": "par')
    assert [record.case for record in journal.records()] == ["a"]
    assert journal.begun() == "b"
