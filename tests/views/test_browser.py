"""Pages in a real browser: reports, and views of checkpoints, from a phone to a desktop, light and dark, with a keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, random_stack

WIDTHS = (320, 768, 1280)
PROGRAM = shutil.which("chromium") or shutil.which("google-chrome") or ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    need("browser", "" if PROGRAM else "neither chromium nor google-chrome is installed")
    driver = needed("browser", "playwright.sync_api")
    with driver.sync_playwright() as started:
        # A container's root may not make the sandbox; the pages are our own.
        yield started.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", "--disable-gpu"])


def stack(name: str, seed: int = 0, units: int = 24) -> Recurrent:
    form = Sizes("lstm", 20, units, num_layers=2, num_directions=2, parts=BOTH)
    return random_stack(form, seed, np.float32, Cell("lstm")).replace(name=name)


def view_of_one() -> str:
    names = ("encoder.with.a.rather.long.name.that.does.not.break.anywhere_at_all", "<b>decoder</b>")
    return rc.view(Checkpoint("checkpoints/model.pt", "canonical", {name: stack(name) for name in names})).page()


def view_of_two() -> str:
    first, second = (Checkpoint(f"{seed}.pt", "canonical", {"encoder": stack("encoder", seed)}) for seed in (1, 2))
    return rc.view(first, second).page()


def report(folder: Path) -> str:
    first, second = (
        rc.save(Checkpoint("memory", "canonical", {"encoder": stack("encoder", seed)}), folder / f"{seed}.pt", "pytorch").target
        for seed in (1, 2)
    )
    needed("torch", "torch")
    result = rc.verify(first, second, rc.Plan(on=("torch-cpu",), cases=("default states",)))
    result.write(str(folder / "report.html"))
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=["view", "two", "report"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    text = {"view": view_of_one, "two": view_of_two, "report": lambda: report(folder)}[request.param]()
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.drawn(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_says_nothing_wrong_and_loads_nothing(browser: Any, page: Path, width: int, scheme: str) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    messages: list[str] = []
    loaded: list[str] = []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda asked: loaded.append(asked.url))
    tab.goto(page.as_uri())
    for element in tab.query_selector_all("details:not([open])"):
        element.evaluate("one => one.open = true")
    wide = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1], f"{wide[0]} pixels on a screen of {wide[1]}"
    assert not messages and [url for url in loaded if not url.startswith("data:")] == [page.as_uri()]
    # What is cut off can be scrolled to: no text leaves the box that holds it.
    cut = tab.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, p, summary, figcaption, dd, li')].filter("
        "one => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display != 'inline').map(one => one.textContent)"
    )
    assert not cut
    tab.close()


@pytest.fixture(scope="module")
def wrong_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on one wrong layer of two: two gates of one matrix are swapped."""
    folder = tmp_path_factory.mktemp("wrong")
    needed("torch", "torch")
    layers = {name: stack(name, seed, 8) for seed, name in enumerate(("encoder", "decoder"))}
    rc.save(Checkpoint("memory", "canonical", layers), folder / "right.pt", "pytorch")
    first = layers["encoder"].layers[0].directions[0]
    arrays = {(part, {"i": "f", "f": "i"}.get(gate, gate)): array for (part, gate), array in first.arrays.items()}
    spoilt = first.replace(arrays={**first.arrays, **{key: arrays[key] for key in arrays if key[0] == "recurrent"}})
    stacked = layers["encoder"].layers
    wrong = rc.Layer((spoilt, *stacked[0].directions[1:]))
    layers["encoder"] = layers["encoder"].replace(layers=(wrong, *stacked[1:]))
    rc.save(Checkpoint("memory", "canonical", layers), folder / "wrong.pt", "pytorch")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rc.verify("right.pt", "wrong.pt", rc.Plan(on=("torch-cpu",))).write("report.html")
    return folder / "report.html"


@pytest.mark.parametrize("width", [400, 1280])
def test_a_report_on_a_wrong_layer_is_short_and_begins_with_the_cause(width: int, browser: Any, wrong_layer: Path) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 800})
    tab.goto(wrong_layer.as_uri())
    assert tab.evaluate("document.documentElement.scrollHeight") < 2100
    for text in ("Not equal", "gates i and f", "rnnconvert transplant"):
        box = tab.locator(f"header :text('{text}')").first.bounding_box()
        assert box is not None and box["y"] + box["height"] < 800, text
    tab.close()


def test_a_table_that_scrolls_fades_at_its_edge_until_its_end(browser: Any, wrong_layer: Path) -> None:
    tab = browser.new_page(viewport={"width": 400, "height": 800})
    tab.goto(wrong_layer.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    tab.wait_for_timeout(200)
    fades = """[...document.querySelectorAll('.scroll')].map(one =>
        [one.scrollWidth > one.clientWidth + 1, parseFloat(getComputedStyle(one).getPropertyValue('--fade'))])"""
    edges = tab.evaluate(fades)
    assert {wide for wide, _ in edges} == {True, False}
    assert all((fade > 0) == wide for wide, fade in edges), edges
    tab.evaluate("document.querySelectorAll('.scroll').forEach(one => one.scrollLeft = one.scrollWidth)")
    tab.wait_for_timeout(200)
    assert all(fade < 1 for _, fade in tab.evaluate(fades))
    tab.close()


READABLE = """() => {
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(one => one / 255)
      .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  return [...document.querySelectorAll('h1,h2,h3,h4,p,td,th,dt,dd,small,a,code,li,figcaption')].filter(one => {
    if (!one.textContent.trim() || !one.getClientRects().length) return false;
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  }).map(one => `${one.tagName} ${one.textContent.slice(0, 40)}`);
}"""
"""Text with less contrast than WCAG 2.2 asks for (success criterion 1.4.3, level AA)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Any, page: Path, scheme: str) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    tab.goto(page.as_uri())
    assert not tab.evaluate(READABLE)
    tab.close()


def test_a_keyboard_reaches_and_opens_everything(browser: Any, page: Path) -> None:
    tab = browser.new_page(viewport={"width": 768, "height": 800})
    tab.goto(page.as_uri())
    inside = "[...document.querySelectorAll('summary, a[href]')].filter(one => one.checkVisibility()).length"
    wanted, reached = tab.evaluate(inside), set()
    for _ in range(400):
        tab.keyboard.press("Tab")
        at = tab.evaluate(
            "[document.activeElement.tagName, [...document.querySelectorAll('summary, a[href]')].indexOf(document.activeElement)]"
        )
        if at[0] == "BODY" or at[1] in reached:
            break
        if at[1] >= 0:
            reached.add(at[1])
    assert len(reached) == wanted, f"{len(reached)} of {wanted} reached"
    summary = tab.query_selector("details > summary")
    if summary is not None:
        before = tab.evaluate("document.querySelector('details').open")
        summary.focus()
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.querySelector('details').open") != before
    tab.close()
