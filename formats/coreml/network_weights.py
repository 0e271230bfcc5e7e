"""The weights of a layer of a Core ML neural network: numbers as stored, or dequantized."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.coreml.contents import UnknownError
from rnnconvert.formats.coreml.message import Message


class NetworkWeights:
    """The weights of one layer; `stored` says how they are stored if that is not float32."""

    def __init__(self, path: object, name: str, shape: Callable[[str], tuple[int, ...]]) -> None:
        self.path, self.name, self.shape, self.stored = path, name, shape, ""

    def every(self, message: Message, fields: dict[str, int], biases: bool, peepholes: bool) -> dict[str, Array]:
        """Return the arrays of a message of weights by their names."""
        arrays = {}
        for local, number in fields.items():
            if (local.lower().endswith("biasvector") and not biases) or (local.endswith("PeepholeVector") and not peepholes):
                continue
            weight = message.submessage(number)
            if weight is None:
                raise UnreadableError(self.path, f"{self.name!r} has no {local}")
            arrays[local] = self._array(weight, local)
        return arrays

    def _array(self, weight: Message, local: str) -> Array:
        shape = self.shape(local)
        values = self.values(weight, local)
        if values.size != int(np.prod(shape, dtype=object)):
            raise UnreadableError(self.path, f"{local} of {self.name!r} has {values.size} numbers, expected those of {shape}")
        return values.reshape(shape)

    def values(self, weight: Message, local: str) -> Array:
        """Return the numbers of one array, in a row."""
        ways = [number for number in (1, 2, 30, 31) if weight.fields.get(number)]
        if len(ways) != 1:
            raise UnreadableError(self.path, f"{local} of {self.name!r} is stored in {len(ways)} ways, expected one")
        if ways == [1]:
            return weight.reals(1)
        content = weight.content(ways[0]) or memoryview(b"")
        if ways == [2]:
            if len(content) % 2:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has {len(content)} bytes, which are not float16 numbers")
            return np.frombuffer(content, "<f2")
        quantization = weight.submessage(40)
        if ways == [31] or quantization is None:
            raise UnknownError(f"its {local} is stored as integers without what they stand for")
        return self._dequantised(content, quantization, local, self.shape(local))

    def _dequantised(self, content: memoryview, quantisation: Message, local: str, shape: tuple[int, ...]) -> Array:
        """Return the numbers that unsigned integers of a few bits stand for: scale * q + bias, or the entries of a table."""
        bits, count = quantisation.number(1), int(np.prod(shape, dtype=object))
        if not 1 <= bits <= 8 or len(content) != -(-count * bits // 8):
            raise UnreadableError(self.path, f"{local} of {self.name!r} has {len(content)} bytes for {count} numbers of {bits} bits")
        charging(len(content)).memory(16 * count, self.path)
        if bits == 8:
            codes = np.frombuffer(content, np.uint8)
        else:
            lying = np.unpackbits(np.frombuffer(content, np.uint8), count=count * bits).reshape(count, bits)
            codes = lying @ (1 << np.arange(bits)[::-1]).astype(np.uint8)
        self.stored = f"integers of {bits} bits"
        linear, table = quantisation.submessage(101), quantisation.submessage(102)
        if linear is not None:
            scale, bias = (linear.reals(number).astype(np.float64) for number in (1, 2))
            bias = bias if bias.size else np.zeros(1)
            if not {scale.size, bias.size} <= {1, shape[0]}:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has {scale.size} scales and {bias.size} biases")
            rows = codes.reshape(shape[0], -1)
            with np.errstate(all="ignore"):
                return (rows * scale[:, None] + bias[:, None]).astype(np.float32).reshape(-1)
        if table is not None:
            values = table.reals(1)
            if values.size != 1 << bits:
                raise UnreadableError(self.path, f"{local} of {self.name!r} has a table of {values.size} numbers, not {1 << bits}")
            return values[codes]
        raise UnknownError(f"its {local} is quantized in a way that is unknown here")
