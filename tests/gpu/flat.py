"""cuDNN itself, through rnnconvert.formats.cudnn.run: every configuration, and where it has each number."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.formats.cudnn import run as cudnn
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.formats.pytorch import run_flat
from rnnconvert.running.sequences import Sequences
from rnnconvert.verification.ready import disagreement
from tests.gpu import standins
from tests.gpu.problems import Config, Solved, configs, judged, vector
from tests.gpu.records import DIFFERENT, EQUAL, REFUSED, Absence, Refusal
from tests.gpu.work import Case, Outcome, Work
from tests.helpers import cudnn_layouts
from tests.helpers.cudnn_standin import HostMemory, StandIn


def cases(work: Work) -> list[Case]:
    """The cases of the parts `layout` and `cudnn`."""
    if work.part.startswith("layout"):
        return [
            Case(f"{cell} {dtype} {algorithm}", functools.partial(_layout, work, cell, dtype, algorithm))
            for cell, dtype, algorithm in itertools.product(cudnn_layouts.KINDS, FLOATS, cudnn_library.ALGORITHMS)
        ]
    return [Case(config.name, functools.partial(_computed, work, config)) for config in configs()]


class OneHandle(cudnn_library.CudnnLibrary):
    """The library with one handle for all cases: to make one takes longer than to run it."""

    _handle: Any = None

    @contextlib.contextmanager
    def handle(self) -> Iterator[Any]:
        """Yield the handle, which the process keeps."""
        if self._handle is None:
            pointer = ctypes.c_void_p()
            self("cudnnCreate", ctypes.byref(pointer))
            self._handle = pointer
        yield self._handle


_OPENED: dict[str, cudnn_library.CudnnLibrary] = {}


def library(work: Work) -> cudnn_library.CudnnLibrary:
    """The real library. Raises Absence if it is not found, or does not load."""
    if work.cudnn not in _OPENED:
        paths = libraries(work)
        others = [path for name in ("nvrtc", "cublasLt", "cublas") for path in cudnn_library.libraries(name)]
        if not paths:
            raise Absence(f"libcudnn.so.9 is not found{' in ' + work.cudnn if work.cudnn else ''}: {cudnn.absent({})}")
        try:
            _OPENED[work.cudnn] = OneHandle([*others, *paths])
        except OSError as error:
            raise Absence(f"cuDNN does not load: {error}") from None
    return _OPENED[work.cudnn]


def libraries(work: Work) -> list[str]:
    """The files of cuDNN's library, in the order in which they are loaded."""
    if not work.cudnn:
        return cudnn_library.libraries("cudnn")
    return [str(Path(work.cudnn) / name) for name in cudnn_library._PARTS if (Path(work.cudnn) / name).is_file()]


def memory() -> cudnn_library.Memory:
    """The GPU's. Raises Absence without the CUDA runtime."""
    paths = cudnn_library.libraries("cudart")
    if not paths:
        raise Absence(cudnn.absent({}))
    return cudnn_library.Memory(ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL))


def solve(
    work: Work, solved: Solved, description: dict[str, Any] | None = None, standing_in: StandIn | None = None, **changes: Any
) -> dict[str, Any]:
    """What cuDNN, or the stand-in for it, makes of a configuration."""
    config = solved.config
    about = description or solved.description
    on: Any = (standing_in or StandIn(about)) if work.stands_in else library(work)
    place = cudnn_library.Memory(HostMemory()) if work.stands_in else memory()
    fed = Sequences(solved.x, solved.hidden, solved.cell, config.lengths)._replace(**changes)
    variant = {"algorithm": config.algorithm, "io": config.io}
    return cudnn.run(solved.buffer, about, fed, cudnn.Device(on, place), variant)


def _computed(work: Work, config: Config) -> Outcome:
    """Run it for inference and for training; compare outputs and gradients with the reference, and what is kept."""
    solved = Solved(config)
    try:
        plain = solve(work, solved)
        trained = solve(work, solved, cotangents=solved.cotangents)
    except RuntimeError as error:
        # What the same call accepts of the standard algorithm, another calls a bad parameter.
        if config.algorithm == "standard" or not re.search(r"\(2\d{3}\)$", str(error)):
            raise
        raise Refusal(f"{config.algorithm}: {error}") from None
    info = plain["notes"]
    size = FLOATS[config.dtype].itemsize
    wrong = info["offsets"] and disagreement(cudnn_layouts.layout_of(solved.description), solved.form, size, info["bytes"], info["offsets"])
    if wrong:
        return Outcome(DIFFERENT, f"the library's layout is another one: {wrong}")
    first, second = judged(solved, plain), judged(solved, trained)
    worse = first if first.ratio > second.ratio else second
    arrays = {} if work.stands_in else {"": vector(config, trained)}
    facts: dict[str, Any] = {"cuDNN": info["cuDNN"]}
    if not config.smooth:
        facts["gradients"] = "not judged: rounding flips the sign of a value near zero, where the slope of relu jumps"
    if work.stands_in:
        by_torch = _by_torch(solved)
        if by_torch is not None:
            arrays[""] = vector(config, by_torch)
            third = judged(solved, by_torch)
            facts["kept numbers are those of"] = "torch on the CPU"
            worse = third if third.ratio > worse.ratio else worse
    return Outcome.of_ratio(worse.ratio, worse.largest, worse.where, arrays=arrays, facts=facts)


def _by_torch(solved: Solved) -> dict[str, Any] | None:
    """What torch gives on the CPU; None where torch.nn has no such cell."""
    params: Array = solved.buffer
    if solved.config.dtype == "bfloat16":
        params = params.view("<i2")
    fed = Sequences(solved.x, solved.hidden, solved.cell, solved.config.lengths, solved.cotangents)
    try:
        with standins.by_hand():
            return run_flat.run(params, solved.description, fed, "cpu")
    except (NotImplementedError, ImportError, RuntimeError):
        return None


def _layout(work: Work, cell: str, dtype: str, algorithm: str) -> Outcome:
    """Ask for the buffer of every configuration that the library accepts, and compare with ours.

    Without a GPU the library takes a block of zeros for its handle; with one it gets a real one.
    """
    on = library(work)
    handle: Any = ctypes.create_string_buffer(1 << 20)
    asked, refusals, wrong, digest = 0, 0, [], hashlib.sha256()
    with contextlib.ExitStack() as stack:
        if not work.stands_in:
            handle = stack.enter_context(on.handle())
        for case in cudnn_layouts.cases():
            if (case["cell"], case["dtype"]) != (cell, dtype):
                continue
            try:
                with cudnn_library.configured(on, handle, case, algorithm) as rnn:
                    answer = cudnn_library.layout(on, handle, rnn, case, 1 << 40)
            except NotImplementedError:
                refusals += 1
                continue
            except RuntimeError as error:  # a combination that the library takes for a bad parameter
                if not re.search(r"\(2\d{3}\)$", str(error)):
                    raise
                refusals += 1
                continue
            asked += 1
            digest.update(json.dumps([case, answer], sort_keys=True).encode())
            difference = cudnn_layouts.differs(cudnn_layouts.layout_of(case), case, answer)
            wrong += [f"{case}: {difference}"] if difference else []
    facts = {"cuDNN": on.version, "asked": asked, "refused": refusals, "digest": digest.hexdigest()[:16]}
    if wrong:
        return Outcome(DIFFERENT, f"{len(wrong)} of {asked} differ from ours; the first: {wrong[0]}", facts=facts)
    return Outcome(EQUAL if asked else REFUSED, "" if asked else "no configuration is accepted", facts=facts)
