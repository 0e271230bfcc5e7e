"""C headers, compiled by the system's C compiler and run on the CPU, step by step.

rnnconvert hands over what its own writer makes of a header (formats/c_header/originals.py), never a user's file: its text is compiled.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.running.sequences import WeightsAloneError

from .run_model import described, fed, outputs_of, row_count, source

Array = np.ndarray

NEEDS = ()
FORMAT = "c_header"
SUFFIX = ".h"
SUPPORTS = "what a header can hold: RNN, GRU of both kinds, LSTM with peepholes and projection, in int8 too; one direction; no gradients"
CANNOT = {"cotangents": "C code computes no gradients", "how": "the header already states what it computes"}
VARIANTS: dict[str, dict[str, Any]] = {"c-cc": {"device": "cpu"}}

_TAG = "rnnconvert-layers:"
_FLAGS = ("-std=c99", "-pedantic-errors", "-O1")
"""Without the second, one macro may have two values, and an int8_t a number too large for it, with a warning only."""
_COMPILING, _RUNNING = 300, 500
"""Seconds that the compiler, and a program, may take."""
_NAMES = ("cc", "gcc", "clang")
_TELLING = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "error")
"""What marks the line of a compiler that says why it failed, the surest first."""


def _compiler() -> list[str]:
    """Return the compiler with what $CC says behind it; nothing where there is none."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation mark without its other
        return []
    if named:
        program = shutil.which(named[0])
        return [str(Path(program).absolute()), *named[1:]] if program else []  # it runs in another folder
    return next(([name] for name in _NAMES if shutil.which(name)), [])


def absent(variant: Mapping[str, Any]) -> str:
    """Return why it cannot run here, or "" if it can."""
    if _compiler():
        return ""
    named = os.environ.get("CC", "").strip()
    if named:
        return f"the C compiler that CC names, {named!r}, was not found"
    return "no C compiler was found: install gcc or clang, or name one in the variable CC"


