"""tinygrad's LSTMCell has PyTorch's names and gates: it loads the .safetensors of cells that are written for PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.running.child import missing
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, random_stack

_RUN = """
import sys
import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load
cell, folder = nn.LSTMCell(2, 3), sys.argv[1]
load_state_dict(cell, safe_load(folder + "/cell.safetensors"), verbose=False)
state, rows = None, []
for step in np.load(folder + "/x.npy"):
    state = cell(Tensor(step), state)
    rows.append(state[0].numpy())
np.save(folder + "/y.npy", np.stack(rows))
np.savez(folder + "/again.npz", **{name: one.numpy() for name, one in get_state_dict(cell).items()})
"""


def test_tinygrad_runs_a_cell_that_is_written_for_pytorch(tmp_path: Path) -> None:
    need("tinygrad", missing(["tinygrad"]))
    stack = random_stack(Sizes("lstm", 2, 3, parts=BOTH), 5, np.float32)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 1, 2)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    rc.save(Checkpoint("memory", "", {"": stack}), tmp_path / "cell.safetensors", "pytorch", module="cell")
    # Its kernels on the CPU need clang; in Python they need nothing.
    words = [sys.executable, "-c", _RUN, str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "DEV": "PYTHON"}, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    y, first = np.load(tmp_path / "y.npy"), stack.first
    assert np.abs(y - reference.run(stack, x).y).max() < 1e-6 and np.abs(y).max() > 0.05
    swapped = first.with_arrays({("recurrent", "i"): first.arrays["recurrent", "f"], ("input", "i"): first.arrays["input", "f"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert np.abs(y - reference.run(wrong, x).y).max() > 1e-3
    (again,) = rc.load(tmp_path / "again.npz").layers.values()
    assert np.array_equal(reference.run(again, x).y, reference.run(stack, x).y)
