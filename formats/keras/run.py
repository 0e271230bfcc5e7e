"""Keras's own recurrent layers, on the backend that Keras is set to: layers of a model, or a chain of them by itself.

A model is run along its own graph, tensor by tensor, so that states can be handed to its recurrent layers and taken
from them. No GPU has run the variants of TensorFlow for CUDA yet. Sources: keras/src/layers/rnn/*.py, keras/src/ops/node.py (3.15).
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from rnnconvert.running.sequences import STATES, Sequences

from .run_exact import exact
from .run_model import Chain, ComputedGraph, NamedLayers, WholeModel, cells_of, directions, every, load, state_count
from .run_saved import folder_of, run_whole
from .run_witness import chosen, forget, output_names, shaking, stated, watch

Array = np.ndarray

NEEDS = ("keras",)
FORMAT = "keras"
SUFFIX = ".keras"
SUPPORTS = "SimpleRNN, GRU of both kinds, LSTM, Bidirectional, stacked cells; any activation; masks; gradients; float16 to float64"
CANNOT = {"how": "the model already states what it computes"}
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
# Once in some thousand runs a TensorFlow with several threads gave a layer the output of the one before it.
_TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
_ON_CPU = {**_TENSORFLOW, **_NO_GPU, "TF_ENABLE_ONEDNN_OPTS": "0"}
_JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", **_NO_GPU}
# Any other precision may be TF32.
_JAX_ON_CUDA = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
_NO_JAX = {"without": ["jax"]}
"""Keras and TensorFlow import it where it is installed."""
VARIANTS: dict[str, dict[str, Any]] = {
    "keras-tensorflow": {"device": "cpu", "backend": "tensorflow", **_NO_JAX, "environment": _ON_CPU},
    "keras-tensorflow-cuda": {"device": "cuda", "backend": "tensorflow", **_NO_JAX, "fused": True, "environment": _TENSORFLOW},
    "keras-tensorflow-cuda-generic": {"device": "cuda", "backend": "tensorflow", **_NO_JAX, "fused": False, "environment": _TENSORFLOW},
    "keras-torch": {"device": "cpu", "backend": "torch", **_NO_JAX, "environment": {"KERAS_BACKEND": "torch", **_NO_GPU}},
    "keras-torch-cuda": {
        "device": "cuda",
        "backend": "torch",
        **_NO_JAX,
        "fused": True,
        "environment": {"KERAS_BACKEND": "torch"},
        "rounds_like": {"float32": "float32, tanh to 16 digits"},
    },
    "keras-jax": {"device": "cpu", "backend": "jax", "environment": _JAX},
    "keras-jax-cuda": {"device": "cuda", "backend": "jax", "fused": True, "environment": _JAX_ON_CUDA},
}
_HALVES = ("float16", "bfloat16")
_NO_FLOAT64 = {"torch": "multiplies matrices in float32", "jax": "takes tanh in float32"}
"""How Keras 3.15 loses precision on its backends in float64: measured, 1e-7 off."""


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here although keras and its device are there, or "" if it can."""
    backend = variant["backend"]
    return "" if importlib.util.find_spec(backend) else f"{backend}, the backend that Keras is to run on, is not installed"


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of the backend."""
    names = (variant["backend"], f"{variant['backend']}-cpu")
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return {variant["backend"]: metadata.version(name)}
    return {}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run layers of a model, or all of a model that is one chain of them; see rnnconvert.running."""
    import keras

    variant = request["variant"]
    if keras.backend.backend() != variant["backend"]:
        raise RuntimeError(f"Keras runs on {keras.backend.backend()}, but should run on {variant['backend']}")
    model = load(request["file"])
    graph: ComputedGraph = NamedLayers(model, request["layers"]) if request["layers"] else WholeModel(model)
    wide = any(cell.compute_dtype == "float64" for layer in graph.layers for way in directions(layer) for cell in cells_of(way))
    if wide and variant["backend"] in _NO_FLOAT64:
        raise NotImplementedError(f"float64: Keras on {variant['backend']} {_NO_FLOAT64[variant['backend']]}")
    if variant["device"] == "cuda":
        _without_tf32(variant["backend"])
        for layer in graph.layers:
            _choose(layer, variant["fused"])
    result = _solved(graph, Sequences.of(request))
    result["notes"] = {"backend": variant["backend"]}
    if variant["device"] == "cuda":
        result["notes"]["paths"] = {layer.name: _path(layer, variant["backend"]) for layer in graph.layers}
    return result


