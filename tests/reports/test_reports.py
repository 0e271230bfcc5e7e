"""Reports: the schema and JSON, the files, the text at the terminal and the command."""

from __future__ import annotations

import copy
import fnmatch
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

import rnnconvert as rc
from rnnconvert import reports
from rnnconvert.cli.main import main
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.verdict import BUT_FOR, BY_LAYER, EQUAL, Limit, Verdict
from rnnconvert.reports.schema import SCHEMA, ordered, problems, schema
from rnnconvert.reports.text import to_text, verdict_line
from rnnconvert.reports.words import Document, digits_of, place, share, tally, used
from tests import ROOT
from tests.helpers import report_documents as documents

ALL = documents.everything()
every = pytest.mark.parametrize("document", [pytest.param(report, id=name) for name, report in ALL.items()])


def faults(document: object) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema()).iter_errors(document)]


def rules(value: Any) -> Iterator[dict[str, Any]]:
    """Every rule of the schema, at any depth."""
    if isinstance(value, dict):
        yield value
        for key, item in value.items():
            yield from rules(list(item.values()) if key in ("properties", "$defs") else item)
    elif isinstance(value, list):
        for item in value:
            yield from rules(item)


# The schema


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_field_is_described_in_words() -> None:
    fields = [(name, rule) for node in rules(schema()) for name, rule in node.get("properties", {}).items()]
    assert len(fields) > 60
    for name, rule in fields:
        description = rule.get("description") or schema()["$defs"][rule["$ref"].rpartition("/")[2]]["description"]
        assert len(description) > 10 and description.endswith("."), name


def test_the_schema_says_nothing_that_our_own_check_does_not_understand() -> None:
    understood = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref"}
    used_ = {key for rule in rules(schema()) for key in rule}
    assert used_ <= understood | {"$schema", "$id", "$defs", "title", "description"}


@every
def test_documents_have_the_published_shape(document: Document) -> None:
    assert faults(document) == []
    assert [*problems(document)] == []


def test_a_field_that_nobody_knows_is_met_by_the_schema_and_passed_over_by_the_reader() -> None:
    document = {**documents.passing(), "mood": "good"}
    assert faults(document)
    assert [*problems(document)] == []


def spoilt(document: Document, seed: int) -> Document:
    """A document with one value replaced, or one field removed, somewhere."""
    numbers = random.Random(seed)
    copied = copy.deepcopy(document)
    node: Any = copied
    while True:
        keys = [*node] if isinstance(node, dict) else [*range(len(node))]
        key = numbers.choice(keys)
        deeper = isinstance(node[key], (dict, list)) and len(node[key]) > 0
        if deeper and numbers.random() < 0.9:
            node = node[key]
            continue
        if isinstance(node, dict) and numbers.random() < 0.3:
            del node[key]
        else:
            node[key] = numbers.choice([None, True, 3, 2.5, "inf", "ran", "equal", "", [], {}, [None], {"x": None}])
        return copied


def test_our_own_check_says_what_jsonschema_says() -> None:
    full = documents.endless()
    full["layers"][0]["runs"] = [documents.run(cases=("states",), rewrites=[documents.REWRITE])]
    del full["limits"], full["reasons"]  # reports of older versions lack them
    validator = jsonschema.Draft202012Validator(schema())
    verdicts = []
    for seed in range(600):
        document = spoilt(full, seed)
        ours = [*problems(document)]
        assert bool(ours) != validator.is_valid(document), (seed, ours)
        verdicts.append(bool(ours))
    assert 100 < sum(verdicts) < 600


def test_a_problem_says_where() -> None:
    document = documents.passing()
    document["layers"][0]["runs"][1]["comparisons"][2]["worst"]["found"] = "much"
    assert [*problems(document)] == [
        'the report.layers[0].runs[1].comparisons[2].worst.found is "much" and should be of type number or "inf" or "-inf" or "nan"'
    ]


