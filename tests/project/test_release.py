"""What a release consists of: an sdist with every file, a wheel with the program alone, and what describes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from rnnconvert.core.version import PUBLISHED, __version__
from tests import ROOT
from tests.helpers import drawn
from tests.project.test_site import loaded

tomllib = pytest.importorskip("tomllib", reason="the standard library reads TOML from Python 3.11 on")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HOME = "https://github.com/rnnconvert/rnnconvert"
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}
LINKS = {"rnnconvert/cli", "rnnconvert/formats"}


def build(folder: Path, **variables: str) -> list[Path]:
    """Build the artefacts as a release does."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than 77")
    words = [sys.executable, str(ROOT / ".ci" / "build.py"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, **variables}, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the sdist."""
    return build(tmp_path_factory.mktemp("dist"), SOURCE_DATE_EPOCH="1700000000")


def test_the_sdist_has_every_file_of_the_repository(artefacts: list[Path]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no repository to compare with")
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    wanted = {name for name in listed if name and (ROOT / name).exists()} - LINKS
    with tarfile.open(artefacts[1]) as archive:
        packed = {member.name.partition("/")[2] for member in archive if member.isfile()}
    packed = {name for name in packed if not name.startswith("rnnconvert.egg-info/")} - MADE_BY_SETUPTOOLS
    assert packed == wanted


def test_the_wheel_has_the_program_alone(artefacts: list[Path]) -> None:
    with zipfile.ZipFile(artefacts[0]) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"rnnconvert", f"rnnconvert-{__version__}.dist-info"}
    endings = {Path(name).suffix for name in names if name.startswith("rnnconvert/")}
    assert endings == {".py", ".pyi", ".typed", ".json", ".css", ".js"}


def test_everything_in_the_artefacts_has_the_time_that_was_asked_for(artefacts: list[Path]) -> None:
    with tarfile.open(artefacts[1]) as archive:
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(1700000000, 0, "")}
    with zipfile.ZipFile(artefacts[0]) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_a_second_build_gives_the_same_bytes(artefacts: list[Path], tmp_path: Path) -> None:
    if not drawn.LONG:
        pytest.skip("a second build: give --long")
    again = build(tmp_path / "again", SOURCE_DATE_EPOCH="1700000000", PYTHONHASHSEED="7", TZ="Asia/Tokyo")
    assert [artefact.read_bytes() for artefact in again] == [artefact.read_bytes() for artefact in artefacts]


def test_the_tests_run_from_the_sdist(artefacts: list[Path], tmp_path: Path) -> None:
    if not drawn.LONG:
        pytest.skip("an environment of its own: give --long")
    with tarfile.open(artefacts[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    # An environment with the packages of this one, but with rnnconvert from the sdist alone.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    here = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text("\n".join(here))
    pytest_ = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    for words in (
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-build-isolation", "-e", str(tree)],
        [*pytest_, "--collect-only"],
        [*pytest_, *(f"tests/project/test_{name}.py" for name in ("packaging", "floors", "english", "site", "release")),
         "tests/formats/keras/test_keras_files.py", "tests/formats/mlx/test_mlx_files.py"],
        [*pytest_, "tests/project/test_docs.py", "-k", "README or path_that or generated or readme"],
    ):  # fmt: skip
        done = subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=1500, check=False)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def test_one_onnxruntime_is_installed() -> None:
    """Both packages install one module; an extra may bring either, and no set of extras that we name brings both."""
    extras = PROJECT["optional-dependencies"]

    def brought(name: str) -> set[str]:
        names = set[str]()
        for line in extras[name]:
            inner = re.fullmatch(r"rnnconvert\[(.*)\]", line)
            names |= {package for part in inner[1].split(",") for package in brought(part)} if inner else {re.split(r"[\s<>=;~]", line)[0]}
        return names

    both = {"onnxruntime", "onnxruntime-gpu"}
    assert [name for name in extras if both <= brought(name)] == []
    assert brought("gpu") & both == {"onnxruntime-gpu"}
    assert brought("all") & both == {"onnxruntime"}


def test_the_version_is_one() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["dynamic"] == ["version"] and __version__ == citation["version"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"] == HOME


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.name)
def test_an_issue_form_is_complete(form: Path) -> None:
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    if form.name == "config.yml":
        links = [entry["url"] for entry in content["contact_links"]]
        assert links and all(link.startswith(HOME) for link in links)
        return
    assert {"name", "description", "body"} <= content.keys()
    asked = [entry for entry in content["body"] if entry["type"] != "markdown"]
    assert len({entry["id"] for entry in asked}) == len(asked) > 0
    assert all(entry["attributes"]["label"] and isinstance(entry["validations"]["required"], bool) for entry in asked)


def test_of_ml_dtypes_the_program_uses_what_its_oldest_version_has() -> None:
    """TensorFlow 2.16 pins ml-dtypes to 0.3, which has neither the narrow types nor the small integers of later versions."""
    used = {
        name
        for top in ("cli", "formats", "rnnconvert")
        for path in (ROOT / top).rglob("*.py")
        for name in re.findall(r"\bml_dtypes\.(\w+)", path.read_text(encoding="utf-8"))
    }
    assert used == {"bfloat16", "finfo"}
    assert "ml-dtypes>=0.3.1" in PROJECT["dependencies"]


def test_every_extra_is_explained() -> None:
    table = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert {name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in table} <= {"test"}


def test_no_page_and_no_message_names_a_package_or_tag_that_is_not_published() -> None:
    """One place says what is published; wherever people are told to install something, they are told what exists."""
    documentation = loaded("published")
    for page in documentation.pages():
        text = page.read_text(encoding="utf-8")
        assert documentation.as_published(text) == text, f"{page}: run python docs/generate.py"
        if not PUBLISHED:
            assert not re.search(r"rnnconvert@v\d|rev: v\d|pip install '?rnnconvert(\[[\w,]+\])?(?! @)['`\s]", text), page
    for top in ("cli", "formats", "rnnconvert"):
        for path in (ROOT / top).rglob("*.py"):
            assert not re.search(r"pip install [\"']?rnnconvert\b", path.read_text(encoding="utf-8")), path


def test_what_is_published_is_named_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = loaded("published")
    pages = {page: page.read_text(encoding="utf-8") for page in documentation.pages()}
    monkeypatch.setattr("rnnconvert.core.version.PUBLISHED", "1.2.3")
    released = {page: documentation.as_published(text) for page, text in pages.items()}
    tutorial = released[ROOT / "docs" / "tutorial-ci.md"]
    assert "rnnconvert@v1.2.3" in tutorial and "rev: v1.2.3" in tutorial
    assert "pip install 'rnnconvert[tensorflow,onnxruntime]'\n" in tutorial and "git+" not in tutorial
    monkeypatch.setattr("rnnconvert.core.version.PUBLISHED", PUBLISHED)
    assert {page: documentation.as_published(text) for page, text in released.items()} == pages
