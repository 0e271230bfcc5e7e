"""The cells of Flax (linen and nnx), Haiku and Equinox, on files of their parameters.

A file holds the parameters of cells, each of one layer and one direction, by their paths. The library's own class is
made from the arrays under a path, asked which parameters it has, and unrolled by the library's own loop over the steps. The
authors of this file have not run the variants for CUDA.
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

from .run_cells import LIBRARIES, Arrays, CellLibrary, LibraryCell

Array = np.ndarray

NEEDS = ("jax",)
DISTRIBUTIONS = {"haiku": "dm-haiku"}
FORMAT = "flax"
SUFFIX = ".msgpack"

_DEVICES: dict[str, dict[str, str]] = {
    "cpu": {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"},
    # Any other precision may be TF32.
    "cuda": {"JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"},
}


class CompiledCells(NamedTuple):
    """Cells one above the other, compiled.

    lstm     whether they have cell states
    forward  from weights, x, states and lengths: y, final states and, of LSTMs, final cell states, each a list
    slopes   from these and what weights the outputs in a sum: the sum's gradients of weights, x and states; the outputs
    """

    lstm: bool
    forward: Callable[..., Any]
    slopes: Callable[..., Any]


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
    if Path(file).is_dir():
        return _restored(Path(file))
    with Path(file).open("rb") as stream:
        head = stream.read(9)
    zipped = head[:2] == b"PK"
    if head[:6] == b"\x93NUMPY":
        raise NotImplementedError("an .eqx file, whose arrays have no names: only its own model shows where they belong")
    if head[:1] in (b"\x80", b"(", b"c"):
        raise NotImplementedError("a pickle, which Python opens only by running it: the arrays that were read are run")
    if zipped:
        import jax.numpy as jnp

        with np.load(file, allow_pickle=False) as archive:
            stored = dict(archive)
        # numpy has no word for bfloat16, and calls it two bytes of nothing.
        return _split({path: array.view(jnp.bfloat16) if array.dtype == "V2" else array for path, array in stored.items()})
    if head[8:] == b"{":
        try:
            from safetensors.flax import load_file
        except ImportError:
            raise NotImplementedError("the library safetensors reads this file, and is not installed") from None
        return _split({name: np.asarray(array) for name, array in load_file(file).items()})
    try:
        from flax import serialization
    except ImportError:
        raise NotImplementedError("flax reads msgpack, and is not installed; an .npz needs no flax") from None
    return dict(_leaves(serialization.msgpack_restore(Path(file).read_bytes())))


def _split(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return arrays of a flat file by their paths: flax.traverse_util.flatten_dict joins the words of names by any sign."""
    sign = next((sign for sign in "/,." if any(sign in name for name in arrays)), "/")
    return {"/".join(name.split(sign)): array for name, array in arrays.items()}


def _restored(folder: Path) -> dict[str, Array]:
    """Return the arrays of a folder of Orbax, or of the only step in it, by path: nnx keeps each as `value` of a variable."""
    try:
        from orbax import checkpoint
    except ImportError:
        raise NotImplementedError("Orbax restores this folder, and is not installed: pip install orbax-checkpoint") from None
    trees = sorted((file.parent for file in folder.rglob("_METADATA")), key=lambda tree: len(tree.parts))
    restored = checkpoint.PyTreeCheckpointer().restore(trees[0].absolute())
    return {path.removesuffix("/value"): array for path, array in _leaves(restored)}


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Array]]:
    for key, value in tree.items():
        path = f"{above}/{key}" if above else str(key)
        if isinstance(value, dict):
            yield from _leaves(value, path)
        elif hasattr(value, "dtype") and np.ndim(value):
            yield path, np.asarray(value)


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
    stated = {part: list(getattr(sequences, part) or ()) for part in parts}
    longest = max(stated.values(), key=len)  # where an LSTM is given one of its states, the other is zero
    initial = {part: states or [np.zeros_like(row) for row in longest] for part, states in stated.items()} if longest else {}
    for part, states in initial.items():
        if len(states) != len(weights):
            raise NotImplementedError(f"{len(states)} {part} states for {len(weights)} cells")
    lengths = None if sequences.lengths is None else jnp.asarray(np.asarray(sequences.lengths, np.int32))

    def numbers(tree: Any) -> Any:
        return jax.tree.map(lambda value: jnp.asarray(np.asarray(value), kind), tree)

    leaves = weights, numbers(sequences.x), numbers(list(initial.values()))
    if not sequences.cotangents:
        answer = outputs(*jax.tree.map(_array, program.forward(*leaves, lengths)))
    else:
        slopes, values = program.slopes(*leaves, lengths, numbers(sequences.scales(parts)))
        answer = outputs(*jax.tree.map(_array, values))
        of_weights, of_x, of_states = jax.tree.map(_array, slopes)
        answer["gradients"] = sequences.gradients(of_x, dict(zip(initial, of_states)), {})
        answer["gradients"]["weights"] = dict(zip(arrays, of_weights))
    if lengths is not None:
        answer["notes"] = {"padded steps": "the library leaves its cell's outputs there; the executor set them to zero"}
    return answer


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


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