def versions(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the compiler's name with its version."""
    return _version(tuple(_compiler()))


@functools.lru_cache(maxsize=4)
def _version(command: Sequence[str]) -> dict[str, str]:
    if not command:
        return {}
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return {}
    number = re.search(r"\d+(\.\d+)+", done.stdout)
    return {Path(command[0]).name: number[0]} if number else {}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile a header once, and run its layers one after the other; see rnnconvert.running."""
    layers = _layers(request["file"])
    missing = [name for name in request["layers"] if name not in layers]
    if missing:
        raise NotImplementedError(f"the header has no layer {missing[0]!r}, only {', '.join(layers)}")
    chain = [layers[name] for name in request["layers"]] or list(layers.values())
    if len({layer["real"] for layer in chain}) > 1:
        raise NotImplementedError("its layers compute in several types of numbers. Name one of them")
    lengths = request.get("lengths")
    lengths = np.full(np.shape(request["x"])[1], len(request["x"])) if lengths is None else np.asarray(lengths)
    file = Path(request["file"])
    program = _compiled(str(file), file.stat().st_mtime_ns, _source(chain), tuple(_compiler()))
    dtype = np.dtype(np.float64 if chain[0]["real"] == "double" else np.float32)
    values = _run(program, _fed(request, chain, lengths, dtype))
    return _outputs(np.frombuffer(values, dtype), chain, lengths, len(request["x"]))


def witness(request: Mapping[str, Any]) -> None:
    """Run a header's model whole, sequence by sequence; see rnnconvert.running. What its layers read and give is not seen."""
    seen, file = request["witness"], Path(request["file"])
    model = described(file.read_text(encoding="utf-8")) if request["file"] else None  # "" for tables without code
    if model is None:
        raise WeightsAloneError("the header holds layers and no whole model")
    for name in seen.layers:
        seen.explain(name, "the functions of a header show the model's outputs alone")
    calls = seen.calls([_stated(seen, model, number) for number in range(len(model["inputs"]))])
    program = _compiled(str(file), file.stat().st_mtime_ns, source(model), tuple(_compiler()))
    before: list[list[Array]] = []

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        every = [*before, list(arrays)]
        begins = [not number or not model["stateful"] for number in range(len(every))]
        values = _run(program, fed(model, list(zip(every, begins))))
        outputs = outputs_of(model, arrays, before, values)
        if model["stateful"]:
            before.append(list(arrays))
        return outputs

    seen.run(calls, call, before.clear)


def _stated(seen: Any, model: Mapping[str, Any], number: int) -> Any:
    """Return an input as the witness takes it: axes of one name have one length."""
    port, call = model["inputs"][number], model["calls"]["inputs"][number]
    time = call["steps"] if call["length"] is None else model["calls"]["lengths"][call["length"]]
    dims = [time if axis == "time" else axis for axis in port["axes"]]
    real = "float64" if model["storage"] == "float64" else "float32"
    return seen.input(port["name"], dims, "int32" if port["whole"] else real, row_count(model, number))


def _layers(file: str) -> dict[str, dict[str, Any]]:
    """Return each layer of a header by its name: its name in C, type of numbers, widths and states."""
    text = Path(file).read_text(encoding="utf-8")
    if _TAG not in text:
        raise NotImplementedError("the file holds tables and no code of rnnconvert's")
    described, _ = json.JSONDecoder().raw_decode(text[text.index(_TAG) + len(_TAG) :].lstrip())
    result = {}
    for entry in described:
        upper = entry["prefix"].upper()
        sizes = {word: int(re.findall(rf"^#define {upper}_{word} (\d+)$", text, re.M)[0]) for word in ("INPUT", "HIDDEN", "OUTPUT")}
        result[entry["name"]] = {
            "prefix": entry["prefix"],
            "real": "double" if entry["dtype"] == "float64" else "float",
            "in": sizes["INPUT"],
            "out": sizes["OUTPUT"],
            "cell": sizes["HIDDEN"] if entry["layout"].startswith("c_header.lstm") else 0,
        }
    return result


def _source(chain: Sequence[Mapping[str, Any]]) -> str:
    """Return a program that runs sequences through layers: each has its length, its initial states and its steps."""
    real, states, steps, finals, reads = chain[0]["real"], "", "", "", "x"
    for number, layer in enumerate(chain):
        states += f"        {layer['prefix']}_state s{number};\n"
        for word in ("h", "c") if layer["cell"] else ("h",):
            states += f"        get(s{number}.{word}, sizeof s{number}.{word});\n"
            finals += f"        put(s{number}.{word}, sizeof s{number}.{word});\n"
        steps += f"            {layer['prefix']}_step({reads}, &s{number}, y{number});\n"
        reads = f"y{number}"
    rows = ", ".join(f"y{number}[{entry['out']}]" for number, entry in enumerate(chain))
    return f"""#include "model.h"
#include <stdio.h>
#include <stdlib.h>
static void get(void *to, size_t size) {{ if (fread(to, size, 1, stdin) != 1) exit(3); }}
static void put(const void *from, size_t size) {{ if (fwrite(from, size, 1, stdout) != 1) exit(4); }}
int main(void) {{
    static {real} x[{chain[0]["in"]}], {rows};
    int64_t batch, steps;
    for (get(&batch, sizeof batch); batch > 0; batch--) {{
        get(&steps, sizeof steps);
{states}        for (; steps > 0; steps--) {{
            get(x, sizeof x);
{steps}            put({reads}, sizeof {reads});
        }}
{finals}    }}
    return 0;
}}
"""


@functools.lru_cache(maxsize=2)
def _compiled(file: str, written: int, source: str, compiler: Sequence[str]) -> str:
    """Return a program, compiled beside the header in a separate folder: rnnconvert removes both.

    Raises RuntimeError with the compiler's first error.
    """
    folder = Path(tempfile.mkdtemp(prefix="compiled-", dir=Path(file).parent))
    shutil.copyfile(file, folder / "model.h")
    (folder / "main.c").write_text(source, encoding="utf-8")
    command = [*compiler, *_FLAGS, "-o", "program", "main.c", "-lm"]
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}  # what it prints is looked through; its own files go with the folder
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILING, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise NotImplementedError(f"{compiler[0]} did not compile the header within {_COMPILING} s") from None
    except OSError as error:
        raise NotImplementedError(f"{compiler[0]} cannot be started here: {error}") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        why = next((line for words in _TELLING for line in lines if words in line), "".join(lines[:1]) or "no message")
        raise RuntimeError(f"{compiler[0]} does not compile the header: {why}")
    return str(folder / "program")