def witness(request: Mapping[str, Any]) -> None:
    """Run a model whole, and record the calls of its layers; see rnnconvert.running."""
    import keras

    seen = request["witness"]
    folder = folder_of(request["file"])
    if folder:
        if request["variant"]["backend"] != "tensorflow":
            raise NotImplementedError("a SavedModel runs whole on TensorFlow")
        run_whole(folder, seen)
        return
    model, note = exact(load(request["file"])) if seen.exact else (load(request["file"]), "")
    if note:
        seen.note(note)
    if request["variant"]["device"] == "cuda":
        _without_tf32(request["variant"]["backend"])
    for name, layer in chosen(list(every(model)), seen.layers, seen).items():
        watch(layer, name, seen, _array, lambda value: [] if value is None else keras.tree.flatten(value), state_count)
    structure = getattr(model, "_inputs_struct", None)

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        packed = arrays[0] if structure is None else keras.tree.pack_sequence_as(structure, list(arrays))
        # Without `training`: to state it would undo what a call of a layer in the model states itself.
        return output_names(model, seen.named(model(packed), _array))

    seen.run(stated(model, seen), call, lambda: forget(model), shaking(model, _gated(model), keras.ops))


def _gated(model: Any) -> list[Any]:
    """Return the cells of a model whose gates have a function of their own."""
    import keras

    return [cell for cell in model._flatten_layers() if isinstance(cell, (keras.layers.LSTMCell, keras.layers.GRUCell))]


def _without_tf32(backend: str) -> None:
    """Have a backend multiply in float32; JAX receives this from its environment."""
    if backend == "tensorflow":
        import tensorflow

        tensorflow.config.experimental.enable_tensor_float_32_execution(False)
    elif backend == "torch":
        import torch

        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def _choose(layer: Any, fused: bool) -> None:
    """Have a layer run cuDNN's kernels, or Keras's own loop over the steps.

    When it must use cuDNN, Keras raises ValueError where it cannot, instead of silently taking the other path.
    """
    for way in directions(layer):
        if hasattr(way, "use_cudnn"):
            way.use_cudnn = fused


def _path(layer: Any, backend: str = "") -> str:
    """Return which of the two a layer ran, chosen as above. On torch Keras does not show where it left cuDNN."""
    fused = "cuDNN where Keras can" if backend == "torch" else "cuDNN"
    chosen = [fused if getattr(way, "use_cudnn", False) is True else "generic" for way in directions(layer)]
    return " and ".join(dict.fromkeys(chosen))


def run(layer: str, ways: Sequence[Mapping[str, Array]], options: Mapping[str, Any], sequences: Sequences) -> dict[str, Any]:
    """Run a keras.layers layer in the element type of its weights, alone or under Bidirectional.

    layer    "SimpleRNN", "GRU" or "LSTM"
    ways     the layer's variables by name: kernel, recurrent_kernel, bias; two of these under Bidirectional
    options  the layer's own: activation, recurrent_activation, reset_after, go_backwards; and merge_mode of a
             Bidirectional: outputs that it keeps apart (None) are side by side

    Raises KeyError for a variable that is absent, ValueError for one of another shape.
    """
    import keras

    dtype = ways[0]["recurrent_kernel"].dtype
    own_options = {name: value for name, value in options.items() if name != "merge_mode"}
    model: Any = _layer(layer, ways[0], own_options)
    if len(ways) > 1:
        other = _layer(layer, ways[1], {**own_options, "go_backwards": True})
        model = keras.layers.Bidirectional(model, backward_layer=other, merge_mode=options.get("merge_mode", "concat"), dtype=dtype.name)
    steps, batch, width = np.shape(sequences.x)
    model.build((batch, steps, width))
    # Bidirectional makes new layers from the configuration of those that it is given.
    for way, values in zip(directions(model), ways):
        for variable in way.weights:
            variable.assign(values[variable.name])
    return _solved(Chain([model]), sequences)


def _layer(layer: str, arrays: Mapping[str, Array], options: Mapping[str, Any]) -> Any:
    import keras

    return getattr(keras.layers, layer)(
        arrays["recurrent_kernel"].shape[0],
        use_bias="bias" in arrays,
        dtype=arrays["recurrent_kernel"].dtype.name,
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        **options,
    )