def verified(folder: Path) -> Iterator[Document]:
    """Documents as `verify` makes them: of two equal files, and of two whose gates r and z are swapped."""
    good, bad = folder / "good.safetensors", folder / "bad.safetensors"
    rc.convert(ROOT / "examples" / "encoder.keras", good, layers=["encoder"])
    arrays = load_file(good)
    for name in [name for name in arrays if "weight_hh" in name]:
        r, z, n = np.split(arrays[name], 3)
        arrays[name] = np.concatenate([z, r, n])
    save_file(arrays, bad)
    for other in (good, bad):
        yield rc.verify(good, other, on=["reference"], gradients=True).document


def test_what_verify_makes_has_the_published_shape(tmp_path: Path) -> None:
    reported = [*verified(tmp_path)]
    assert [tally(document).failed > 0 for document in reported] == [False, True]
    for number, document in enumerate(reported):
        path = tmp_path / f"{number}.json"
        reports.write(document, *(path.with_suffix(ending) for ending in reports.FORMS))
        assert faults(json.loads(path.read_text(encoding="utf-8"))) == []
        assert reports.read(path) == json.loads(json.dumps(document))
        assert to_text(document)


# JSON


@every
def test_json_is_read_as_it_was_written(document: Document, tmp_path: Path) -> None:
    reports.write(document, tmp_path / "report.json")
    assert reports.read(tmp_path / "report.json") == document


def test_json_has_the_verdict_first_and_finite_numbers_only() -> None:
    document = documents.passing()
    document["seconds"] = {"total": math.inf, "load": math.nan}
    shuffled = dict(sorted(document.items(), reverse=True))
    text = reports.render(shuffled, ".json")
    assert [*json.loads(text)] == [name for name in schema()["properties"] if name != "repair"]  # of what is not equal alone
    assert json.loads(text, parse_constant=pytest.fail)["seconds"] == {"total": "inf", "load": "nan"}
    assert next(line for line in text.splitlines() if '"error": [' in line).endswith("],")  # one list, one line


def test_names_that_are_data_keep_their_order() -> None:
    document = documents.passing()
    document["models"][0]["weights"] = {"z": "1", "a": "2"}
    assert [*ordered(document)["models"][0]["weights"]] == ["z", "a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x80\x02}q\x00.", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "its schema is None"),
        (b'{"schema": "rnnconvert-report-9"}', "rnnconvert-report-9"),
        (b'{"schema": "rnnconvert-report-1"}', "has no 'verdict'"),
    ],
)
def test_a_file_that_is_no_report_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=message):
        reports.read(path)


def contradict(document: Document, how: str) -> None:
    if how == "verdict":
        document["verdict"] = "equal"
    elif how == "run":
        document["layers"][1]["runs"][1]["verdict"] = "equal"
    else:
        document.update(layers=[], verdict="equal")


@pytest.mark.parametrize("how", ["verdict", "run", "nothing"])
def test_a_report_that_contradicts_itself_is_refused(how: str, tmp_path: Path) -> None:
    document = documents.failing()
    contradict(document, how)
    reports.write(document, tmp_path / "report.json")
    with pytest.raises(UnreadableError, match="contradicts itself"):
        reports.read(tmp_path / "report.json")


def test_a_verdict_was_required(tmp_path: Path) -> None:
    document = documents.unavailable(True)
    document["verdict"] = "equal"
    reports.write(document, tmp_path / "report.json")
    with pytest.raises(UnreadableError, match="contradicts itself"):
        reports.read(tmp_path / "report.json")


# Files


