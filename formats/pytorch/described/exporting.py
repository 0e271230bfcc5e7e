"""Live modules as exported programs: their lengths open where the program computes what the module does.

torch.export unrolls a recurrent operator over its steps, and so fixes their number. Here the operators stay whole, as ones of our own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import math
import operator
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import MissingPackageError, RefusedError
from rnnconvert.scaffolding.description import Check

LENGTHS = (*range(1, 13), 16, 33, 64)
"""The lengths at which a program is compared with its module, in addition to lengths next to the example's."""
_PATIENCE = 10.0
"""The most seconds in which the lengths are tried that one condition keeps out."""
Place = tuple[int, int]
"""An input by its number, and an axis."""


class LiveProgram:
    """A live module, with inputs like an example.

    harmless  the lengths that the module does not take itself, or at which its program is right without its guards, by the axis

    Raises MissingPackageError without torch, RefusedError for an example that the module does not run on.
    """

    def __init__(self, module: Any, example: Sequence[Any]) -> None:
        try:
            import torch
        except ImportError:
            raise MissingPackageError("torch", "describe a module") from None
        self.module = _copied(module)
        self.harmless: dict[Place, set[int]] = {}
        self._unguarded: Any = None
        tensors = [value if isinstance(value, torch.Tensor) else torch.as_tensor(value) for value in example]
        self.example = tuple(tensor.detach().clone() for tensor in tensors)  # torch.export takes two inputs in one memory for one

    def write(self, path: Path, fixed: Collection[Place] = ()) -> list[Place]:
        """Write the program, open along every axis along which it computes what the module does.

        Returns the open axes that cannot have length 1.

        fixed  axes that are to have the example's lengths

        Raises RefusedError where torch.export cannot follow the module, or where the module gives other numbers from call to call.
        """
        from torch.export import save

        training = [part for part in self.module.modules() if part.training]
        self.module.eval()
        try:
            self._refuse_states()
            inputs, closed, single = self._enlarged(fixed), set(fixed), list[Place]()
            for _ in range(1 + sum(value.ndim for value in inputs)):
                program = self._exported(inputs, closed)
                unlike = self._unlike(program, inputs)
                shut = [places for places, lengths in unlike.items() if lengths != {1} or any(self._length(place) == 1 for place in places)]
                if not shut:
                    single = [place for places in unlike for place in places]
                    break
                closed |= {place for places in shut for place in places}
                inputs = self._enlarged(closed)
            _state_quotients(program.graph)
            try:
                save(program, path)
            except OSError:  # a full disk says nothing of the module
                raise
            except Exception as error:  # torch has no public class for what it cannot write
                raise self._not_followed(error) from None
            return single
        finally:
            for part in training:
                part.training = True

    def needs(self, check: Check) -> bool:
        """Return whether a condition keeps out lengths at which the program is wrong: torch.export keeps others out for its own ends."""
        if len(check.axes) > 1 and check.text.endswith(" != 1"):
            return not all(set(range(1, 13)) <= self.harmless.get(place, set()) | {self._length(place)} for place in check.axes)
        out = [length for length in (*range(1, 257), 1 << 40) if len(check.axes) == 1 and not check.holds([length])]
        shorter = [length for length in out if length <= 256]
        if out and not shorter:
            return True  # nothing is tried of what it keeps out
        ends = time.monotonic() + _PATIENCE
        return not out or not all(time.monotonic() < ends and self._is_harmless(check.axes[0], length) for length in shorter)

    def _is_harmless(self, place: Place, length: int) -> bool:
        tried = self.harmless.setdefault(place, set())
        if length not in tried and self._unguarded is not None:
            inputs = _drawn(_resized(self.example, [place], length))
            wanted = self._runs(inputs)
            if wanted is None or _alike(_outputs_of(self._unguarded, inputs), wanted):
                tried.add(length)
        return length in tried

    def _length(self, place: Place) -> int:
        return int(self.example[place[0]].shape[place[1]])

    def _exported(self, inputs: Sequence[Any], fixed: Collection[Place]) -> Any:
        from torch.export import Dim, export

        sizes: list[Any] = [
            {axis: Dim.STATIC if (number, axis) in fixed else Dim.AUTO for axis in range(value.ndim)} for number, value in enumerate(inputs)
        ]
        parameters = list(inspect.signature(self.module.forward).parameters.values())
        several = next((number for number, each in enumerate(parameters) if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
        if several is not None:  # torch takes those of `*args` as one
            sizes[several:] = [tuple(sizes[several:])]
        try:
            with _whole_recurrence():
                return export(self.module, tuple(inputs), dynamic_shapes=tuple(sizes), strict=False)
        except Exception as error:  # torch raises what it likes
            raise self._not_followed(error) from None

    def _not_followed(self, error: Exception) -> RefusedError:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "Where torch can script or trace it, save that, as torch.jit.script(module).save('module.pt'), and give the file."
        return RefusedError("a module that torch.export cannot follow", type(self.module).__name__, text[:300], remedy)

    def _enlarged(self, fixed: Collection[Place]) -> tuple[Any, ...]:
        """Return the example with axes of length 1 longer where the module takes that: torch.export would fix them."""
        inputs = self.example
        for axis in range(max((value.ndim for value in inputs), default=0)):
            places = [
                (number, axis)
                for number, value in enumerate(inputs)
                if axis < value.ndim and value.shape[axis] == 1 and (number, axis) not in fixed
            ]
            longer = _resized(inputs, places, 2)
            inputs = longer if places and self._runs(longer) is not None else inputs
        return inputs

    def _runs(self, inputs: Sequence[Any]) -> list[Any] | None:
        """Return the outputs of the module; None for inputs that it does not take."""
        return _outputs_of(self.module, inputs)

    def _refuse_states(self) -> None:
        """Raise RefusedError for a module whose attributes keep tensors from call to call that the next call reads."""
        import torch

        before, drawn = _attributes(self.module), _drawn(self.example)
        outputs, again = self._runs(drawn), self._runs(drawn)
        if outputs is None or again is None or all(map(torch.equal, outputs, again)):
            return
        after = _attributes(self.module)
        changed = [name for name, tensors in after.items() if [*map(id, tensors)] != [*map(id, before.get(name, ()))]]
        if changed:
            raise kept_between_calls(changed)

    def _changed(self, inputs: Sequence[Any]) -> list[str]:
        """Return the parameters and buffers that a call changes, by name."""
        arrays = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        versions = {name: array._version for name, array in arrays.items()}  # torch counts what changes a tensor in place
        self._runs(inputs)
        return [name for name, array in arrays.items() if array._version != versions[name]]

    def _unlike(self, program: Any, inputs: Sequence[Any]) -> Mapping[tuple[Place, ...], set[int]]:
        """Return the open lengths at which a program gives other numbers than its module, by their axes."""
        run, opened = program.module(), dict[str, list[Place]]()
        shapes = {node.name: node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"}
        for number, name in enumerate(name for name in program.graph_signature.user_inputs if name in shapes):
            for axis, size in enumerate(shapes[name]):
                if not isinstance(size, int) and not str(size).isdigit():
                    opened.setdefault(str(size), []).append((number, axis))
        computed = [_outputs_of(run, drawn := _drawn(inputs)), self._runs(drawn), self._runs(drawn)]
        if not all(_alike(outputs, computed[0]) for outputs in computed[1:]):
            changed = self._changed(drawn)
            if changed:
                raise kept_between_calls(changed)
            raise RefusedError("a module that gives other numbers from call to call", type(self.module).__name__, "its program does not")
        guards = "check_guards" in inspect.signature(program.module).parameters  # of torch 2.9 and later
        self._unguarded = unguarded = program.module(check_guards=False) if guards else run
        unlike: dict[tuple[Place, ...], set[int]] = {}
        for places in map(tuple, opened.values()):
            length = int(inputs[places[0][0]].shape[places[0][1]])
            for other in sorted({*LENGTHS, length - 1, length + 1, 2 * length + 1} - {0, length}):
                resized = _drawn(_resized(inputs, places, other))
                wanted = self._runs(resized)
                if wanted is None or _alike(_outputs_of(unguarded, resized), wanted):
                    self.harmless.setdefault(places[0], set()).add(other)
                elif _outputs_of(run, resized) is not None:  # what the program refuses its guards say
                    unlike.setdefault(places, set()).add(other)
        return unlike


def _attributes(module: Any) -> dict[str, list[Any]]:
    """Return the tensors in each attribute of a module and of those in it, however they are nested there."""
    import torch

    leaves = {
        f"{path}.{name}".lstrip("."): torch.utils._pytree.tree_leaves(value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
    }
    return {
        name: [leaf for leaf in several if isinstance(leaf, torch.Tensor)]
        for name, several in leaves.items()
        if not name.endswith("_flat_weights")
    }


def _resized(inputs: Sequence[Any], places: Collection[Place], length: int) -> tuple[Any, ...]:
    """Return inputs of another length along some axes: their elements over again."""
    import torch

    resized = list(inputs)
    for number, axis in places:
        value = resized[number]
        resized[number] = value.index_select(axis, torch.arange(length) % max(value.shape[axis], 1))
    return tuple(resized)


def _drawn(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return inputs with other numbers in place of fractions: in an example these may all be zero."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(x.shape, generator=generator).to(x) if x.is_floating_point() else x for x in inputs)


def kept_between_calls(names: Iterable[str]) -> RefusedError:
    """Return the refusal of a module that keeps what a call computes."""
    why = f"a call leaves {' and '.join(map(repr, names))} changed, and the next call computes something else: hand it in and give it back"
    return RefusedError("a module that keeps what a call computes", "a model written as code", why, "", "")


def _copied(module: Any) -> Any:
    """Return a module of the same parameters with its own buffers and attributes, which calls may change; itself if it cannot be copied."""
    try:
        return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    except (RuntimeError, TypeError, AttributeError):  # tensors that were computed from others, and what Python cannot copy
        return module


def _outputs_of(run: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """Return the tensors that a module gives; None where it raises."""
    import torch

    try:
        with torch.no_grad():
            outputs = run(*(value.clone() for value in inputs))
    except Exception:  # a module refuses inputs in its own way
        return None
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _alike(ours: list[Any] | None, theirs: list[Any] | None) -> bool:
    import torch

    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    return all(
        x.shape == y.shape and torch.allclose(x.double(), y.double(), 1e-4, 1e-5, equal_nan=True) for x, y in zip(ours, theirs, strict=True)
    )


@functools.cache
def _operators() -> Mapping[Any, Any]:
    """Return our operators by torch's functions that run recurrent layers over a sequence."""
    import torch

    operators = {}
    for name, states in (("lstm", "Tensor[]"), ("gru", "Tensor"), ("rnn_tanh", "Tensor"), ("rnn_relu", "Tensor")):
        function = getattr(torch, name)
        results = "Tensor, Tensor, Tensor" if name == "lstm" else "Tensor, Tensor"
        schema = f"(Tensor x, {states} h, Tensor[] w, bool b, int n, float p, bool train, bool both, bool first) -> ({results})"
        operator = torch.library.custom_op(f"rnnconvert::{name}", function, mutates_args=(), schema=schema)

        def shapes(x: Any, h: Any, w: Any, b: bool, n: int, p: float, train: bool, both: bool, first: bool) -> Any:
            several = h if isinstance(h, (list, tuple)) else [h]
            output = x.new_empty((*x.shape[:-1], several[0].shape[-1] * (1 + both)))
            return (output, *(state.new_empty(state.shape) for state in several))

        operator.register_fake(shapes)
        operators[function] = operator
    return operators


@functools.cache
def _quotient() -> Any:
    """Return our operator for quotients of lengths that are rounded, which torch.export.save does not write; nothing runs it."""
    import torch

    torch.library.define("rnnconvert::quotient", "(SymInt value, SymInt by, str rounding) -> SymInt")
    return torch.ops.rnnconvert.quotient.default


def _state_quotients(graph: Any) -> None:
    """Put our operator in the place of what rounds a quotient of lengths."""
    rounding = {round: "round", math.ceil: "ceil", math.floor: "floor"}
    for node in graph.nodes:
        quotient = node.args[0] if node.op == "call_function" and node.target in rounding and not any(node.args[1:]) else None
        if quotient is not None and getattr(quotient, "target", None) is operator.truediv:
            node.args, node.target = (*quotient.args, rounding[node.target]), _quotient()
    graph.eliminate_dead_code()


@contextlib.contextmanager
def _whole_recurrence() -> Iterator[None]:
    """Let recurrent operators over sequences that are not packed stand in a program as ours."""
    from torch.overrides import TorchFunctionMode

    class WithRecurrentOperators(TorchFunctionMode):  # type: ignore[misc]  # torch's classes have no types here
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            operator = _operators().get(function)
            if operator is None or keywords or len(arguments) != 9 or not isinstance(arguments[3], bool):
                return function(*arguments, **(keywords or {}))
            return operator(*arguments)

    with WithRecurrentOperators():
        yield
