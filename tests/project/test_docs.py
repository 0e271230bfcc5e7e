"""Every code block of the documentation runs, and generated pages say what the data says."""

from __future__ import annotations

import json
import linecache
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import page
from rnnconvert.cli.main import main
from rnnconvert.language import layout_file
from rnnconvert.models import mapping
from tests import ROOT
from tests.helpers import corpus, ready
from tests.helpers.requirements import need, needed

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
EVERYDAY = ROOT / "docs" / "everyday.md"
"""A page of tasks: the blocks of each are run one after the other, in one folder."""
TASKS = [
    pytest.param(re.findall(r"^```(\w+)\n(.*?)^```", task, re.M | re.S), id=task.partition("\n")[0])
    for task in re.split(r"^## ", EVERYDAY.read_text(), flags=re.M)[1:]
]
BLOCKS = [
    pytest.param(language, text, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    if page != EVERYDAY
    for number, (language, text) in enumerate(re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.M | re.S))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a reader has it: the examples, and nothing that was made before."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


GALLERY = "docs/gallery.md"


def clones(folder: Path) -> None:
    """The real models' repositories beside one another, as far as the corpus has their files."""
    for about in corpus.FOLDER.glob("*/meta.json"):
        meta = json.loads(about.read_text(encoding="utf-8"))
        for entry in meta["files"]:
            path = folder / meta["origin_repo"].rpartition("/")[2] / entry["source_path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(about.parent / entry["file"])


@pytest.mark.every_run  # whatever a change lets a command say may be shown on a page
@pytest.mark.parametrize(("language", "text"), BLOCKS)
def test_a_block_does_what_it_shows(language: str, text: str, folder: Path, request: pytest.FixtureRequest) -> None:
    if GALLERY in request.node.name:
        need("corpus", corpus.absent())
        clones(folder)
    if language == "python":
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("default")  # what a reader's interpreter does
            patch.chdir(folder)
            linecache.cache[request.node.name] = len(text), None, text.splitlines(keepends=True), request.node.name  # as from a file
            exec(compile(text, request.node.name, "exec"), {"__name__": "__main__"})
        return
    if language == "yaml":  # a mapping file
        (folder / "mapping.yaml").write_text(text, encoding="utf-8")
        assert mapping.read(folder / "mapping.yaml") != mapping.StatedMapping()
        return
    if language == "toml":  # layouts of a user's own
        (folder / "layouts.toml").write_text(text, encoding="utf-8")
        assert layout_file.read(folder / "layouts.toml")
        return
    if language == "diff":  # files as they are added
        code = text.replace("\n+", "\n").removeprefix("+")
        assert any(code == path.read_text(encoding="utf-8") for folder_ in ("formats", "tests") for path in (ROOT / folder_).glob("*.py"))
        return
    assert language == "console", f"a block is console, python, yaml, toml or diff, not {language}"
    commands(text, folder)


@pytest.mark.every_run
@pytest.mark.parametrize("blocks", TASKS)
def test_a_task_is_done_as_its_page_shows(blocks: list[tuple[str, str]], folder: Path) -> None:
    for language, text in blocks:
        if language == "python":
            run([sys.executable, "-c", text], folder)
            continue
        assert language == "console"
        commands(text, folder)


def test_there_are_eight_tasks() -> None:
    assert len(TASKS) == 8


def commands(text: str, folder: Path) -> None:
    """Run the commands of a block, and compare what they print with what it shows."""
    if "rnnconvert-demo/" in text and "$ rnnconvert demo" not in text:
        call(["demo"], folder)  # as a block before it says
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        if "venv" in command or "tests/run.sh" in command or "benchmarks/" in command:
            # Setting up is what runs this test; that CI runs these very commands is checked below.
            continue
        words = shlex.split(command)
        if words[0] in ("ruff", "mypy"):
            assert command in (ROOT / "tests" / "run.sh").read_text(encoding="utf-8").splitlines()
            continue
        if words == ["python", "docs/generate.py"]:
            continue  # below, with --check
        if words[0] == "python":
            # One in the repository must not change it.
            is_example = words[1].startswith("examples/")
            output = run([sys.executable, *words[1:], *([] if is_example else ["-p", "no:cacheprovider"])], folder if is_example else ROOT)
        elif words[0] in ("cat", "sed", "ls"):
            output = run(words, folder)
        elif {"|", "<", ">"} & {*words}:
            output = run(["bash", "-c", f'rnnconvert() {{ {sys.executable} -m rnnconvert "$@"; }}; {command}'], folder)
        else:
            assert words[0] == "rnnconvert"
            # As a shell does: a pattern is the files that fit.
            files = [sorted(str(file.relative_to(folder)) for file in folder.glob(word)) if "*" in word else [word]
                     for word in words[1:]]  # fmt: skip
            output = call([word for several in files for word in several], folder)
        assert matches(expected, output), output


def call(arguments: list[str], folder: Path) -> str:
    """What a command of rnnconvert prints, run in this process: executors that other tests started go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner(env={"NO_COLOR": "1"}).invoke(main, arguments)
    assert isinstance(result.exception, SystemExit | None), result.output
    assert result.exit_code in (0, 1, 2, 3, 4), result.output
    return result.output


def run(command: list[str], folder: Path) -> str:
    if command[:2] == [sys.executable, "-c"] and "keras" not in command[2]:
        done = ready.run(command, f"torch {ready.OURS}", cwd=folder, env=environment())
        done.stdout += done.stderr
    else:
        done = subprocess.run(
            command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False
        )
    assert done.returncode in (0, 1, 2, 3, 4), done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def matches(expected: str, output: str) -> bool:
    """Whether an output is what the page shows; a line of dots stands for anything."""
    pattern = re.escape(expected.rstrip("\n")).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, output.rstrip("\n"), re.S) is not None


CHECKED = ("README.md", "docs/index.md", "docs/python.md", "docs/everyday.md")


OPTIONS = """
checkpoint = rc.load("a.npz", nonlinearity="relu", hidden_size=5, bidirectional=True)
rc.save(checkpoint, "a.onnx", opset=17, force=True)
rc.convert("a.npz", "a.onnx", nonlinearity="relu", stack="split")
rc.load("a.npz", nonlinarity="relu")
rc.save(checkpoint, "a.onnx", stack="splitt")
rc.convert("a.npz", "a.onnx", opsett=17)
"""


def test_options_are_typed_and_the_code_of_the_first_pages_passes_strict_type_checks(tmp_path: Path) -> None:
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in CHECKED]
    blocks = [block for page in pages for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)]
    assert len(blocks) > 5
    for number, block in enumerate(blocks):
        (tmp_path / f"block_{number}.py").write_text(block)
    (tmp_path / "options.py").write_text(f"import rnnconvert as rc{OPTIONS}")
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), *map(str, tmp_path.glob("*.py"))],
        cwd=ROOT, text=True, capture_output=True, check=False,
    )  # fmt: skip
    places = [line.split(":")[:2] for line in process.stdout.splitlines() if ": error:" in line]
    assert {(Path(name).name, int(line)) for name, line in places} == {("options.py", line) for line in (5, 6, 7)}, process.stdout


def test_ci_runs_the_readmes_two_commands() -> None:
    setup = re.findall(r"^\$ (.*(?:venv|tests/run).*)$", (ROOT / "README.md").read_text(), re.M)
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    assert len(setup) == 2
    assert [command for command in setup if command not in script] == []


def test_generated_pages_say_what_the_data_says() -> None:
    run_ = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, env=environment())
    assert run_.returncode == 0, run_.stderr


def test_a_page_that_shows_something_else_is_caught() -> None:
    assert not matches("4 layers\n", "5 layers\n")
    assert matches("4 layers\n...\nend\n", "4 layers\nmore\nmore\nend\n")


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/.])(?<!\]\()((?:rnnconvert|formats|cli|tests|examples|docs)/[\w/]+\.(?:py|sh|md))\b", page.read_text(encoding="utf-8")
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


HOME = "https://github.com/rnnconvert/rnnconvert"


def places(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_readme_is_short_and_its_links_are_absolute() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 1200
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    raw = HOME.replace("github.com", "raw.githubusercontent.com") + "/main/"
    for link in links:
        path, _, anchor = link.removeprefix(raw).removeprefix(f"{HOME}/blob/main/").partition("#")
        if link.startswith((raw, f"{HOME}/blob/")):
            assert (ROOT / path).is_file(), link
            assert not anchor or anchor in places(ROOT / path), link


def test_the_picture_of_a_report_is_small() -> None:
    picture = (ROOT / "docs" / "images" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 150_000


def test_the_picture_of_a_report_shows_what_a_report_says_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    monkeypatch.chdir(tmp_path)
    make = runpy.run_path(str(ROOT / "docs" / "images" / "make.py"), run_name="make")
    kept_words = make["words_in"]((ROOT / "docs" / "images" / "report.png").read_bytes())
    html = make["report"](tmp_path)
    assert kept_words == make["words"](html), "run python docs/images/make.py"
    assert kept_words != make["words"](html.replace("swapped", "exchanged"))


def test_the_pictures_of_measurements_show_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = ROOT / "docs" / "images"
    monkeypatch.setattr(page, "IMAGES", tmp_path)
    assert page.text(json.loads((ROOT / "benchmarks" / "results.json").read_text())) == page.PAGE.read_text(encoding="utf-8")
    drawn = sorted(tmp_path.iterdir())
    assert drawn and [(images / path.name).read_text() for path in drawn] == [path.read_text() for path in drawn]
    table = r"^\| `(\.\w+)`( \([^)]+\))?(?: (float16|int8))?(?: \*)? \| ([\d,]+) \|"
    rows = re.findall(table, (ROOT / "docs" / "whole.md").read_text(encoding="utf-8"), re.M)
    sizes = [(f"{name}{more}, {dtype or 'float32'}", int(size.replace(",", ""))) for name, more, dtype, size in rows]
    bars = [page.Bar(name, size, f"{size / 1000:,.0f} KB", True) for name, size in sizes]
    assert bars and (images / "target-sizes.svg").read_text() == page.picture("Bytes of one model in every format", bars)
