"""The graph of a program that torch.export saved, operator by operator.

Source: torch/_export/serde/schema.py (schema version 8).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.core.syntax import tree_of
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.operators import operator
from rnnconvert.formats.pytorch.program.program import Caller, OperatorProgram, Ref, Several
from rnnconvert.scaffolding.description import Check

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.float16),
    7: np.dtype(np.float32),
    8: np.dtype(np.float64),
    12: np.dtype(np.bool_),
    13: BFLOAT16,
}
"""Element types by their numbers: ScalarType in torch/_export/serde/schema.py."""

_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_DERIVED = re.compile(r"Mul\(Integer\((\d{1,9})\), Symbol\('(\w+)'[^()]*\)\)")
_SIZE = re.compile(r"L\['(\w+)'\](?:\[(\d{1,4})\])?\.size\(\)\[(\d{1,2})\]")
_SIGNS: Mapping[type, str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
"""The operators of guards."""
_ROUNDING = {"round": "round({} / {})", "math.trunc": "int({} / {})", "math.floor": "({} // {})", "math.ceil": "(-(-{} // {}))"}
"""The functions of guards that round quotients, as they are written for whole numbers."""
OURS = "torch.ops.rnnconvert."
"""Recurrent operators that stay whole in the programs of live modules, in place of aten's."""
_ON_NUMBERS = {
    **{word: word for word in ("add", "sub", "mul", "floordiv", "neg", "eq", "ne", "lt", "gt", "le", "ge", "abs", "pow")},
    **{"mod": "remainder", "truediv": "true_divide", "math.trunc": "trunc"},
    **{f"torch.sym_{word}": word for word in ("min", "max")},
    **{f"torch.sym_{word}": f"sym_{word}" for word in ("int", "float")},
}
"""Functions of Python's numbers and lengths, and the operators that compute the same."""


def follow(module: Any) -> OperatorProgram:
    """Return the operators of the graph module of an exported program.

    Raises KeyError, TypeError and others if the description has another form; TooLongError.
    """
    graph = module["graph"]
    program = OperatorProgram()
    values: dict[str, Any] = {}
    dims = {name: _dims(meta) for name, meta in graph["tensor_values"].items()}
    for spec in module["signature"]["input_specs"]:
        for name, stored_name in _inputs(spec):
            values[name] = program.stored(stored_name) if stored_name else program.input(name, dims.get(name))
            if not stored_name and name in graph["tensor_values"]:
                values[name].dtype = str(DTYPES.get(graph["tensor_values"][name]["dtype"], ""))
    for node in graph["nodes"]:
        _node(program, node, values, dims)
    arguments = []
    for spec in module["signature"]["output_specs"]:
        (kind, stated), *_ = spec.items()
        if kind == "user_output":
            arguments.append(stated["arg"])
        else:  # what it changes besides
            program.changed[str(stated.get("buffer_name") or stated.get("parameter_name") or kind.replace("_", " "))] = None
    _check(program, module)
    program.end([_argument(argument, values) for argument in arguments])
    return program


def _check(program: OperatorProgram, lengths: Mapping[str, Any]) -> None:
    """Note the conditions on the lengths of inputs: those that are fixed, or alike, and what the program's ranges and guards say.

    lengths  the graph module, with the program's "range_constraints" and "guards_code"
    """
    places: dict[str, tuple[int, int]] = {}
    for number, ref in enumerate(program.inputs):
        for axis, length in enumerate(ref.dims or ()):
            if isinstance(length, int):
                program.checks.append(Check(f"{{0}} == {length}", ((number, axis),)))
            elif length in places:
                program.checks.append(Check("{0} == {1}", (places[length], (number, axis))))
            elif length is not None:
                places[length] = number, axis
    for number, ref in enumerate(program.inputs):
        for axis, size in enumerate(lengths["graph"]["tensor_values"].get(ref.name, {}).get("sizes", ())):
            derived = _DERIVED.fullmatch(str(size.get("as_expr", {}).get("expr_str", "")))
            if derived is not None:
                program.checks.append(Check(f"{{0}} % {derived[1]} == 0", ((number, axis),)))
            if derived is not None and derived[2] in places:
                program.checks.append(Check(f"{{0}} == {derived[1]} * {{1}}", ((number, axis), places[derived[2]])))
    for symbol, bounds in (lengths.get("range_constraints") or {}).items():
        if symbol in places:
            least, most = bounds.get("min_val"), bounds.get("max_val")
            texts = [f"{{0}} >= {int(least)}"] if least is not None and int(least) > 2 else []  # 2 is torch's own, and not checked
            texts += [f"{{0}} <= {int(most)}"] if most is not None else []
            program.checks += [Check(text, (places[symbol],)) for text in texts]
    names = {ref.name: number for number, ref in enumerate(program.inputs)}
    for guard in lengths.get("guards_code") or ():
        if ".size()" in guard:
            axes: list[tuple[int, int]] = []
            check = Check(_condition(tree_of(guard, "eval").body, names, axes), tuple(axes))
            bound = re.fullmatch(r"\{0\} (==|>=|<=) \d+|2 <= \{0\}", check.text)
            if bound is None or not any(other.axes == check.axes for other in program.checks):
                program.checks += [] if check.text in ("2 <= {0}", "{0} >= 2") or check.always else [check]


