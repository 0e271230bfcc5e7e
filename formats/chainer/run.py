"""Chainer's own links on an .npz or HDF5 file of chainer.serializers, on the CPU.

Source: Chainer 7.8.1, chainer/links/rnn. NStep links compute with chainer.functions.n_step_lstm and its like on lists of
sequences, the others one step after the other. A stateful GRU is run with a state of zeros, as a StatelessGRU.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray

NEEDS = ("chainer",)
FORMAT = "chainer"
SUFFIX = ".npz"
SUPPORTS = "NStep links, one or two directions; LSTM, StatelessGRU; lengths for NStep links; gradients; float32 and float64"
VARIANTS: dict[str, dict[str, Any]] = {"chainer": {"device": "cpu"}}

_NAME = re.compile(r"(?P<above>(?:.*/)?)(?P<local>\d+/[wb]\d|(?:upward|lateral|[WU](?:_[rz])?)/[Wb]|peep_[ifo]/W)", re.S)
_CLASSES = {2: "RNN", 6: "GRU", 8: "LSTM"}
"""NStep links by the number of matrices in a layer."""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the links of a file, each reading what the one before gives; see rnnconvert.running."""
    links = _parameters(_loaded(request["file"]), request["layers"])
    if len(links) > 1 and request.get("cotangents"):
        raise NotImplementedError("gradients of several links: only those of a single link are computed")
    remaining = dict(request)
    result: dict[str, Any] = {"hidden": [], "cell": []}
    for arrays in links:
        outputs = _single(arrays, remaining)
        remaining["x"] = outputs["y"]
        for part in ("hidden", "cell"):
            result[part] += outputs[part]
            if remaining.get(part):
                remaining[part] = list(remaining[part])[len(outputs[part]) :]
        result.update({name: outputs[name] for name in ("y", "gradients") if name in outputs})
    return result


def _single(arrays: Mapping[str, Array], request: Mapping[str, Any]) -> dict[str, Any]:
    """Run one link."""
    dtype = str(next(iter(arrays.values())).dtype)
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"{dtype}: links run in float32 and float64 on the CPU")
    if any(name.startswith("peep_") for name in arrays):
        raise NotImplementedError("a StatefulPeepholeLSTM, whose states cannot be given")
    if "0/w0" in arrays:
        return _n_step(arrays, dtype, request)
    if request.get("lengths") is not None:
        raise NotImplementedError("sequences of different lengths: only NStep links support them")
    return _steps(arrays, dtype, request)


def _loaded(path: str) -> dict[str, Array]:
    """Return the arrays of a file by their paths."""
    with pathlib.Path(path).open("rb") as file:
        zipped = file.read(2) == b"PK"
    if zipped:
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: arrays.update({name: item[()]} if hasattr(item, "shape") else {}))
    return arrays


def _parameters(loaded: Mapping[str, Array], layers: Sequence[str]) -> list[dict[str, Array]]:
    """Return the arrays of each link under its own names; if no layer is named, those of all links in the file's order."""
    by_link: dict[str, dict[str, Array]] = {}
    for full, array in loaded.items():
        match = _NAME.fullmatch(full)
        if match:
            by_link.setdefault(match["above"].rstrip("/"), {})[match["local"]] = array
    lacking = [name for name in layers if name not in by_link]
    if lacking or not by_link:
        raise NotImplementedError(f"no link {lacking or layers} among {', '.join(by_link)}")
    return [by_link[name] for name in layers or by_link]


def _fill(link: Any, arrays: Mapping[str, Array], dtype: str) -> None:
    """Set a link's numbers, as chainer.serializers would."""
    link_parameters = {name.lstrip("/"): parameter for name, parameter in link.namedparams()}
    if set(link_parameters) != set(arrays):
        odd = ", ".join(sorted(set(link_parameters) ^ set(arrays)))
        raise NotImplementedError(f"{type(link).__name__} does not have the parameters {odd}")
    for name, parameter in link_parameters.items():
        if parameter.shape != arrays[name].shape:
            raise NotImplementedError(f"{name} has the shape {arrays[name].shape}, but the link's has {parameter.shape}")
        parameter.array = np.array(arrays[name], dtype)


