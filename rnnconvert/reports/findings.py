"""The findings of a report, in sentences: the cause, the remedy, and everything that fails."""

from __future__ import annotations

from dataclasses import dataclass

from rnnconvert.core.printable import listed
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.core.verdict import OF_INTEGERS, OTHER_NUMBERS, ROUNDED, Verdict
from rnnconvert.reports import words


@dataclass(frozen=True)
class Failure:
    """Runs of a layer that fail alike: the worst of them, all their names, and what the difference looks like."""

    layer: words.Document
    run: words.Document
    names: tuple[str, ...]
    sentences: tuple[str, ...]


def failures(document: words.Document) -> list[Failure]:
    """Return the runs that keep a report from being equal; runs of a layer with the same explanation together."""
    result: list[Failure] = []
    for layer in document["layers"]:
        alike: dict[object, list[words.Document]] = {}
        for number, run in enumerate(layer["runs"]):
            if words.blocks(run):
                fault = next((diagnosis.get("fault") for diagnosis in words.diagnoses(layer, run)), "")
                explanation = fault or tuple(words.sentences(layer, run)) or number
                alike.setdefault((run["status"], explanation), []).append(run)
        for runs in alike.values():
            run = max(runs, key=words.badness)
            names = tuple(words.title(each) for each in runs)
            result.append(Failure(layer, run, names, tuple(words.sentences(layer, run))))
    return result


def causes(layer: words.Document) -> list[words.Document]:
    """Return the diagnoses of a layer that name a cause, the ones of the last model's weights first."""
    named = [diagnosis for diagnosis in layer["diagnoses"] if diagnosis.get("cause")]
    return sorted(named, key=lambda diagnosis: (diagnosis["kind"] != "weights", diagnosis["model"] != "B"))


def headline(document: words.Document) -> str:
    """Say in one line what is wrong and what to do about it, with the files' names; what was proved, where nothing is."""
    words, command = remedy(document)
    advice = f"{words}: {command}" if command else words
    return " ".join(filter(None, [finding(document), advice]))


def remedy(document: words.Document) -> tuple[str, str]:
    """Return the advice on a report that is not equal, and the command that follows it; "" for either that is unknown."""
    wrong = [layer for layer in document["layers"] if not words.good(layer)]
    return _fix(document, wrong) if document["verdict"] == words.DIFFERENT and wrong else ("", "")


def finding(document: words.Document) -> str:
    """Say in one sentence what is wrong, with the files' names; what was proved, where nothing is."""
    verdict = Verdict.read(document)
    if verdict.word in (words.EQUAL, words.BUT_FOR, words.BY_LAYER, words.LAYERS):
        return _proved(document, verdict)
    wrong = [layer for layer in document["layers"] if not words.good(layer)]
    if verdict.word == words.DIFFERENT:
        named = any(causes(layer) for layer in wrong)
        stated = document.get("reasons") or []
        return _cause(document, wrong) if wrong and (named or not stated) else f"{words.subject(document)}: {'; '.join(stated)}"
    missing = next((failure.run for failure in failures(document) if failure.run["status"] != "ran"), None)
    if missing is not None:
        return f"{words.subject(document)}: {missing['executor']} did not run: {missing['reason']}"
    if any(layer["differences"] for layer in document["layers"]):
        return f"{words.subject(document)} state something different, and no input that ran shows whether it matters."
    return _uncompared(document)


def _proved(document: words.Document, verdict: Verdict) -> str:
    """Return the sentence on what was proved, with all that the proof does not cover."""
    named = sorted({run["executor"] for _, run in words.every_run(document) if run["comparisons"]} - {"reference"})
    on = f" on {', '.join(named)}" if named else ""
    exceptions = "; ".join(map(str, verdict.exceptions))
    remarks = "".join(f" {remark}." for remark in verdict.remarks)
    if verdict.word == words.BY_LAYER:
        return f"{words.subject(document)}: each layer computes the same{on}, but the whole source was not run: {exceptions}.{remarks}"
    if verdict.word == words.LAYERS:
        return f"The recurrent layers of {words.subject(document)} compute the same{on}; {exceptions}.{remarks}"
    left = f". Exceptions: {exceptions}" if exceptions else ""
    if len(document["models"]) < 2:
        return f"{words.subject(document)} computes what its weights say{on}{left}.{remarks}"
    return f"{words.subject(document)} compute the same{on}{left}.{remarks}"


