"""Stand-ins for the CUDA runtime and for libcudnn: each call's arguments are checked, and the reference computes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.cudnn import description
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import each


class HostMemory:
    """The CUDA runtime's calls on this machine's own memory; `blocks` are those not freed yet."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}

    def cudaMalloc(self, address: Any, size: Any) -> int:
        block = ctypes.create_string_buffer(b"\xff" * size.value, size.value)
        address._obj.value = ctypes.addressof(block)
        self.blocks[ctypes.addressof(block)] = block
        return 0

    def cudaFree(self, address: Any) -> int:
        del self.blocks[address.value]
        return 0

    def cudaMemset(self, address: Any, value: Any, size: Any) -> int:
        assert size.value <= len(self.blocks[address.value])
        ctypes.memset(address, value.value, size.value)
        return 0

    def cudaMemcpy(self, target: Any, source: Any, size: Any, kind: Any) -> int:
        (device,) = (address.value for address in ((target, None) if kind.value == 1 else (None, source)) if address)
        assert size.value <= len(self.blocks[device])
        ctypes.memmove(target, source, size.value)
        return 0


class StandIn(cudnn_library.CudnnLibrary):
    """libcudnn as its header describes it, computing with the reference what it is asked for.

    reading      what a library would take the weights for that reads the buffer in another way
    descriptors  those that are not destroyed yet
    """

    def __init__(self, description: dict[str, Any], reading: Callable[[Recurrent], Recurrent] = lambda stack: stack) -> None:
        self.description, self.reading = description, reading
        self.called: list[str] = []
        self.ran: Any = None
        self.slopes: Any = None
        self.descriptors: dict[int, str] = {}
        self.set: dict[int, tuple[Any, ...]] = {}

    def words(self, status: int) -> str:
        return f"status {status}"

    @property
    def version(self) -> str:
        return "9.28.0"

    def invoke(self, function: str, kinds: Sequence[Any], arguments: Sequence[Any]) -> int:
        for kind, argument in zip(kinds, arguments, strict=True):
            kind.from_param(argument)  # ctypes.ArgumentError for what the library could not be given
        self.called.append(function)
        name = function.removeprefix("cudnn")
        if name.startswith("Create"):
            number = len(self.set) + len(self.called) + 1
            arguments[0]._obj.value = number
            self.descriptors[number] = name
        elif name.startswith("Destroy"):
            assert self.descriptors.pop(arguments[0].value) == name.replace("Destroy", "Create")
        elif name.startswith("Set") or name == "RNNSetClip_v9":
            self.set[arguments[0].value] = (*arguments,)
            if name == "SetRNNDataDescriptor":  # the lengths are read at once: nobody keeps them
                lengths = np.ctypeslib.as_array((ctypes.c_int * arguments[4]).from_address(arguments[6]))
                self.set[arguments[0].value] = (*arguments[:6], lengths.copy())
        else:
            status = getattr(self, name)(*arguments)
            return int(status or 0)
        return 0

    def BuildRNNDynamic(self, handle: Any, rnn: Any, batch: int) -> None:
        assert batch > 0

    def GetRNNWeightSpaceSize(self, handle: Any, rnn: Any, size: Any) -> None:
        size._obj.value = self.description["elements"] * self._dtype.itemsize

    def GetRNNWeightParams(self, *arguments: Any) -> None:
        """Every address null: the buffer's layout is asked of the real library elsewhere."""

    def GetRNNTempSpaceSizes(self, handle: Any, rnn: Any, mode: int, of_x: Any, work: Any, reserve: Any) -> None:
        work._obj.value, reserve._obj.value = 64, 128 * mode

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(getattr(ml_dtypes, self.description["dtype"], self.description["dtype"]))

    def _at(self, address: Any, shape: Sequence[int]) -> Any:
        if not address:
            return None
        size = int(np.prod(shape)) * self._dtype.itemsize
        raw = (ctypes.c_char * size).from_address(address.value)
        return np.frombuffer(memoryview(raw), self._dtype).reshape(shape)

    def _data(self, descriptor: Any) -> tuple[int, int, int]:
        _, kind, order, steps, batch, width, lengths = self.set[descriptor.value]
        assert kind == cudnn_library.TYPES[self.description["dtype"]]
        assert order in (0, 1)
        assert len(lengths) == batch
        if order:  # the real library refuses any other order
            assert (np.diff(lengths) <= 0).all() and lengths.min() > 0
        return steps, batch, width

    def _live(self, descriptor: Any) -> Array | None:
        """Which steps a packed sequence has; None where padding is stored."""
        steps, *_ = self._data(descriptor)
        _, _, order, *_, lengths = self.set[descriptor.value]
        return np.arange(steps)[:, None] < lengths if order else None

    def _sequence(self, address: Any, descriptor: Any) -> Array:
        """(time, batch, values) at an address, in float64."""
        shape, live = self._data(descriptor), self._live(descriptor)
        if live is None:
            return np.asarray(self._at(address, shape).astype(np.float64))
        rows = np.zeros(shape)
        rows[live] = self._at(address, (int(live.sum()), shape[2])).astype(np.float64)
        return rows

    def _put_sequence(self, address: Any, descriptor: Any, values: Array) -> None:
        shape, live = self._data(descriptor), self._live(descriptor)
        if live is None:
            self._put(address, shape, values)
        else:
            self._put(address, (int(live.sum()), shape[2]), values[live])

    def _state(self, descriptor: Any) -> tuple[int, ...]:
        _, kind, count, dims, strides = self.set[descriptor.value]
        assert (kind, count) == (cudnn_library.TYPES[self.description["dtype"]], 3)
        assert list(strides) == [dims[1] * dims[2], dims[2], 1]
        return tuple(dims)

    def _stack(self, size: int, weights: Any) -> Recurrent:
        buffer = self._at(weights, (size // self._dtype.itemsize,))
        return self.reading(description.stack_of("standing in", self.description, buffer))

    def _flat(self, stack: Recurrent) -> Array:
        """A stack's numbers in the buffer's places."""
        return np.asarray(pack(description.layout_of(self.description["cell"]), stack)["params"])

    def _limits(self, of_x: Any, device: Any) -> Array | None:
        lengths = self.set[of_x.value][6]
        on_device = np.ctypeslib.as_array((ctypes.c_int * len(lengths)).from_address(device.value))
        assert (on_device == lengths).all()
        return None if (lengths == self._data(of_x)[0]).all() else lengths

    def RNNForward(
        self, handle: Any, rnn: Any, mode: int, limits: Any, of_x: Any, x: Any, of_y: Any, y: Any, of_h: Any, hx: Any,
        hy: Any, of_c: Any, cx: Any, cy: Any, size: int, weights: Any, *spaces: Any,
    ) -> None:  # fmt: skip
        assert [bool(space) for space in spaces] == [True, True, bool(mode), bool(mode)]
        stack = self._stack(size, weights)
        values = self._sequence(x, of_x)
        h, c = (
            np.zeros(shape) if state is None else state.astype(np.float64)
            for shape, state in ((s, self._at(a, s)) for s, a in ((self._state(of_h), hx), (self._state(of_c), cx)))
        )  # fmt: skip
        self.ran = stack, values, tuple(h), tuple(c), self._limits(of_x, limits)
        solved = reference.run(*self.ran)
        counts = self.set[of_x.value][6][:, None] > 0  # the final states of an empty sequence are zeros
        self._put_sequence(y, of_y, solved.y)
        self._put(hy, self._state(of_h), np.stack(solved.hidden) * counts)
        assert bool(cy) == (stack.cell.kind == "lstm")
        if cy:
            self._put(cy, self._state(of_c), np.stack(solved.cell) * counts)

    def RNNBackwardData_v8(
        self, handle: Any, rnn: Any, limits: Any, of_y: Any, y: Any, dy: Any, of_x: Any, dx: Any, of_h: Any, hx: Any,
        dhy: Any, dhx: Any, of_c: Any, cx: Any, dcy: Any, dcx: Any, size: int, weights: Any, *spaces: Any,
    ) -> None:  # fmt: skip
        assert all(spaces)
        stack, x, h, c, lengths = self.ran
        self._is(y, of_y, reference.run(*self.ran).y)
        is_lstm = stack.cell.kind == "lstm"
        weighed = Outputs(
            self._sequence(dy, of_y), tuple(self._at(dhy, self._state(of_h))), tuple(self._at(dcy, self._state(of_c))) if is_lstm else ()
        )
        weighed = Outputs(*(np.asarray(value).astype(np.float64) for value in (weighed.y, weighed.hidden, weighed.cell)))  # type: ignore[arg-type]
        self.slopes = reference.Reference(stack).gradients(x, h, c if is_lstm else (), lengths, weighed)
        self._put_sequence(dx, of_x, self.slopes.x)
        self._put(dhx, self._state(of_h), np.stack(self.slopes.hidden))
        if is_lstm:
            self._put(dcx, self._state(of_c), np.stack(self.slopes.cell))

    def RNNBackwardWeights_v8(
        self, handle: Any, rnn: Any, add: int, limits: Any, of_x: Any, x: Any, of_h: Any, hx: Any, of_y: Any, y: Any,
        size: int, slopes: Any, *spaces: Any,
    ) -> None:  # fmt: skip
        assert add == 0
        assert all(spaces)
        self._is(x, of_x, self.ran[1])
        self._is(y, of_y, reference.run(*self.ran).y)
        weights = iter(self.slopes.weights)
        stack = each(self.ran[0], lambda direction: direction.with_arrays(dict(next(weights))))
        flat = self._flat(stack)
        assert not self._at(slopes, flat.shape).astype(np.float64).any()  # the library adds to what is there
        self._put(slopes, flat.shape, flat)

    def _put(self, address: Any, shape: Sequence[int], values: Array) -> None:
        self._at(address, shape)[...] = values.astype(self._dtype)

    def _is(self, address: Any, descriptor: Any, values: Array) -> None:
        rounded = values.astype(self._dtype).astype(np.float64)
        live = self._live(descriptor)
        rows = self._sequence(address, descriptor)
        np.testing.assert_array_equal(rows, rounded if live is None else np.where(live[:, :, None], rounded, 0))
