"""A report as JUnit XML, which CI systems show with their other tests.

A test suite for each layer; a test case for each output in each case of each run. What did not run is skipped, or an
error if it was asked for by name. The verdict is a separate suite: it passes only if everything is equal. The names and their order are
common to the schemas of Ant and of Jenkins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from rnnconvert.core.verdict import Verdict
from rnnconvert.reports import findings, words

_OUTSIDE_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(document: words.Document) -> str:
    """Return the document as JUnit XML."""
    suites = [_suite(document, layer, number) for number, layer in enumerate(document["layers"])]
    return document_of([*suites, _verdict(document, len(suites))])


def document_of(suites: Iterable[ElementTree.Element]) -> str:
    """Return suites as JUnit XML."""
    root = ElementTree.Element("testsuites")
    root.extend(suites)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(document: words.Document, layer: words.Document, number: int) -> ElementTree.Element:
    group = words.clean(f"{words.pair(document)}: {words.called(layer)}")
    seen: set[tuple[str, ...]] = set()
    cases = [case for run in layer["runs"] for case in _cases(group, layer, run, seen)]
    cases += [skipped(group, f"{case['name']}: not run", case["skipped"], "case left out") for case in layer["cases"] if case["skipped"]]
    output = f"{layer['description']}\nAgain: {document['command']}"
    return suite_of(group, number, cases, document["created"], _properties(document, layer), output, document["warnings"])


def _verdict(document: words.Document, number: int) -> ElementTree.Element:
    """Return a suite of one test case, which passes only where everything is equal, and one of both models that ran whole."""
    group, verdict = words.clean(words.pair(document)), Verdict.read(document)
    case = element("testcase", name="verdict", classname=group, time="0.000")
    kind = words.outcome(verdict)
    if kind == "skipped":
        case.append(element("skipped", message=words.clean(findings.finding(document))))
    elif kind != "passed":
        text = findings.headline(document)
        case.append(element(kind, text, message=words.clean(text), type=verdict.word))
    cases = [case, *_whole_models(document, group)]
    limits = [(f"left out: {limit.kind}", str(limit)) for limit in verdict.limits]
    return suite_of(group, number, cases, document["created"], limits, str(verdict), document["warnings"])


def _whole_models(document: words.Document, group: str) -> Iterator[ElementTree.Element]:
    """Yield the test case of both models that ran whole; skipped where they were not compared."""
    outcome = document.get("whole")
    if outcome is None:
        return
    case = element("testcase", name="whole models", classname=group, time="0.000")
    if outcome["status"] == "not equal":
        case.append(element("failure", outcome["reason"], message=words.clean(outcome["reason"]), type=outcome["status"]))
    elif outcome["status"] == "not compared":
        case.append(element("skipped", message=words.clean(outcome["reason"])))
    yield case


def suite_of(
    group: str,
    number: int,
    cases: Sequence[ElementTree.Element],
    created: str = "",
    properties: Iterable[tuple[str, str]] = (),
    output: str = "",
    warnings: Sequence[str] = (),
) -> ElementTree.Element:
    """Return a suite of test cases, counted."""
    moment = re.match(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)", created)
    suite = element(
        "testsuite",
        name=group,
        package="rnnconvert",
        id=str(number),
        timestamp=f"{moment[1]}T{moment[2]}" if moment else "1970-01-01T00:00:00",
        hostname="localhost",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=_seconds(sum(float(case.attrib["time"]) for case in cases)),
    )
    listed = element("properties")
    for name, text in properties:
        listed.append(element("property", name=words.clean(name) or "(no name)", value=words.clean(text)))
    suite.append(listed)
    suite.extend(cases)
    suite.append(element("system-out", output))
    suite.append(element("system-err", "\n".join(warnings)))
    return suite


def _cases(of: str, layer: words.Document, run: words.Document, seen: set[tuple[str, ...]]) -> Iterator[ElementTree.Element]:
    """Yield a run's test cases.

    of    the pair and the layer
    seen  the explanations that an earlier case has: each stands once in a suite
    """
    group = words.clean(f"{of}: {words.title(run)}")
    if run["status"] != "ran":
        reason = f"{run['status']}: {run['reason']}"
        if words.blocks(run):
            case = element("testcase", name="it runs", classname=group, time="0.000")
            case.append(element("error", run["reason"], message=words.clean(reason), type=run["status"]))
            yield case
        else:
            yield skipped(group, "it runs", reason, run["status"])
    elif not run["comparisons"] and words.state(run) == words.DIFFERENT:
        case = element("testcase", name="it is equal", classname=group, time="0.000")
        case.append(element("failure", _explanation(layer, run, seen), message="not equal", type="not equal"))
        yield case
    elif not run["comparisons"]:
        yield skipped(group, "it runs", "it ran, but there was nothing to compare it with", "not compared")
    each = words.value(run["seconds"].get("run", 0)) / max(len(run["comparisons"]), 1)
    for comparison in run["comparisons"]:
        name = words.clean(f"{comparison['case']}: {comparison['output']}")
        case = element("testcase", name=name, classname=group, time=_seconds(each))
        if not comparison["passed"]:
            text = f"{comparison['message'] or words.place(comparison)}\n{_explanation(layer, run, seen)}"
            message = f"off by {words.figures(comparison)}; {words.place(comparison)}"
            case.append(element("failure", text, message=words.clean(message), type="not equal"))
        yield case


def _explanation(layer: words.Document, run: words.Document, seen: set[tuple[str, ...]]) -> str:
    """Return the diagnosis of a run, in lines, unless an earlier case has it."""
    texts = tuple(words.sentences(layer, run))
    if not texts or texts in seen:
        return ""
    seen.add(texts)
    return "\n".join(["Symptoms:", *(f"  {text}" for text in texts)])


def skipped(group: str, name: str, reason: str, kind: str) -> ElementTree.Element:
    """Return a test case that was left out."""
    case = element("testcase", name=words.clean(name), classname=group, time="0.000")
    case.append(element("skipped", message=words.clean(reason), type=kind))
    return case


def _properties(document: words.Document, layer: words.Document) -> Iterator[tuple[str, str]]:
    """Yield the properties that the results depend on, by name."""
    yield "rnnconvert", document["rnnconvert"]
    yield "verdict of the report", document["verdict"]
    yield "finding of the report", findings.headline(document)
    yield "summary of the report", document["summary"]
    yield "command", document["command"]
    for key, setting in document["settings"].items():
        if key != "tolerances":
            yield key, ", ".join(map(str, setting)) if isinstance(setting, list) else str(setting)
    for output, limits in document["settings"].get("tolerances", {}).items():
        texts = (f"{name} {words.digits_of(limit)}" for name, limit in limits.items() if limit is not None)
        yield f"tolerance of {output}", ", ".join(texts)
    for model in document["models"]:
        yield f"model {model['label']}", f"{model['path']} ({model['format']}, {model['bytes']} bytes)"
        yield f"model {model['label']} sha256", model["sha256"]
        for name in [layer["name"], *layer["counterpart"]]:
            if name in model["weights"]:
                yield f"model {model['label']} weights of {name or 'the module'} sha256", model["weights"][name]
    for run in layer["runs"]:
        if run["status"] == "ran":
            yield f"{words.title(run)}: device", f"{run['device']}, {run['dtype']}, Python {run['python']}"
            for package, version in run["versions"].items():
                yield f"{words.title(run)}: {package}", version


def element(kind: str, content: str = "", /, **attributes: str) -> ElementTree.Element:
    """Return an element without characters that XML cannot hold."""
    element = ElementTree.Element(kind, {key: _OUTSIDE_XML.sub("", text) for key, text in attributes.items()})
    element.text = _OUTSIDE_XML.sub("", "\n".join(words.lines(content))) or None
    return element


def _seconds(time: float) -> str:
    return f"{time:.3f}" if 0 <= time < 1e9 else "0.000"
