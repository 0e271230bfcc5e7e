"""Make docs/errors.md and docs/errors/: what each kind of error means, and every text, as the code has it."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.core import errors, remedies

ROOT = Path(__file__).resolve().parent.parent

HEAD = """# Errors by their text

On the command line an error begins with `error:`, `--json` gives it as an object, and `--debug` shows where it comes from. After any
error every file is unchanged. The five that most people meet, each with what to do:

```console
$ rnnconvert convert examples/decoder.keras decoder.pt
error: layer 'decoder': torch.nn.GRU cannot hold a GRU with the reset gate before the product: ...
$ rnnconvert convert examples/encoder.keras encoder.onnx --layer encodr
error: examples/encoder.keras has no recurrent layer 'encodr'. It has 'encoder', 'summary'
$ rnnconvert convert examples/encoder.keras examples/decoder.keras
error: examples/decoder.keras already exists. Use --force to replace it
$ rnnconvert convert examples/encoder.keras x.onnx --set cell_clip=3
error: --set cell_clip=3 decides nothing in examples/encoder.keras: no layer asks for it. ...
$ rnnconvert verify examples/encoder.keras --on my-runtime
error: ...
```

1. The target has no such cell. `rnnconvert inspect FILE --targets` shows which formats have; in Python, `rc.to_torch` and `rc.to_keras`
   make a layer of ours that computes it.
2. A name is misspelt. `inspect` lists the layers.
3. No file is replaced unasked: `--force`, in Python `force=True`.
4. The file leaves nothing open that the option decides. Leave it out; if the file itself is wrong, insist with `KEY=VALUE!`.
5. That executor is unknown or cannot run here: `rnnconvert executors` says why.

