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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_EARLY = ("CUDA", "JAX", "KERAS", "OMP", "PYTHON", "TF", "XLA")
"""How the names of variables begin that frameworks read while they are imported."""
_READY: dict[tuple[Any, ...], subprocess.Popen[str]] = {}


def run(
    command: Sequence[object], ready: str, cwd: object = None, env: Mapping[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """What subprocess.run gives of a Python's command (`-c` or a script), with what it prints.

    ready  the modules that the process has imported before, with blanks between
    """
    from tests.helpers import drawn

    words = [str(word) for word in command]
    environment = dict(os.environ if env is None else env)
    if drawn.LONG or not hasattr(os, "fork"):
        return subprocess.run(words, cwd=str(cwd or "."), env=environment, capture_output=True, text=True, check=check)
    early = {name: value for name, value in environment.items() if name.startswith(_EARLY)}
    folder, name = os.path.split(words[0])
    server = _server((f"{os.path.realpath(folder)}/{name}", ready, frozenset(early.items())), environment)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as place:
        out, err = f"{place}/out", f"{place}/err"
        start = 3 if words[1] == "-W" else 1
        request = {"words": words[start:], "cwd": os.path.realpath(str(cwd or ".")), "environment": environment}
        server.stdin.write(json.dumps({**request, "out": out, "err": err}) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, f"the process that has imported {ready} under {words[0]} ended"
        done = subprocess.CompletedProcess(words, int(answer), _text(out), _text(err))
    if check:
        done.check_returncode()
    return done


OURS = "numpy h5py rnnconvert.cli.main rnnconvert.files.convert rnnconvert.language.packing"
"""What scripts of ours that run under this Python import."""


class Instead:
    """What stands in the place of `subprocess` in a module that starts scripts.

    ready  names what a command's process has imported before
    """

    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, ready: Callable[[Sequence[str]], str]) -> None:
        self.ready = ready

    def run(self, command: Sequence[str], env: Mapping[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        """What subprocess.run gives."""
        return run(command, self.ready(command), env=env)


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _server(key: tuple[Any, ...], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    if key not in _READY or _READY[key].poll() is not None:
        command = [key[0], "-W", "ignore", str(Path(__file__).absolute()), *key[1].split()]
        _READY[key] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment), text=True)
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
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        code = _ended(request["words"])
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _ended(words: Sequence[str]) -> int:
    first, *rest = words
    if first == "-c":
        code, name = rest.pop(0), "<string>"
    else:
        code, name = _text(first), first
        sys.path[0] = str(Path(first).resolve().parent)
    sys.argv = [first, *rest]
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__dict__["__file__"] = name
    try:
        exec(compile(code, name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end_:
        if end_.code is None or isinstance(end_.code, int):
            return end_.code or 0
        print(end_.code, file=sys.stderr)
        return 1
    except BaseException:  # as Python itself ends a script: with the traceback, and 1
        traceback.print_exc()
        return 1
    return 0


def _serve(names: Sequence[str]) -> None:
    requests: IO[str] = os.fdopen(os.dup(0))
    answers: IO[str] = os.fdopen(os.dup(1), "w")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)  # what frameworks print while they are imported is no answer
    # Frameworks import them where they are installed.
    alone = {name.partition(".")[0] for name in names} <= {"keras", "tensorflow", "tf_keras"} and os.environ.get("KERAS_BACKEND") != "jax"
    left_out = {"matplotlib", *(("jax",) if alone else ())} - {*sys.modules}
    sys.modules.update(dict.fromkeys(left_out))
    for name in names:
        importlib.import_module(name)
    for name in left_out:
        del sys.modules[name]
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