def _solved(graph: ComputedGraph, sequences: Sequences) -> dict[str, Any]:
    """Return an answer without its notes."""
    import keras

    slots = [
        (layer, number, way)
        for layer in graph.layers
        for number in range(len(cells_of(directions(layer)[0])))
        for way in range(len(directions(layer)))
    ]
    has_cell = [state_count(cells_of(directions(layer)[way])[number]) == 2 for layer, number, way in slots]
    hidden = _of_slots(sequences.hidden, slots, [True] * len(slots), "hidden")
    cell = _of_slots(sequences.cell, slots, has_cell, "cell")
    lengths = sequences.lengths
    if lengths is not None and isinstance(graph, WholeModel) and graph.padded_first():
        raise NotImplementedError(f"sequences of different lengths: the layer {graph.padded_first()!r} reads them with their padding first")
    first = cells_of(directions(graph.layers[0])[0])[0]
    x = _tensor(np.asarray(sequences.x).swapaxes(0, 1), first.compute_dtype)
    states = [_tensor(state, _dtype_of(slot)) for slot, state in [*hidden, *cell]]
    mask = None
    if lengths is not None:
        mask = keras.ops.convert_to_tensor(np.arange(x.shape[1]) < np.asarray(lengths)[:, None])

    def forward(leaves: Sequence[Any]) -> list[Any]:
        """Compute y, final hidden and final cell states, from x and the initial states."""
        sequence, *rest = leaves
        h = {_key(slot): value for (slot, _), value in zip(hidden, rest)}
        c = {_key(slot): value for (slot, _), value in zip(cell, rest[len(hidden) :])}
        finals: dict[Any, list[Any]] = {}

        def call(layer: Any, source: Any) -> list[Any]:
            initial = _initial(layer, h, c, source.shape[0]) if h or c else None
            *outputs, last = _called(layer, source, initial, mask)
            finals.update(last)
            return outputs

        y = graph.compute(sequence, call)
        ends = [finals[_key(slot)] for slot in slots]
        return [y, *(end[0] for end in ends), *(end[1] for end in ends if len(end) > 1)]

    if not sequences.cotangents:
        values = [_array(value) for value in forward([x, *states])]
        return _split(values, len(slots))
    weights = list(graph.weights())
    of_y, *of_finals = sequences.scales(STATES if any(has_cell) else STATES[:1])
    scales = [np.asarray(of_y).swapaxes(0, 1), *(scale for rows in of_finals for scale in rows)]
    outputs, slopes = _differentiated(forward, [x, *states], [variable for *_, variable in weights], scales)
    result = _split([_array(value) for value in outputs], len(slots))
    numbers = [_array(slope) for slope in slopes]
    parts = _split(numbers[: 1 + len(states)], len(hidden))
    named: dict[str, dict[str, Array]] = {}
    for (layer, name, _), number in zip(weights, numbers[1 + len(states) :]):
        named.setdefault(layer, {})[name] = number
    result["gradients"] = {"x": parts["y"], "hidden": parts["hidden"], "cell": parts["cell"], "weights": named}
    return result


def _split(values: Sequence[Array], slots: int) -> dict[str, Any]:
    y, *states = values
    return {"y": np.ascontiguousarray(y.swapaxes(0, 1)), "hidden": states[:slots], "cell": states[slots:]}


def _key(slot: tuple[Any, int, int]) -> tuple[int, int, int]:
    layer, number, way = slot
    return id(layer), number, way


def _dtype_of(slot: tuple[Any, int, int]) -> str:
    layer, number, way = slot
    return str(cells_of(directions(layer)[way])[number].compute_dtype)


def _of_slots(states: Any, slots: Sequence[Any], having: Sequence[bool], what: str) -> list[tuple[Any, Any]]:
    """Match states to their slots; cell states may be listed for all, or for the LSTMs only."""
    owners = [slot for slot, has in zip(slots, having) if has]
    if not states or not owners:
        return []
    if len(states) == len(slots):
        return [(slot, state) for slot, state, has in zip(slots, states, having) if has]
    if len(states) != len(owners):
        raise ValueError(f"{len(states)} {what} states for {len(owners)}")
    return list(zip(owners, states))


