"""The true outputs of every case, and what rounding allows: computed in threads where a layer is large.

numpy computes a matrix product without holding Python's lock, so that the passes over the weights run beside one another,
and beside the executors.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.judging import rounding
from rnnconvert.judging.cases import shaken, solved
from rnnconvert.verification.results import LayerResults

T = TypeVar("T")

_LARGE = 1 << 22
"""Numbers of a layer from which on threads take less time than they cost."""


class Truths:
    """The true outputs of layers, which are computed from now on."""

    def __init__(
        self,
        layers: Mapping[str, LayerResults],
        models: Sequence[Recurrent],
        types: Mapping[str, Iterable[str]],
        watch: Callable[..., None],
    ) -> None:
        """Begin.

        models  the layers whose truth it is
        types   the arithmetics in which each is run, as rnnconvert.judging.rounding.ARITHMETICS names them
        """
        self._layers, self._models = layers, models
        self._types = {stack.name: sorted({*types[stack.name], str(stack.dtype)}) for stack in models}
        tasks: list[Callable[[], list[Outputs]]] = []
        for stack in models:
            cases = layers[stack.name].cases
            tasks.append(_later(solved, stack, cases))
            for kind in self._types[stack.name]:
                tasks += [_later(call, stack, cases, rounding.ARITHMETICS[kind]) for call in (_rounded, _shaken, rounding.of_functions)]
        large = any(stack.parameters >= _LARGE for stack in models)
        self._solved = Background(tasks, (os.cpu_count() or 1) if large else 0, watch)

    def __enter__(self) -> Truths:
        return self

    def __exit__(self, *_: object) -> None:
        self._solved.stop()

    def collected(self) -> dict[str, list[Outputs]]:
        """Wait, add the truth and what rounding allows to the results, and return what each layer gives in its own element type."""
        answers, single = iter(self._solved.collected()), {}
        for stack in self._models:
            layer = self._layers[stack.name]
            names = [case.name for case in layer.cases]
            truths = next(answers)
            layer.truth = dict(zip(names, truths, strict=True))
            for kind in self._types[stack.name]:
                rounded, moved, off = next(answers), next(answers), next(answers)
                if kind == str(stack.dtype):
                    single[stack.name] = rounded
                floors = rounding.floors(stack, layer.cases, rounding.ARITHMETICS[kind], truths, off, rounded, moved)
                layer.floors[kind] = dict(zip(names, floors, strict=True))
        return single


def _later(call: Callable[..., T], *arguments: Any) -> Callable[[], T]:
    return lambda: call(*arguments)


def _rounded(stack: Recurrent, cases: Sequence[Any], arithmetic: rounding.Arithmetic) -> list[Outputs]:
    return solved(stack, cases, arithmetic.dtype, arithmetic.estimates[0])


def _shaken(stack: Recurrent, cases: Sequence[Any], arithmetic: rounding.Arithmetic) -> list[Outputs]:
    return solved(shaken(stack, arithmetic.dtype), cases)


class Background(Generic[T]):
    """Calls that threads make, in order; or, without threads, the one who collects.

    The threads end with the program: after Ctrl-C nobody waits for them.
    """

    def __init__(self, calls: Sequence[Callable[[], T]], threads: int, watch: Callable[..., None]) -> None:
        self._calls, self._watch, self._done = calls, watch, 0
        self._results: dict[int, T] = {}
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for number in range(len(calls)):
            self._waiting.put(number)
        self._threads = min(threads, len(calls))
        for _ in range(self._threads):
            # numpy's error states are those of the one who asks.
            call = contextvars.copy_context().run
            threading.Thread(target=call, args=(self._work,), daemon=True).start()

    def _work(self) -> None:
        try:
            while True:
                number = self._waiting.get_nowait()
                self._watch("reference: the true outputs", self._done, len(self._calls))
                self._results[number] = self._calls[number]()
                self._done += 1
        except queue.Empty:
            self._ended.put(None)
        except BaseException as error:
            self._ended.put(error)

    def stop(self) -> None:
        """Let no thread begin another call."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()

    def collected(self) -> list[T]:
        """Return the results of all calls. Raises the error of the first one that failed."""
        if not self._threads:
            self._work()
        for _ in range(max(1, self._threads)):
            error = self._ended.get()
            if error is not None:
                raise error
        return [self._results[number] for number in range(len(self._calls))]