def test_forms_are_chosen_by_the_ending(tmp_path: Path) -> None:
    paths = [tmp_path / f"report{ending}" for ending in reports.FORMS]
    reports.write(documents.passing(), *paths)
    starts = {path.suffix: path.read_text(encoding="utf-8")[:14] for path in paths}
    assert starts[".json"].startswith("{\n") and starts[".xml"].startswith("<?xml")
    assert starts[".md"].startswith("## ") and starts[".html"] == "<!doctype html"
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@every
@pytest.mark.parametrize("ending", reports.FORMS)
def test_every_form_of_every_document_can_be_written(document: Document, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"report{ending.upper()}"
    reports.write(document, path)
    path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["report.pdf"], r"ends in one of \.json, \.xml, \.md, \.html"),
        (["report"], r"ends in one of \.json"),
        (["a.json", "absent/b.md"], "there is no folder"),
        (["folder.md"], "this is a folder"),
        (["a.json", "b.md", "a.json"], "named twice"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_is(names: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(UsageError, match=message):
        reports.check(*(tmp_path / name for name in names))
    with pytest.raises(UsageError, match=message):
        reports.write(documents.passing(), *(tmp_path / name for name in names))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.md"]


def test_the_files_that_the_page_needs_are_packaged() -> None:
    tomllib = pytest.importorskip("tomllib", reason="the standard library reads TOML from Python 3.11 on")
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = tables["package-data"]["rnnconvert.reports"]
    data = [path.name for path in SCHEMA.parent.iterdir() if path.is_file() and path.suffix != ".py"]
    assert sorted(data) == ["schema.json", "script.js", "style.css"]
    assert all(any(fnmatch.fnmatch(name, pattern) for pattern in patterns) for name in data)


def test_the_summary_is_appended_for_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert not reports.summary_to_github(documents.passing())
    path = tmp_path / "summary"
    path.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert reports.summary_to_github(documents.passing())
    assert reports.summary_to_github(documents.failing())
    text = path.read_text(encoding="utf-8")
    assert text.startswith("before\n## ") and text.count("\n## ") == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "absent" / "summary"))
    with pytest.raises(UsageError, match="cannot write"):
        reports.summary_to_github(documents.passing())


# Words and counts


def test_counts_come_from_what_is_there() -> None:
    document = documents.failing()
    before = tally(document)
    assert (before.failed, before.ran, before.runs, before.missing) == (5, 9, 9, 0)
    comparisons = document["layers"][1]["runs"][1]["comparisons"]
    comparisons.remove(next(comparison for comparison in comparisons if not comparison["passed"]))
    after = tally(document)
    assert (after.failed, after.passed) == (before.failed - 1, before.passed)
    assert tally(documents.unavailable(True)).missing == 3
    assert tally(documents.unavailable(False)).missing == 0


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"), (0.001, "under 1 %"), (0.13, "13 %"), (0.999, "99 %"), (1, "100 %"), (1.0001, "101 %"),
        (1.7, "170 %"), (2.0, "2 times"), (9900, "9,900 times"), (3.4e5, "340,000 times"), ("inf", "infinite"),
        (86189, "86,000 times"), (3.4e12, "3.4e12 times"),
        ("nan", "not a number"),
    ],
)  # fmt: skip
def test_a_share_never_reads_as_passing_when_it_is_not(ratio: object, text: str) -> None:
    assert share(ratio) == text


def test_numbers_read_well() -> None:
    assert [digits_of(number) for number in (0, 0.13, 1.24e-7, 2e22, "-inf")] == ["0", "0.13", "1.2e-7", "2e22", "minus infinite"]
    assert used({"ratio": 0.5}) == "50 % of what is allowed" and used({"ratio": 50}) == "50 times what is allowed"
    assert place(documents.comparison(share=3.4e5)).startswith("time 5, batch 0, unit 7: ")


# Text


@every
def test_text_ends_with_the_verdict_and_is_plain(document: Document) -> None:
    text = to_text(document)
    assert text.splitlines()[-1] == verdict_line(document)
    assert text.replace("\n", "").isprintable()
    assert not any(line != line.rstrip() for line in text.splitlines()[:-1])


def test_text_tells_failures_and_stays_short() -> None:
    text = to_text(documents.failing())
    assert "not equal: decoder.attention, B on onnxruntime-cpu\n" in text
    assert text.count("elements are off by too much") == 1
    assert all(sentence in text for sentence in documents.DIAGNOSIS)
    assert "not equal: decoder" not in to_text(documents.passing())
    assert len(to_text(documents.large(bad=100)).splitlines()) < 250


def test_text_in_colour_says_the_same() -> None:
    document = documents.failing()
    painted: list[tuple[str, str]] = []

    def style(text: str, colour: str) -> str:
        painted.append((text.strip(), colour))
        return text

    assert to_text(document, style) == to_text(document)
    assert ("not equal", "red") in painted and ("equal", "green") in painted and ("X", "red") in painted