def _run(program: str, content: bytes) -> bytes:
    """Return the output of a program. Raises NotImplementedError if it cannot be started, RuntimeError if it fails."""
    try:
        done = subprocess.run([program], input=content, capture_output=True, timeout=_RUNNING)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the compiled header did not end within {_RUNNING} s") from None
    except OSError as error:
        raise NotImplementedError(f"the compiled header cannot be started here: {error}") from None
    if done.returncode:
        raise RuntimeError(f"the compiled header ended with {done.returncode}")
    return done.stdout


def _fed(request: Mapping[str, Any], chain: Sequence[Mapping[str, Any]], lengths: Array, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes that the program reads."""
    x = np.asarray(request["x"], dtype)
    states = _by_layer(request, chain)
    parts = [np.int64(len(lengths)).tobytes()]
    for number, length in enumerate(lengths):
        parts.append(np.int64(length).tobytes())
        for layer, hidden, cell in states:
            parts.append(_row(hidden, number, layer["out"], dtype))
            parts += [_row(cell, number, layer["cell"], dtype)] if layer["cell"] else []
        parts.append(np.ascontiguousarray(x[:length, number]).tobytes())
    return b"".join(parts)


def _by_layer(request: Mapping[str, Any], chain: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Any, Any]]:
    """Return each layer with its initial hidden and cell states, or None. Raises NotImplementedError for another number of them."""
    hidden, cell = (list(request.get(key) or []) for key in ("hidden", "cell"))
    cells = [layer for layer in chain if layer["cell"]]
    if len(hidden) not in (0, len(chain)) or len(cell) not in (0, len(cells)):
        raise NotImplementedError(f"{len(hidden)} hidden and {len(cell)} cell states for {len(chain)} layers")
    rows = iter(cell)
    return [(layer, hidden[number] if hidden else None, next(rows, None) if layer["cell"] else None) for number, layer in enumerate(chain)]


def _row(states: Any, number: int, width: int, dtype: np.dtype[Any]) -> bytes:
    """Return a state of one sequence; zeros where none is given."""
    return np.ascontiguousarray(np.zeros(width) if states is None else states[number], dtype).tobytes()


def _outputs(values: Array, chain: Sequence[Mapping[str, Any]], lengths: Array, steps: int) -> dict[str, Any]:
    """Return the outputs of a program, zero past a sequence's length, and the final states."""
    width, batch, place = chain[-1]["out"], len(lengths), 0
    y = np.zeros((steps, batch, width), values.dtype)
    finals: dict[str, list[Array]] = {"hidden": [], "cell": []}
    for layer in chain:
        finals["hidden"].append(np.zeros((batch, layer["out"]), values.dtype))
        finals["cell"] += [np.zeros((batch, layer["cell"]), values.dtype)] if layer["cell"] else []
    for number, length in enumerate(lengths):
        y[:length, number] = values[place : place + length * width].reshape(length, width)
        place += length * width
        hidden, cell = iter(finals["hidden"]), iter(finals["cell"])
        for layer in chain:
            for rows, size in ((hidden, layer["out"]), (cell, layer["cell"])):
                if size:
                    next(rows)[number] = values[place : place + size]
                    place += size
    if place != values.size:
        raise RuntimeError(f"the compiled header gave {values.size} numbers, expected {place}")
    return {"y": y, **finals}
