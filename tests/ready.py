"""Pythons that stand ready: a script runs in a copy of a process that has imported its framework already.

    python ready.py MODULE...  runs each script that it is sent in a copy of itself, until its input ends

What a script prints and leaves, and how it ends, is what a process of its own would; only the time of the imports is gone. With
--long every script is a process of its own. This file runs under the old Pythons of old frameworks, too.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path[0] = ""  # as for `python -c`

import contextlib
import importlib
import json
import os
import subprocess
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import IO, Any

_EARLY = ("CUDA", "JAX", "KERAS", "OMP", "PYTHON", "TF", "XLA")
"""How the names of variables begin that frameworks read while they are imported."""
_READY: dict[tuple[Any, ...], subprocess.Popen[str]] = {}


def run(
    python: object,
    code: str,
    *words: object,
    cwd: object = None,
    env: Mapping[str, str] | None = None,
    ready: str = "numpy",
) -> subprocess.CompletedProcess[str]:
    """What `python -c code words` does in a folder, with what it prints.

    ready  the modules that the process has imported before, with blanks between
    """
    from tests import drawn

    command = [str(python), "-W", "ignore", "-c", code, *map(str, words)]
    given = dict(os.environ if env is None else env)
    if drawn.LONG or not hasattr(os, "fork"):
        return subprocess.run(command, cwd=str(cwd or "."), env=given, capture_output=True, text=True, check=False)
    early = {name: value for name, value in given.items() if name.startswith(_EARLY)}
    folder, name = os.path.split(str(python))
    server = _server((f"{os.path.realpath(folder)}/{name}", ready, frozenset(early.items())), given)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = os.path.join(folder, "out"), os.path.join(folder, "err")  # noqa: PTH118
        request = {"code": code, "words": [*map(str, words)], "cwd": os.path.abspath(str(cwd or ".")),  # noqa: PTH100
                   "environment": given, "out": out, "err": err}  # fmt: skip
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, f"the process that has imported {ready} under {python} ended"
        return subprocess.CompletedProcess(command, int(answer), _text(out), _text(err))


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
        return stream.read()


def _server(key: tuple[Any, ...], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    if key not in _READY or _READY[key].poll() is not None:
        command = [key[0], "-W", "ignore", os.path.abspath(__file__), *key[1].split()]  # noqa: PTH100
        _READY[key] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), text=True
        )
    return _READY[key]


def end() -> None:
    """End all of them."""
    while _READY:
        _, server = _READY.popitem()
        server.communicate()


def _live(request: Mapping[str, Any]) -> None:
    """Run a script, and end with its exit code: the whole life of a copy."""
    code = 1
    try:
        for number, path in ((1, request["out"]), (2, request["err"])):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        os.chdir(request["cwd"])
        sys.argv = ["-c", *request["words"]]
        os.environ.clear()
        os.environ.update(request["environment"])
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        code = _ended(request["code"])
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _ended(code: str) -> int:
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    try:
        exec(compile(code, "<string>", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end_:
        if end_.code is None or isinstance(end_.code, int):
            return end_.code or 0
        print(end_.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve(names: Sequence[str]) -> None:
    requests: IO[str] = os.fdopen(os.dup(0))
    answers: IO[str] = os.fdopen(os.dup(1), "w")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)  # what frameworks print while they are imported is no answer
    for name in names:
        importlib.import_module(name)
    while True:
        line = requests.readline()
        if not line:
            return
        child = os.fork()  # noqa: TID251  (this process has no threads of its own, and other Pythons no rnnconvert)
        if not child:
            _live(json.loads(line))
        status = os.waitpid(child, 0)[1]
        answers.write(f"{os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)}\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1:])
