"""Recurrent cells of Flax (linen and nnx), Haiku and Equinox, found in a model's tree, and made."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_3, RELU, SIGMOID, TANH, Activation
from rnnconvert.core.errors import MissingPackageError, RefusedError, UsageError
from rnnconvert.core.names import is_count
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.arrays_by_name import packed, represented
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.options import Options
from rnnconvert.files.questions import warn
from rnnconvert.formats.jax.arrays import named_arrays, wide, with_arrays
from rnnconvert.formats.jax.trees import FRAMEWORKS, find, linear, read
from rnnconvert.rewrites.fit_to_layout import Fitted

_PACKAGES = {"flax": "jax", "nnx": "flax", "haiku": "jax", "equinox": "equinox"}


def from_jax(
    tree: Any, framework: str | None = None, cells: Mapping[str, str | None] | None = None, **options: object
) -> dict[str, Recurrent]:
    """Return every recurrent cell in a tree of JAX's, by its path; "" is the tree itself.

    tree       Flax variables or parameters of linen, an nnx.Module or nnx.State, Haiku's parameters, an Equinox
               module; of a cell or of a whole model, whose optimizer ("opt_state") is skipped
    framework  flax (linen), nnx, haiku or equinox, to find only its cells
    cells      the caller's choice for a path: the layout of its arrays ("haiku.lstm"), or None for no cell
    options    nonlinearity="relu" for plain cells whose parameters do not state it

    Each cell is one layer of one direction: parameters do not state that two cells read both ways. The cell of a live nnx.RNN or
    nnx.Bidirectional reads as that one makes it read. The LSTM or GRU of a tree without modules has the functions that its class has by
    default: where you gave it another `activation_fn` or `gate_fn`, hand in the nnx module, or write the parameters to a file and convert
    that with activation=... A Haiku LSTM is known by its module's name, which begins with lstm; `cells` names one with another name.

    Raises UsageError if there is no cell, or if names and shapes do not settle what there is; RefusedError for
    a cell that computes something else than its class does by default and that has no canonical form.
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    arrays = named_arrays(tree)
    chosen = Options(options)
    cells_found = find(arrays, (framework,) if framework else frameworks_of(tree), cells)
    if not cells_found:
        raise UsageError(_nothing(tree, arrays))
    layers = {}
    for cell in cells_found:
        layers[cell.name] = read_cell(tree, cell, arrays, chosen)
    chosen.ledger.check_used("the tree")
    warn(chosen.questions)
    return layers


def frameworks_of(tree: Any) -> tuple[str, ...]:
    """Return the frameworks whose cells a tree may hold, by its own type if it shows them."""
    nnx, equinox = sys.modules.get("flax.nnx"), sys.modules.get("equinox")
    if nnx is not None and isinstance(tree, (nnx.Module, nnx.State)):
        return ("nnx",)
    if equinox is not None and isinstance(tree, equinox.Module):
        return ("equinox",)
    return FRAMEWORKS


def _nothing(tree: Any, arrays: Mapping[str, Array]) -> str:
    if not arrays:
        return f"this {type(tree).__name__} has no arrays. For linen and Haiku, hand in the parameters"
    maybe = linear(arrays)
    hint = f". {maybe[0]!r} may be a Haiku LSTM of another name: confirm with cells={{{maybe[0]!r}: 'haiku.lstm'}}" if maybe else ""
    return f"found no recurrent cell of {', '.join(FRAMEWORKS)} among {', '.join(list(arrays)[:8])}{hint}"


