"""TensorFlow.js in Node.js, on the CPU: a model run whole, or the recurrent layers of a layers model one after the other.

Source: @tensorflow/tfjs-layers and tfjs-converter 4.22, which a browser runs, too. Models hold no code: nothing of a file is executed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray

NEEDS = ()
FORMAT = "tfjs"
SUFFIX = ".json"
SUPPORTS = "layers models: simpleRNN, GRU with the reset gate before the product, LSTM, two directions; graph models whole; no gradients"
CANNOT = {
    "cotangents": "its layers are run for their outputs alone",
    "lengths": "sequences of different lengths: the models that are run have no input for them",
    "how": "the model already states what it computes",
}
VARIANTS: dict[str, dict[str, Any]] = {"tfjs-cpu": {"device": "cpu"}}
WHOLE_FILES = True

_PACKAGES = ("tfjs-core", "tfjs-layers", "tfjs-backend-cpu")
"""Below @tensorflow; the package tfjs depends on all of them."""


def _places() -> list[str]:
    """Return the folders below which Node.js looks for packages: this one, those above it, and those that NODE_PATH names."""
    here = Path.cwd()
    named = [Path(place).parent for place in os.environ.get("NODE_PATH", "").split(os.pathsep) if place]
    return [str(place) for place in (*named, here, *here.parents)]


def _package(name: str) -> Path | None:
    """Return the folder of a package, None where it is not installed."""
    folders = (Path(place, "node_modules", "@tensorflow", name) for place in _places())
    return next((folder for folder in folders if (folder / "package.json").is_file()), None)


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here, or "" if it can."""
    if shutil.which("node") is None:
        return "Node.js, the program node, was not found"
    missing = [f"@tensorflow/{name}" for name in _PACKAGES if _package(name) is None]
    if not missing:
        return ""
    return f"{missing[0]} was not found: npm install @tensorflow/tfjs in this folder, or name a folder node_modules in NODE_PATH"


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of TensorFlow.js and of Node.js."""
    package = _package("tfjs-layers")
    version = {} if package is None else {"tfjs": str(json.loads((package / "package.json").read_text(encoding="utf-8"))["version"])}
    return {**version, **_node()}


@functools.lru_cache(maxsize=1)
def _node() -> dict[str, str]:
    try:
        done = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"node": done.stdout.strip().lstrip("v")} if done.stdout.strip() else {}


class NodeJs:
    """Node.js with a model; it ends with its input, or with this process."""

    def __init__(self, file: str) -> None:
        words = ["node", str(Path(__file__).with_name("run.js")), *_places()]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._errors: list[bytes] = []
        # What it warns of would fill the pipe.
        self._reader = threading.Thread(target=lambda: self._errors.extend(self._process.stderr or []), daemon=True)
        self._reader.start()
        try:
            self.model = self.ask("load", file=file)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> NodeJs:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a request that was not read
                    pipe.close()

    def ask(self, what: str, **request: Any) -> Any:
        """Return its answer. Raises NotImplementedError for a request that it refuses, RuntimeError if it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"what": what, **request}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            errors = b"".join(self._errors).decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"Node.js ended with {self._process.returncode}: {next((e for e in errors if 'Error' in e), 'no message')}")
        answer = json.loads(line)
        if "refused" in answer:
            raise NotImplementedError(answer["refused"])
        if "error" in answer:
            raise RuntimeError(f"TensorFlow.js: {answer['error']}")
        return answer.get("result")


def encoded(array: Array) -> dict[str, Any]:
    """Return an array as a request has it."""
    dtype = {"f": "float32", "b": "bool"}.get(array.dtype.kind, "int32")
    data = np.ascontiguousarray(array, "u1" if dtype == "bool" else dtype)
    return {"shape": list(array.shape), "dtype": dtype, "data": base64.b64encode(data.tobytes()).decode()}


