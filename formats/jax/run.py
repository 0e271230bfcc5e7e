"""The cells of Flax (linen and nnx), Haiku and Equinox, on files of their parameters.

A file holds the parameters of cells, each of one layer and one direction, by their paths. The library's own class is
made from the arrays under a path, asked which parameters it has, and unrolled by the library's own loop over the steps.
Sources, each class's __call__: flax/linen/recurrent.py and flax/nnx/nn/recurrent.py (0.12.8), haiku/_src/recurrent.py
(0.0.17), equinox/nn/_rnn.py (0.13.8). The authors of this file have not run the variants for CUDA.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences, outputs

Array = np.ndarray
Arrays = Mapping[str, Any]

NEEDS = ("jax",)
FORMAT = "flax"
SUFFIX = ".msgpack"
SUPPORTS = "gradients; float16 to float64"

_DEVICES: dict[str, dict[str, str]] = {
    "cpu": {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"},
    # Any other precision may be TF32.
    "cuda": {"JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"},
}


class LibraryCell(NamedTuple):
    """A cell of a library.

    lstm   whether it has a cell state
    asked  the shapes of the parameters that the library's class has, by their paths under the cell's
    unroll from parameters, x (time, batch, in), states (h, c) or (h,) or () for the library's default, and lengths or
           None: to y (time, batch, hidden) and the final states, as the initial ones
    """

    lstm: bool
    asked: Mapping[str, tuple[int, ...]]
    unroll: Callable[..., tuple[Any, tuple[Any, ...]]]


class CompiledCells(NamedTuple):
    """Cells one above the other, compiled.

    lstm     whether they have cell states
    forward  from weights, x, states and lengths: y, final states and, of LSTMs, final cell states, each a list
    slopes   from these and what weights the outputs in a sum: the sum's gradients of weights, x and states; the outputs
    """

    lstm: bool
    forward: Callable[..., Any]
    slopes: Callable[..., Any]


class CellLibrary(NamedTuple):
    """How a library's cells are recognised and made.

    package  that is imported
    suffix   the ending of a file that is made for it
    supports the cells and features that it runs, in words
    lengths  whether its loop over the steps knows sequences of many lengths
    sizes  from a path and the arrays under it: the class's name, input size and hidden size, or None if it is not a cell
    make   from these three, the arrays, and what they do not say: the cell
    """

    package: str
    suffix: str
    supports: str
    lengths: bool
    sizes: Callable[[str, Arrays], tuple[str, int, int] | None]
    make: Callable[..., LibraryCell]


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although its packages and its device are there, or ""; JAX's plugin shows when it runs."""
    return ""


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return Haiku's version: its distribution has another name than its package."""
    from importlib import metadata

    return {"haiku": metadata.version("dm-haiku")} if variant["format"] == "haiku" and find_spec("haiku") else {}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run cells of a file, each reading what the one before gives; see rnnconvert.running."""
    import jax

    file, how = request["file"], tuple(sorted(request["how"].items()))
    format = request["variant"]["format"]
    arrays = _loaded(file, Path(file).stat().st_mtime_ns)
    layers = tuple(request["layers"] or _all(arrays, LIBRARIES[format]))
    layer_arrays = [_under(arrays, path) for path in layers]
    nothing = [path for path, cell_arrays in zip(layers, layer_arrays) if not cell_arrays]
    if nothing:
        raise NotImplementedError(f"there are no arrays under {nothing[0]!r}")
    kinds = {str(array.dtype) for cell_arrays in layer_arrays for array in cell_arrays.values()}
    if len(kinds) != 1:
        raise NotImplementedError(f"arrays of several element types: {', '.join(sorted(kinds))}")
    sequences = Sequences.of(request)
    if sequences.lengths is not None and not LIBRARIES[format].lengths:
        raise NotImplementedError("sequences of different lengths: the library's loop over the steps does not support them")
    sequences.refuse_empty("the library returns the state of another step for it")
    jax.config.update("jax_enable_x64", kinds == {"float64"})
    if sequences.cotangents and any("hf/kernel" in cell_arrays and "hi/kernel" not in cell_arrays for cell_arrays in layer_arrays):
        raise NotImplementedError("gradients of an MGUCell: its reset and update gates have one array")
    program = _program(file, Path(file).stat().st_mtime_ns, layers, how, format)
    return _run(program, dict(zip(layers, layer_arrays)), sequences)


@functools.lru_cache(maxsize=1)
def _loaded(file: str, written: int) -> dict[str, Array]:
    """Return the arrays of a file by path; read once, as all layers of a file are run one after the other."""
    with Path(file).open("rb") as stream:
        head = stream.read(6)
    zipped = head[:2] == b"PK"
    if head == b"\x93NUMPY":
        raise NotImplementedError("an .eqx file, whose arrays have no names: only its own model shows where they belong")
    if head[:1] in (b"\x80", b"(", b"c"):
        raise NotImplementedError("a pickle, which Python opens only by running it: the arrays that were read are run")
    if zipped:
        import jax.numpy as jnp

        with np.load(file, allow_pickle=False) as archive:
            stored = dict(archive)
        # numpy has no word for bfloat16, and calls it two bytes of nothing.
        return {path: array.view(jnp.bfloat16) if array.dtype == "V2" else array for path, array in stored.items()}
    try:
        from flax import serialization
    except ImportError:
        raise NotImplementedError("flax reads msgpack, and is not installed; an .npz needs no flax") from None
    return dict(_leaves(serialization.msgpack_restore(Path(file).read_bytes())))


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Array]]:
    for key, value in tree.items():
        path = f"{above}/{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _leaves(value, path)
        elif hasattr(value, "dtype") and np.ndim(value):
            yield path, np.asarray(value)


def _nested(arrays: Arrays) -> dict[str, Any]:
    """Return arrays by path as nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *above, last = path.split("/")
        node = tree
        for word in above:
            node = node.setdefault(word, {})
        node[last] = array
    return tree


