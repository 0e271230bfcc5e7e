"""The whole model of a header: the program that runs it on sequences, what it is fed, and what it gave.

Where the header computes step by step, the first half of each sequence goes through NAME_step, and the rest, from there on, through
NAME_run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray

_TAG = "rnnconvert-model:"


def described(text: str) -> dict[str, Any] | None:
    """Return a header's description of its whole model; None if it holds layers alone."""
    if _TAG not in text:
        return None
    stated, _ = json.JSONDecoder().raw_decode(text[text.index(_TAG) + len(_TAG) :].lstrip())
    return dict(stated)


def row_count(model: Mapping[str, Any], number: int) -> int | None:
    """Return the bound below which the whole numbers of an input stay: the rows of a table."""
    read = [settings["rows"] for kind, reads, _, settings in model["operations"] if kind == "embedding" and reads == [number]]
    return min(read, default=None)


def source(model: Mapping[str, Any]) -> str:
    """Return a program that runs a model: for each sequence it reads which one it is, whether it begins anew, its lengths and inputs."""
    name, upper, calls = model["name"], model["name"].upper(), model["calls"]
    real = "double" if model["storage"] == "float64" else "float"
    lines = [f"int64_t length[{max(1, len(calls['lengths']))}];", f"get(length, {len(calls['lengths'])} * sizeof *length);"]
    inputs = [(f"x{number}", "int32_t" if port["whole"] else real) for number, port in enumerate(model["inputs"])]
    lengths = [f"(size_t)length[{number}]" for number in range(len(calls["lengths"]))]
    for (word, kind), entry, port in zip(inputs, calls["inputs"], model["inputs"]):
        count = _count(entry, lengths) if port["time"] is not None else "1"
        lines.append(f"{kind} *{word} = room({count} * {entry['size']} * sizeof *{word});")
        lines.append(f"get({word}, {count} * {entry['size']} * sizeof *{word});")
    outputs = []
    for number, entry in enumerate(calls["outputs"]):
        macro = entry["steps"]
        count = (f"(size_t){macro}({', '.join(lengths)})" if lengths else f"(size_t){macro}") if macro else "(size_t)1"
        lines.append(f"const size_t n{number} = {count};")
        lines.append(f"{real} *y{number} = room(n{number} * {entry['size']} * sizeof *y{number});")
        outputs.append((number, entry))
    if calls["by_steps"]:
        lines += list(_by_steps(name, calls, inputs, outputs))
    else:
        work = f"{upper}_WORK({', '.join(lengths)})" if lengths else f"{upper}_WORK"
        lines.append(f"{real} *work = room({work} * sizeof *work);")
        arguments = [*(word for word, _ in inputs), *lengths, "work", *(f"y{number}" for number, _ in outputs)]
        lines.append(f"{name}_run({', '.join(arguments)});")
        lines.append("free(work);")
    for number, entry in outputs:
        lines.append(f"{{ int64_t n = (int64_t)n{number}; put(&n, sizeof n); }}")
        lines.append(f"put(y{number}, n{number} * {entry['size']} * sizeof *y{number});")
    lines += [f"free({word});" for word, _ in inputs] + [f"free(y{number});" for number, _ in outputs]
    state = f"{name}_state" if calls["by_steps"] else "int"
    body = "\n".join(f"        {line}" for line in lines)
    return f"""#include "model.h"
#include <stdio.h>
#include <stdlib.h>
static void get(void *to, size_t size) {{ if (size && fread(to, size, 1, stdin) != 1) exit(3); }}
static void put(const void *from, size_t size) {{ if (size && fwrite(from, size, 1, stdout) != 1) exit(4); }}
static void *room(size_t size) {{ void *at = calloc(size ? size : 1, 1); if (!at) exit(5); return at; }}
int main(void) {{
    int64_t rows, sequence, begins;
    {state} *states;
    get(&rows, sizeof rows);
    states = room((size_t)rows * sizeof *states);
    while (fread(&sequence, sizeof sequence, 1, stdin) == 1) {{
        get(&begins, sizeof begins);
        if (begins) memset(states + sequence, 0, sizeof *states);
{body}
    }}
    free(states);
    return 0;
}}
"""


def _count(entry: Mapping[str, Any], lengths: Sequence[str]) -> str:
    """Return how many steps an input has."""
    return lengths[entry["length"]] if entry["length"] is not None else f"(size_t){entry['steps']}"