def read_cell(tree: Any, cell: FoundLayer, arrays: Mapping[str, Array], options: Options) -> Recurrent:
    """Return the layer of a cell that was found, with the functions of its module where the tree has modules.

    Raises UsageError where an option contradicts the module.
    """
    module = module_at(tree, cell.name)
    if module is None:
        return read(cell, arrays, options)
    function = None
    if hasattr(module, "activation_fn") and len(cell.layout.holds.activations) > 1:
        function = _activation(module.activation_fn, cell.name)
        stated = options.stated("nonlinearity", cell.name, function.name, f"the module {type(module).__name__}")
        function = function if stated == function.name else Activation(stated)
    layer = _as_built(module, cell, read(cell, arrays, options, function), function)
    reverse, processing = _read_backwards(tree, cell.name)
    if not reverse:
        return layer
    layers = (type(layer.layers[0])((layer.first.replace(reverse=True),)),)
    return layer.replace(layers=layers, output_order="processing" if processing else "time")


def _read_backwards(tree: Any, path: str) -> tuple[bool, bool]:
    """Return whether the nnx.RNN around a cell reads from the end, and leaves its outputs in that order.

    An RNN in a Bidirectional reads as that one tells it, regardless of its own setting (flax/nnx/nn/recurrent.py, Bidirectional.__call__).
    """
    above, _, name = path.rpartition("/")
    rnn: Any = module_at(tree, above) if name == "cell" else None
    if type(rnn).__name__ != "RNN" or not hasattr(rnn, "keep_order"):
        return False, False
    place, _, local = above.rpartition("/")
    if local in ("forward_rnn", "backward_rnn") and type(module_at(tree, place)).__name__ == "Bidirectional":
        return local == "backward_rnn", False
    return bool(rnn.reverse), bool(rnn.reverse and not rnn.keep_order)


def _as_built(module: Any, cell: FoundLayer, layer: Recurrent, function: Activation | None) -> Recurrent:
    """Return a layer with the functions of its module; `function` is the candidate's where it is settled."""
    expected = cell.layout.class_name
    package, _, name = expected.rpartition(".")
    if type(module) is not getattr(importlib.import_module(package), name):
        raise UsageError(f"{cell.name!r} has the arrays of {expected}, but is a {type(module).__name__}, whose equations are unknown")
    if getattr(module, "residual", False):
        raise RefusedError(
            "a residual cell",
            "the canonical form",
            "it computes h' = act(W x + b + R h + h)",
            "Add the identity to its recurrent kernel and build it without residual.",
            cell.name,
        )
    changes: dict[str, Activation] = {}
    roles = {"activation_fn": ("activation", "output_activation"), "gate_fn": ("gate_activation",)}
    for attribute, fields in roles.items():
        if hasattr(module, attribute):
            changes |= dict.fromkeys(fields, _activation(getattr(module, attribute), cell.name))
    if layer.cell.kind != "lstm":
        changes.pop("output_activation", None)
    if function is not None:
        changes["activation"] = function
    direction = layer.first.replace(cell=layer.cell.replace(**changes))
    return layer.replace(layers=(type(layer.layers[0])((direction,)),))


def module_at(tree: Any, path: str) -> Any:
    """Return the nnx.Module or equinox.Module at a path, or None if the tree has something else there."""
    nnx, equinox = sys.modules.get("flax.nnx"), sys.modules.get("equinox")
    for word in path.split("/") if path else ():
        if isinstance(tree, Mapping):
            if word in tree:
                tree = tree[word]
            elif is_count(word):
                tree = tree.get(int(word))
            else:
                tree = None
        else:
            tree = tree[int(word)] if is_count(word) and hasattr(tree, "__getitem__") else getattr(tree, word, None)
    modules = tuple(package.Module for package in (nnx, equinox) if package is not None)
    return tree if isinstance(tree, modules) else None


def _activation(function: Any, path: str) -> Activation:
    import jax

    functions = [
        (jax.nn.sigmoid, SIGMOID),
        (jax.numpy.tanh, TANH),
        (jax.nn.relu, RELU),
        (jax.nn.hard_sigmoid, HARD_SIGMOID_KERAS_3),
        (jax.nn.soft_sign, Activation("softsign")),
        *((getattr(jax.nn, name), Activation(name)) for name in ("softplus", "silu", "selu", "elu")),
    ]
    recognised = next((activation for candidate, activation in functions if candidate is function), None)
    if recognised is None:
        name = getattr(function, "__name__", repr(function))
        raise RefusedError(f"the function {name}", "the canonical form", "this function is unknown", "", path)
    return recognised


