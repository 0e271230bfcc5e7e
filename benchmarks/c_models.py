"""A whole model as C beside onnxruntime, one sequence at a time: LSTMs of several sizes with a dense head, as ratios of one run.

python -m benchmarks.c_models [--steps 100] [--rounds 7]

Both run on one thread, the C compiled with -O2. The time is that of a sequence, without its inputs' way through a pipe.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import rnnconvert as rc

_SIZES = (8, 16, 32, 64)
_WIDTH = 8
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "m.h"
int main(int count, char **words) {
    const size_t steps = (size_t)atoi(words[1]), runs = (size_t)atoi(words[2]);
    float *x = malloc(steps * M_X_SIZE * sizeof *x), y[M_Y_SIZE], sum = 0;
    struct timespec begin, end;
    size_t i;
    (void)count;
    for (i = 0; i < steps * M_X_SIZE; i++) x[i] = (float)(i % 7) / 7;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (i = 0; i < runs; i++) {
        m_state state;
        memset(&state, 0, sizeof state);
        m_run(x, steps, &state, y);
        sum += y[0];
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%g %g\\n", ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / (double)runs, sum);
    return 0;
}
"""


class Tagged(torch.nn.Module):  # type: ignore[misc]
    """An LSTM with a dense head on its last step."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.rnn, self.head = torch.nn.LSTM(_WIDTH, units, batch_first=True), torch.nn.Linear(units, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the head's output on the last step."""
        return self.head(self.rnn(x)[0][:, -1])


def measured(units: int, steps: int, rounds: int, folder: Path, storage: str) -> tuple[float, float]:
    """Return the seconds of a sequence in C and in onnxruntime, the best of some rounds in turn."""
    module, example = Tagged(units).eval(), torch.zeros(2, 9, _WIDTH)
    rc.export_model(module, folder / "m.h", example=example, force=True, settings=[f"storage={storage}"])
    rc.export_model(module, folder / "m.onnx", example=example, force=True)
    (folder / "main.c").write_text(_MAIN)
    subprocess.run(["gcc", "-std=gnu99", "-O2", "-o", "main", "main.c", "-lm"], cwd=folder, check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"), options, providers=["CPUExecutionProvider"])
    x, runs = np.zeros((1, steps, _WIDTH), np.float32), max(20, 20_000 // (units * 2))
    in_c, in_onnx = [], []
    for _ in range(rounds):
        done = subprocess.run([folder / "main", str(steps), str(runs)], capture_output=True, text=True, check=True)
        in_c.append(float(done.stdout.split()[0]))
        begun = time.perf_counter()
        for _ in range(runs):
            session.run(None, {"x": x})
        in_onnx.append((time.perf_counter() - begun) / runs)
    return min(in_c), min(in_onnx)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    print("| LSTM | storage | C, one sequence | onnxruntime | C / onnxruntime |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for units in _SIZES:
            for storage in ("float", "int8"):
                ours, other = measured(units, asked.steps, asked.rounds, Path(folder), storage)
                print(f"| {_WIDTH} -> {units} | {storage} | {ours * 1e6:.0f} us | {other * 1e6:.0f} us | {ours / other:.2f} |")


if __name__ == "__main__":
    main()
