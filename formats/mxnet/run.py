"""MXNet's own gluon layers and cells on a .params file, on the CPU, under the old Pythons that MXNet needs.

Sources: MXNet 1.9.1, python/mxnet/gluon/rnn and gluon/contrib/rnn; python/mxnet/rnn/rnn_cell.py, whose pack_weights joins
arrays of single gates. A layer computes with the fused operator, which ignores lengths of sequences on the CPU; a cell
with plain operators, one step after the other.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from rnnconvert.running.sequences import Sequences, outputs

Array = np.ndarray

NEEDS = ("mxnet",)
FORMAT = "mxnet"
SUFFIX = ".params"
SUPPORTS = "gluon.rnn's layers and cells; projection; arrays of single gates; no lengths; gradients; float32 and float64"
CANNOT = {"lengths": "sequences of different lengths: MXNet ignores lengths on the CPU"}
VARIANTS: Dict[str, Dict[str, Any]] = {"mxnet-gluon": {"device": "cpu"}}

_NAME = re.compile(
    r"(?:arg:)?(?P<prefix>(?:.*?[._])??)"
    r"(?:(?P<side>[lr])(?P<layer>\d+)_|_unfused\.(?P<old_layer>\d+)\.(?:(?P<old_side>[lr])_cell\.)?|(?P<only>[lr])_cell\.)?"
    r"(?P<rest>(?P<kind>i2h|h2h|h2r)(?P<gate>_[ifcorz])?_(?:weight|bias))"
)
_CLASSES = {1: "RNN", 3: "GRU", 4: "LSTM"}
"""gluon's classes by the number of gates in the rows of their weights."""
_MODES = {"GRU": "gru", "LSTM": "lstm"}


def answer(request: Mapping[str, Any]) -> Dict[str, Any]:
    """Run the layer or cell of a file whose parameters carry a prefix; see rnnconvert.running."""
    import mxnet

    loaded = mxnet.nd.load(request["file"])
    if not isinstance(loaded, dict):
        raise NotImplementedError("a list of arrays without names")
    arrays = _parameters(loaded, request["layers"])
    dtype = str(np.dtype(next(iter(arrays.values())).dtype))
    nonlinearity = request["how"].get("nonlinearity")
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"{dtype}: MXNet's layers run in float32 and float64 on the CPU")
    if (nonlinearity, dtype) == ("relu", "float64"):
        raise NotImplementedError("a relu RNN in float64: MXNet's relu passes through float32")
    return _run(arrays, nonlinearity, Sequences.of(request))


def _parameters(loaded: Mapping[str, Any], layers: Sequence[str]) -> Dict[str, Any]:
    """Return the arrays of one layer under gluon's own names; if no layer is named, of the only one in the file."""
    if len(layers) > 1:
        raise NotImplementedError(f"a chain of {len(layers)} layers: gluon stacks layers in one")
    by_prefix: Dict[str, Dict[str, Any]] = {}
    for full, array in loaded.items():
        match = _NAME.fullmatch(full)
        if match is None:
            if re.search(r"(parameters|rnn_param)$", full) and array.ndim == 1:
                raise NotImplementedError(f"{full!r} is a flat vector, which does not show its sizes")
            continue
        side, layer = match["side"] or match["old_side"] or match["only"], match["layer"] or match["old_layer"]
        numbered = side is not None or layer is not None
        local = f"{side or 'l'}{layer or 0}_{match['rest']}" if numbered else match["rest"]
        by_prefix.setdefault(match["prefix"].rstrip("._"), {})[local] = array
    chosen = [arrays for name, arrays in by_prefix.items() if not layers or name == layers[0]]
    if len(chosen) != 1:
        raise NotImplementedError(f"{len(chosen)} layers of the names {', '.join(by_prefix)}: run one at a time")
    return chosen[0]