def _under(arrays: Arrays, path: str) -> dict[str, Array]:
    """Return the arrays of a cell by their paths under its own, without random numbers that nnx may keep with them."""
    start = f"{path}/" if path else ""
    members = {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}
    return {name: array for name, array in members.items() if not name.startswith("rngs/")}


def _all(arrays: Arrays, library: CellLibrary) -> list[str]:
    """Return the path of the only cell of a file, or the paths numbered NAME_l0, NAME_l1, ...: one above the other."""
    paths = {"/".join(name.split("/")[:depth]) for name in arrays for depth in range(name.count("/") + 1)}
    matches = [path for path in sorted(paths) if library.sizes(path, _under(arrays, path))]
    if len(matches) == 1:
        return matches
    numbered = [(re.sub(r"_l\d+(?=/|$)", "_l", path), re.findall(r"_l(\d+)(?=/|$)", path), path) for path in matches]
    ordered = [path for *_, path in sorted(numbered, key=lambda entry: list(map(int, entry[1])))]
    numbers = sorted(int(digits[0]) for _, digits, _ in numbered if len(digits) == 1)
    if matches and len({name for name, *_ in numbered}) == 1 and numbers == list(range(len(matches))):
        return ordered
    raise NotImplementedError(f"{len(matches)} cells in the file{': ' * bool(matches)}{', '.join(matches[:5])}; name them")


@functools.lru_cache(maxsize=4)
def _program(file: str, written: int, layers: Sequence[str], how: Sequence[tuple[str, str]], format: str) -> CompiledCells:
    """Compile the cells at these paths, one above the other; kept, so that JAX compiles them once."""
    library, arrays, cells = LIBRARIES[format], _loaded(file, written), []
    for path in layers:
        cell_arrays = _under(arrays, path)
        where = repr(path) if path else "the file itself"
        if any(array.ndim not in (1, 2) for array in cell_arrays.values()):
            raise NotImplementedError(f"{where} has arrays that are neither matrices nor vectors")
        sizes = library.sizes(path, cell_arrays)
        if sizes is None:
            raise NotImplementedError(f"the arrays of {where} fit no cell of {library.package}: {', '.join(cell_arrays)}")
        cell = library.make(*sizes, cell_arrays, dict(how))
        shapes = {name: array.shape for name, array in cell_arrays.items()}
        if shapes != dict(cell.asked):
            mixed_directions = sorted(name for name in {**shapes, **cell.asked} if shapes.get(name) != cell.asked.get(name))
            words = ", ".join(f"{name} {shapes.get(name)}, not {cell.asked.get(name)}" for name in mixed_directions[:3])
            raise NotImplementedError(f"{where} is not a {sizes[0]} of {library.package}: {words}")
        cells.append(cell)
    if len({cell.lstm for cell in cells}) > 1:
        raise NotImplementedError("cells of different kinds, one above the other: run one at a time")
    return _compiled(cells)