def _uncompared(document: words.Document) -> str:
    """Say why nothing was compared: nothing ran, or what ran could not be judged."""
    last = document["models"][-1]["label"] if document["models"] else ""
    for layer, run in words.every_run(document):
        judged = any(comparison["output"] == "y" for comparison in run["comparisons"])
        if run["model"] == last and run["executor"] != "reference" and run["status"] == "ran" and not judged:
            why = "; ".join(f"{what}: {reason}" for what, reason in run["left_out"].items()) or "it gave no outputs"
            return f"{words.subject(document)}: {run['executor']} ran {words.called(layer)}, but its outputs could not be judged: {why}"
    refused = [run for _, run in words.every_run(document) if run["model"] == last and run["status"] == "refused"]
    if refused:
        return f"{words.subject(document)}: nothing was compared. {refused[0]['executor']}: {refused[0]['reason']}"
    paths = [model["path"] for model in document["models"] if model.get("kept") is not False]
    weights = f" To compare the weights: {Command('diff', *paths)}." if len(paths) > 1 else ""
    packages = document.get("missing_packages") or []
    install = f"To run them: pip install {' '.join(packages)}" if packages else "What can run: rnnconvert executors"
    return f"{words.subject(document)}: nothing was compared, as no framework here ran it.{weights} {install}"


def _cause(document: words.Document, wrong: list[words.Document]) -> str:
    """Return the sentence on what is wrong: the cause if it is known, else the numbers."""
    paths = {model["label"]: model["path"] for model in document["models"]}
    layer = next((candidate for candidate in wrong if causes(candidate)), wrong[0])
    of_layer = f", layer {words.called(layer)}" if len(document["layers"]) > 1 else ""
    note = f"; {words.amount(len(wrong) - 1, 'other layer')} of {len(document['layers'])} not equal, either" if len(wrong) > 1 else ""
    named = causes(layer)
    if named and named[0]["kind"] == "weights" and named[0]["model"] == "B":
        return f"In {paths.get('B', 'B')}{of_layer}, {named[0]['cause']}, compared with {paths.get('A', 'A')}{note}."
    run = max((run for run in layer["runs"] if words.blocks(run)), key=words.badness)
    if named:
        file = paths.get(named[0]["model"], named[0]["model"])
        return f"{named[0]['executor']} runs {file}{of_layer} as if {named[0]['cause']}{note}."
    comparison = words.worst(run)
    numbers = f": {comparison['output']} is off by {words.figures(comparison)}" if comparison else ""
    if run["model"] == "B":
        return f"{paths.get('B', 'B')}{of_layer} does not compute what {paths.get('A', 'A')} does{numbers}{note}."
    return f"{run['executor']} does not compute what {paths.get('A', 'A')}{of_layer} says{numbers}{note}."


def _fix(document: words.Document, wrong: list[words.Document]) -> tuple[str, str]:
    paths = {model["label"]: model["path"] for model in document["models"]}
    named = [cause for layer in wrong for cause in causes(layer)]
    if named and named[0]["kind"] == "run":
        return "The weights are right. Change how the model is run.", ""
    if any(diagnosis.get("fault") == OF_INTEGERS for layer in wrong for diagnosis in layer["diagnoses"]):
        return "Its kernel computes with integers, which no layer of floats gives. Take the model as it was before it was quantized.", ""
    if any(model.get("kept") is False for model in document["models"]):
        return "This is a fault of rnnconvert or of a framework. Please report it, with this report.", ""
    if named and str(named[0].get("fault", "")).startswith(ROUNDED):
        return f"If that is meant, allow what it costs: {Flag('atol')} and {Flag('rtol')}.", ""
    if named and named[0].get("fault") == OTHER_NUMBERS:
        return "The layout is right. Check that both files come from the same training step.", ""
    if "A" in paths and "B" in paths and any(run["model"] == "B" and words.blocks(run) for layer in wrong for run in layer["runs"]):
        return _repair(document)
    return "", ""


def _repair(document: words.Document) -> tuple[str, str]:
    """Return the advice that was tried when the report was made, and its command; reports of older versions have none."""
    repair = document.get("repair")
    if not repair:
        return "", ""
    if not repair["command"]:
        return f"No command puts the weights of A into a copy of B: {repair['why'].rstrip('.')}.", ""
    options = {name: values or True for name, values in repair["options"].items()}
    command = Command(repair["command"], *repair["words"], **options).flags
    if words.clean(command) != command:
        return "No command can be printed for file names like these.", ""
    also = f"; {listed(repair['also'])} of A {'goes' if len(repair['also']) == 1 else 'go'} into it, too" if repair["also"] else ""
    if repair["tried"]:
        return f"To fix, in a new file{also}", command
    return f"To write a new file with the weights of A in B's place (not tried on files of this size{also})", command