Below are all others, by their kind: what the kind means, and its texts. Search for a few
words from the middle of yours. A UsageError says itself what to do, and an UnreadableError what is damaged, so theirs are not listed.
`…` stands for names, numbers and paths; texts that begin alike are one entry, with their beginning in bold. Texts of one or two words are
not listed, nor are refusals of up to five without a way out. Your message says more: the reason, and what to do, which is listed here
for refusals alone.
"""

ADVICE = {
    "OutputError": "Free the disk, or choose a folder that you may write to. A UsageError, too.",
    "UsageError": "The text names the option or the value: change it and run again.",
    "UnusedSettingError": "Leave the setting out, or correct its layer or its key; `batch` takes it for the files that ask for it. "
    "A UsageError, too.",
    "UnreadableError": (
        "The file is damaged, incomplete, or not what its name says. Compare its size and its hash with the original, and fetch "
        "or save it again. If its own framework reads it, please report it with the file."
    ),
    "RefusedError": (
        "Writing it would change what the weights compute. The text names the layer, what the target lacks, and the way out; "
        "choose another target, change the model in its own framework, or take over what the text offers with `--set`."
    ),
    "UndecidedError": "Weights alone do not say whether a layer computes tanh or relu, and others fit as well: look in the code of the "
    "model and answer with `--set`, give its architecture with `--config`, or take the defaults with `--assume-defaults`.",
    "UnreadLayersError": "One layer cannot be read, so the whole file is not converted. Name the others with `--layer`.",
    "TransplantError": "Nothing was changed. The lines below the message name each layer that does not fit, and why.",
    "MissingPackageError": "Install the package that the text names. Conversions from file to file need no framework.",
    "AbsentExecutorError": "`rnnconvert executors` shows what can run here, and what the others lack.",
    "ExecutorError": "The framework itself failed on the file. Its own message follows; `--debug` shows the whole of it.",
    "NotEqualError": "The report in the text has the cause; see [why is my output different?](faq.md).",
    "BudgetError": "The file is made to exhaust whoever reads it, or it is compressed beyond all measure. If you trust it, save it without "
    "compression, and with its numbers written out (of ONNX, onnxruntime's basic optimization writes such a file); if it is an "
    "honest model, please report it.",
    "MissingFileError": "Correct the path. A similar name in the same folder is suggested.",
    "NoSuchLayerError": "Layers and directions are counted from 0.",
    "NoSuchNameError": "The text has the nearest name, or all names. `print(checkpoint)` lists the layers. Python's KeyError, too.",
    "UnknownWordError": "The text has the word that was probably meant, or those that exist, or the command that lists them.",
    "WithoutLayersError": "The file was read whole. If you expect a recurrent layer, `rnnconvert inspect -v FILE` lists what it holds; "
    "`batch` counts such files, and does not take them for failures.",
}
"""What to do about each class of errors."""

REFUSALS = ("Obstacle", "Unconvertible", "OtherAxesError")
"""Values that become the text of a RefusedError, and what is one."""

AREAS = {"cli": "The command line", "rnnconvert": "Several formats"}


@dataclass(frozen=True)
class Raised:
    """A place where the code makes an error: its class, the part of the code, and the text with … for values."""

    kind: str
    area: str
    text: str


UNLISTED = ("UsageError", "UnreadableError")
"""Kinds whose texts are not listed: what to do is the same for all of one kind, and each names itself the option or the damage."""

LONG = 50
"""Kinds of errors with more texts than this have a page of their own."""


def errors_pages() -> dict[str, str]:
    """Return docs/errors.md, and a page for each kind of error that has many texts.

    Raises ValueError for a class of errors without advice.
    """
    areas_by_text: dict[tuple[str, str], set[str]] = defaultdict(set)
    for raising in raised():
        areas_by_text[raising.kind, raising.text].add(raising.area)
    texts_by_kind: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (kind, text), found_in in areas_by_text.items():
        texts_by_kind[kind][AREAS["rnnconvert"] if len(found_in) > 1 else min(found_in)].add(text)
    if missing := sorted({*classes()} - {*ADVICE, "RnnConvertError"}):
        raise ValueError(f"docs/error_texts.py has no advice for {', '.join(missing)}")
    index, pages = [HEAD], {}
    for kind, advice in ADVICE.items():
        error_class = getattr(errors, kind)
        summary = " ".join((error_class.__doc__ or "").partition("\n\n")[0].split())
        about = f"Exit code {error_class.exit_code}, `{error_class.kind}` in JSON. {summary}\n\n{advice}\n"
        index.append(f"\n## {kind}\n\n{about}")
        if kind in UNLISTED:
            continue
        order = list(AREAS.values())
        areas = sorted(texts_by_kind[kind], key=lambda area: (order.index(area) if area in order else len(order), area))
        texts = {area: "".join(entries(sorted(texts_by_kind[kind][area], key=str.lower))) for area in areas}
        if sum(map(len, texts_by_kind[kind].values())) <= LONG:
            index += [f"\n### {kind}: {area}\n\n{text}" for area, text in texts.items()]
            continue
        name = f"errors/{kind.lower()}.md"
        index.append(f"\n[Its texts, by format]({name}).\n")
        pages[name] = f"# {kind}: every text\n\n{about.replace('](', '](../')}" + "".join(
            f"\n## {area}\n\n{text}" for area, text in texts.items()
        )
    return {"errors.md": "".join(index), **pages}


FEWEST, COMMON = 3, 2
"""How many texts have to begin with how many common words to be one entry."""


def entries(texts: Iterable[str]) -> Iterator[str]:
    """Yield sorted texts as the entries of a list, those that begin alike as one."""
    for beginning, group in itertools.groupby(texts, lambda text: text.lower().split()[:COMMON]):
        alike = list(group)
        if len(alike) < FEWEST or beginning == ["…"]:
            yield from (f"- {text}\n" for text in alike)
            continue
        split = [text.split() for text in alike]
        length = min(COMMON, min(map(len, split)))
        while all(len(words) > length + 1 and words[length].lower() == split[0][length].lower() for words in split):
            length += 1
        yield f"- **{' '.join(split[0][:length])}** {'<br>'.join(' '.join(words[length:]) for words in split)}\n"


def classes() -> list[str]:
    """Return the names of the project's errors."""
    return [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.RnnConvertError)]