def _compiled(cells: Sequence[LibraryCell]) -> CompiledCells:
    import jax
    import jax.numpy as jnp

    def forward(weights: Any, x: Any, states: Any, lengths: Any) -> tuple[Any, ...]:
        finals = []
        for number, (cell, cell_weights) in enumerate(zip(cells, weights)):
            x, final = cell.unroll(cell_weights, x, tuple(state[number] for state in states), lengths)
            if lengths is not None:
                x = jnp.where((jnp.arange(len(x))[:, None] < lengths)[:, :, None], x, 0)
            finals.append(final)
        return (x, *(list(states_of_cell) for states_of_cell in zip(*finals)))

    def total(weights: Any, x: Any, states: Any, lengths: Any, scales: Any) -> tuple[Any, Any]:
        outputs = forward(weights, x, states, lengths)
        pairs = zip(jax.tree.leaves(outputs), jax.tree.leaves(scales))
        return sum((value * scale).sum() for value, scale in pairs), outputs

    slopes = jax.grad(total, argnums=(0, 1, 2), has_aux=True)
    return CompiledCells(cells[0].lstm, jax.jit(forward), jax.jit(slopes))


def _run(program: CompiledCells, arrays: Mapping[str, Arrays], sequences: Sequences) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    kind = next(array.dtype for cell_arrays in arrays.values() for array in cell_arrays.values())
    weights = [{name: jnp.asarray(array) for name, array in member.items()} for member in arrays.values()]
    parts = STATES if program.lstm else STATES[:1]
    given = {part: states for part, states in zip(parts, (sequences.hidden, sequences.cell)) if states}
    for part, states in given.items():
        if len(states) != len(weights):
            raise NotImplementedError(f"{len(states)} {part} states for {len(weights)} cells")
    lengths = None if sequences.lengths is None else jnp.asarray(np.asarray(sequences.lengths, np.int32))

    def numbers(tree: Any) -> Any:
        return jax.tree.map(lambda value: jnp.asarray(np.asarray(value), kind), tree)

    leaves = weights, numbers(sequences.x), numbers([list(rows) for rows in given.values()])
    if not sequences.cotangents:
        answer = outputs(*jax.tree.map(_array, program.forward(*leaves, lengths)))
    else:
        slopes, values = program.slopes(*leaves, lengths, numbers(sequences.scales(parts)))
        answer = outputs(*jax.tree.map(_array, values))
        of_weights, of_x, of_states = jax.tree.map(_array, slopes)
        answer["gradients"] = sequences.gradients(of_x, dict(zip(given, of_states)), {})
        answer["gradients"]["weights"] = dict(zip(arrays, of_weights))
    if lengths is not None:
        answer["notes"] = {"padded steps": "the library leaves its cell's outputs there; the executor set them to zero"}
    return answer


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {path: tuple(value.shape) for path, value in _flat(tree)}