def _condition(node: ast.expr, names: Mapping[str, int], axes: list[tuple[int, int]]) -> str:
    """Return a guard as a condition on lengths, which it adds to `axes`: of arithmetic and comparisons alone. Raises ValueError."""
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        return f"({word.join(_condition(value, names, axes) for value in node.values)})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIGNS:
        words = [_condition(value, names, axes) for value in (node.left, node.comparators[0])]
        return f" {_SIGNS[type(node.ops[0])]} ".join(words)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return f"({_condition(node.left, names, axes)} {_SIGNS[type(node.op)]} {_condition(node.right, names, axes)})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return f"-{_condition(node.operand, names, axes)}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return f"{node.func.id}({', '.join(_condition(value, names, axes) for value in node.args)})"
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _ROUNDING and isinstance(node.args[0], ast.BinOp):
        quotient = node.args[0]
        if isinstance(quotient.op, ast.Div):
            words = [_condition(side, names, axes) for side in (quotient.left, quotient.right)]
            return _ROUNDING[ast.unparse(node.func)].format(*words)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value)
    place = _SIZE.fullmatch(ast.unparse(node))
    name = "" if place is None else place[1] if place[2] is None else f"{place[1]}_{place[2]}"  # of `*args`, one
    if place is None or name not in names:
        raise ValueError(f"the guard {ast.unparse(node)[:100]!r} is not known")
    axis = names[name], int(place[3])
    axes += [] if axis in axes else [axis]
    return f"{{{axes.index(axis)}}}"