def _initial(layer: Any, h: Mapping[Any, Any], c: Mapping[Any, Any], batch: int) -> list[Any]:
    """Return the layer's initial states as it takes them: one direction after the other, nested where cells are stacked."""
    import keras

    initial: list[Any] = []
    for way, direction in enumerate(directions(layer)):
        cells = cells_of(direction)
        pairs: list[Any] = []
        for number, cell in enumerate(cells):
            key = id(layer), number, way
            zero = keras.ops.zeros((batch, cell.units), cell.compute_dtype)
            states = [h.get(key, zero), c.get(key, zero)][: state_count(cell)]
            # Stacked cells keep the states of each together.
            pairs += states if len(cells) == 1 else [states if len(states) > 1 else states[0]]
        initial.append(pairs)
    if len({_shape(state) for state in initial}) > 1:
        raise NotImplementedError(
            f"initial states of {layer.name!r}: Bidirectional gives each direction half of them, but its directions differ"
        )
    return [state for pair in initial for state in pair]


def _shape(states: Sequence[Any]) -> tuple[int, ...]:
    return tuple(len(state) if isinstance(state, list) else 1 for state in states)


def _called(layer: Any, source: Any, initial: list[Any] | None, mask: Any) -> list[Any]:
    """Return the outputs of a layer, and last its final states by slot: [h], or [h, c]."""
    import keras

    try:
        outputs = list(layer(source, initial_state=initial, mask=mask))
    except ValueError as error:
        if "cuDNN is not supported" not in str(error):
            raise
        _choose(layer, False)
        outputs = list(layer(source, initial_state=initial, mask=mask))
    ways = directions(layer)
    apart = 2 if len(ways) == 2 and layer.merge_mode is None else 1
    flat = keras.tree.flatten(outputs[apart:])
    finals: dict[Any, list[Any]] = {}
    for way, direction in enumerate(ways):
        for number, cell in enumerate(cells_of(direction)):
            finals[id(layer), number, way] = [flat.pop(0) for _ in range(state_count(cell))]
    return [*outputs[:apart], finals]


def _tensor(values: Any, dtype: str) -> Any:
    import keras

    # Through float32, or float64: numpy has no bfloat16 that every backend takes.
    wide = np.asarray(values).astype(np.float64 if dtype == "float64" else np.float32)
    # Without its type named, a float64 array becomes float32 on some backends.
    tensor = keras.ops.cast(keras.ops.convert_to_tensor(wide, wide.dtype.name), dtype)
    if keras.backend.standardize_dtype(tensor.dtype) != dtype:
        raise NotImplementedError(f"{dtype}: the backend {keras.backend.backend()} turned it into {tensor.dtype}")
    return tensor


def _array(tensor: Any) -> Array:
    import keras

    if keras.backend.standardize_dtype(tensor.dtype) in _HALVES:
        tensor = keras.ops.cast(tensor, "float32")
    return np.asarray(keras.ops.convert_to_numpy(tensor))


def _differentiated(
    forward: Callable[[Sequence[Any]], list[Any]], leaves: list[Any], variables: list[Any], scales: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Return the outputs, and the gradients of their weighted sum with respect to leaves and variables."""
    import keras

    def total(outputs: Sequence[Any]) -> Any:
        weighed = [
            keras.ops.sum(value * _tensor(scale, keras.backend.standardize_dtype(value.dtype))) for value, scale in zip(outputs, scales)
        ]
        return sum(weighed[1:], weighed[0])

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow

        sources = [*leaves, *(variable.value for variable in variables)]
        with tensorflow.GradientTape(watch_accessed_variables=False) as tape:
            for source in sources:
                tape.watch(source)
            outputs = forward(leaves)
            loss = total(outputs)
        return outputs, list(tape.gradient(loss, sources, unconnected_gradients="zero"))
    if backend == "torch":
        import torch

        sources = [*leaves, *(variable.value for variable in variables)]
        for source in sources:
            source.requires_grad_()
        outputs = forward(leaves)
        slopes = torch.autograd.grad(total(outputs), sources, allow_unused=True)
        return outputs, [torch.zeros_like(s) if slope is None else slope for s, slope in zip(sources, slopes)]
    if backend == "jax":
        import jax

        def pure(tensors: list[Any], values: list[Any]) -> tuple[Any, list[Any]]:
            with keras.StatelessScope(state_mapping=list(zip(variables, values))):
                results = forward(tensors)
                return total(results), results

        slopes, outputs = jax.grad(pure, argnums=(0, 1), has_aux=True)(leaves, [v.value for v in variables])
        return outputs, [*slopes[0], *slopes[1]]
    raise NotImplementedError(f"gradients on Keras's backend {backend}")