def _by_steps(name: str, calls: Mapping[str, Any], inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[int, Any]]) -> Iterator[str]:
    timed = [(number, entry) for number, entry in outputs if entry["steps"]]
    ended = [f"y{number}" for number, entry in outputs if not entry["steps"]]
    yield "size_t t, steps = (size_t)length[0], half = steps / 2;"

    def arguments(place: str) -> tuple[list[str], list[str]]:
        moved = [
            f"{word} + {place} * {entry['size']}" if entry["length"] is not None else word
            for (word, _), entry in zip(inputs, calls["inputs"])
        ]
        return moved, [*(f"y{number} + {place} * {entry['size']}" for number, entry in timed), *ended]

    read, written = arguments("t")
    yield f"for (t = 0; t < half; t++) {name}_step({', '.join([*read, 'states + sequence', *written])});"
    read, written = arguments("half")
    yield f"{name}_run({', '.join([*read, 'steps - half', 'states + sequence', *written])});"


def fed(model: Mapping[str, Any], calls: Sequence[tuple[Sequence[Array], bool]]) -> bytes:
    """Return the bytes that the program reads: the inputs of one call after another, with whether it begins anew."""
    batch = max((_batch(model, arrays) for arrays, _ in calls), default=1)
    parts = [np.int64(batch).tobytes()]
    for arrays, begins in calls:
        lengths = [0] * len(model["calls"]["lengths"])
        moved = []
        for port, entry, array in zip(model["inputs"], model["calls"]["inputs"], arrays):
            plain = _moved(port["axes"], np.asarray(array))
            if entry["length"] is not None:
                lengths[entry["length"]] = plain.shape[1]
            moved.append(plain.astype(_type(model, port["whole"])))
        for number in range(_batch(model, arrays)):
            parts += [np.int64(number).tobytes(), np.int64(begins).tobytes(), np.asarray(lengths, np.int64).tobytes()]
            parts += [np.ascontiguousarray(plain[number if len(plain) > 1 else 0]).tobytes() for plain in moved]
    return b"".join(parts)


def _type(model: Mapping[str, Any], integral: bool) -> Any:
    return np.int32 if integral else np.float64 if model["storage"] == "float64" else np.float32


def _batch(model: Mapping[str, Any], arrays: Sequence[Array]) -> int:
    """Return how many sequences a call has."""
    pairs = [(port["axes"], array) for port, array in zip(model["inputs"], arrays)]
    counts = [np.shape(array)[axes.index("batch")] for axes, array in pairs if "batch" in axes]
    if len(set(counts)) > 1:
        raise ValueError(f"inputs of {' and '.join(map(str, sorted(set(counts))))} sequences")
    return counts[0] if counts else 1


def _moved(axes: Sequence[Any], array: Array) -> Array:
    """Return an input with its batch, and its time where it has one, in front."""
    for word in ("time", "batch"):
        if word in axes:
            place = axes.index(word) + (word == "batch" and "time" in axes and axes.index("time") > axes.index("batch"))
            array = np.moveaxis(array, place, 0)
    return array if "batch" in axes else array[None]


def outputs_of(model: Mapping[str, Any], arrays: Sequence[Array], before: Sequence[Sequence[Array]], values: bytes) -> dict[str, Array]:
    """Return the program's outputs in the last of several calls, by the outputs' names."""
    dtype, place = np.dtype(_type(model, False)), 0
    every: list[list[list[Array]]] = []
    for call in (*before, arrays):
        every.append([])
        for _ in range(_batch(model, call)):
            row = []
            for entry in model["calls"]["outputs"]:
                steps = int(np.frombuffer(values, np.int64, 1, place)[0])
                row.append(np.frombuffer(values, dtype, steps * entry["size"], place + 8).reshape(steps, entry["size"]))
                place += 8 + row[-1].nbytes
            every[-1].append(row)
    if place != len(values):
        raise RuntimeError(f"the compiled header gave {len(values)} bytes, expected {place}")
    names = [port["name"] for port in model["outputs"]]
    result = {}
    for number, port in enumerate(model["outputs"]):
        slot = model["calls"]["order"].index(number)
        stacked = np.stack([row[slot] for row in every[-1]])
        name = port["name"] if names.count(port["name"]) == 1 else f"{port['name']}_{number}"
        result[name] = _placed(port["axes"], stacked)
    return result


def _placed(axes: Sequence[Any], array: Array) -> Array:
    """Return an output (batch, steps, numbers) with its axes as the model has them."""
    lengths = [axis for axis in axes if not isinstance(axis, str)]
    array = array.reshape(*array.shape[:2], *lengths)
    if "time" not in axes:
        array = array[:, 0]
    if "batch" not in axes:
        array = array[0]
    order = [word for word in ("batch", "time") if word in axes] + lengths
    places = list(range(len(order)))
    words = [axis for axis in axes if isinstance(axis, str)]
    rest = iter(places[len(words) :])
    return np.ascontiguousarray(array.transpose([order.index(axis) if isinstance(axis, str) else next(rest) for axis in axes]))