def raised() -> Iterator[Raised]:
    """Yield every error with words of its own that the code makes, directly or by a function that returns it."""
    kinds = (ast.Call, ast.FunctionDef, ast.ImportFrom)
    trees = {
        path: [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)] for path in sources()
    }
    helpers = {path: dict(makers(nodes)) for path, nodes in trees.items()}
    error_names = {*classes()}
    everywhere: dict[str, tuple[str, list[str]]] = {}
    for calls in helpers.values():
        everywhere |= calls
    modules = {module(path): calls for path, calls in helpers.items()}
    for path, nodes in trees.items():
        # Functions of one name take other arguments elsewhere: those of the module itself, and those that it imports, come first.
        imported = [(node.module, alias.name) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
        near_by = {name: modules[where][name] for where, name in imported if name in modules.get(where or "", {})}
        near = everywhere | near_by | helpers[path]
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            name = called(call)
            if name in near and name not in error_names:
                kind, names = near[name]
            elif name in error_names or name in REFUSALS:
                kind, names = ("RefusedError" if name in REFUSALS else name), parameters(name)
            else:
                continue
            if text := message(call, names):
                yield Raised(kind if kind in ADVICE else "UsageError", area(path), text)


def sources() -> list[Path]:
    """Return the files of the program."""
    paths = [path for top in ("cli", "formats", "rnnconvert") for path in sorted((ROOT / top).rglob("*.py"))]
    links = (ROOT / "rnnconvert" / "formats", ROOT / "rnnconvert" / "cli")
    return [path for path in paths if not any(path.is_relative_to(link) for link in links)]


def area(path: Path) -> str:
    """Return where a text belongs, for the reader: a framework, the command line, or everywhere."""
    top, *rest = path.relative_to(ROOT).parts
    return AREAS.get(top) or rest[0].removesuffix(".py")


def module(path: Path) -> str:
    """Return the name by which a file of the program is imported."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name if name.startswith("rnnconvert") else f"rnnconvert.{name}"


def makers(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Yield the functions of a module that make an error, each with its class and the names of what it takes."""
    error_names = {*classes()}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.returns is not None and node.name not in ("damage", "unreadable"):
            result = ast.unparse(node.returns)
            kind = "UnreadableError" if result == "NoReturn" else result
            if kind in error_names:
                yield node.name, (kind, [argument.arg for argument in node.args.args if argument.arg != "self"])


def called(call: ast.Call) -> str:
    """Return the last name of what a call calls."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def parameters(name: str) -> list[str]:
    """Return the names of the arguments of an error's class, in their order."""
    return {
        "UnreadableError": ["path", "problem", "remedy"],
        "RefusedError": ["feature", "target", "reason", "remedy", "layer"],
        "OtherAxesError": ["feature", "target", "reason", "remedy", "layer"],
        "Obstacle": ["feature", "reason", "remedy"],
        "Unconvertible": ["feature", "reason", "remedy"],
        "MissingPackageError": ["package", "purpose", "remedy"],
        "ExecutorError": ["executor", "problem", "trace", "refused"],
    }.get(name, ["text"])


SEARCHABLE, ALONE = 3, 6
"""How many words a text has that is listed, as "the output …" has not: nobody could search for it; and a refusal without a way out, of
which the page could say no more than its message does."""

STATED = (("feature", "remedy"), ("text",), ("problem",), ("what",), ("purpose",), ("reason",), ("why",), ("remedy",))
"""The arguments that are listed: of these, the first that have words of their own."""


def message(call: ast.Call, names: list[str]) -> str:
    """Return how the text of a call begins, and of a refusal the way out, too; nothing where it has no words of its own."""
    arguments = dict(zip(names, call.args, strict=False)) | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    for stated in STATED:
        parts = [words(arguments[name]).strip().rstrip(".") for name in stated if name in arguments]
        parts = [part for part in parts if re.search(r"[a-zA-Z]{2}", part)]
        count = len(re.findall(r"[a-zA-Z]{2,}", " ".join(parts)))
        if stated[0] == "feature" and len(parts) == 1 and SEARCHABLE <= count < ALONE:
            return ""
        if count >= SEARCHABLE:
            return ". ".join(parts) if stated[0] == "feature" else re.split(r"(?<=[\w…)\]'`])\. (?=[A-Z])", parts[0])[0]
    return ""


def words(node: ast.expr) -> str:
    """Return a text as Markdown with … for the values in it; either text of a choice, and … for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"([\\*_<\[\]|`])", r"\\\1", re.sub(r"\s+", " ", node.value))
    if isinstance(node, ast.JoinedStr):
        parts = (remedy(part.value) if isinstance(part, ast.FormattedValue) else part.value for part in node.values)
        return words(ast.Constant("".join(map(str, parts))))
    if isinstance(node, ast.IfExp):
        return " *or* ".join(filter(None, (words(node.body), words(node.orelse))))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{words(node.left)}{words(node.right)}"
    if isinstance(node, ast.Call) and called(node) == "conversion":
        return f"Convert to …, {words(node.args[1])}"
    return "…"


def remedy(node: ast.expr) -> str:
    """Return a remedy in the words of the command line, with … for values in it; … for any other value of a text."""
    if not (isinstance(node, ast.Call) and called(node) in REMEDIES):
        return "…"
    if called(node) == "Together":
        return " ".join(map(remedy, node.args))
    plain = [argument.value if isinstance(argument, ast.Constant) else "…" for argument in node.args]
    named = {
        keyword.arg: keyword.value.value if isinstance(keyword.value, ast.Constant) else "…" for keyword in node.keywords if keyword.arg
    }
    named |= {"…": "…"} if any(keyword.arg is None for keyword in node.keywords) else {}
    return REMEDIES[called(node)](*plain, **named).flags.replace("'…'", "…")


REMEDIES = {kind.__name__: kind for kind in remedies.Remedy.__subclasses__()}
