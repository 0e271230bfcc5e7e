"""The site of docs/ builds without a warning, lists every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rnnconvert
from docs import system_pairs as pairs
from rnnconvert.language import registry
from rnnconvert.running.child import missing
from tests import ROOT
from tests.helpers.requirements import need, needed

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
    sys.modules[spec.name] = module  # dataclasses look there
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
    pages = [page.read_text(encoding="utf-8") for page in (site / "api").glob("*/index.html")]
    assert {*re.findall(r'<h2 id="[^"]*">(\w+)<', "".join(pages))} == {*rnnconvert.__all__}


def test_the_folders_pages_are_in_the_menu_and_short(site: Path) -> None:
    for folder in ("api", "errors", "formats"):
        stems = {page.stem for page in (DOCS / folder).glob("*.md")}
        menu = (site / folder / "index.html").read_text(encoding="utf-8")
        assert stems == {*re.findall(rf'<a href="(?:\.\./{folder}/)?([\w-]+)/" class="md-nav__link"', menu)}
    pages = [page for page in (*DOCS.glob("formats*/*.md"), DOCS / "formats.md", DOCS / "errors.md", DOCS / "api.md", DOCS / "pairs.md")]
    assert [page for page in pages if len(page.read_text(encoding="utf-8").splitlines()) > 250] == []


def test_every_text_of_an_error_is_on_its_page() -> None:
    texts = loaded("error_texts")
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "errors.md", *(DOCS / "errors").glob("*.md")))
    listed = set()
    for entry in re.findall(r"^- (.*)$", pages, re.M):
        beginning, *endings = re.split(r"\*\*(?! )|(?<!\*)\*\* |<br>", entry)[1:] if entry.startswith("**") else [""]
        listed |= {f"{beginning} {ending}".strip().lower() for ending in endings} or {entry.lower()}
    raised = [raising for raising in texts.raised() if raising.kind not in texts.UNLISTED]
    assert {raising.text.lower() for raising in raised} - listed == set() and len(raised) > 100
    assert all(f"\n## {kind}\n" in pages for kind in texts.UNLISTED)


def test_every_pair_of_formats_is_answered_once_for_each_cell() -> None:
    page = (DOCS / "pairs.md").read_text(encoding="utf-8")
    answers: list[tuple[str, str, str]] = []
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        lists = re.findall(r"^From (.*):\n\n((?:- .*\n)*)", section, re.M)
        of_all = [source for sources, _ in lists if sources != "every format" for source in sources.split(", ")]
        for sources, targets in lists:
            lines = re.findall(r"^- \*\*(.*?)\*\*.*: (.*)$", targets, re.M)
            named = [target for _, line in lines for target in line.split(", ")]
            each = of_all if sources == "every format" else sources.split(", ")
            answers += [(section.partition("\n")[0], source, target) for source in each for target in named]
    every = [(pair.asked.name, pair.source, pair.target) for pair in pairs.pairs()]
    assert sorted(answers) == sorted(every)


def test_the_page_of_a_format_has_every_layout_and_array() -> None:
    for format, layouts in registry.frameworks().items():
        rows = re.findall(
            r"^\| (`.*?) \| (`.*?) \|$", (DOCS / "formats" / f"{format}.md").read_text(encoding="utf-8").partition("## Cells")[0], re.M
        )
        for layout in layouts:
            (arrays,) = [arrays for names, arrays in rows if f"`{layout.name}` `{layout.gates}`" in names.split("<br>")]
            assert [re.findall("^`(.*?)`", text)[0] for text in arrays.split("<br>")] == [tensor.name for tensor in layout.tensors]


def test_a_public_name_that_is_not_listed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnnconvert, "__all__", [*rnnconvert.__all__, "zebra"])
    with pytest.raises(ValueError, match=r"must list every name.*zebra"):
        loaded("public_names").api_pages()


def test_a_docstring_that_describes_what_does_not_exist_is_an_error() -> None:
    def call(real: int) -> None:
        """Do it.

        real   what there is
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
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [index.md, other.md]\nhooks: [{DOCS / 'site_hooks.py'}]\n")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    for wrong in ("'absent.md'", "#absent", "'/guide/'", "forgotten.md"):
        assert wrong in done.stderr, done.stderr


def test_a_link_out_of_the_pages_leads_to_the_repository_or_fails_the_build() -> None:
    need("mkdocs", missing(["mkdocs", "material"]))
    from mkdocs.exceptions import PluginError

    hooks = loaded("site_hooks")
    page = type("Page", (), {"file": type("File", (), {"src_path": "guide.md"}), "meta": {}})
    markdown = hooks.on_page_markdown("[one](../examples/ci) [two](../README.md#start)", page=page)
    home = "https://github.com/rnnconvert/rnnconvert"
    assert markdown == f"[one]({home}/tree/main/examples/ci) [two]({home}/blob/main/README.md#start)"
    with pytest.raises(PluginError, match=r"guide.md links to ../examples/absent"):
        hooks.on_page_markdown("[one](../examples/absent)", page=page)


SEARCHED = {"lightning checkpoint": "lightning/", "c header": "tutorial-c/", "keras to pytorch": "tutorial-keras-2/"}
"""What people look for, and the page that must come first."""


@contextmanager
def browsing(site: Path) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of the site there."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    need("browser", "" if browser else "neither chromium nor google-chrome is installed")
    driver = needed("browser", "playwright.sync_api")
    handler = functools.partial(Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, driver.sync_playwright() as started:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ["--no-sandbox", "--disable-gpu"]
        yield (started.chromium.launch(executable_path=str(browser), args=options), f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


def test_the_search_finds_what_people_look_for(site: Path) -> None:
    first = {}
    with browsing(site) as (browser, address):
        page = browser.new_page()
        for words in SEARCHED:
            page.goto(f"{address}?q={words.replace(' ', '+')}")
            page.wait_for_selector(".md-search-result__item a", timeout=60000)
            hit = page.locator(".md-search-result__item a").first.get_attribute("href")
            first[words] = hit.partition("?")[0].removeprefix(address)
    assert first == SEARCHED


BROKEN = "[...document.querySelectorAll('td code')].filter(e => !/[ \\-\\/]/.test(e.innerText) && e.getClientRects().length > 1)"


def test_a_phone_shows_words_of_code_unbroken_and_no_page_too_wide(site: Path) -> None:
    with browsing(site) as (browser, address):
        page = browser.new_page(viewport={"width": 400, "height": 900})
        for name in ("", "commands/", "python/", "equivalence/", "compared/", "exit-codes/"):
            page.goto(address + name)
            assert page.evaluate("document.documentElement.scrollWidth") == 400, name
            assert page.evaluate(f"{BROKEN}.map(e => e.innerText)") == [], name


def test_copy_takes_the_commands_of_a_console_and_nothing_else(site: Path) -> None:
    with browsing(site) as (browser, address):
        page = browser.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        page.goto(address)
        page.locator(".language-console [data-clipboard-target]").first.click()
        lines = page.evaluate("navigator.clipboard.readText()").splitlines()
        assert lines[0] == "rnnconvert demo" and all(line.startswith("rnnconvert ") for line in lines) and len(lines) == 2
        page.locator(".language-python [data-clipboard-target]").first.click()
        assert page.evaluate("navigator.clipboard.readText()").startswith("import rnnconvert as rc")


class Silent(http.server.SimpleHTTPRequestHandler):
    """A server that prints nothing."""

    def log_message(self, *_: object) -> None: ...
