"""MXNet, spoken to in a process of its own, as a judge of the flat buffer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rnnconvert.arrays import Array
from rnnconvert.executors.reference import Outputs
from tests import environments
from tests.requirements import need


class Judge:
    """A worker under MXNet's own Python."""

    def __init__(self, worker: subprocess.Popen[str], folder: Path) -> None:
        self._worker, self._folder = worker, folder

    def run(self, params: Array, x: Array, mode: str, hidden: Array, cell: Array, **sizes: int | bool) -> Outputs:
        """Run mx.nd.RNN on a flat buffer.

        params  the buffer; its element type is the one it is run in
        x       (time, batch, in)
        mode    lstm, gru, rnn_tanh or rnn_relu
        hidden  initial states, (layers * directions, batch, out), and cell likewise
        sizes   state_size, num_layers, bidirectional, projection_size
        """
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        source, target = self._folder / "problem.npz", self._folder / "outputs.npz"
        np.savez(source, params=params, x=x, mode=mode, hidden=hidden, cell=cell, **sizes)  # type: ignore[arg-type]
        self._worker.stdin.write(f"{source}\t{target}\n")
        self._worker.stdin.flush()
        answer = self._worker.stdout.readline()
        assert answer == "\n", answer or f"the worker ended with {self._worker.wait()}"
        with np.load(target) as found:
            return Outputs(found["y"], tuple(found["hidden"]), tuple(found["cell"]) if "cell" in found else ())


@contextlib.contextmanager
def judge(onednn: bool = True) -> Iterator[Judge]:
    """A worker that ends with the block, with oneDNN's kernels or with MXNet's own."""
    need("mxnet", environments.missing("mxnet"))
    with tempfile.TemporaryDirectory() as folder:
        worker = subprocess.Popen(
            [environments.place("mxnet") / "bin" / "python", "-m", "tests.mxnet_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=environments.ROOT,
            env={**os.environ, "MXNET_USE_MKLDNN_RNN": str(int(onednn))},
        )
        with worker:
            yield Judge(worker, Path(folder))
            assert worker.stdin is not None
            worker.stdin.close()
