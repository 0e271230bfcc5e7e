"""Chainer's own links on an .npz or HDF5 file of chainer.serializers, on the CPU.

Source: Chainer 7.8.1, chainer/links/rnn. NStep links compute with chainer.functions.n_step_lstm and its like on lists of
sequences, the others one step after the other. A stateful GRU is run with a state of zeros, as a StatelessGRU.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

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
    return Sequences.of(request).through(links, lambda arrays, sequences: _single(arrays, sequences, request["how"]))


def _single(arrays: Mapping[str, Array], sequences: Sequences, how: Mapping[str, Any]) -> dict[str, Any]:
    """Run one link."""
    dtype = str(next(iter(arrays.values())).dtype)
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"{dtype}: links run in float32 and float64 on the CPU")
    if any(name.startswith("peep_") for name in arrays):
        raise NotImplementedError("a StatefulPeepholeLSTM, whose states cannot be given")
    if "0/w0" in arrays:
        return _n_step(arrays, dtype, sequences, how)
    if sequences.lengths is not None:
        raise NotImplementedError("sequences of different lengths: only NStep links support them")
    return _steps(arrays, dtype, sequences)


def _loaded(path: str) -> dict[str, Array]:
    """Return the arrays of a file by their paths."""
    with pathlib.Path(path).open("rb") as file:
        zipped = file.read(2) == b"PK"
    if zipped:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: arrays.update({name: item[()]} if hasattr(item, "shape") else {}))
    return arrays


def _parameters(loaded: Mapping[str, Array], layers: Sequence[str]) -> list[dict[str, Array]]:
    """Return the arrays of each link under its own names; if no layer is named, of all links in the file's order."""
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


def _n_step(arrays: Mapping[str, Array], dtype: str, sequences: Sequences, how: Mapping[str, Any]) -> dict[str, Any]:
    import chainer
    from chainer import links

    children = 1 + max(int(name.split("/")[0]) for name in arrays)
    matrices = sum(name.startswith("0/w") for name in arrays)
    name = _CLASSES[matrices]
    hidden, width = arrays["0/w0"].shape
    stated = how.get("bidirectional")
    # The second child reads the input if it is the first layer's backward direction; the third then reads both.
    second, third = (arrays.get(f"{child}/w0", np.empty((0, 0))).shape[1] for child in (1, 2))
    bidirectional = stated == "true" if stated else third == 2 * hidden or (second == width and width != hidden)
    function = how.get("nonlinearity", "tanh")
    kind = {"tanh": "Tanh", "relu": "ReLU"}[function] if name == "RNN" else ""
    chainer.global_config.dtype = np.dtype(dtype)
    make = getattr(links, f"NStep{'Bi' if bidirectional else ''}{name}{kind}")
    layers = children // (2 if bidirectional else 1)
    link = make(layers, width, hidden, 0.0)
    _fill(link, arrays, dtype)
    sequences.refuse_empty("NStep links do not take it")
    x = np.asarray(sequences.x, dtype)
    ends = [len(x)] * x.shape[1] if sequences.lengths is None else [int(length) for length in sequences.lengths]
    inputs = [chainer.Variable(x[:end, place].copy()) for place, end in enumerate(ends)]
    widths = _widths(name, hidden)
    states = _states(sequences, widths, children, dtype)
    *finals, ys = link(*states.values(), inputs)
    y = _padded([sequence.array for sequence in ys], len(x))
    answer = outputs(y, *(state.array for state in finals))
    if sequences.cotangents:
        of_y, *scales = sequences.scales(widths)
        weighed = [(sequence, of_y[: len(sequence), place]) for place, sequence in enumerate(ys)]
        _backward(link, [*weighed, *zip(finals, scales)], dtype)
        answer["gradients"] = _gradients(link, _padded([sequence.grad for sequence in inputs], len(x)), states, sequences)
    return answer


def _padded(rows: Sequence[Array], steps: int) -> Array:
    """Return sequences side by side, (time, batch, values), zero past the end of each."""
    padded = np.zeros((steps, len(rows), rows[0].shape[1]), rows[0].dtype)
    for place, row in enumerate(rows):
        padded[: len(row), place] = row
    return padded


def _widths(name: str, hidden: int) -> dict[str, int]:
    return dict.fromkeys(STATES if name == "LSTM" else STATES[:1], hidden)


def _states(sequences: Sequences, widths: Mapping[str, int], rows: int, dtype: str) -> dict[str, Any]:
    import chainer

    states = sequences.first(rows).initial(widths, rows)
    return {part: chainer.Variable(np.asarray(state, dtype)) for part, state in states.items()}


def _steps(arrays: Mapping[str, Array], dtype: str, sequences: Sequences) -> dict[str, Any]:
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
    x = chainer.Variable(np.asarray(sequences.x, dtype))
    widths = _widths("LSTM" if lstm else "GRU", hidden)
    states = _states(sequences, widths, 1, dtype)
    h, c = states["hidden"][0], states["cell"][0] if lstm else None
    ys: list[Any] = []
    for step in x:
        if lstm:
            c, h = link(c, h, step)
        else:
            h = link(h, step)
        ys.append(h)
    y = functions.stack(ys)
    finals = [functions.expand_dims(state, 0) for state in ((h, c) if lstm else (h,))]
    answer = outputs(y.array, *(state.array for state in finals))
    if sequences.cotangents:
        _backward(link, zip([y, *finals], sequences.scales(widths)), dtype)
        answer["gradients"] = _gradients(link, x.grad, states, sequences)
    return answer


def _backward(link: Any, weighed: Iterable[tuple[Any, Array]], dtype: str) -> None:
    """Compute the gradients of a weighted sum of outputs."""
    import chainer.functions as functions

    link.cleargrads()
    total = sum(functions.sum(value * np.asarray(scale, dtype)) for value, scale in weighed)
    total.backward()


def _gradients(link: Any, x: Array, states: Mapping[str, Any], sequences: Sequences) -> dict[str, Any]:
    weights = {name.lstrip("/"): np.asarray(parameter.grad) for name, parameter in link.namedparams()}
    return sequences.gradients(np.asarray(x), {part: state.grad for part, state in states.items()}, weights)