def _n_step(arrays: Mapping[str, Array], dtype: str, request: Mapping[str, Any]) -> dict[str, Any]:
    import chainer
    from chainer import links

    children = 1 + max(int(name.split("/")[0]) for name in arrays)
    matrices = sum(name.startswith("0/w") for name in arrays)
    name = _CLASSES[matrices]
    hidden, width = arrays["0/w0"].shape
    stated = request["how"].get("bidirectional")
    # The second child reads the input if it is the first layer's backward direction; the third then reads both.
    second, third = (arrays.get(f"{child}/w0", np.empty((0, 0))).shape[1] for child in (1, 2))
    two = stated == "true" if stated else third == 2 * hidden or (second == width and width != hidden)
    function = request["how"].get("nonlinearity", "tanh")
    kind = {"tanh": "Tanh", "relu": "ReLU"}[function] if name == "RNN" else ""
    chainer.global_config.dtype = np.dtype(dtype)
    make = getattr(links, f"NStep{'Bi' if two else ''}{name}{kind}")
    layers = children // (2 if two else 1)
    link = make(layers, width, hidden, 0.0)
    _fill(link, arrays, dtype)
    x = np.asarray(request["x"], dtype)
    lengths = request.get("lengths")
    ends = [len(x)] * x.shape[1] if lengths is None else [int(length) for length in lengths]
    if min(ends) < 1:
        raise NotImplementedError("a sequence of length zero")
    sequences = [chainer.Variable(x[:end, place].copy()) for place, end in enumerate(ends)]
    states = [_states(request, part, children, x.shape[1], hidden, dtype) for part in _parts(name)]
    *final, ys = link(*states, sequences)
    y = np.zeros((*x.shape[:2], ys[0].shape[1]), dtype)
    for place, sequence in enumerate(ys):
        y[: len(sequence), place] = sequence.array
    result = _answer(y, final)
    if request.get("cotangents"):
        scales = request["cotangents"]
        outputs = [(sequence, scales["y"][: len(sequence), place]) for place, sequence in enumerate(ys)]
        outputs += [(state, np.stack(list(scales[part]))) for part, state in zip(_parts(name), final)]
        _backward(link, outputs, dtype)
        of_x = np.zeros_like(x)
        for place, sequence in enumerate(sequences):
            of_x[: len(sequence), place] = sequence.grad
        result["gradients"] = _gradients(link, of_x, {p: list(s.grad) for p, s in zip(_parts(name), states)}, request)
    return result


def _parts(name: str) -> tuple[str, ...]:
    return ("hidden", "cell") if name == "LSTM" else ("hidden",)


def _states(request: Mapping[str, Any], part: str, count: int, batch: int, hidden: int, dtype: str) -> Any:
    import chainer

    values = np.stack(list(request[part])) if request.get(part) else np.zeros((count, batch, hidden))
    return chainer.Variable(np.asarray(values, dtype))


def _steps(arrays: Mapping[str, Array], dtype: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a link of one step over all steps."""
    import chainer
    import chainer.functions as functions
    from chainer import links

    chainer.global_config.dtype = np.dtype(dtype)
    lstm = "upward/W" in arrays
    matrix = arrays["upward/W" if lstm else "W/W"]
    hidden, width = matrix.shape[0] // (4 if lstm else 1), matrix.shape[1]
    link = links.StatelessLSTM(width, hidden) if lstm else links.StatelessGRU(width, hidden)
    _fill(link, arrays, dtype)
    x = chainer.Variable(np.asarray(request["x"], dtype))
    parts = _parts("LSTM" if lstm else "GRU")
    begin = [_states(request, part, 1, x.shape[1], hidden, dtype) for part in parts]
    h, c = begin[0][0], begin[1][0] if lstm else None
    ys: list[Any] = []
    for step in x:
        if lstm:
            c, h = link(c, h, step)
        else:
            h = link(h, step)
        ys.append(h)
    y = functions.stack(ys)
    final = [functions.expand_dims(state, 0) for state in ((h, c) if lstm else (h,))]
    result = _answer(y.array, final)
    if request.get("cotangents"):
        scales = request["cotangents"]
        outputs = [(y, scales["y"]), *((s, np.stack(list(scales[part]))) for part, s in zip(parts, final))]
        _backward(link, outputs, dtype)
        result["gradients"] = _gradients(link, x.grad, {p: list(s.grad) for p, s in zip(parts, begin)}, request)
    return result


def _backward(link: Any, outputs: Sequence[tuple[Any, Array]], dtype: str) -> None:
    """Compute the gradients of a weighted sum of outputs."""
    import chainer.functions as functions

    link.cleargrads()
    total = sum(functions.sum(value * np.asarray(scale, dtype)) for value, scale in outputs)
    total.backward()


def _gradients(link: Any, x: Array, states: Mapping[str, list[Array]], request: Mapping[str, Any]) -> dict[str, Any]:
    weights = {name.lstrip("/"): np.asarray(parameter.grad) for name, parameter in link.namedparams()}
    slopes = {part: state for part, state in states.items() if request.get(part)}
    return {"x": np.asarray(x), "hidden": [], "cell": [], **slopes, "weights": {"": weights}}


def _answer(y: Array, final: Sequence[Any]) -> dict[str, Any]:
    h, *c = (np.asarray(state.array) for state in final)
    return {"y": np.asarray(y), "hidden": list(h), "cell": list(c[0]) if c else []}
