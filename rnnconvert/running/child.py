"""The far side of a pipe: runs one executor under whatever Python starts this file, from 3.7 on.

    python child.py EXECUTOR_FILE [--bounded]  answers requests until its input ends
    python child.py EXECUTOR_FILE --about  reports missing packages and present versions, as JSON
    python child.py --script FILE ARGUMENT...  runs a script within the same bounds

A message is eight bytes of length and as many of an .npz archive, whose entry "message" is JSON; an array in it stands
as {"__array__": entry}. It imports numpy and nothing of rnnconvert.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # This folder has modules named like the frameworks that they run.
    if "--bounded" in sys.argv[2:3] or "--script" in sys.argv[1:2]:
        import offline  # type: ignore[import-not-found]  # noqa: F401  (what it does has to be done before numpy starts threads)
    sys.path.pop(0)

import atexit
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import pathlib
import re
import runpy
import threading
import traceback
import types
from typing import IO, Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

MOST = 1 << 40
"""The largest length of a message; a larger one means that something else was written into the pipe."""


_PARSING = threading.Lock()
"""Numpy parses the head of an array as Python, which two threads may not do at a time before 3.11.8 and 3.12.2 (gh-106905)."""


def send(stream: IO[bytes], message: Mapping[str, Any]) -> None:
    """Write a message of dictionaries, lists, words, numbers and numpy arrays of numbers.

    Raises NotImplementedError for what the other side would not read, before anything is written.
    """
    arrays: Dict[str, Any] = {}

    def plain(value: Any, name: str = "") -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise NotImplementedError(f"{name or 'an array'} holds no numbers")
            key = f"array_{len(arrays)}"
            arrays[key] = value
            return {"__array__": key}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, dict):
            return {str(key): plain(item, str(key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, name) for item in value]
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise NotImplementedError(f"{name or 'a value'} is a {type(value).__name__}, which is not handed on")

    text = json.dumps(plain(message)).encode()
    buffer = io.BytesIO()
    np.savez(buffer, message=np.frombuffer(text, np.uint8), **arrays)
    data = buffer.getvalue()
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read a message, or None at the end of the stream. Raises ValueError for anything else."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    length = int.from_bytes(size, "little")
    if length > MOST:
        raise ValueError(f"not a message: {size!r}")
    data = stream.read(length)
    if len(data) < length:
        return None
    with _PARSING, np.load(io.BytesIO(data), allow_pickle=False) as archive:

        def filled(value: Any) -> Any:
            if isinstance(value, dict):
                if "__array__" in value:
                    return archive[value["__array__"]]
                return {key: filled(item) for key, item in value.items()}
            if isinstance(value, list):
                return [filled(item) for item in value]
            return value

        return filled(json.loads(archive["message"].tobytes().decode()))


SHARED = "rnnconvert.running.sequences"
"""The one module of rnnconvert's that executors import: under this name they get the file beside this one, whatever is installed."""


def load(path: str) -> Any:
    """Import an executor's module from its file.

    It may import modules of its folder by `from .run_model import ...`; the folder's __init__.py is not run.
    """
    file = pathlib.Path(path)
    package = types.ModuleType("rnnconvert_executor_" + os.fsencode(file.parent).hex())
    package.__path__ = [str(file.parent)]
    sys.modules.setdefault(package.__name__, package)
    spec = importlib.util.spec_from_file_location(package.__name__ + "." + file.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing(needs: Sequence[str]) -> str:
    """Say which of these packages are not installed; "" if all are."""
    names = [name for name in needs if importlib.util.find_spec(name) is None]
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} not installed" if names else ""


