"""Exported programs (.pt2) loaded by torch from a copy that holds nothing but a graph and numbers.

torch.export.load executes what a file brings, in many ways: pickles among sample inputs, constants and weights; symbolic
expressions, which sympy evaluates as Python; guards, which become Python; targets and names, which are looked up from `torch` on
and written into the code of the graph; compiled libraries. So it gets a copy in memory, whose every text was checked here.
Sources: torch/export/__init__.py and pt2_archive/_package.py, torch/_export/serde/serialize.py and schema.py, torch/export/_unlift.py,
torch/fx/graph.py, torch/utils/_pytree.py (2.13).
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MODEL, PROGRAM = "models/model.json", "serialized_exported_program.json"
"""Where a program stands in an archive of torch's since 2.8, and in an older one."""

_RECORDS = ("archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id", ".format_version")
_PAYLOADS = ("data/weights/", "data/constants/")
_DERIVED = re.compile(r"(\d{1,9}\*)?s\d{1,9}( [+-] \d{1,9})?")
"""A length that is derived from another one, whose range is stated."""
_NAME = re.compile(r"[\w.\-/ :+@]*")
"""The form of names, so that no code can stand in them."""
_TEXT = re.compile(r"[^'\"\\\x00-\x1f]*")
"""The form of a text that an operator may receive: torch writes it between quotes."""
_OPERATOR = re.compile(r"torch\.ops\.(aten|prims|quantized|quantized_decomposed|torchvision)\.(\w+)\.(\w+)")
_HIGHER = re.compile(
    r"torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan|map_impl|wrap_with_set_grad_enabled|wrap_with_autocast)"
)
_NUMBERS = re.compile(
    r"_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|lshift|rshift)"
    r"|math\.(floor|ceil|trunc|sqrt|pow|exp|log|log2|cos|sin|tan|cosh|sinh|tanh|asin|acos|atan)"
    r"|torch\.(_?sym_\w+)"
)
_REACHES_FILES = {"file", "filename", "path"}
_TREES = {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "torch.fx.immutable_collections.immutable_dict"}
_TREES |= {"torch.fx.immutable_collections.immutable_list", "torch.Size"}
_POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift"}
_FUNCTIONS = _POWERS | set(
    [
        "Symbol",
        "Integer",
        "Float",
        "Rational",
        "Add",
        "Mul",
        "Max",
        "Min",
        "Mod",
        "PythonMod",
        "FloorDiv",
        "CleanDiv",
        "CeilDiv",
        "ModularIndexing",
        "Where",
        "CeilToInt",
        "FloorToInt",
        "TruncToInt",
        "RoundToInt",
        "ToFloat",
        "TruncToFloat",
        "RoundDecimal",
        "FloatTrueDiv",
        "IntTrueDiv",
        "RShift",
        "Identity",
        "Abs",
        "floor",
        "ceiling",
        "Eq",
        "Ne",
        "Equality",
        "Unequality",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        "StrictLessThan",
        "LessThan",
        "StrictGreaterThan",
        "GreaterThan",
        "And",
        "Or",
        "Not",
        "IsNonOverlappingAndDenseIndicator",
    ]
)
_NODES = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load)
_LONGEST, _MOST_POWERS = 2000, 3
"""The characters of a symbolic expression, and the powers in it."""
_MOST_DIGITS = 1000
"""Of a number in such an expression."""
_UNPACKED, _PER_BYTE = 1 << 26, 4
"""How many bytes an archive may unpack to, and how many more for each byte of its own."""


def loaded(file: str) -> Any:
    """Return the program of a file, as torch.export.load gives it for its copy.

    Raises NotImplementedError for what could run code, naming the part of the archive.
    """
    import torch

    return torch.export.load(io.BytesIO(_copy(file, _plain_tensors)))


def is_program(names: list[str]) -> bool:
    """Return whether these are the names in an archive of an exported program."""
    return any("serialized_exported_program" in name or "/models/" in f"/{name}" for name in names)


