"""Documents of reports, as `verify` makes them, for the tests of what is made from them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]
NASTY = 'enc <script>alert("1")</script> & |`*_x_*`| \x1b[31m\x00 @all #1 http://example.org\nsecond line'
DIAGNOSIS = ("equal to 1.1e-7 if the peepholes are dropped", "the difference begins at layer 0, backward, time step 3")
_AXES = {"y": ("time", "batch", "unit"), "h_n": ("layer", "batch", "unit"), "c_n": ("layer", "batch", "unit")}
_OUTPUTS = ("y", "y, padded steps", "h_n", "c_n", "gradient of x", "gradient of weights")
_VERSIONS = {
    "reference": {"numpy": "2.4.6"},
    "torch-cpu": {"torch": "2.13.0"},
    "torch-cuda": {"torch": "2.13.0", "CUDA": "13.0", "cuDNN": "9.14.0"},
    "onnxruntime-cpu": {"onnxruntime": "1.31.1"},
}


def comparison(case: str = "states", output: str = "y", share: float = 0.13, time: int = 12, seed: int = 0, late: int = 3) -> Document:
    """One comparison, which uses a share of what is allowed, from one time step on."""
    numbers = random.Random(f"{case} {output} {share} {seed}")
    floor = [1e-8 * (1 + step / 4) * numbers.uniform(0.7, 1.3) for step in range(time)]
    allowed = [8 * number for number in floor]
    early = min(share, 0.15)
    error = [number * (share if step >= late else early) * numbers.uniform(0.4, 0.95) for step, number in enumerate(allowed)]
    worst = min(late + 2, time - 1)
    error[worst] = allowed[worst] * share
    passed = share <= 1
    gates = {gate: max(error) * numbers.uniform(0.1, 1) for gate in "ifgo"} if output == "gradient of weights" else None
    if gates and not passed:
        gates = {gate: number * (1.0 if gate == "f" else 1e-5) for gate, number in gates.items()}
    elements = time * 4 * 5
    return {
        "case": case, "output": output, "passed": passed,
        "error": max(error), "relative": 30 * max(error), "ulps": max(error) / 6e-8,
        "allowed": allowed[worst], "ratio": share, "floor": max(floor),
        "worst": {"index": [worst, 0, 7], "axes": [*_AXES.get(output, ("time", "batch", "value"))],
                  "found": 0.1 + error[worst], "expected": 0.1},
        "mismatched": 0 if passed else elements // 3, "elements": elements,
        "steps": {"error": error, "allowed": allowed, "floor": floor} if output == "y" else None,
        "gates": gates,
        "message": "" if passed else
        f"Tensor-likes are not close!\n\nMismatched elements: {elements // 3} / {elements} (33.3%)\n"
        f"Greatest absolute difference: {max(error)} at index ({worst}, 0, 7) (up to {allowed[worst]} allowed)",
    }  # fmt: skip


def run(
    model: str = "A",
    executor: str = "torch-cpu",
    shares: float | Sequence[float] = 0.13,
    cases: Sequence[str] = ("states", "lengths"),
    outputs: Sequence[str] = _OUTPUTS,
    **more: Any,
) -> Document:
    """A run that ran: one share for all its comparisons, or one for each."""
    pairs = [(case, output) for case in cases for output in outputs]
    each = [shares * (0.5 + 0.5 / (1 + n)) if shares <= 1 else shares for n in range(len(pairs))] \
        if isinstance(shares, (int, float)) else [*shares]  # fmt: skip
    comparisons = [comparison(case, output, share, seed=len(executor)) for (case, output), share in zip(pairs, each, strict=True)]
    return {
        "model": model, "executor": executor, "own_file": model == "A", "status": "ran", "reason": "",
        "verdict": "equal" if all(entry["passed"] for entry in comparisons) else "not equal",
        "required": False, "device": "NVIDIA H200" if "cuda" in executor else "cpu", "dtype": "float32",
        "versions": dict(_VERSIONS.get(executor, {executor: "1.0"})), "python": "3.11.7",
        "rewrites": [], "left_out": {}, "notes": {}, "seconds": {"start": 1.2, "convert": 0.1, "run": 0.012},
        "comparisons": comparisons, **more,
    }  # fmt: skip


def idle(model: str, executor: str, status: str, reason: str, required: bool = False) -> Document:
    """A run that did not run."""
    return run(model, executor, cases=(), status=status, reason=reason, verdict="", required=required, device="",
               dtype="", versions={}, python="", seconds={})  # fmt: skip


def layer(name: str, runs: Sequence[Document], **more: Any) -> Document:
    """A layer with its runs."""
    return {
        "name": name, "description": "LSTM, 2 layers, bidirectional, 3 -> 5, two biases, float32",
        "counterpart": [f"{name}_l0", f"{name}_l1"],
        "cases": [
            {"name": "states", "what": "random input and initial states, 12 steps, batch of 4", "skipped": ""},
            {"name": "lengths", "what": "sequences of different lengths", "skipped": ""},
            {"name": "long", "what": "2000 steps", "skipped": "it takes longer than was allowed"},
        ],
        "runs": [*runs],
        "mutations": {
            "caught": [
                {"name": "gates i and f swapped", "error": 0.31, "times_allowed": 3.4e5, "case": "states"},
                {"name": "recurrent matrix transposed", "error": 0.12, "times_allowed": 1.3e5, "case": "states"},
                {"name": "direction order", "error": 0.44, "times_allowed": 4.9e5, "case": "lengths"},
            ],
            "missed": [{"name": "biases swapped", "why": "the layer has one bias"}],
            "inapplicable": [{"name": "clip dropped", "why": "needs a clip"}],
        },
        "diagnoses": [], "differences": [], **more,
    }  # fmt: skip


def document(layers: Sequence[Document], models: int = 2, **more: Any) -> Document:
    """A report with its verdict and summary, as they follow from its layers."""
    runs = [run for part in layers for run in part["runs"]]
    results = [part["passed"] for run in runs for part in run["comparisons"]]
    bad = not all(results)
    missing = any(run["status"] == "failed" or (run["required"] and run["status"] != "ran") for run in runs)
    executors = len({run["executor"] for run in runs})
    return {
        "schema": "rnnconvert-report-1", "rnnconvert": "0.1.0", "created": "2026-11-21T12:00:00+00:00",
        "command": "rnnconvert verify model.pt model.onnx --gradients",
        "verdict": "not equal" if bad else "equal" if results and not missing else "not compared",
        "scope": "weights", "whole": None, "limits": [], "reasons": [],
        "summary": f"{sum(results)} of {len(results)} comparisons passed on {executors} executors",
        "missing_packages": [],
        "models": [_model(label, path, layers) for label, path in (("A", "models/encoder.pt"), ("B", "encoder.onnx"))][:models],
        "settings": {"seed": 0, "batch": 4, "time": 12, "cases": ["states", "lengths"], "lengths": None, "gradients": True,
                     "inputs": None, "factor": 8, "ulps": 4,
                     "tolerances": {"y": {"atol": 1e-4, "rtol": None}}},
        "layers": [*layers],
        "seconds": {"load": 0.1, "start": 3.1, "convert": 0.1, "run": 1.0, "compare": 0.2, "total": 4.5},
        "warnings": ["the file names no activation: tanh was assumed"], **more,
    }  # fmt: skip


def _model(label: str, path: str, layers: Sequence[Document]) -> Document:
    digests = {entry["name"]: hashlib.sha256(entry["name"].encode()).hexdigest() for entry in layers}
    digest = hashlib.sha256(path.encode()).hexdigest()
    format = "pytorch" if path.endswith(".pt") else "onnx"
    return {"label": label, "path": path, "format": format, "sha256": digest, "bytes": 12345678, "weights": digests}


REWRITE = {"rewrite": "sum biases", "layer": "encoder", "detail": "two bias vectors were added", "exact": False}
NODES = {"providers": {"enc_l0": "CPUExecutionProvider"}}


def passing() -> Document:
    """One layer of two models, equal on all executors but those that are not there."""
    runs = [
        run("A", "reference", 0.1), run("A", "torch-cpu"), run("A", "torch-cuda", 0.4),
        run("B", "reference", 0.1, rewrites=[dict(REWRITE)]), run("B", "onnxruntime-cpu", 0.7, notes=NODES),
        idle("B", "cudnn", "absent", "no CUDA device was found"),
    ]  # fmt: skip
    return document([layer("encoder", runs)])


def failing() -> Document:
    """Three layers; in one of them the second model is another function, and the diagnosis says which."""
    shares = [3.4e5, 0.6, 2.1e4, 8.0e4, 1.7, 9.9e3, *[0.2] * 6]
    bad = [run("A", "torch-cpu"), run("B", "onnxruntime-cpu", shares, notes=NODES), run("B", "reference", 0.2)]
    good = [run("A", "torch-cpu"), run("B", "onnxruntime-cpu", 0.5), run("B", "reference", 0.3)]
    diagnosis = {"model": "B", "executor": "onnxruntime-cpu", "sentences": [*DIAGNOSIS]}
    weights = {"kind": "weights", "part": "recurrent", "gate": "f", "layer": 0, "direction": 1, "error": 0.1,
               "relative": 0.2, "where": [1, 2], "expected": 0.3, "found": 0.4, "rounded": False, "words": ""}  # fmt: skip
    cell = {**weights, "kind": "feature", "part": "peepholes", "gate": "", "layer": -1, "direction": -1, "error": "inf",
            "relative": "inf", "where": [], "expected": None, "found": None, "words": "peepholes: yes in A, no in B"}  # fmt: skip
    return document(
        [
            layer("encoder", good),
            layer("decoder.attention", bad, diagnoses=[diagnosis], differences=[weights, cell]),
            layer("summary", good),
        ]
    )


def unavailable(required: bool) -> Document:
    """Executors that refused, failed and are absent; asked for by name or not."""
    runs = [
        run("A", "torch-cpu"),
        idle("A", "keras", "refused", "keras.layers.GRU has no such cell", required),
        idle("A", "jax", "failed" if required else "absent", "the process ended: signal 11", required),
        idle("A", "torch-cuda", "absent", "no CUDA device was found", required),
    ]
    return document([layer("encoder", runs)], models=1)


def endless() -> Document:
    """Errors that are not finite, and some that are zero."""
    bad = run("A", "torch-cpu", 5.0, cases=("huge",))
    for number, (entry, text) in enumerate(zip(bad["comparisons"], ["inf", "nan", "inf", "nan"], strict=False)):
        entry.update(error=text, relative=text, ulps=text, ratio=text)
        entry["worst"].update(found=text, expected="-inf" if number else 1.0)
    steps = bad["comparisons"][0]["steps"]
    steps["error"][4:6] = ["inf", "nan"]
    steps["error"][0] = steps["floor"][0] = 0.0
    steps["allowed"][2] = "inf"
    bad["comparisons"][-1]["gates"]["i"] = "inf"
    bad["comparisons"][1].update(worst=None, elements=0, mismatched=0)
    exact = run("A", "reference", 0.0, cases=("huge",))
    return document([layer("encoder", [exact, bad])], models=1)


def long() -> Document:
    """Two thousand time steps, of which the last quarter is wrong; and a single step."""
    runs = [run("A", "torch-cpu", 1.0, cases=("long",)), run("A", "torch-cuda", 1.0, cases=("long",))]
    runs[0]["comparisons"][0] = comparison("long", "y", 40.0, time=2000, late=1500)
    runs[1]["comparisons"][0] = comparison("long", "y", 0.5, time=1)
    runs[0]["verdict"] = "not equal"
    return document([layer("encoder", runs)], models=1)


def nasty(text: str = NASTY) -> Document:
    """Names and texts with all that a form could take for its own."""
    shares = [4.0, *[0.1] * 11]
    bad = run("A", text, shares, rewrites=[{**REWRITE, "layer": text, "detail": text}], notes={text: text})
    bad["comparisons"][0].update(message=f"```\n{text}\n]]></failure>", case=text)
    diagnosis = {"model": "A", "executor": text, "sentences": [text]}
    runs = [bad, idle("A", f"{text} 2", "refused", text)]
    mutations = {"caught": [], "missed": [{"name": text, "why": text}], "inapplicable": []}
    report = document([layer(text, runs, description=text, diagnoses=[diagnosis], mutations=mutations)], models=1,
                    summary=text, command=text, warnings=[text, "\ud800"])  # fmt: skip
    report["models"][0]["path"] = text
    return report


def uncompared() -> Document:
    """One model, on one executor."""
    return document(
        [layer("", [run("A", "torch-cpu", cases=(), verdict="")], mutations={"caught": [], "missed": [], "inapplicable": []})], models=1
    )


def large(layers: int = 100, bad: int = 3) -> Document:
    """Many layers, some of them wrong."""
    encoders = []
    for number in range(layers):
        runs = [run("A", "reference", 0.1), run("A", "torch-cpu"), run("A", "torch-cuda", 0.4), run("B", "reference", 0.1)]
        runs.append(run("B", "onnxruntime-cpu", 0.7 if number % (layers // bad) else 2e4))
        diagnosis = {"model": "B", "executor": "onnxruntime-cpu", "sentences": [*DIAGNOSIS]}
        wrong = runs[-1]["verdict"] == "not equal"
        encoders.append(layer(f"encoder.blocks.{number}.lstm", runs, diagnoses=[diagnosis] if wrong else []))
    return document(encoders)


def everything() -> dict[str, Document]:
    """Every document there is, by name."""
    return {
        "passing": passing(), "failing": failing(), "optional": unavailable(False), "required": unavailable(True),
        "endless": endless(), "long": long(), "nasty": nasty(), "uncompared": uncompared(), "large": large(),
        "no layers": document([]),
    }  # fmt: skip