def _inputs(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of an input in the graph, and among the module's parameters, buffers and constants; "" for the user's."""
    (kind, stated), *_ = spec.items()
    fields = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
    if kind in fields:
        yield stated["arg"]["name"], str(stated[fields[kind]])
        return
    for argument in stated["arg"].values() if isinstance(stated.get("arg"), dict) else ():
        for item in argument if isinstance(argument, list) else [argument]:
            name = item.get("name") or item.get("as_name") if isinstance(item, dict) else None
            if name:
                yield str(name), ""


def _dims(meta: Mapping[str, Any]) -> list[int | str | None]:
    return [_length(size) for size in meta["sizes"]]


def _length(size: Mapping[str, Any]) -> int | str | None:
    if isinstance(size.get("as_int"), int):
        return int(size["as_int"])
    named = _SYMBOL.fullmatch(str(size.get("as_expr", {}).get("expr_str", "")))
    return named.group(1) if named else None


def _node(program: OperatorProgram, node: Mapping[str, Any], values: dict[str, Any], dims: Mapping[str, Any]) -> None:
    target = str(node["target"]).replace(OURS, "torch.ops.aten.")
    names, before = list(_outputs(node["outputs"])), len(program.operations)
    if target == "torch.ops.higher_order.wrap_with_set_grad_enabled":
        results = _within(program, [entry["arg"] for entry in node["inputs"][1:]], values)
    else:
        results = _applied(program, target, node["inputs"], values, len(names))
    callers = _callers(node)
    for operation in program.operations[before:]:
        operation.callers = operation.callers or callers
    for output, value in zip(names, results, strict=False):
        if isinstance(value, Ref):
            value.name = output or value.name
            value.dims = dims.get(output) if value.dims is None else value.dims
        if output:
            values[output] = value


def _callers(node: Mapping[str, Any]) -> tuple[Caller, ...]:
    """Return the modules in whose calls a node runs. Source: serialize_metadata in torch/_export/serde/serialize.py."""
    stack = (node.get("metadata") or {}).get("nn_module_stack")
    entries = [entry.split(",") for entry in stack.split(";")] if isinstance(stack, str) else []
    return tuple(Caller(*entry) for entry in entries if len(entry) == 3)


def _within(program: OperatorProgram, arguments: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    """Follow a graph within the graph, and return what it gives: where gradients are off, for example."""
    graph = arguments[0]["as_graph"]["graph"]
    names = [next(_named_by(entry)) for entry in graph["inputs"]]
    inner = dict(zip(names, (_argument(argument, values) for argument in arguments[1:]), strict=True))
    dims = {name: _dims(meta) for name, meta in graph["tensor_values"].items()}
    for node in graph["nodes"]:
        _node(program, node, inner, dims)
    return [_argument(output, inner) for output in graph["outputs"]]


def _applied(
    program: OperatorProgram, target: str, arguments: Sequence[Mapping[str, Any]], values: Mapping[str, Any], count: int
) -> list[Any]:
    """Note an operator, and return what it gives."""
    keywords = {str(argument["name"]): _argument(argument["arg"], values) for argument in arguments if argument.get("kind") == 2}
    positional = [(str(argument["name"]), _argument(argument["arg"], values)) for argument in arguments if argument.get("kind") != 2]
    inputs = [value for _, value in positional]
    if target.startswith("torch.ops.aten."):
        name = target.split(".")[3]
        entry = aten.OPERATORS.get(name.rstrip("_")) if name.rstrip("_") in aten.MOVES_BY_NAME else None
        if entry is not None and all(entry.word(word) in entry.names for word, _ in positional):
            keywords |= dict(positional)
            inputs = []
        result = operator(program, name, inputs, keywords)
    else:
        name = target.removeprefix("_operator.")
        on_numbers = name in _ON_NUMBERS
        plain = _ON_NUMBERS[name] if on_numbers else target.removeprefix("torch.ops.")
        operation = program.apply(plain, inputs if on_numbers else [*inputs, *keywords.values()])
        if target.startswith("torch.ops."):  # of another library: what it does is not known
            program.change(operation, operation.inputs)
        result = program.output(operation)
    if isinstance(result, Several):
        result.operation.attributes["count"] = count
    return [_part(program, result, number) for number in range(count)]


def _part(program: OperatorProgram, result: Any, number: int) -> Any:
    """Return one of what an operator gives."""
    if isinstance(result, Several):
        return program.output(result.operation, number)
    if isinstance(result, list):
        return result[number] if number < len(result) else None
    return result if number == 0 or result.operation is None else program.output(result.operation, number)


def _outputs(outputs: Any) -> Iterator[str]:
    """Yield the names of what a node gives, "" for what has none."""
    for output in outputs:
        yield from _named_by(output)


def _named_by(argument: Mapping[str, Any]) -> Iterator[str]:
    for value in argument.values():
        for item in value if isinstance(value, list) else [value]:
            yield str(item.get("name") or item.get("as_name") or "") if isinstance(item, dict) else ""


def _argument(argument: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Return an argument of a node."""
    (kind, value), *_ = argument.items()
    if kind == "as_none":
        return None
    if kind == "as_scalar_type":
        return DTYPES.get(value, "another dtype")
    if kind == "as_float":
        return _real(value)
    if kind in ("as_int", "as_bool", "as_string", "as_ints", "as_floats", "as_bools", "as_strings"):
        return value
    if kind in ("as_device", "as_layout", "as_memory_format"):
        return kind
    if isinstance(value, list):
        return [_named(element, values) for element in value]
    return _named(value, values)


def _real(value: Any) -> Any:
    """Return a number as it is: JSON has words for those that are not finite."""
    return float(value) if value in ("Infinity", "-Infinity", "NaN") else value


def _named(item: Any, values: Mapping[str, Any]) -> Any:
    """Return a value by its name, or the number that stands in its place."""
    if not isinstance(item, dict):
        return item
    name = item.get("name") or item.get("as_name")
    if name is not None:
        return values.get(str(name), "a value that nothing gives")
    for kind in ("as_int", "as_float", "as_bool"):
        if kind in item:
            return _real(item[kind])
    nested = item.get("as_tensor")
    return _named(nested, values) if isinstance(nested, dict) else None
