"""The engine names no framework: what a text or a branch needs to know of one, its room declares as data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rnnconvert.files.catalogue import OPTIONS, asked_by, explained
from rnnconvert.language.registry import systems
from tests import ROOT
from tests.project.test_floors import FILES, module_of

ENGINE = [path for path in FILES if path.relative_to(ROOT).parts[0] == "rnnconvert" and "modules" not in path.parts]
ENGINE.remove(ROOT / "rnnconvert" / "__init__.py")  # the face
ENGINE.remove(ROOT / "rnnconvert" / "files" / "option_types.py")  # docs/generate.py makes it from the data of the rooms

OTHERS = ("torch", "jax", "gluon", "theano", "optax")
"""Packages whose names those of systems do not contain."""
WORDS = {
    word.lower()
    for system in systems().values()
    for word in (system.name, system.name.rstrip("0123456789"), *re.findall(r"[A-Za-z]{5,}", system.title))
} - {"apache", "linen", "persistent"}
"""What frameworks are called, in lower case."""
NAMES = re.compile(
    # A name of three letters may begin another word.
    "|".join(
        rf"(?<![a-z]){re.escape(word)}{'(?![a-z])' if len(word) < 4 else ''}" for word in sorted(WORDS | {*OTHERS}, key=len, reverse=True)
    )
)

EXCEPTIONS = {
    ("graphs.program.operations", "onnx"): "the common operations of graphs are its own, and so are the layouts of layers made of them",
    ("containers.sorted_table", "tensorflow"): "the file kind that two rooms share is called so",
    ("containers.tensor_bundle", "tensorflow"): "the file kind that two rooms share is called so",
    ("files.arrays_by_name", "cudnn"): "a type checker is told for which format one array comes back",
    ("verification.gradients", "torch"): "the reference takes its gradients from torch's automatic differentiation",
}  # fmt: skip


def texts(code: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string and byte string that is no docstring."""
    tree = ast.parse(code)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in docs:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin1")


def named(code: str) -> list[tuple[int, str]]:
    """Line and name of every framework in the texts of some code."""
    return [(line, match[0]) for line, text in texts(code) for match in NAMES.finditer(text.lower())]


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_of_the_engine_names_a_framework(path: Path) -> None:
    names = named(path.read_text(encoding="utf-8"))
    assert [(line, name) for line, name in names if (module_of(path), name) not in EXCEPTIONS] == []


def test_every_exception_is_needed() -> None:
    occurring = {(module_of(path), name) for path in ENGINE for _, name in named(path.read_text(encoding="utf-8"))}
    assert set(EXCEPTIONS) - occurring == set()


@pytest.mark.parametrize(
    "code",
    ["x = 'pytorch'", "raise ValueError(f'{n} is for Keras')", "HEADS = (b'HDF5-based Julia', 'of JLD2.jl, by Lux')",
     "if format == 'onnx': pass", "'''A docstring.'''\nx = 'cudnn'", "x = 'to_torch'", "x = 'TensorFlow'"],
)  # fmt: skip
def test_a_name_is_caught(code: str) -> None:
    assert len(named(code)) == 1


@pytest.mark.parametrize("code", ["'''What torch does.'''", "def f():\n    '''As Keras.'''", "x = 'flexible'  # Keras"])
def test_docstrings_and_comments_may_name_a_source(code: str) -> None:
    assert named(code) == []


def test_options_of_the_engine_and_of_rooms_are_joined() -> None:
    assert explained("opset").startswith("onnx: operator set to write")
    text = explained("nonlinearity")
    assert text.startswith("the function of a plain RNN; tanh by default. Asked for by ")
    assert all(name in text for name in systems() if "nonlinearity" in systems()[name].asks)
    assert "lasagne: relu by default" in text


@pytest.mark.parametrize("format", systems())
def test_what_a_format_asks_for_is_an_option(format: str) -> None:
    assert set(asked_by(format)) <= set(OPTIONS)


def test_no_two_rooms_have_an_option_of_one_name() -> None:
    names = [option.name for system in systems().values() for option in system.options]
    assert len(names) == len({*names}) and len(OPTIONS) == len({*OPTIONS})


def test_what_code_asks_for_is_an_option() -> None:
    """A reader that asks for a key that does not exist would never be told."""
    asking = ("get", "peek", "ask", "stated", "true", "number")
    names = set()
    for source in (path.read_text(encoding="utf-8") for path in FILES):
        if not re.search(r"\b(options|chosen)\.", source):
            continue
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in asking):
                continue
            whose = ast.unparse(node.func.value)
            if node.args and isinstance(node.args[0], ast.Constant) and whose.rpartition(".")[2] in ("options", "chosen"):
                names.add(str(node.args[0].value))
    assert len(names) > 20 and names <= set(OPTIONS)