def _flat(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{above}/{key}" if above else str(key)
        yield from _flat(value, path) if isinstance(value, Mapping) else [(path, value)]


def _options(name: str, how: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a Flax class besides its sizes. Raises NotImplementedError for what cannot be chosen.
    Raises NotImplementedError for what cannot be chosen.
    """
    import jax

    functions = {"tanh": jax.numpy.tanh, "relu": jax.nn.relu}
    if not how:
        return {}
    if name != "SimpleCell" or set(how) != {"nonlinearity"} or how["nonlinearity"] not in functions:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for a {name}")
    return {"activation_fn": functions[how["nonlinearity"]]}


def _linen_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    # An LSTM has if/kernel, too: the order tells them.
    first = {"ii/kernel": "LSTMCell", "ir/kernel": "GRUCell", "if/kernel": "MGUCell", "i/kernel": "SimpleCell"}
    name = next((name for name in first if name in arrays), None)
    return None if name is None else (first[name], *arrays[name].shape[-2:])


def _linen(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import jax
    from flax import linen as nn

    kind = next(iter(arrays.values())).dtype
    cell = getattr(nn, name)(features=hidden, param_dtype=kind, **_options(name, how))
    rnn = nn.RNN(cell, time_major=True, return_carry=True)
    asked = jax.eval_shape(rnn.init, jax.random.PRNGKey(0), jax.ShapeDtypeStruct((1, 1, width), kind))

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        variables = {"params": {"cell": _nested(weights)}}
        return _turned(lambda carry: rnn.apply(variables, x, initial_carry=carry, seq_lengths=lengths), states)

    return LibraryCell("LSTM" in name, _shapes(asked["params"]["cell"]), unroll)


def _turned(loop: Callable[[Any], Any], states: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Reorder the results of Flax's loop: it gives the carry first, and an LSTM's carry is (c, h)."""
    begins = states[::-1] if len(states) == 2 else next(iter(states), None)
    carry, y = loop(begins)
    return y, tuple(carry)[::-1] if isinstance(carry, tuple) else (carry,)


def _nnx_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    if "ii/kernel" in arrays:
        return "LSTMCell", *arrays["ii/kernel"].shape[-2:]
    if not {"dense_i/kernel", "dense_h/kernel"} <= set(arrays):
        return None
    hidden, rows = arrays["dense_h/kernel"].shape[-2:]
    name = {4: "OptimizedLSTMCell", 3: "GRUCell", 1: "SimpleCell"}.get(rows // max(1, hidden))
    return None if name is None else (name, arrays["dense_i/kernel"].shape[0], hidden)


def _nnx(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import jax
    from flax import nnx

    kind = next(iter(arrays.values())).dtype
    zeros = {"kernel_init": nnx.initializers.zeros, "recurrent_kernel_init": nnx.initializers.zeros}
    # SimpleCell's own dtype is float32, whatever its parameters are; None takes theirs, as the other cells do.
    sizes = {"dtype": None, "param_dtype": kind, "rngs": nnx.Rngs(0)}
    cell = getattr(nnx, name)(width, hidden, **sizes, **zeros, **_options(name, how))
    definition, parameters, rest = nnx.split(cell, nnx.Param, ...)
    places = [("/".join(map(str, path)), path, variable) for path, variable in nnx.to_flat_state(parameters)]

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        parameter_state = nnx.from_flat_state([(path, variable.replace(weights[key])) for key, path, variable in places])
        rnn = nnx.RNN(nnx.merge(definition, parameter_state, rest), time_major=True, return_carry=True)
        return _turned(lambda carry: rnn(x, initial_carry=carry, seq_lengths=lengths), states)

    return LibraryCell("LSTM" in name, {key: tuple(jax.numpy.shape(variable[...])) for key, _, variable in places}, unroll)


def _haiku_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    # An LSTM's arrays and a VanillaRNN's are named as a linear layer's: Haiku's own name of the module tells them.
    called = path.rpartition("/")[2]
    if {"w_i", "w_h"} <= set(arrays):
        return "GRU", arrays["w_i"].shape[0], arrays["w_h"].shape[0]
    if "linear/w" not in arrays:
        return None
    rows, columns = arrays["linear/w"].shape[-2:]
    if called.startswith("lstm"):
        return "LSTM", rows - columns // 4, columns // 4
    return ("VanillaRNN", rows, columns) if called.startswith("vanilla_rnn") else None


def _haiku(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import haiku as hk
    import jax

    if how:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for Haiku's {name}")
    kind = next(iter(arrays.values())).dtype
    options = {"double_bias": "linear_1/b" in arrays} if name == "VanillaRNN" else {}

    def loop(x: Any, states: tuple[Any, ...]) -> Any:
        core = getattr(hk, name)(hidden, name="own", **options)
        if len(states) == 2:
            state = hk.LSTMState(*states)
        elif states:
            state = states[0]
        else:
            state = None
        if state is None:
            # Haiku's zeros are float32, whatever it is given.
            state = jax.tree.map(lambda zero: zero.astype(kind), core.initial_state(x.shape[1]))
        return hk.dynamic_unroll(core, x, state)

    model = hk.without_apply_rng(hk.transform(loop))
    asked = jax.eval_shape(lambda: model.init(jax.random.PRNGKey(0), jax.numpy.zeros((1, 1, width), kind), ()))

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        parameters: dict[str, dict[str, Any]] = {}
        for path, array in weights.items():
            module, _, last = f"own/{path}".rpartition("/")
            parameters.setdefault(module, {})[last] = array
        y, final = model.apply(parameters, x, states)
        return y, tuple(final) if isinstance(final, tuple) else (final,)

    return LibraryCell(name == "LSTM", {key[len("own/") :]: shape for key, shape in _shapes(asked).items()}, unroll)


def _equinox_sizes(path: str, arrays: Arrays) -> tuple[str, int, int] | None:
    if not {"weight_ih", "weight_hh"} <= set(arrays):
        return None
    rows, hidden = arrays["weight_hh"].shape[-2:]
    name = {4: "LSTMCell", 3: "GRUCell"}.get(rows // max(1, hidden))
    return None if name is None else (name, arrays["weight_ih"].shape[-1], hidden)


def _equinox(name: str, width: int, hidden: int, arrays: Arrays, how: Mapping[str, str]) -> LibraryCell:
    import equinox as eqx
    import jax

    if how:
        raise NotImplementedError(f"{', '.join(f'{key}={how[key]}' for key in how)} cannot be chosen for Equinox's {name}")
    key = jax.random.PRNGKey(0)
    plain = eqx.filter_eval_shape(getattr(eqx.nn, name), width, hidden, use_bias="bias" in arrays, key=key)
    fields = [field for field in ("weight_ih", "weight_hh", "bias", "bias_n") if getattr(plain, field, None) is not None]

    def unroll(weights: Arrays, x: Any, states: tuple[Any, ...], lengths: Any) -> tuple[Any, tuple[Any, ...]]:
        filled_cell = eqx.tree_at(lambda cell: [getattr(cell, field) for field in fields], plain, [weights[field] for field in fields])

        def step(state: Any, inputs: Any) -> tuple[Any, Any]:
            state = jax.vmap(filled_cell)(inputs, state)
            return state, state[0] if name == "LSTMCell" else state

        zero = jax.numpy.zeros((x.shape[1], hidden), x.dtype)
        begin = states or ((zero, zero) if name == "LSTMCell" else (zero,))
        final, y = jax.lax.scan(step, begin if name == "LSTMCell" else begin[0], x)
        return y, tuple(final) if name == "LSTMCell" else (final,)

    return LibraryCell(name == "LSTMCell", {field: tuple(getattr(plain, field).shape) for field in fields}, unroll)


_LINEN = "LSTMCell, GRUCell, MGUCell and SimpleCell of linen in nn.RNN; lengths, none zero; "
_NNX = "LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell of nnx in nnx.RNN; lengths, none zero; "
_HAIKU = "LSTM, GRU and VanillaRNN in dynamic_unroll; "
_EQUINOX = "nn.LSTMCell and GRUCell in lax.scan; "
LIBRARIES = {
    "flax": CellLibrary("flax", ".msgpack", _LINEN + SUPPORTS, True, _linen_sizes, _linen),
    "nnx": CellLibrary("flax", ".msgpack", _NNX + SUPPORTS, True, _nnx_sizes, _nnx),
    "haiku": CellLibrary("haiku", ".npz", _HAIKU + SUPPORTS, False, _haiku_sizes, _haiku),
    "equinox": CellLibrary("equinox", ".npz", _EQUINOX + SUPPORTS, False, _equinox_sizes, _equinox),
}

VARIANTS: dict[str, dict[str, Any]] = {
    f"{name}-{device}": {
        "device": device,
        "environment": environment,
        "format": name,
        "suffix": library.suffix,
        "needs": ["jax", library.package],
        "supports": library.supports,
    }
    for device, environment in _DEVICES.items()
    for name, library in LIBRARIES.items()
}
