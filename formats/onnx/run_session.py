"""A model in onnxruntime, ready to run.

Sources: onnxruntime's Python API and its profiles, 1.18 to 1.31.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray

RECURRENT = ("RNN", "GRU", "LSTM")
IN_FLOAT = ("session.qdq_matmulnbits_accuracy_level", "1")
"""What keeps onnxruntime from rounding, too, what it multiplies by matrices behind DequantizeLinear."""
_ENDING = re.compile("_kernel_time$")
"""The end that a profile puts behind the name of a node."""


class Session:
    """A model made ready to run, with a note of where its nodes ran if it is asked for."""

    def __init__(self, model: str | bytes, provider: str, profiled: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of what a user's own model has
        for threads in ("intra_op", "inter_op"):  # they would take the time of whatever runs beside it
            options.add_session_config_entry(f"session.{threads}.allow_spinning", "0")
        options.add_session_config_entry(*IN_FLOAT)
        self.provider = provider
        self._folder = tempfile.TemporaryDirectory() if profiled else None
        if self._folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        providers: list[Any] = ["CPUExecutionProvider"]
        if provider != "CPUExecutionProvider":
            providers.insert(0, (provider, {"use_tf32": "0"}))
            _load_cuda()
        self.session = _worded(onnxruntime.InferenceSession, model, options, providers=providers)
        if provider not in self.session.get_providers():
            raise NotImplementedError(f"onnxruntime could not load {provider}: its libraries do not fit together")

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        arrays = {name: np.asarray(array, order="C") for name, array in feeds.items()}
        return list(_worded(self.session.run, list(outputs), arrays))

    @property
    def providers(self) -> dict[str, str]:
        """The provider on which each recurrent node ran; asked for after the first run. Raises what `check_provider` raises."""
        self.check_provider()
        return dict(self._ran)

    def check_provider(self) -> None:
        """Raise NotImplementedError for a recurrent node that ran and that the provider left to another one, as CUDA's leaves a GRU with
        the reset gate before the product to the CPU.
        """
        elsewhere = sorted((node, where) for node, where in self._ran if where != self.provider)
        if elsewhere:
            nodes, where = ", ".join(dict.fromkeys(node for node, _ in elsewhere)), elsewhere[0][1]
            raise NotImplementedError(f"onnxruntime runs {nodes} by {where}: {self.provider} has no such kernel")

    @functools.cached_property  # noqa: TID251  (an executor imports nothing of ours, and its process is not copied)
    def _ran(self) -> list[tuple[str, str]]:
        """The recurrent nodes that ran, and the provider of each; nodes of inner graphs may have the name of another."""
        assert self._folder is not None
        with self._folder:
            events = json.loads(Path(self.session.end_profiling()).read_text(encoding="utf-8"))
        nodes = [event for event in events if event.get("cat") == "Node" and event.get("args", {}).get("provider")]
        recurrent = [(event["name"], event["args"]) for event in nodes if event["args"].get("op_name") in RECURRENT]
        return [(_ENDING.sub("", name) or details["op_name"], details["provider"]) for name, details in recurrent]


@functools.cache
def _load_cuda() -> None:
    """Load CUDA and cuDNN from where pip installs them, with a version of onnxruntime that knows that: from 1.21 on."""
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()


def refuse_absent(provider: str) -> None:
    """Raise NotImplementedError for a provider that this onnxruntime was built without."""
    import onnxruntime

    if provider not in onnxruntime.get_available_providers():
        raise NotImplementedError(f"this onnxruntime {onnxruntime.__version__} was built without {provider}")


def _worded(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call onnxruntime, and pass its refusals on as refusals."""
    try:
        return call(*arguments, **keywords)
    except Exception as error:  # onnxruntime has types of its own, which are looked at by name
        message = " ".join(str(error).split())
        # An attribute layout of 1 is refused by an assertion, types without a kernel by a NotImplemented of its own
        # or, where the kernel is there, when it runs.
        absent = re.search(r"implementation for (RNN|GRU|LSTM)\(|(RNN|GRU|LSTM) operator does not support double", message)
        if absent:
            raise NotImplementedError(
                f"onnxruntime has no {absent[1] or absent[2]} of this element type, but one of float32: convert with the dtype float32"
            ) from None
        if type(error).__name__ == "NotImplemented" or "layout" in message or "does not support" in message:
            raise NotImplementedError(f"onnxruntime: {message}") from None
        raise


def wide(array: Array) -> Array:
    """Return float16 as float32, and anything but an array, such as a sequence of them, as it is."""
    return array.astype(np.float32) if isinstance(array, np.ndarray) and array.dtype == np.float16 else array
