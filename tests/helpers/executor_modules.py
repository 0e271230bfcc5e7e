"""Executors of a user's own for the file kind .onnx, as the text of their modules."""

from __future__ import annotations

_HEAD = """
NEEDS = ("numpy",)
FORMAT = "onnx"
SUFFIX = ".onnx"
VARIANTS = {"own": {"device": "cpu"}}


def absent(variant):
    return ""


def answer(request):
"""


def module_text(answer: str, imports: str = "") -> str:
    """Return a module whose variant is called "own".

    answer   the lines that answer a request, indented
    imports  lines in front of all
    """
    return f"{imports}\n{_HEAD}{answer}\n"
