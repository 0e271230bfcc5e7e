"""The forms of a report that other programs show: JUnit XML, Markdown, HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections import Counter
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from rnnconvert.core.verdict import BY_LAYER, NOT_COMPARED, NOT_EQUAL, Kind, Limit, Verdict
from rnnconvert.reports import render
from rnnconvert.reports.markdown import LIMIT, safe
from rnnconvert.reports.markup import el
from rnnconvert.reports.plots import gate_bars, steps_plot
from rnnconvert.reports.words import Document, tally
from tests.helpers import report_documents as documents

ALL = documents.everything()
every = pytest.mark.parametrize("document", [pytest.param(report, id=name) for name, report in ALL.items()])

# JUnit XML


def junit(document: Document) -> ElementTree.Element:
    return ElementTree.fromstring(render(document, ".xml").encode("utf-8", "strict"))


@every
def test_junit_counts_are_those_of_its_contents(document: Document) -> None:
    suites = junit(document).findall("testsuite")
    assert len(suites) == len(document["layers"]) + 1  # and the verdict
    for suite in suites:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        for attribute, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[attribute]) == sum(case.find(child) is not None for case in cases)
        assert float(suite.attrib["time"]) == pytest.approx(sum(float(case.attrib["time"]) for case in cases), abs=1e-3)
        names = Counter((case.attrib["classname"], case.attrib["name"]) for case in cases)
        assert max(names.values()) == 1


@every
def test_junit_is_red_when_the_verdict_is(document: Document) -> None:
    root = junit(document)
    red = root.findall(".//failure") + root.findall(".//error")
    assert bool(red) == (document["verdict"] != "equal")
    assert len(root.findall(".//failure")) == tally(document).failed + (document["verdict"] == "not equal")


STATUSES: list[tuple[str, str, str, str]] = [
    ("equal", "", "", ""),
    ("equal but for", "error", "equal-but-for", "warning"),
    ("equal layer by layer, not run whole", "error", "not-run-whole", "warning"),
    ("not compared", "error", "not-compared", "error"),
    ("not equal", "failure", "not-equal", "error"),
]
"""Verdicts, what JUnit's test case of the verdict holds, and the rule and the level of SARIF's finding."""


def test_each_verdict_has_a_status_of_its_own() -> None:
    for word, status, rule, level in STATUSES:
        kind: Kind = "whole" if word == BY_LAYER else "units"
        limits = [Limit(kind, "encoder", "something was left out")] if "equal " in word else []
        verdict = Verdict.of(equal=word != NOT_EQUAL, compared=word != NOT_COMPARED, limits=limits)
        assert verdict.word == word
        document = {**documents.passing(), **verdict.as_dict()}
        (case,) = (entry for entry in junit(document).iter("testcase") if entry.attrib["name"] == "verdict")
        assert [(entry.tag, entry.attrib["type"]) for entry in case] == ([(status, word)] if status else [])
        assert not limits or "something was left out" in case[0].attrib["message"]
        results = json.loads(render(document, ".sarif"))["runs"][0]["results"]
        assert [(entry["ruleId"], entry["level"]) for entry in results] == ([(rule, level)] if rule else [])


ATTRIBUTES = {
    "testsuites": set(),
    "testsuite": {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message", "type"},
    "properties": set(),
    "property": {"name", "value"},
    "system-out": set(),
    "system-err": set(),
}


@every
def test_junit_has_the_names_and_the_order_that_the_schemas_of_ant_and_jenkins_share(document: Document) -> None:
    root = junit(document)
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        for name in element.attrib.keys() & {"name", "classname", "package"}:
            text = element.attrib[name]
            assert text and text == " ".join(text.split())  # a token, in the words of XML Schema
    for number, suite in enumerate(root):
        tags = [child.tag for child in suite]
        assert tags == ["properties", *["testcase"] * (len(tags) - 3), "system-out", "system-err"]
        assert suite.attrib["id"] == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert all(re.fullmatch(r"\d+\.\d{3}", case.attrib["time"]) for case in suite.findall("testcase"))
        assert all(len(case) <= 1 for case in suite.findall("testcase"))


def test_junit_skips_what_nobody_asked_for() -> None:
    optional, required = junit(documents.unavailable(False)), junit(documents.unavailable(True))
    assert (len(optional.findall(".//error")), len(required.findall(".//error"))) == (0, 4)  # what was asked for, and the verdict
    assert len(optional.findall(".//skipped")) == len(required.findall(".//skipped")) + 3
    messages = [element.attrib["message"] for element in optional.findall(".//skipped")]
    assert "refused: keras.layers.GRU has no such cell" in messages


def test_a_junit_failure_says_message_and_diagnosis() -> None:
    failure = next(junit(documents.failing()).iter("failure"))
    assert failure.text is not None
    assert failure.text.startswith("Tensor-likes are not close!") and documents.DIAGNOSIS[0] in failure.text
    assert "off by 0.082 (allowed 1e-7)" in failure.attrib["message"]


def test_junit_names_versions_seeds_and_hashes() -> None:
    document = documents.passing()
    properties = {element.attrib["name"]: element.attrib["value"] for element in junit(document).iter("property")}
    assert properties["seed"] == "0" and properties["A on torch-cpu: torch"] == "2.13.0"
    assert properties["model B sha256"] == document["models"][1]["sha256"]
    assert properties["model A weights of encoder sha256"] == document["models"][0]["weights"]["encoder"]


# Markdown


@every
def test_markdown_fits_and_closes_what_it_opens(document: Document) -> None:
    text = render(document, ".md")
    assert len(text) <= LIMIT
    assert text.count("<details>") == text.count("</details>") == text.count("</summary>")
    fence = ""
    for line in text.splitlines():
        if fence or line.startswith("```"):
            fence = line.removesuffix("text") if not fence else "" if line == fence else fence
    assert fence == ""
    assert text.splitlines()[0].partition(":")[0].endswith(document["verdict"].capitalize())


def test_markdown_is_cut_and_says_so() -> None:
    document = documents.large(bad=100)
    for layer in document["layers"]:
        layer["runs"][-1]["comparisons"][0]["message"] = "a long story\n" * 1000
    text = render(document, ".md")
    assert LIMIT - 8000 < len(text) <= LIMIT
    left = re.findall(r"([\d,]+) more (\w+) are left out for length", text)
    assert "failures" in dict(map(reversed, left))
    stories = text.count("```text\na long story")
    assert stories + int(next(number for number, what in left if what == "failures")) == 100
    assert "left out for length" not in render(documents.failing(), ".md")


def test_markdown_rows_have_as_many_cells_as_their_heads() -> None:
    for document in ALL.values():
        table: list[int] = []
        for line in render(document, ".md").splitlines():
            table = [*table, line.count("|")] if line.startswith("|") else []
            assert len(set(table)) <= 1, line


def test_markdown_takes_names_as_text() -> None:
    text = render(documents.nasty(), ".md")
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    allowed = re.sub(r"</?(details|summary)>|<!-- -->", "", outside)
    assert "<" not in allowed and "@all" not in outside and "http:" not in outside and "`" not in outside
    assert "\x1b" not in text and "\x00" not in text
    assert "````text\n```\n" in text  # a fence that the message cannot close
    assert safe("h_n of x_1") == "h_n of x_1"


def test_markdown_tells_the_worst_of_each_executor() -> None:
    text = render(documents.failing(), ".md")
    row = next(line for line in text.splitlines() if line.startswith("|") and "B on onnxruntime-cpu" in line)
    assert "340,000 times" in row and "decoder.attention, states, y" in row and "not equal" in row
    assert all(sentence in text for sentence in documents.DIAGNOSIS)


# HTML


class Page(HTMLParser):
    """A page as a browser's parser meets it, which must close each element itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def text(self) -> str:
        return "".join("".join(texts) for tag, texts in self.texts.items() if tag not in ("style", "script"))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(document: Document) -> Page:
    return Page(render(document, ".html"))


