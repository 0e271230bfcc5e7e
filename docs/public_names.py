"""Make docs/api.md and docs/api/: every public name of rnnconvert, from its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import rnnconvert
from rnnconvert.core.arguments import keywords_of, takes_only_keywords

HEAD = """# Every public name

Everything is an attribute of the module: `import rnnconvert as rc`,
then `rc.load`. How it fits together: [in Python](python.md). Anything that is not listed here may change without notice.
"""

GROUPS = {
    "Files": ("load", "save", "convert", "inspect", "view", "targets", "scaffold", "upgrade", "export_model", "fuse", "add_layouts"),
    "Proof": ("verify", "run", "diff", "diagnose", "identify", "Plan"),
    "Models of your own": ("load_into", "transplant_file", "propose_mapping", "load_optimizer_into"),
    "Live objects": (
        "from_model", "from_torch", "to_torch", "from_keras", "to_keras", "from_onnx", "to_onnx", "from_jax", "to_jax",
    ),
    "Arrays and stacks": ("pack", "unpack", "join_stack", "split_stack", "split_directions"),
    "Layouts of your own": ("Layout", "Tensor", "Holds", "System"),
    "Layers in canonical form": ("Checkpoint", "Recurrent", "Layer", "Direction", "Gate", "Cell", "Activation", "Clip"),
    "What comes back": (
        "Summary", "Inspection", "View", "Report", "Results", "Comparison", "Findings", "SampleFindings", "Identification",
        "Transplant", "MovedOptimizer",
        "Scaffolded", "Upgraded", "Exported", "Fused",
    ),
    "Errors and warnings": (
        "RnnConvertError", "UsageError", "OutputError", "NoSuchLayerError", "UnreadableError", "MissingFileError", "RefusedError",
        "TransplantError", "MissingPackageError", "ExecutorError", "NotEqualError", "AssumptionWarning",
    ),
    "The version": ("__version__",),
}  # fmt: skip
"""Every name of `rnnconvert.__all__` once, as a reader looks for it."""


MADE_BY_US = {*GROUPS["What comes back"], *GROUPS["Errors and warnings"]}
"""Classes that only rnnconvert makes: how they are called is not shown."""

_WIDTH = 84
"""How many letters of code a page shows side by side."""

REPORTS = """
Where a class has them, `lines()` yields or returns its text line by line, and `as_dict()` returns all of it as JSON can hold it.
"""
"""What the reports have in common, said once."""

ERRORS = """
Every error has what [`RnnConvertError`](#rnnconverterror) has.
"""
"""What the errors have in common, said once."""

VERSION = "The version of rnnconvert, a text."


def api_pages() -> dict[str, str]:
    """Return docs/api.md, a list of all names, and a page for each group of them.

    Raises ValueError unless every public name is listed once.
    """
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != list(rnnconvert.__all__):
        wrong = sorted({*listed} ^ {*rnnconvert.__all__} or {name for name in listed if listed.count(name) > 1})
        raise ValueError(f"docs/public_names.py must list every name of rnnconvert.__all__ once: see {', '.join(wrong)}")
    index, pages = [HEAD], {}
    for title, names in GROUPS.items():
        values = {name: getattr(rnnconvert, name) for name in names}
        path = f"api/{title.lower().replace(' ', '-')}.md"
        links = {name: f"[`{name}`]({path}#{name.lower()})" for name in names}
        index.append(f"\n## {title}\n\n")
        if MADE_BY_US.issuperset(names):
            index.append(f"{', '.join(links.values())}\n")
        else:
            index.append("| name | what it is |\n|---|---|\n")
            index += [f"| {links[name]} | {summary(value)} |\n" for name, value in values.items()]
        head = REPORTS if "Summary" in names else ERRORS if "RnnConvertError" in names else ""
        pages[path] = f"# {title}: public names\n{head}" + "".join(part for item in values.items() for part in entry(*item))
    return {"api.md": "".join(index), **pages}


def summary(value: Any) -> str:
    """Return the first paragraph of a name's docstring, for a table."""
    return VERSION if isinstance(value, str) else plain((inspect.getdoc(value) or "").partition("\n\n")[0])


def entry(name: str, value: Any) -> Iterator[str]:
    """Yield the part of the page on one name: how it is called, and what each parameter or field is, with its type."""
    yield f"\n## {plain(name)}\n\n"
    if isinstance(value, str):
        yield f"{VERSION}\n"
        return
    own_call = "__init__" in vars(value) if isinstance(value, type) else True
    is_error = isinstance(value, type) and issubclass(value, Exception)
    types = types_of(value) if own_call and not is_error else {}
    if own_call and name not in MADE_BY_US:
        yield f"    {called(f'rc.{name}', value)}\n\n"
    text = described(value, types)
    yield text
    own_names = inspect.signature(value).parameters if types else {}  # what is passed on is described where it arrives
    if undescribed := [f"`{field}: {kind}`" for field, kind in types.items() if f"`{field}: {kind}`" not in text and field in own_names]:
        yield f"\n{'Fields' if isinstance(value, type) else 'Parameters'}, too: {', '.join(undescribed)}.\n"
    if isinstance(value, type):
        yield from members(value)


def members(value: type) -> Iterator[str]:
    """Yield a line for each public method and property that a class or a class of ours above it defines, unless that one is listed, too."""
    members_by_name: dict[str, Any] = {}
    if listed := [above.__name__ for above in value.__mro__[1:] if above.__name__ in rnnconvert.__all__][:-1]:
        yield f"\nIt has what [`{listed[0]}`](#{listed[0].lower()}) has, too.\n"
    for above in value.__mro__:
        if above.__module__.startswith("rnnconvert.") and (above is value or above.__name__ not in rnnconvert.__all__):
            for name, member in vars(above).items():
                if not name.startswith("_"):
                    members_by_name.setdefault(name, member)
    lines, shared = [], []
    for name, member in members_by_name.items():
        inner = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        if not inspect.isfunction(inner):
            continue
        # A method without a docstring has that of the class above.
        sentence = (inspect.getdoc(inner) or inherited(value, name)).partition("\n\n")[0]
        if not sentence:
            raise ValueError(f"{value.__name__}.{name} has no docstring")
        is_called = inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod))
        head = f"{name}{arguments(inner)}" if is_called else name
        if head in ("lines()", "as_dict()") and value.__name__ in MADE_BY_US:
            shared.append(f"`{head}`")
        else:
            lines.append(f"- `{head}`: {plain(sentence)}\n")
    if lines or shared:
        yield "\nMethods and properties:\n\n"
        yield from lines
        yield f"- {', '.join(shared)}\n" if shared else ""