def _numbered(arrays: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the arrays of a cell under a layer's names: the same with a number."""
    return {name if name[0] in "lr" else f"l0_{name}": array for name, array in arrays.items()}


def _joined(arrays: Mapping[str, Any]) -> Tuple[str, Any]:
    """Return the operator's mode and flat vector for arrays of single gates, by MXNet's own pack_weights."""
    import mxnet

    arrays = _numbered(arrays)
    mode = "lstm" if "l0_i2h_i_weight" in arrays else "gru"
    sides, layers, hidden = _counts(arrays)
    cell = mxnet.rnn.FusedRNNCell(hidden, layers, mode, sides == 2, prefix="")
    return mode, cell.pack_weights(arrays)["parameters"]


def _counts(arrays: Mapping[str, Any]) -> Tuple[int, int, int]:
    """Return the directions, layers and units of a layer; the first gate of each is i or r, or they are in one array."""
    names = [name for name in arrays if re.fullmatch(r"[lr]\d+_h2h(_[ir])?_weight", name)]
    forward = [name for name in names if name[0] == "l"]
    return len(names) // len(forward), len(forward), arrays[forward[0]].shape[0]


def _run(arrays: Mapping[str, Any], nonlinearity: Any, sequences: Sequences) -> Dict[str, Any]:
    import mxnet

    dtype = np.dtype(next(iter(arrays.values())).dtype)
    cotangents = sequences.cotangents
    single = any(re.search(r"_[ifcorz]_weight$", name) for name in arrays)
    projected = any("h2r" in name for name in arrays)
    if cotangents and (single or projected):
        raise NotImplementedError("gradients of a projected LSTM or of arrays of single gates: MXNet has none on the CPU")

    def tensor(values: Any) -> Any:
        # MXNet makes float32 of everything unless it is told.
        converted = mxnet.nd.array(np.asarray(values), dtype=dtype)
        if cotangents:
            converted.attach_grad()
        return converted

    if single:
        mode, vector = _joined(arrays)
        sides, layers, hidden = _counts(_numbered(arrays))
    else:
        module, mode, (sides, layers, hidden) = _module(arrays, nonlinearity, dtype)
    out = next((array.shape[0] for name, array in arrays.items() if "h2r" in name), hidden)
    widths = {"hidden": out, "cell": hidden} if mode == "lstm" else {"hidden": out}
    x, states = tensor(sequences.x), [tensor(state) for state in sequences.initial(widths, sides * layers).values()]

    def forward() -> List[Any]:
        if single:
            names = dict(zip(("state", "state_cell"), states))
            settings = {"mode": mode, "state_size": hidden, "num_layers": layers, "bidirectional": sides == 2}
            return list(mxnet.nd.RNN(data=x, parameters=vector, state_outputs=True, **settings, **names))
        if hasattr(module, "unroll"):
            y, final = module.unroll(len(x), x, [state[0] for state in states], "TNC", merge_outputs=True)
            return [y, *(state.expand_dims(0) for state in final)]
        y, final = module(x, states)
        return [y, *final]

    if not cotangents:
        return outputs(*(value.asnumpy() for value in forward()))
    with mxnet.autograd.record():
        values = forward()
    mxnet.autograd.backward(values, [tensor(scale) for scale in sequences.scales(widths)])
    slopes = {part: state.grad.asnumpy() for part, state in zip(widths, states)}
    weights = {name: parameter.grad().asnumpy() for name, parameter in module.collect_params().items()}
    gradients = sequences.gradients(x.grad.asnumpy(), slopes, weights)
    return {**outputs(*(value.asnumpy() for value in values)), "gradients": gradients}


def _module(arrays: Mapping[str, Any], nonlinearity: Any, dtype: Any) -> Tuple[Any, str, Tuple[int, int, int]]:
    """Return gluon's layer or cell with these parameters, its mode, and its directions, layers and units."""
    from mxnet.gluon import contrib, rnn

    is_cell = "h2h_weight" in arrays
    start = "" if is_cell else "l0_"
    rows, out = arrays[f"{start}h2h_weight"].shape
    projected = arrays.get(f"{start}h2r_weight")
    hidden = out if projected is None else projected.shape[1]
    name = _CLASSES[rows // hidden]
    words: Dict[str, Any] = {"input_size": arrays[f"{start}i2h_weight"].shape[1], "prefix": ""}
    if name == "RNN" and nonlinearity:
        words["activation"] = nonlinearity
    sides, layers = 1, 1
    if is_cell and projected is not None:
        module = contrib.rnn.LSTMPCell(hidden, out, **words)
    elif is_cell:
        module = getattr(rnn, f"{name}Cell")(hidden, **words)
    else:
        sides, layers, _ = _counts(arrays)
        words.update(num_layers=layers, bidirectional=sides == 2, dtype=dtype.name)
        module = getattr(rnn, name)(hidden, **words, **({} if projected is None else {"projection_size": out}))
    module.cast(dtype.name)
    module.initialize()
    parameters = module.collect_params()
    if set(parameters) != set(arrays):
        raise NotImplementedError(f"{name} differs in the parameters {', '.join(sorted(set(arrays) ^ set(parameters)))}")
    for parameter_name, parameter in parameters.items():
        parameter.set_data(arrays[parameter_name])
    return module, _MODES.get(name, "rnn"), (sides, layers, hidden)
