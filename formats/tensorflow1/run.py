"""TensorFlow 1's own cells and wrappers on its checkpoints, under the old Pythons that TensorFlow 1 needs.

The graph is built from the names alone, in the scopes that they say, and tf.train.Saver restores it by its own names: a
variable that is called otherwise, or has another shape, is an error of TensorFlow's.

Sources (1.15.5): tensorflow/python/ops/{rnn,rnn_cell_impl}.py; tensorflow/contrib/rnn/python/ops/{rnn,lstm_ops,gru_ops}.py;
tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from .run_graph import witness  # noqa: F401 - a part of the executor

Array = np.ndarray

NEEDS = ("tensorflow",)
FORMAT = "tensorflow1"
SUFFIX = ".index"
SUPPORTS = (
    "tf.nn.rnn_cell's cells, MultiRNNCell and both bidirectional wrappers; projection, peepholes and clips; lengths; "
    "no gradients; float32 and float64"
)
WHOLE_FILES = True
CANNOT = {"cotangents": "gradients: the TensorFlow 1 executor does not compute them"}
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
# TensorFlow 2 leaves a word in the environment that makes TensorFlow 1 behave as 2 where it can, its contrib not.
_FIRST = {**_QUIET, "TF2_BEHAVIOR": "0"}
VARIANTS: Dict[str, Dict[str, Any]] = {
    "tensorflow1-cpu": {"device": "cpu", "environment": _FIRST},
    "tensorflow1-block": {
        "device": "cpu",
        "environment": _FIRST,
        "block": True,
        "supports": "tf.contrib's LSTMBlockCell and GRUBlockCellV2 in place of LSTMCell and GRUCell; otherwise the same",
    },
    "tensorflow2-raw": {
        "device": "cpu",
        "environment": _QUIET,
        "raw": True,
        "without": ["jax"],
        "supports": "tf.raw_ops.BlockLSTM and GRUBlockCell of today's TensorFlow: no projection, no plain RNN, tanh; no "
        "lengths; no gradients; float32",
    },
}

_OLDER = ((re.compile(r"(_cell(?:_\d+)?(?:/\w+)?)/weights$"), r"\1/kernel"), (re.compile(r"(_cell(?:_\d+)?(?:/\w+)?)/biases$"), r"\1/bias"))
"""What TensorFlow 1.0 and 1.1 called the variables of its cells, and what later versions call them."""

_NAME = re.compile(
    r"(?P<scope>(?:.*?/)??)"
    r"(?:(?P<stacked>stack_bidirectional_rnn(?:_\d+)?)/cell_(?P<outer>\d+)/bidirectional_rnn/(?P<side>fw|bw)/"
    r"|(?P<both>[^/]+)/(?P<way>fw|bw)/(?:multi_rnn_cell/cell_(?P<deep>\d+)/)?"
    r"|multi_rnn_cell/cell_(?P<inner>\d+)/)?"
    r"(?P<cell>[^/]+)/"
    r"(?P<local>kernel|bias|w_[fio]_diag|projection/kernel|(?:gates|candidate)/(?:kernel|bias)"
    r"|candidate/(?:input|hidden)_projection/(?:kernel|bias)|[wb]_(?:ru|c))"
)


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although tensorflow is installed, or "" if it can."""
    if variant.get("raw"):
        return ""
    spec = importlib.util.find_spec("tensorflow")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    packaged = importlib.util.find_spec("tensorflow_core") is not None  # where 1.15 keeps itself
    return (
        ""
        if packaged or any((pathlib.Path(place) / "contrib").is_dir() for place in places)
        else "this TensorFlow is version 2, which does not have the cells of version 1"
    )


