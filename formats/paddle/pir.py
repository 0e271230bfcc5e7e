"""Paddle 3's program in JSON: the operators that it states, and the shapes of its parameters.

Only the attributes of operators and the places of their values are read; nothing runs.

Source: paddle/fluid/pir/serialize_deserialize (3.3.1), whose names are short: "#" is a kind, A attributes, I what is read, O what is
made, N a name, AT a typed value with its data D. The order of what an operator reads is that of paddle/phi/ops/yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers import json_text
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import PROGRAM_BYTES
from rnnconvert.core.malformed import malformed
from rnnconvert.core.names import add
from rnnconvert.formats.paddle.program import ProgramOperator, StatedProgram, Value

BEGINS = b'{"base_code":{"magic":"pir"'
_BUILT_IN_DIALECTS = ("0", "1", "2")
"""The numbers of Paddle's dialects: builtin, operators, control flow. Others belong to extensions."""
_READS = {"rnn": ("Input", "PreState", "WeightList", "SequenceLength", "DropoutState")}
"""The roles of the values that an operator reads, in their order."""


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a program."""
    return b"".join(head[:200].split()).startswith(BEGINS)


def read(path: Path) -> StatedProgram:
    """Return the operators of a program's first graph, and what it states of its values. Raises UnreadableError."""
    data = map_file(path)
    if data.size > PROGRAM_BYTES:
        raise UnreadableError(path, f"the program has {data.size} bytes, more than the limit of {PROGRAM_BYTES}")
    newer = "The file is damaged, or its Paddle is newer than 3.3."
    with malformed(lambda what: UnreadableError(path, f"it is not a program of Paddle 3 as its version writes it: {what}", newer)):
        tree = json_text.loads(data.tobytes(), path)
        parameters: dict[str, tuple[int, ...]] = {}
        listed = tree["program"]["regions"][0]["blocks"][0]["ops"]
        operators = _operators(listed, parameters)
        tensors = dict(
            pair for entry in listed for value in _outputs(entry) for pair in zip(_values(value), _tensors(value["TT"]), strict=True)
        )
        shapes = {name: tuple(int(length) for length in tensor[1]) for name, tensor in tensors.items()}
        types = {name: _TYPES.get(tensor[0]["#"].partition(".")[2], "") for name, tensor in tensors.items()}
    return StatedProgram(path, (operators,), parameters, shapes, types)


_TYPES = {"t_f16": "float16", "t_bf16": "bfloat16", "t_f32": "float32", "t_f64": "float64", "t_i8": "int8", "t_ui8": "uint8",
          "t_i16": "int16", "t_i32": "int32", "t_i64": "int64", "t_bool": "bool"}  # fmt: skip


def _outputs(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the values that an operator gives; a parameter's bears its own name."""
    return [] if entry["#"] == "p" else [value for value in entry["O"] if value.get("TT", {}).get("#", "").startswith("0.t_")]


def _tensors(kind: Mapping[str, Any]) -> list[Any]:
    """Return the element type and the shape of each tensor of a value."""
    if kind["#"] == "0.t_vec":
        return [tensor for part in kind["D"] for tensor in _tensors(part)]
    return [kind["D"] if kind["#"] == "0.t_dtensor" else [{"#": ""}, ()]]


def _operators(listed: list[dict[str, Any]], parameters: dict[str, tuple[int, ...]]) -> tuple[ProgramOperator, ...]:
    """Return operators, and note the parameters among them."""
    names: dict[int, tuple[str, ...]] = {0: ()}
    """The values that a number stands for: none, one, or those of a list."""
    result = []
    for entry in listed:
        kind = entry["#"]
        if kind == "p":
            name, results = str(entry["A"][3]), entry["O"]
            names[results["%"]] = (name,)
            if entry["OA"][0]:
                add(parameters, name, tuple(int(length) for length in results["TT"]["D"][1]), "it")
            continue
        dialect, _, operator = kind.partition(".")
        results = [value["%"] for value in entry["O"]]
        operands = [names.get(value["%"], ()) for value in entry["I"]]
        if kind == "0.combine":
            names[results[0]] = tuple(name for value in operands for name in value)
            continue
        if kind == "0.split":  # takes a list of values apart
            names |= {number: (value,) for number, value in zip(results, operands[0], strict=True)}
            continue
        if kind == "0.slice":  # takes one of them
            (index,) = (attribute["AT"]["D"] for attribute in entry["A"] if attribute["N"] == "index")
            names[results[0]] = (operands[0][index],)
            continue
        names |= {value["%"]: _values(value) for value in entry["O"]}
        words = _READS.get(operator, ())
        inputs = {words[at] if at < len(words) else str(at): value for at, value in enumerate(operands)}
        outputs = {str(at): names[number] for at, number in enumerate(results)}
        kind_known = operator if dialect in _BUILT_IN_DIALECTS else kind
        result.append(ProgramOperator(kind_known, inputs, outputs, _attributes(entry["A"]), *_rows(entry["A"])))
    return tuple(result)


def _values(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the values that an operator's output stands for: one, or several for a list."""
    kind = value["TT"]
    if kind["#"].partition(".")[2] != "t_vec":
        return (f"%{value['%']}",)
    return tuple(f"%{value['%']} {place}" for place in range(len(kind["D"])))


def _rows(listed: list[dict[str, Any]]) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[float, ...]], frozenset[str]]:
    """Return the attributes that are whole numbers in a row, those that are real ones, and the names of what is neither nor one value."""
    lists, reals, others = dict[str, tuple[int, ...]](), dict[str, tuple[float, ...]](), set[str]()
    for attribute in listed:
        name, rows = str(attribute["N"]), attribute["AT"].get("D")
        numbers = [row.get("D") if isinstance(row, dict) else row for row in rows] if isinstance(rows, list) else None
        if numbers is None:
            others |= {name} if not isinstance(rows, str | int | float) else set()
        elif all(type(number) is int or (type(number) is float and number.is_integer()) for number in numbers):
            lists[name] = tuple(int(number or 0) for number in numbers)
        elif all(type(number) in (int, float) for number in numbers):
            reals[name] = tuple(float(number or 0) for number in numbers)
        else:
            others.add(name)
    return lists, reals, frozenset(others)


def _attributes(listed: list[dict[str, Any]]) -> Mapping[str, Value]:
    """Return the attributes that are one value."""
    values = {str(attribute["N"]): attribute["AT"].get("D") for attribute in listed}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float)}
