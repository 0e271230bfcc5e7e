"""The site of docs/ builds without a warning, lists every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import rnnconvert
from rnnconvert.running.child import missing
from tests.requirements import need

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as readers get it."""
    need("mkdocs", missing(["mkdocs", "material"]))
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def loaded(name: str) -> ModuleType:
    """Import a module of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert {page for page in pages if not (site / page / "index.html").is_file()} == set()
    assert list(site.rglob("*.py")) == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text(encoding="utf-8"))
        outside = [tag for tag in tags if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)]
        assert [tag for tag in outside if "rel=canonical" not in tag and 'rel="canonical"' not in tag] == [], page


def test_every_public_name_has_its_place(site: Path) -> None:
    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    assert {*re.findall(r'<h3 id="[^"]*">(\w+)<', page)} == {*rnnconvert.__all__}


def test_a_public_name_that_is_not_listed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnnconvert, "__all__", [*rnnconvert.__all__, "zebra"])
    with pytest.raises(ValueError, match=r"must list every name.*zebra"):
        loaded("public_names").api_page()


def test_a_docstring_that_describes_what_does_not_exist_is_an_error() -> None:
    def call(one: int) -> None:
        """Do it.

        one    what there is
        other  what there is not
        """

    with pytest.raises(ValueError, match="docstring of call describes other"):
        loaded("public_names").described(call)


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    need("mkdocs", missing(["mkdocs", "material"]))
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# Start\n\n[page](absent.md) [place](other.md#absent) [site](/guide/)\n")
    (pages / "other.md").write_text("# Other\n")
    (pages / "forgotten.md").write_text("# In no menu\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nextra_javascript: []\nnav: [index.md, other.md]\n"
        f"hooks: [{DOCS / 'site_hooks.py'}]\n"
    )
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    for wrong in ("'absent.md'", "#absent", "'/guide/'", "forgotten.md"):
        assert wrong in done.stderr, done.stderr


def test_a_link_out_of_the_pages_leads_to_the_repository_or_fails_the_build() -> None:
    need("mkdocs", missing(["mkdocs", "material"]))
    from mkdocs.exceptions import PluginError

    hooks = loaded("site_hooks")
    page = type("Page", (), {"file": type("File", (), {"src_path": "guide.md"})})
    made = hooks.on_page_markdown("[one](../examples/ci) [two](../README.md#start)", page=page)
    home = "https://github.com/rnnconvert/rnnconvert"
    assert made == f"[one]({home}/tree/main/examples/ci) [two]({home}/blob/main/README.md#start)"
    with pytest.raises(PluginError, match=r"guide.md links to ../examples/absent"):
        hooks.on_page_markdown("[one](../examples/absent)", page=page)


def test_the_table_of_pairs_is_filtered_in_a_browser(site: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    need("browser", "" if browser else "neither chromium nor google-chrome is installed")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    address = (site / "pairs" / "index.html").as_uri() + "?from=keras&to=onnx"
    shown = subprocess.run(
        [str(browser), *words, address], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    tables = re.findall(r"<table>.*?</table>", shown, re.S)
    rows = [
        re.findall(r"<t[dh]>(?:<strong>)?([^<]+)", row) for row in re.findall(r"<tr>.*?</tr>", "".join(tables), re.S)
    ]
    assert len(tables) > 3
    assert {row[0] for row in rows} == {"from \\ to", "keras"} and {len(row) for row in rows} == {2}
    assert re.search(r"<output>[1-9]\d* pairs</output>", shown)