@every
def test_html_is_whole_and_loads_nothing(document: Document) -> None:
    parsed = page(document)
    assert parsed.open == []
    assert parsed.all("html") == [{"lang": "en"}]
    assert not {tag for tag, _ in parsed.elements} & {"img", "link", "iframe", "object", "embed", "base", "form", "use"}
    assert len(parsed.all("script")) == len(parsed.all("style")) == 1
    for _, attributes in parsed.elements:
        assert not attributes.keys() & {"src", "srcset", "data", "action", "background", "poster", "xlink:href"}
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    style = "".join(parsed.texts["style"])
    assert "url(" not in style and "@import" not in style and "//" not in style


@every
def test_links_of_the_page_lead_somewhere(document: Document) -> None:
    parsed = page(document)
    names = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert {(attributes["href"] or "")[1:] for attributes in parsed.all("a")} <= set(names)
    assert {attributes["aria-labelledby"] for attributes in parsed.all("section")} <= set(names)


def test_only_our_own_script_may_run() -> None:
    parsed = page(documents.nasty())
    script = "".join(parsed.texts["script"])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(meta["content"] for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'")


def test_names_are_text_on_the_page() -> None:
    text = page(documents.nasty()).text()
    assert documents.NASTY.replace("\x1b", "\ufffd").replace("\x00", "\ufffd") in text
    assert el("p", "<b>", el("i", "&"), title='"<') == '<p title="&quot;&lt;">&lt;b&gt;<i>&amp;</i></p>'


def test_the_page_says_the_verdict_and_why() -> None:
    parsed = page(documents.failing())
    assert "".join(parsed.texts["h1"]) == "Not equal" and "".join(parsed.texts["title"]).startswith("Not equal")
    assert all(sentence in parsed.text() for sentence in documents.DIAGNOSIS)
    assert "why" not in {attributes.get("id") for attributes in page(documents.passing()).all("section")}
    assert "What is missing" in page(documents.unavailable(True)).text()


def test_layers_are_folded_where_there_are_several_or_one_is_wrong() -> None:
    layers = [attributes for attributes in page(documents.failing()).all("details") if (attributes.get("class") or "").startswith("layer")]
    assert [("open" in attributes, attributes["class"]) for attributes in layers] == [
        (False, "layer good"), (False, "layer bad"), (False, "layer good")
    ]  # fmt: skip
    assert "open" in next(attributes for attributes in page(documents.passing()).all("details") if attributes.get("class") == "layer good")


def test_the_page_says_how_to_run_it_again() -> None:
    text = render(documents.passing(), ".html")
    for name, value in (("seed", "0"), ("gradients", "yes"), ("cases", "states, lengths"), ("tolerance of y", "atol 0.0001")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert "<dt>inputs</dt>" not in text
    assert documents.passing()["command"] in text


def test_each_state_is_a_word_too() -> None:
    cells = [tag for tag in page(documents.unavailable(False)).all("td") if (tag.get("class") or "").startswith("state")]
    text = render(documents.unavailable(False), ".html")
    assert len(cells) == 4
    for word in ("equal", "refused", "absent"):
        assert re.search(rf'<td class="state \w+"[^>]*><span class="mark \w+"><span[^>]*>.</span>{word}</span>', text)


def test_a_hundred_layers_are_quick_and_small() -> None:
    for document in (ALL["large"], documents.large(bad=100)):
        start = time.process_time()
        text = render(document, ".html")
        assert time.process_time() - start < 2
        assert len(text.encode()) < 5e6
        assert "6,000 comparisons" in text


def test_a_plot_has_the_limits_and_marks_what_is_beyond() -> None:
    plot = steps_plot(documents.comparison(share=3.4e5), "a run")
    assert plot is not None
    parsed = Page(plot)
    kinds = Counter(attributes.get("class") for attributes in parsed.all("path"))
    assert kinds == {"error": 2, "allowed": 2, "floor": 2, "cross": 10}  # the legend has one of each
    assert "step 3: error" in parsed.text() and "a run: largest error" in parsed.text()
    assert {"absolute error", "time step", "error", "allowed", "noise floor", "too large"} <= set(parsed.texts["text"])
    passing = steps_plot(documents.comparison(), "a run")
    assert passing is not None and Page(passing).text().count("step ") == 12
    assert steps_plot(documents.comparison(output="h_n"), "") is None


def test_a_long_plot_keeps_its_one_bad_step() -> None:
    comparison = documents.comparison(share=0.1, time=2000)
    comparison["steps"]["error"][1234] = 0.5
    plot = steps_plot(comparison, "")
    assert plot is not None and len(plot) < 40_000
    assert plot.count('class="cross"') == 2
    assert "error 0.5," in plot


@pytest.mark.parametrize("time_", [1, 2, 61, 2000])
@pytest.mark.parametrize("odd", [0.0, "inf", "nan", 1e-320, 1e300])
def test_plots_stay_inside_their_frame(time_: int, odd: object) -> None:
    comparison = documents.comparison(time=time_)
    comparison["steps"]["error"][0] = odd
    comparison["steps"]["allowed"][-1] = odd
    plot = steps_plot(comparison, "")
    assert plot is not None and "nan" not in plot.replace("not a number", "")
    for path in re.findall(r'<path d="M([^"]*)" class="(?:error|allowed|floor)"', plot):
        for x, y in (pair.split() for pair in path.split("L") if "h" not in pair):
            assert 0 <= float(x) <= 380 and 0 <= float(y) <= 240


def test_bars_are_as_long_as_their_errors() -> None:
    comparison = documents.comparison(output="gradient of weights")
    comparison["gates"] = {"i": 1.0, "f": 4.0, "g": 0.0, "o": 2.0}
    bars = gate_bars(comparison)
    assert bars is not None
    assert re.findall(r"width:([\d.]+)%", bars) == ["25.0", "100.0", "0.5", "50.0"]
    assert gate_bars(documents.comparison()) is None


def colours(style: str) -> list[dict[str, str]]:
    """The named colours of light, dark and print."""
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    return [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in blocks]


def contrast(front: str, back: str) -> float:
    """As WCAG 2 defines it."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(front), light(back)))
    return (high + 0.05) / (low + 0.05)


def test_every_text_stands_out_from_what_is_behind_it() -> None:
    themes = colours("".join(page(documents.passing()).texts["style"]))
    assert len(themes) == 3 and themes[0]["page"] != themes[1]["page"]
    for theme in themes:
        for behind in ("page", "card", "shade", "good-page", "bad-page", "neutral-page"):
            assert contrast(theme["ink"], theme[behind]) >= 7
        for text in ("soft", "link", "good", "bad", "neutral"):
            for behind in ("page", "card", "shade"):
                assert contrast(theme[text], theme[behind]) >= 4.5, (text, behind)
        for tone in ("good", "bad", "neutral"):
            assert contrast(theme[tone], theme[f"{tone}-page"]) >= 4.5, tone
        for curve in ("curve", "limit", "noise"):
            assert contrast(theme[curve], theme["card"]) >= 3, curve