def to_jax(layer: Recurrent, framework: str, dtype: str | None = None, name: str = "", **options: object) -> Any:
    """Return one layer of one direction in a framework's own form.

    framework  nnx and equinox: a module, ready to be called; flax (linen): the parameters of a cell, as
               {"ii": {"kernel": ...}, ...}; haiku: the parameters of a module, as {"lstm/linear": {"w": ..., "b": ...}}.
               Or a layout by its name, such as "nnx.optimized_lstm"
    dtype      element type, the layer's own if None
    name       haiku: the module's name; Haiku's own name if empty
    options    rnnconvert.files.options.OPTIONS; nonlinearity="relu" confirms that you build linen's SimpleCell with it

    Raises RefusedError if the framework has no such cell, UsageError for a stack of layers (rnnconvert.split_stack)
    and for a relu that linen's parameters cannot state, MissingPackageError without the framework.
    """
    family = framework.partition(".")[0]
    if family not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    chosen = Options(options)
    part = represented(layer, framework, chosen)
    wanted = chosen.get("nonlinearity") if family == "flax" and part.layout.kind == "rnn" else None
    chosen.ledger.check_used(f"what {part.layout.class_name} holds")
    arrays = packed(part, dtype)
    if family in ("nnx", "equinox"):
        return _built(part, family, arrays)
    function = part.stack.cell.activation
    if family == "flax" and function not in (TANH, None if wanted is None else Activation(wanted)):
        raise UsageError(
            f"the parameters of {part.layout.class_name} do not state the function {function}. Build it with "
            f"activation_fn={function}, and confirm with nonlinearity={function.name!r}"
        )
    default = {"rnn": "vanilla_rnn"}.get(part.layout.kind, part.layout.kind)
    return _placed(family, arrays, name or default)


def _placed(family: str, arrays: Mapping[str, Array], module: str) -> dict[str, dict[str, Any]]:
    """Return arrays as nested dictionaries, on JAX's own device."""
    jax = _imported(family)
    tree: dict[str, dict[str, Any]] = {}
    for path, array in arrays.items():
        head, _, last = path.rpartition("/")
        key = head if family == "flax" else "/".join(filter(None, (module, head)))
        with wide():
            tree.setdefault(key, {})[last] = jax.numpy.asarray(array)
    return tree


def _imported(family: str) -> Any:
    try:
        return importlib.import_module(_PACKAGES[family])
    except ImportError:
        raise MissingPackageError(_PACKAGES[family], f"make what {family} keeps a cell in") from None


def _built(part: Fitted, family: str, arrays: Mapping[str, Array]) -> Any:
    """Return a module of the layout's class, with these arrays."""
    _imported(family)
    import jax

    package, _, name = part.layout.class_name.rpartition(".")
    make = getattr(importlib.import_module(package), name)
    stack = part.stack
    kind = jax.numpy.dtype(next(iter(arrays.values())).dtype)
    with wide():
        if family == "equinox":
            biases = stack.first.biases != "none"
            key = jax.random.key(0)
            module = make(stack.input_size, stack.hidden_size, use_bias=biases, dtype=kind, key=key)
        else:
            from flax import nnx

            # Its usual start needs a decomposition that there is not in half precision.
            zeros = jax.nn.initializers.zeros
            function: dict[str, Any] = {"activation_fn": jax.nn.relu} if stack.cell.activation == RELU else {}
            module = make(
                stack.input_size,
                stack.hidden_size,
                rngs=nnx.Rngs(0),
                param_dtype=kind,
                dtype=None,
                kernel_init=zeros,
                recurrent_kernel_init=zeros,
                **function,
            )
    return with_arrays(module, arrays)