def versions(needs: Sequence[str]) -> Dict[str, str]:
    """Return the versions of these packages, without importing them."""
    try:
        from importlib import metadata
    except ImportError:  # before Python 3.8 it is a package by itself
        import importlib_metadata as metadata  # type: ignore[no-redef]

    result: Dict[str, str] = {}
    for name in needs:
        for distribution in (name, name + "-gpu", name + "-cpu"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                result.setdefault(name, metadata.version(distribution))
    return result


def gpu() -> str:
    """Return the first NVIDIA GPU's name, from the driver itself; "" if there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, 256, device):
        return ""
    return name.value.decode()


def needed(module: Any, variant: Mapping[str, Any]) -> Sequence[str]:
    """Return the packages that a variant imports: its own, or its module's."""
    needs: Sequence[str] = variant.get("needs", module.NEEDS)
    return needs


def about(module: Any, variant: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the missing packages of a variant ("" if none), the versions of the others, the device, and this Python's version."""
    device = gpu() if variant["device"] == "cuda" else variant["device"]
    needs = needed(module, variant)
    absent = missing(needs) or ("" if device else "this machine has no NVIDIA GPU")
    return {
        "absent": absent or getattr(module, "absent", lambda _: "")(variant),
        "versions": {**versions(needs), **(module.versions(variant) if hasattr(module, "versions") else {})},
        "device": device,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2"}


def flat_buffer(file: str, layers: Sequence[str], key: str) -> Tuple[Any, Dict[str, Any]]:
    """Return a flat buffer's numbers, bfloat16 as its bits, and its description: next to a raw file, or in a .safetensors.

    Raises NotImplementedError if there is no description, or not one buffer of these names.
    """
    header: Dict[str, Any] = {}
    start = 0
    if file.endswith(".safetensors"):
        with pathlib.Path(file).open("rb") as stream:
            start = 8 + int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(start - 8).decode())
        text = header.get("__metadata__", {}).get(key)
    else:
        companion = pathlib.Path(file + ".json")
        text = companion.read_text(encoding="utf-8") if companion.is_file() else None
    if text is None:
        raise NotImplementedError("a flat buffer does not describe its sizes, and no description file was found")
    entries: List[Dict[str, Any]] = json.loads(text)["layers"]
    chosen = [entry for entry in entries if not layers or entry.get("name", pathlib.Path(file).stem) in layers]
    count = max(len(chosen), len(layers))
    if len(chosen) != 1 or len(layers) > 1:
        raise NotImplementedError(f"the file has {count} buffers, but one can be run at a time: name its layers")
    description: Dict[str, Any] = {"num_layers": 1, "bidirectional": False, "dtype": "float32"}
    description.update(chosen[0])
    count = -1
    if header:
        tensor = header[description.get("tensor", description["name"])]
        start += tensor["data_offsets"][0]
        count = int(np.prod(tensor["shape"], dtype=np.int64))
    return np.fromfile(file, STORED[description["dtype"]], count, offset=start), description


def check(module: Any, request: Mapping[str, Any]) -> None:
    """Refuse what the executor's CANNOT names. Raises NotImplementedError with its reason."""
    for part, reason in getattr(module, "CANNOT", {}).items():
        value = request.get(part)
        if value is not None and len(value):
            chosen = f": {', '.join(value)} cannot be chosen" if part == "how" else ""
            raise NotImplementedError(reason + chosen)


def answered(module: Any, request: Dict[str, Any]) -> Any:
    """Return an executor's answer; one that runs flat buffers receives the numbers and their description.

    Raises NotImplementedError for what it cannot run.
    """
    if "warm_up" in request:
        return imported(needed(module, request["variant"]))
    if "witness" in request:
        return load(str(pathlib.Path(__file__).with_name("witness.py"))).witnessed(module, request)
    check(module, request)
    key = getattr(module, "BUFFER_KEY", "")
    if key:
        request["buffer"], request["description"] = flat_buffer(request["file"], request["layers"], key)
    return module.answer(request)


def imported(needs: Sequence[str]) -> Dict[str, Any]:
    """Import these packages, so that the first request does not wait for them."""
    for name in needs:
        importlib.import_module(name)
    return {}


def leave_out(variant: Mapping[str, Any]) -> None:
    """Have packages not be found that a framework imports where they are installed, and nothing here uses: each takes a second.

    They are what draws figures, and those that a variant names as "without".
    """
    for name in ("matplotlib", *variant.get("without", ())):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


LARGEST_FILE = 64 << 30
"""The bytes of the largest file that an executor may write: copies of models, in temporary folders."""


def bound() -> None:
    """Bound this process: the machine's memory, files of a plausible size, no image of its memory if it crashes."""
    try:
        import resource
    except ImportError:  # Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for which, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, LARGEST_FILE)):
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (most, most))


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Sequences that colour a terminal's text: frameworks write them into their messages, too."""


def in_words(error: BaseException) -> str:
    """Return the words of an error, in one line; for one without words, where it was raised."""
    # An error of ours is passed on as it was composed: the parent speaks it in its caller's words.
    message = " ".join(_COLOURS.sub("", str(error.args[0] if len(error.args) == 1 else error)).split())
    if message:
        return message
    frames = traceback.extract_tb(error.__traceback__)
    where = " in {0.name} ({0.filename}, line {0.lineno})".format(frames[-1]) if frames else ""
    return f"a {type(error).__name__} without a message{where}"


def share() -> None:
    """Have executors and scripts find the one module of rnnconvert's that they import."""
    sys.modules[SHARED] = load(str(pathlib.Path(__file__).with_name("sequences.py")))


def main() -> None:
    """Answer requests from standard input on what was standard output; what frameworks print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.argv[2:3] == ["--bounded"]:
        bound()
    share()
    module = load(sys.argv[1])
    if sys.argv[2:3] == ["--about"]:
        answers.write(json.dumps(about(module, json.loads(sys.argv[3]))).encode())
        return
    while True:
        request = receive(sys.stdin.buffer)
        if request is None:
            return
        try:
            leave_out(request["variant"])
            answer = answered(module, request)
        except NotImplementedError as refusal:
            answer = {"refused": in_words(refusal), "weights_alone": type(refusal).__name__ == "WeightsAloneError"}
        except Exception as error:  # a framework raises what it likes, and the parent says it
            trace = traceback.format_exc()
            answer = {"failed": f"{type(error).__name__}: {in_words(error)}", "trace": trace}
        try:
            send(answers, answer)
        except NotImplementedError as refusal:
            send(answers, {"refused": f"its answer cannot be handed on: {in_words(refusal)}"})


def run_script(words: Sequence[str]) -> None:
    """Run a script with its arguments within the bounds of an executor; it has `load` among its names."""
    bound()
    share()
    sys.argv[:] = words
    runpy.run_path(words[0], {"load": load}, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--script"]:
        run_script(sys.argv[2:])
    else:
        main()
        atexit._run_exitfuncs()  # frameworks take seconds to take themselves apart
        os._exit(0)