def inherited(value: type, name: str) -> str:
    """Return the docstring of a method in the classes above."""
    return next(filter(None, (inspect.getdoc(vars(above)[name]) for above in value.__mro__ if name in vars(above))), "")


def arguments(function: Any) -> str:
    """Return the names and defaults of what a method takes."""
    parameters = [argument for argument in inspect.signature(function).parameters.values() if argument.name not in ("self", "cls")]
    return "(" + ", ".join(map(parameter, parameters)) + ")"


def called(name: str, value: Any) -> str:
    """Return a call as one line, with the defaults of what it takes."""
    signature = inspect.signature(value)
    result = "" if isinstance(value, type) else f" -> {signature.return_annotation}"
    parts, starred = [], False
    for argument in parameters_of(value).values():
        if argument.kind is argument.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or argument.kind in (argument.KEYWORD_ONLY, argument.VAR_POSITIONAL)
        parts.append(parameter(argument))
    line = f"{name}({', '.join(parts)}){result}"
    return (
        line
        if len(line) <= _WIDTH
        else textwrap.fill(line, _WIDTH, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    )


def parameter(argument: inspect.Parameter) -> str:
    """Return one parameter as Python writes it, without its type; a default that is long or computed is three dots."""
    star = {argument.VAR_POSITIONAL: "*", argument.VAR_KEYWORD: "**"}.get(argument.kind, "")
    if argument.default is argument.empty:
        return f"{star}{argument.name}"
    default = repr(argument.default)
    return f"{argument.name}={'...' if '<' in default or len(default) > 30 else default}"


def types_of(value: Any) -> dict[str, str]:
    """Return the types of what a function takes or a class is made with, by name."""
    parameters = parameters_of(value).values()
    stated = [argument for argument in parameters if argument.annotation is not argument.empty]
    return {each.name: str(each.annotation) for each in stated if not str(each.annotation).startswith("Unpack")}


def parameters_of(value: Any) -> dict[str, inspect.Parameter]:
    """Return what a function takes, or a class is made with: its own parameters, with the keywords that it passes on before its options."""
    parameters = dict(inspect.signature(value).parameters)
    if isinstance(value, type) or not (options := next((name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD), None)):
        return parameters
    last = parameters.pop(options)
    for name, (parameter, _) in keywords_of(value).items():
        parameters.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))
    return parameters if takes_only_keywords(value) else {**parameters, options: last}


def described(value: Any, types: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a docstring as Markdown: its lists of names as lists, with types, indented lines as code, the rest as paragraphs."""
    parts = []
    for block in (inspect.getdoc(value) or "").split("\n\n"):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            parts.append(textwrap.indent(textwrap.dedent(block), "    ") + "\n")
        else:
            parts.append(items(value, lines, types) or plain(block) + "\n")
    return "\n".join(parts)


def items(value: Any, lines: list[str], types: Mapping[str, str]) -> str:
    """Return the lines "name  what it is" as a list, and nothing for other lines.

    Raises ValueError for a name that the value does not have.
    """
    entries: list[list[str]] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1].append(line.strip())
        else:
            entries.append([line])
    split = [re.match(r"([\w*]+(?:, [\w*]+)*)( +)(.*)", item[0]) for item in entries]
    if not all(split) or not any(match and len(match[2]) > 1 for match in split):
        return ""
    documented, rows = names_of(value), []
    for item, match in zip(entries, split, strict=True):
        assert match is not None
        names = match[1].split(", ")
        if unknown := [name for name in names if name.lstrip("*") not in documented]:
            raise ValueError(f"the docstring of {value.__name__} describes {', '.join(unknown)}, which it does not have")
        label = ", ".join(f"`{name}: {types[name]}`" if name in types else f"`{name}`" for name in names)
        rows.append(f"- {label}: {plain(' '.join([match[3], *item[1:]]))}\n")
    return "".join(rows)


def names_of(value: Any) -> set[str]:
    """Return the names that a docstring may describe: parameters, fields, and attributes."""
    if not isinstance(value, type):
        return {*parameters_of(value)}
    attributes = {name for above in value.__mro__ for name in (*vars(above), *vars(above).get("__annotations__", ()))}
    if dataclasses.is_dataclass(value):
        attributes |= {field.name for field in dataclasses.fields(value)}
    if constructor := vars(value).get("__init__"):
        attributes |= {*inspect.signature(constructor).parameters}
        if not dataclasses.is_dataclass(value):
            attributes |= {*re.findall(r"self\.(\w+)", inspect.getsource(constructor))}
    return attributes


def plain(text: str) -> str:
    """Return a docstring's prose as one paragraph of Markdown, where only its code keeps its signs."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[\]|])", r"\\\1", part) for part in parts)
