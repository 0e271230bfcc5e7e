"""What a test needs beside this project: absent, it skips, or fails where RNNCONVERT_REQUIRE names it.

RNNCONVERT_REQUIRE=torch,mxnet,... says what must be there, so that CI can not pass by skipping.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import pytest

from rnnconvert.running.child import missing

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # OpenVINO's: it forks, and calls home
VARIABLE = "RNNCONVERT_REQUIRE"
NAMES = frozenset(
    {
        "torch",
        "keras",
        "onnxruntime",
        "onnxruntime_c",
        "jax",
        "flax",
        "haiku",
        "equinox",
        "mxnet",
        "cudnn",
        "onednn",
        "litert",
        "openvino",
        "ncnn",
        "aiohttp",
        "azure",
        "coremltools",
        "gcc",
        "google",
        "isal",
        "tfjs",
        "tinygrad",
        "tensorflow1",
        "tesseract",
        "tf_keras",
        "corpus",
        "paddle",
        "chainer",
        "mkdocs",
        "moto",
        "browser",
        "dask",
        "ray",
        "spark",
        "ssh",
        "tensorflow",
        "tensorflow218",
    }
)


def required() -> frozenset[str]:
    """The names that must be there.

    Raises ValueError for a name that no test knows: a misspelt one would require nothing.
    """
    named = frozenset(filter(None, (word.strip() for word in os.environ.get(VARIABLE, "").split(","))))
    if named - NAMES:
        raise ValueError(f"{VARIABLE} names {', '.join(sorted(named - NAMES))}; there are {', '.join(sorted(NAMES))}")
    return named


def need(name: str, reason: str, module: bool = False) -> None:
    """Go on if `reason` is empty; else skip for that reason, or fail where `name` is required.

    module  whether all tests of the module go with it

    Raises ValueError for a name that cannot be required: what it stands for could be absent everywhere, unseen.
    """
    if name not in NAMES:
        raise ValueError(f"{VARIABLE} cannot name {name}; there are {', '.join(sorted(NAMES))}")
    if not reason:
        return
    if name in required():
        pytest.fail(f"{VARIABLE} names {name}, and it cannot run: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}", allow_module_level=module)


def needed(name: str, package: str) -> Any:
    """An imported package, for a module or a test that is nothing without it: absent, as `need` says."""
    need(name, missing([package.partition(".")[0]]), module=True)
    return importlib.import_module(package)