def answer(request: Mapping[str, Any]) -> Dict[str, Any]:
    """Run one layer of a checkpoint; see rnnconvert.running.

    how has forget_bias, activation, cell_clip and proj_clip, a list each: of every direction of every layer.
    """
    import tensorflow as tf

    prefix = _prefix(request["file"])
    reader = tf.train.load_checkpoint(prefix)
    kind, scope, cells = _layer(reader.get_variable_to_shape_map(), request["layers"])
    dtype = str(np.dtype(reader.get_variable_to_dtype_map()[cells[0][0]["full"]].as_numpy_dtype))
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"{dtype}: TensorFlow 1's cells run in float32 and float64 on the CPU")
    if request["variant"].get("raw"):
        return _raw(kind, cells, reader, request)
    with tf.Graph().as_default() as graph:
        states = {name: [np.asarray(state, dtype) for state in request.get(name) or []] for name in ("hidden", "cell")}
        x = tf.constant(np.asarray(request["x"], dtype))
        block = bool(request["variant"].get("block"))
        rows = []
        for at, row in enumerate(cells):
            ways = [_cell(shapes, request["how"], len(row) * at + way, block, dtype) for way, shapes in enumerate(row)]
            rows.append([ways[0]] * 2 if len(row) > 1 and row[0] is row[1] else ways)
        lengths = None if request.get("lengths") is None else tf.constant(np.asarray(request["lengths"], "int32"))
        y, final = _run(kind, scope, rows, x, lengths, _states(rows, states, x))
        flat = [state for state in final]
        with tf.Session(graph=graph) as session:
            stored = {today(name): name for name in reader.get_variable_to_shape_map()}
            tf.train.Saver({stored[variable.op.name]: variable for variable in tf.global_variables()}).restore(session, prefix)
            y, flat = session.run([y, flat])
    hidden = [state[1] if isinstance(state, tuple) else state for state in flat]
    return {"y": y, "hidden": hidden, "cell": [state[0] for state in flat if isinstance(state, tuple)]}