def _copy(file: str, plain: Callable[[str, bytes], bytes]) -> bytes:
    """Return an archive of the program alone, without sample inputs and other files.

    plain  checks the bytes of a torch.save
    """
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        size = sum(entry.file_size for entry in archive.infolist())
        if len(entries) < len(archive.infolist()):
            raise NotImplementedError("two entries of its archive have one name")
        if size > _UNPACKED + _PER_BYTE * sum(entry.compress_size for entry in archive.infolist()):
            raise NotImplementedError(f"its archive unpacks to {size} bytes")
        if PROGRAM in entries:
            parts = _older(archive, set(entries), plain)
        else:
            root = next(iter(entries)).split("/")[0] + "/"
            parts = _current(archive, {name[len(root) :]: name for name in entries if name.startswith(root)}, root, plain)
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w", zipfile.ZIP_STORED) as target:
            for name, data in parts:
                target.writestr(name, data)
    return result.getvalue()


def _older(archive: zipfile.ZipFile, names: set[str], plain: Callable[[str, bytes], bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of an archive of torch's before 2.8."""
    yield "version", archive.read("version")
    yield PROGRAM, checked(archive.read(PROGRAM))
    for part in ("serialized_state_dict", "serialized_constants"):
        for name in (f"{part}.pt", f"{part}.json"):
            if name in names:
                yield name, plain(name, archive.read(name))
    yield "serialized_example_inputs.pt", b""


def _current(
    archive: zipfile.ZipFile, names: Mapping[str, str], root: str, plain: Callable[[str, bytes], bytes]
) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of an archive of torch's since 2.8; without sample inputs torch writes no guards as Python."""
    if MODEL not in names:
        raise NotImplementedError(f"its archive has no {MODEL}")
    for name in _RECORDS:
        if name in names:
            yield root + name, archive.read(names[name])
    yield root + MODEL, checked(archive.read(names[MODEL]))
    yield root + "data/sample_inputs/model.pt", b""
    for folder in _PAYLOADS:
        for name in names:
            if not name.startswith(folder):
                continue
            data = archive.read(names[name])
            if name.endswith("_config.json"):
                _check_payloads(name, json.loads(data))
            elif name == f"{folder}model.pt":
                data = plain(name, data)
            yield root + name, data


def _plain_tensors(name: str, data: bytes) -> bytes:
    """Return the bytes of a torch.save. Raises NotImplementedError where its pickle builds anything but tensors."""
    import pickle

    import torch

    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        words = " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split())
        raise NotImplementedError(f"{name!r} is a pickle of more than tensors, which is not executed: {words[-200:]}") from None
    return data


def _check_payloads(name: str, config: Any) -> None:
    """Raise NotImplementedError for weights or constants that are pickles or objects of compiled classes."""
    _check(config, name)
    for key, entry in config["config"].items():
        if entry.get("use_pickle"):
            raise NotImplementedError(f"{key!r} is stored as a pickle, which is not executed")
        if not str(entry["path_name"]).startswith(("weight_", "tensor_")):
            raise NotImplementedError(f"{key!r} is an object of a class, and no tensor: what it does when it is loaded is not known")


def checked(data: bytes) -> bytes:
    """Return the description of a program with nothing in it that torch executes.

    Raises NotImplementedError for a text that it might.
    """
    program = json.loads(data)
    program.pop("torch_version", None)
    program["guards_code"] = []
    _without_metadata(program["graph_module"])
    if program["graph_module"].get("treespec_namedtuple_fields"):
        raise NotImplementedError("it has named tuples, whose classes it names")
    _check(program, "the program")
    return json.dumps(program).encode()


def _without_metadata(value: Any) -> None:
    """Empty what is stated of nodes beside their operators: where they come from, in the words of another process."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _without_metadata(item)
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and ("target" in value or "graph" in value):
        value["metadata"] = {}


def _check(value: Any, key: str) -> None:
    """Check every text in a description by what it stands for. Raises NotImplementedError."""
    if isinstance(value, dict):
        for name, item in value.items():
            if key != "range_constraints" or not _DERIVED.fullmatch(name):
                _check_name(name)
            if name in ("as_custom_obj", "custom_obj"):
                raise NotImplementedError("it has an object of a class, and no tensor: what it does when it is loaded is not known")
            _check(item, name)
    elif isinstance(value, list):
        for item in value:
            _check(item, key)
    elif isinstance(value, str):
        _CHECKS.get(key, _check_name)(value)


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text) or any(part.startswith("__") for part in text.split(".")):
        raise NotImplementedError(f"{text[:80]!r} is not a plain name, and torch might execute it")


def _check_text(text: str) -> None:
    if not _TEXT.fullmatch(text):
        raise NotImplementedError(f"an operator receives {text[:80]!r}, which torch might execute")


def _check_target(text: str) -> None:
    """Raise NotImplementedError for all but operators on tensors and numbers."""
    operator = _OPERATOR.fullmatch(text)
    if operator:
        import torch

        resolved: Any = torch.ops
        for part in operator.groups():
            resolved = getattr(resolved, part, None)
        names = (
            {argument.name for argument in resolved._schema.arguments if "str" in str(argument.type)}
            if isinstance(resolved, torch._ops.OpOverload)
            else _REACHES_FILES
        )
        if names & _REACHES_FILES:
            raise NotImplementedError(f"it has an operator {text!r}, which torch lacks or which reaches files")
    elif not (_HIGHER.fullmatch(text) or _NUMBERS.fullmatch(text)):
        raise NotImplementedError(f"it calls {text[:80]!r}, which is not an operator on tensors")


def _check_expression(text: str) -> None:
    """Raise NotImplementedError for all but arithmetic of symbols: sympy evaluates any Python."""
    wrong = NotImplementedError(f"{text[:80]!r} is not the length of an axis, and torch would execute it")
    if len(text) > _LONGEST:
        raise wrong
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise wrong from None
    powers = 0
    called = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            called.add(id(node.func))
            powers += name in _POWERS
            if name not in _FUNCTIONS or (name in _POWERS and not (len(node.args) == 2 and _is_small(node.args[1]))):
                raise wrong
            if name == "Float" and not all(map(_is_precision, node.args[1:])):
                raise wrong
        elif isinstance(node, ast.keyword):
            if not isinstance(node.value, ast.Constant) or isinstance(node.value.value, str) or not _is_precision(node.value):
                raise wrong
        elif isinstance(node, ast.Constant):
            if not re.fullmatch(r"[^\W\d]\w{0,63}|-?[\d.]{1,64}(e[+-]?\d+)?", str(node.value)) or not isinstance(
                node.value, (int, float, str)
            ):
                raise wrong
        elif isinstance(node, ast.Name):
            if id(node) not in called and not re.fullmatch(r"[a-z]+\d+|true|false|oo|int_oo", node.id):
                raise wrong
        elif isinstance(node, ast.Pow):
            powers += 1
        elif not isinstance(node, _NODES) or isinstance(node, ast.BitXor):  # which sympy takes for a power
            raise wrong
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)) and not _is_small(node.right):
            raise wrong
    if powers > _MOST_POWERS:
        raise wrong


def _is_precision(node: ast.AST) -> bool:
    """Return whether a setting of a number, as how many digits it has, is one that torch writes."""
    return isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)) and node.value <= _MOST_DIGITS


def _is_small(node: ast.AST) -> bool:
    """Return whether an exponent is a number of one digit."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 <= node.value < 10


def _check_tree(text: str) -> None:
    """Raise NotImplementedError for inputs or outputs in other structures than lists, tuples and dictionaries: torch imports classes."""
    if text:
        _, tree = json.loads(text)
        _check_branch(tree)


def _check_branch(tree: Any) -> None:
    kind, context = tree["type"], tree["context"]
    if kind is not None and kind not in _TREES:
        raise NotImplementedError(f"its inputs or outputs stand in a {str(kind)[:80]!r}")
    keys = json.loads(context) if isinstance(context, str) else context
    for key in keys if isinstance(keys, list) else [keys]:
        if isinstance(key, str):
            _check_name(key)
        elif key is not None and not isinstance(key, (int, float)):
            raise NotImplementedError("its inputs or outputs have keys that are neither words nor numbers")
    for branch in tree["children_spec"]:
        _check_branch(branch)


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "target": _check_target,
    "as_operator": _check_target,
    "expr_str": _check_expression,
    "in_spec": _check_tree,
    "out_spec": _check_tree,
    "as_string": _check_text,
    "as_strings": _check_text,
}