def decoded(tensor: Mapping[str, Any]) -> Array:
    """Return the array of an answer."""
    dtype = {"bool": "u1"}.get(tensor["dtype"], tensor["dtype"])
    array = np.frombuffer(base64.b64decode(tensor["data"]), dtype).reshape(tensor["shape"])
    return array.astype(bool) if tensor["dtype"] == "bool" else array


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the layers of a model one after the other; see rnnconvert.running."""
    with NodeJs(request["file"]) as node:
        names = request["layers"] or _recurrent(request["file"])
        return Sequences.of(request).through(names, lambda name, left: _alone(node, name, left))


def _recurrent(file: str) -> list[str]:
    """Return the names of the layers of a model that is nothing but recurrent layers."""
    topology = Path(file, "model.json") if Path(file).is_dir() else Path(file)
    topology = json.loads(topology.read_text(encoding="utf-8"))["modelTopology"]
    layers = topology.get("model_config", topology)["config"]["layers"]
    others = [layer["class_name"] for layer in layers if layer["class_name"] not in ("SimpleRNN", "LSTM", "GRU", "Bidirectional")]
    if others:
        raise NotImplementedError(f"the model has a layer {others[0]}, too. Name its recurrent layers")
    return [layer["config"]["name"] for layer in layers]


def _alone(node: NodeJs, name: str, sequences: Sequences) -> dict[str, Any]:
    """Run one layer of a model with its own weights."""
    ways, per = node.ask("ways", name=name)
    stacked = sequences.first(ways).stacked()
    states = [stacked[part][way] for way in range(ways) for part in STATES[:per]] if stacked else []
    x = encoded(sequences.x.swapaxes(0, 1))
    y, *finals = (decoded(tensor) for tensor in node.ask("layer", name=name, x=x, states=[encoded(state) for state in states]))
    return outputs(y.swapaxes(0, 1), *([finals[way * per + word] for way in range(ways)] for word in range(per)))


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, keeping what its recurrent layers read and give; see rnnconvert.running."""
    seen = request["witness"]
    with NodeJs(request["file"]) as node:
        stated, rows = node.model, node.model["rows"]
        counts = node.ask("watch", names=seen.layers)
        for name in seen.layers:
            if counts.get(name, 0) != 1:
                seen.explain(name, f"the model has {counts.get(name, 'no')} recurrent layers {name!r}")
        inputs = []
        for tensor in stated["inputs"]:
            integral = tensor["dtype"] == "int32" or (seen.handed is None and rows and len(tensor["shape"]) == 2)
            padding = (0 if stated["zero"] else None) if integral else next(iter(stated["masks"]), None)
            inputs.append(
                seen.input(tensor["name"], tensor["shape"], "int32" if integral else tensor["dtype"], min(rows, default=None), padding)
            )
        types = [tensor["dtype"] for tensor in stated["inputs"]]

        def call(arrays: Sequence[Array]) -> dict[str, Array]:
            ran = node.ask("run", inputs=[encoded(array.astype(dtype)) for array, dtype in zip(arrays, types, strict=True)])
            for each in ran["calls"]:
                if counts[each["layer"]] == 1:
                    _record(seen, each)
            return dict(zip(stated["outputs"], map(decoded, ran["outputs"]), strict=True))

        begun = list(map(decoded, node.ask("weights")))

        def shake(move: Callable[[Array], Array]) -> None:
            node.ask("assign", weights=[encoded(move(weight) if weight.dtype.kind == "f" else weight) for weight in begun])

        seen.run(seen.calls(inputs), call, reset=lambda: node.ask("reset"), shake=shake)


def _record(seen: Any, call: Mapping[str, Any]) -> None:
    """Record a call of a layer: states stand way by way, and of each its hidden and its cell state."""
    apart, per = call["apart"], call["per"]
    outputs_, states = list(map(decoded, call["outputs"])), list(map(decoded, call["states"]))
    y = np.concatenate(outputs_[:apart], axis=-1)
    finals = outputs_[apart:]
    mask = None if call["mask"] is None else decoded(call["mask"]).astype(bool).T
    by_kind = [[group[word::per] for word in range(per)] + [[]] * (2 - per) if group else (None, None) for group in (states, finals)]
    x = decoded(call["x"]).swapaxes(0, 1)
    seen.record(call["layer"], x, y.swapaxes(0, 1) if y.ndim == 3 else y, mask=mask, states=by_kind[0], finals=by_kind[1])