def test_text_says_what_was_asked_for_and_did_not_run() -> None:
    assert to_text(documents.unavailable(True)).count("though it was asked for") == 3
    assert "though it was asked for" not in to_text(documents.unavailable(False))


# The command


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    reports.write(documents.failing(), tmp_path / "report.json")
    return tmp_path / "report.json"


def test_the_command_writes_other_forms(saved: Path) -> None:
    html, xml = saved.with_name("a.html"), saved.with_name("b.xml")
    result = call(saved, "-o", html, "-o", xml)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {html}\nwrote {xml}\n"
    assert html.read_text(encoding="utf-8") == reports.render(documents.failing(), ".html")
    assert call(saved, "-q", "-o", html).stderr == ""


def test_the_command_prints_text(saved: Path) -> None:
    assert call(saved).stdout == to_text(documents.failing()) + "\n"
    assert call(saved, "-q").stdout == "not equal\n"


def test_the_command_prints_the_schema() -> None:
    assert json.loads(call("--schema").stdout) == schema()


def test_the_command_refuses(saved: Path) -> None:
    other = saved.with_name("other.json")
    other.write_text("{}", encoding="utf-8")
    before = sorted(saved.parent.iterdir())
    for code, message, *arguments in (
        (2, "ends in one of .json", saved, "-o", saved.with_name("a.pdf")),
        (2, "Name the JSON report", "-o", saved.with_name("a.md")),
        (3, "No such file", saved.with_name("absent.json"), "-o", saved.with_name("a.md")),
        (3, "it is not a report", other, "-o", saved.with_name("a.md")),
    ):
        result = call(*arguments)
        assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert sorted(saved.parent.iterdir()) == before


def test_where_nothing_ran_nothing_is_called_equal() -> None:
    document = documents.passing()
    layers = [{**layer, "runs": []} for layer in document["layers"]] * 2
    text = to_text({**document, "verdict": "not compared", "layers": layers})
    assert "nothing ran" in text
    assert "equal everywhere" not in text


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("chosen", "equal"), ("caller", "equal"), ("units", "equal but for"), ("weights", "equal but for"),
        ("whole", "equal layer by layer, not run whole"),
    ],
)  # fmt: skip
def test_what_was_left_out_decides_the_word_and_cannot_be_dropped(tmp_path: Path, kind: Any, word: str) -> None:
    limit = Limit(kind, "encoder", "something was left out")
    verdict = Verdict.of(equal=True, compared=True, limits=[limit])
    assert verdict.word == word and bool(verdict) == (word == "equal")
    assert str(limit) in str(verdict)
    document = {**documents.passing(), **verdict.as_dict()}
    for ending in reports.FORMS:
        text = reports.render(document, ending)
        assert "something was left out" in text or (ending == ".sarif" and word == "equal")
    assert "something was left out" in to_text(document)
    path = tmp_path / "r.json"
    for other in {"equal", "equal but for", "equal layer by layer, not run whole"} - {word}:
        path.write_text(reports.render({**document, "verdict": other}, ".json"))
        with pytest.raises(UnreadableError, match="contradicts itself"):
            reports.read(path)


@pytest.mark.parametrize(
    ("equal", "compared", "word", "code"), [(False, True, "not equal", 1), (False, False, "not equal", 1), (True, False, "not compared", 5)]
)  # fmt: skip
def test_no_limit_makes_up_for_what_differs_or_was_not_compared(equal: bool, compared: bool, word: str, code: int) -> None:
    for kind in ("chosen", "units", "whole"):
        verdict = Verdict.of(equal=equal, compared=compared, limits=[Limit(kind, "", "x")])
        assert (verdict.word, verdict.exit_code(), verdict.exit_code(strict=True), bool(verdict)) == (word, code, code, False)


def test_strict_fails_what_is_less_than_equal() -> None:
    codes = {word: (Verdict(word).exit_code(), Verdict(word).exit_code(strict=True)) for word in (EQUAL, BUT_FOR, BY_LAYER)}
    assert codes == {EQUAL: (0, 0), BUT_FOR: (0, 6), BY_LAYER: (0, 7)}