def _prefix(file: str) -> str:
    """Return the beginning of the names of a checkpoint's files. Raises NotImplementedError for a file that is not a checkpoint."""
    for prefix in (file, re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", file)):
        if pathlib.Path(prefix + SUFFIX).is_file():
            return prefix
    name = pathlib.Path(file).name
    raise NotImplementedError(f"{name} is not a checkpoint; its cells run from a checkpoint that is made from it")


def today(name: str) -> str:
    """Return the name of a variable in today's cells."""
    for pattern, replacement in _OLDER:
        name = pattern.sub(replacement, name)
    return name


_Cells = List[List[Dict[str, Any]]]


def _layer(shapes: Mapping[str, Sequence[int]], layers: Sequence[str]) -> Tuple[str, str, _Cells]:
    """Return how a layer is wrapped, the scope of its wrapper, and its cells by layer and direction."""
    if len(layers) > 1:
        raise NotImplementedError(f"a chain of {len(layers)} layers: run one at a time")
    cells_by_layer: Dict[Tuple[str, str], Dict[Tuple[int, int], Dict[str, Any]]] = {}
    for full, shape in shapes.items():
        name = today(full)
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        if match["stacked"]:
            kind = "stacked"
        elif match["both"]:
            kind = "both"
        else:
            kind = "one"
        scope = match["scope"] + (match["stacked"] or match["both"] or "")
        number = int(match["outer"] or match["deep"] or match["inner"] or 0)
        way = int("bw" in (match["side"], match["way"]))
        multi = match["deep"] is not None or match["inner"] is not None
        cells = cells_by_layer.setdefault((kind, scope.rstrip("/")), {})
        cell = cells.setdefault((number, way), {"name": match["cell"], "multi": multi, "full": full})
        if cell["name"] != match["cell"]:
            cell["clash"] = match["cell"]
        cell[match["local"]] = tuple(shape)
        cell.setdefault("stored", {})[match["local"]] = full
    chosen = {
        key: cells for key, cells in cells_by_layer.items() if not layers or layers[0] in (key[1], f"{key[1]}/multi_rnn_cell".lstrip("/"))
    }
    if len(chosen) != 1:
        names = ", ".join(layer_key[1] for layer_key in cells_by_layer)
        there = f"it has {len(chosen) or 'no'} layers of that name, but {names}"
        raise NotImplementedError(there if names else "no variable of it has a name that TensorFlow's cells give")
    (((kind, scope), by_place),) = chosen.items()
    clash = next((cell for cell in by_place.values() if "clash" in cell), None)
    if clash is not None:
        raise NotImplementedError(f"two cells in the scope {scope!r}: {clash['name']} and {clash['clash']}")
    depth, ways = 1 + max(number for number, _ in by_place), 1 if kind == "one" else 2
    # Of one cell for both directions the wrapper keeps the forward one's variables alone.
    return kind, scope, [[by_place.get((number, way)) or by_place[number, 0] for way in range(ways)] for number in range(depth)]


def _cell(shapes: Dict[str, Any], how: Mapping[str, Any], at: int, block: bool, dtype: str) -> Tuple[Any, Dict[str, Any]]:
    """Return TensorFlow's own cell for variables of these shapes, and the shapes."""
    import tensorflow as tf
    from tensorflow.contrib import cudnn_rnn, rnn

    name, plain = shapes["name"], re.sub(r"_\d+$", "", shapes["name"])
    settings = {key: values[at] for key, values in how.items()}
    activation = settings.get("activation") or "tanh"
    function = tf.identity if activation == "linear" else getattr(tf.nn, activation)
    basic, common = tf.nn.rnn_cell, {"dtype": tf.as_dtype(dtype), "name": name}
    if "w_ru" in shapes:
        return rnn.GRUBlockCell(shapes["b_c"][0], name=name), shapes
    if "candidate/input_projection/bias" in shapes:
        return cudnn_rnn.CudnnCompatibleGRUCell(shapes["candidate/input_projection/bias"][0]), shapes
    if "candidate/bias" in shapes:
        units = shapes["candidate/bias"][0]
        if block and function is tf.nn.tanh and dtype == "float32":
            return rnn.GRUBlockCellV2(units, name=name), shapes
        return basic.GRUCell(units, activation=function, **common), shapes
    columns = shapes["bias"][0]
    if plain == "basic_rnn_cell":
        return basic.BasicRNNCell(columns, activation=function, **common), shapes
    units = columns // 4
    shapes["lstm"] = True
    if plain == "cudnn_compatible_lstm_cell":
        return cudnn_rnn.CudnnCompatibleLSTMCell(units), shapes
    added, bound = settings["forget_bias"], settings.get("cell_clip")
    sighted = "w_f_diag" in shapes
    if plain == "lstm_fused_cell":
        return rnn.LSTMBlockFusedCell(units, added, bound, sighted, name=name), shapes
    if plain == "basic_lstm_cell":
        return basic.BasicLSTMCell(units, added, activation=function, **common), shapes
    if plain != "lstm_cell":
        raise NotImplementedError(f"the cell {name!r}: the executor does not run this class")
    projected = shapes.get("projection/kernel")
    if block and projected is None and function is tf.nn.tanh:
        return rnn.LSTMBlockCell(units, added, bound, sighted, **common), shapes
    return basic.LSTMCell(
        units,
        use_peepholes=sighted,
        cell_clip=bound,
        num_proj=projected and projected[1],
        proj_clip=settings.get("proj_clip"),
        forget_bias=added,
        activation=function,
        **common,
    ), shapes


def _states(rows: Sequence[Any], given_states: Mapping[str, Sequence[Array]], x: Any) -> Any:
    """Return initial states by layer and direction, where an LSTM is given one of its two the other zero; None for zeros."""
    import tensorflow as tf

    kinds = {bool(shapes.get("lstm")) for row in rows for _, shapes in row}
    if not given_states["hidden"] and not (given_states["cell"] and True in kinds):
        return None
    if len(kinds) > 1:
        raise NotImplementedError("initial states of LSTMs mixed with other cells, which have one each")
    hidden, cell = iter(given_states["hidden"]), iter(given_states["cell"])
    initial = []
    for row in rows:
        states = []
        for _, shapes in row:
            if shapes.get("lstm"):
                batch, units = int(x.shape[1]), shapes["bias"][0] // 4
                h = np.zeros((batch, shapes.get("projection/kernel", (units, units))[1]))
                h, c = next(hidden, h), next(cell, np.zeros((batch, units)))
                states.append(tf.nn.rnn_cell.LSTMStateTuple(tf.constant(c, x.dtype), tf.constant(h, x.dtype)))
            else:
                states.append(tf.constant(next(hidden)))
        initial.append(states)
    return initial


def _run(kind: str, scope: str, rows: Sequence[Any], x: Any, lengths: Any, states: Any) -> Tuple[Any, List[Any]]:
    """Return the outputs and final states of TensorFlow's own wrapper around the cells."""
    import tensorflow as tf
    from tensorflow.contrib import rnn

    common = {"sequence_length": lengths, "dtype": x.dtype, "time_major": True}
    multi = rows[0][0][1]["multi"]
    ways = [[row[way][0] for row in rows] for way in range(len(rows[0]))]
    begun = [None if states is None else [row[way] for row in states] for way in range(len(ways))]
    if kind == "stacked":
        y, *finals = rnn.stack_bidirectional_dynamic_rnn(ways[0], ways[1], x, begun[0], begun[1], scope=scope, **common)
        return y, [finals[way][at] for at in range(len(rows)) for way in range(2)]
    cells = [tf.nn.rnn_cell.MultiRNNCell(way) if multi else way[0] for way in ways]
    starts = [state and (tuple(state) if multi else state[0]) for state in begun]
    if kind == "both":
        y, finals = tf.nn.bidirectional_dynamic_rnn(
            cells[0], cells[1], x, initial_state_fw=starts[0], initial_state_bw=starts[1], scope=scope, **common
        )
        y = tf.concat(y, 2)
    elif isinstance(cells[0], rnn.LSTMBlockFusedCell):
        with tf.variable_scope(scope or tf.get_variable_scope()):
            y, final = cells[0](x, initial_state=starts[0], dtype=x.dtype, sequence_length=lengths)
        return y, [final]
    elif not scope:
        raise NotImplementedError("a cell outside of every scope: dynamic_rnn gives it one")
    else:
        y, final = tf.nn.dynamic_rnn(cells[0], x, initial_state=starts[0], scope=scope, **common)
        finals = [final]
    return y, [state[at] if multi else state for at in range(len(rows)) for state in finals]


def _raw(kind: str, cells: _Cells, reader: Any, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Compute the same by the operations alone, joined here: TensorFlow 2 still has them, but not the classes."""
    if request.get("lengths") is not None:
        raise NotImplementedError("sequences of different lengths: BlockLSTM supports one length")
    states = {name: list(request.get(name) or []) for name in ("hidden", "cell")}
    below = [np.asarray(request["x"], "float32")] * 2
    hidden: List[Array] = []
    cell: List[Array] = []
    for number, row in enumerate(cells):
        outputs = []
        for way, shapes in enumerate(row):
            at = number * len(row) + way
            settings = {key: values[at] for key, values in request["how"].items()}
            begun = [states[name][at] if states[name] else None for name in ("hidden", "cell")]
            y, h, c = _steps(shapes, reader, below[way][::-1] if way else below[way], settings, begun)
            outputs.append(y[::-1] if way else y)
            hidden.append(h)
            cell += [] if c is None else [c]
        joined = np.concatenate(outputs, 2)
        # Directions that meet only at the end read each its own.
        below = (outputs * 2)[:2] if kind == "both" else [joined] * 2
    return {"y": joined, "hidden": hidden, "cell": cell}


def _steps(shapes: Mapping[str, Any], reader: Any, x: Array, settings: Mapping[str, Any], begun: Sequence[Any]) -> Tuple[Array, Array, Any]:
    """Return the outputs and final states of one direction of one layer."""
    import tensorflow as tf

    def variable(name: str) -> Any:
        return tf.constant(reader.get_tensor(shapes["stored"][name]))

    if "projection/kernel" in shapes or (settings.get("activation") or "tanh") != "tanh":
        raise NotImplementedError("a projection, or a function other than tanh: the operations do not have them")
    names = ("w_ru", "b_ru", "w_c", "b_c")
    if "candidate/bias" in shapes:
        names = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")
    if names[0] in shapes:
        w_ru, b_ru, w_c, b_c = (variable(name) for name in names)
        h = tf.zeros((x.shape[1], b_c.shape[0])) if begun[0] is None else tf.constant(np.asarray(begun[0], "float32"))
        outputs = []
        for now in x:
            h = tf.raw_ops.GRUBlockCell(x=tf.constant(now), h_prev=h, w_ru=w_ru, w_c=w_c, b_ru=b_ru, b_c=b_c).h
            outputs.append(h)
        return tf.stack(outputs).numpy(), h.numpy(), None
    plain = re.sub(r"_\d+$", "", shapes["name"])
    if "kernel" not in shapes or plain not in ("lstm_cell", "basic_lstm_cell", "lstm_fused_cell", "cudnn_compatible_lstm_cell"):
        raise NotImplementedError(f"the cell {shapes['name']!r}: there is no operation for it")
    units = shapes["bias"][0] // 4
    sighted = "w_f_diag" in shapes
    zeros = tf.zeros(units)
    states = [tf.zeros((x.shape[1], units)) if state is None else tf.constant(np.asarray(state, "float32")) for state in begun]
    block = tf.raw_ops.BlockLSTM(
        seq_len_max=tf.constant(len(x), tf.int64),
        x=tf.constant(x),
        cs_prev=states[1],
        h_prev=states[0],
        w=variable("kernel"),
        wci=variable("w_i_diag") if sighted else zeros,
        wcf=variable("w_f_diag") if sighted else zeros,
        wco=variable("w_o_diag") if sighted else zeros,
        b=variable("bias"),
        forget_bias=settings["forget_bias"],
        cell_clip=settings.get("cell_clip") or -1,
        use_peephole=sighted,
    )
    return block.h.numpy(), block.h[-1].numpy(), block.cs[-1].numpy()
