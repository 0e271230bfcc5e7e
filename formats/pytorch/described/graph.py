"""A program of ATen operators with the modules that called them, whether a live module was traced or a file of it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import MissingPackageError, RefusedError

Size = int | str
"""The length of an axis; an expression of symbols where it is open."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the program.

    name   the graph's
    shape  its axes
    dtype  its element type, as torch calls it without "torch."
    """

    name: str
    shape: tuple[Size, ...] = ()
    dtype: str = "float32"


@dataclass(frozen=True)
class Caller:
    """A call of a module.

    key   tells the calls of one module from one another
    path  where the module is, "" for the outermost
    kind  its class, with the package
    """

    key: str
    path: str
    kind: str

    @property
    def is_plain(self) -> bool:
        """Whether it is one of torch.nn's own."""
        return self.kind.startswith("torch.nn.modules.")


@dataclass(frozen=True)
class Step:
    """One operator.

    operator   its name without library and overload: "linear"
    arguments  by their names in the operator's schema: Tensors, numbers, words, lists of them
    outputs    what it gives; None for what nothing reads
    callers    the modules in whose calls it ran, the outermost first
    """

    operator: str
    arguments: Mapping[str, Any]
    outputs: tuple[Tensor | None, ...]
    callers: tuple[Caller, ...] = ()

    def tensors(self) -> list[Tensor]:
        """Return the tensors that it reads."""
        return [value for value in flat(self.arguments.values()) if isinstance(value, Tensor)]


@dataclass(frozen=True)
class Graph:
    """A program.

    name     what its class is called
    inputs   the tensors that a user hands in
    outputs  those that it returns
    steps    its operators in order, those on sizes left out
    held     the parameters, buffers and constants that it reads: their names in the module, by those in the graph
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    held: Mapping[str, str] = field(default_factory=dict)


def flat(values: Any) -> list[Any]:
    """Return the items of nested lists."""
    return [item for value in values for item in (flat(value) if isinstance(value, (list, tuple)) else [value])]


def traced(module: Any, example: Sequence[Any]) -> Graph:
    """Return what a live module computes for inputs like an example; sizes that it does not depend on stay open.

    Raises RefusedError where torch.export cannot follow it, MissingPackageError without torch.
    """
    try:
        import torch
        from torch.export import Dim, export
    except ImportError:
        raise MissingPackageError("torch", "describe a module") from None
    inputs = tuple(value if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in example)
    sizes = tuple(dict.fromkeys(range(value.ndim), Dim.AUTO) for value in inputs)
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        program = export(module, inputs, dynamic_shapes=sizes, strict=False)
    except Exception as error:  # torch raises what it likes
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RefusedError("a module that torch.export cannot follow", type(module).__name__, text[:300]) from None
    finally:
        for part in training:
            part.training = True
    return of_exported(program, type(module).__name__)


def of_exported(program: Any, name: str = "Model") -> Graph:
    """Return the graph of a torch.export.ExportedProgram."""
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    nodes = list(program.graph.nodes)
    tensors = {node.name: _tensor(node) for node in nodes if hasattr(node.meta.get("val"), "shape")}
    steps = tuple(_step(node, tensors) for node in nodes if node.op == "call_function" and _computes(node))
    return Graph(
        name,
        tuple(tensors[word] for word in signature.user_inputs if word in tensors),
        tuple(tensors.get(str(word), Tensor(str(word))) for word in signature.user_outputs),
        steps,
        held,
    )


def _computes(node: Any) -> bool:
    """Return whether a node computes tensors."""
    import torch

    return isinstance(node.target, torch._ops.OpOverload) and (
        hasattr(node.meta.get("val"), "shape") or isinstance(node.meta.get("val"), (list, tuple))
    )


def _tensor(node: Any) -> Tensor:
    return _valued(node.name, node.meta["val"])


def _valued(name: str, value: Any) -> Tensor:
    sizes = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Tensor(name, sizes, str(value.dtype).removeprefix("torch."))


def _step(node: Any, tensors: Mapping[str, Tensor]) -> Step:
    schema = node.target._schema
    names = [argument.name for argument in schema.arguments]
    stated = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    arguments = {key: _argument(value, tensors) for key, value in stated.items()}
    outputs: tuple[Tensor | None, ...] = (tensors.get(node.name),)
    value = node.meta["val"]
    if isinstance(value, (list, tuple)):
        parts = {user.args[1]: user.name for user in node.users if "getitem" in str(user.target)}
        outputs = tuple(tensors.get(parts.get(number, "")) for number in range(len(value)))
    stack = node.meta.get("nn_module_stack") or {}
    callers = tuple(
        Caller(key, str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
        for key, (path, kind) in stack.items()
    )
    name = schema.name.partition("::")
    return Step(name[2] if name[0] == "aten" else schema.name, arguments, outputs, callers)


def _argument(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_argument(item, tensors) for item in value]
    if hasattr(value, "meta"):  # a node: a tensor, or a size
        return tensors.get(value.name, str(value.meta.get("val", value.name)))
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value).removeprefix("torch.")
