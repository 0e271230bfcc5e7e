"""A whole model as C beside onnxruntime and RTNeural, one sequence at a time: LSTMs with a dense layer on every step, as ratios of one run.

    RNNCONVERT_RTNEURAL=FOLDER python -m benchmarks.c_models [--steps 100] [--rounds 7]

All run on one thread; the C and RTNeural's models, whose sizes are stated when they are compiled (ModelT, with Eigen), are compiled with
-O3 -march=native. The time is that of a sequence, without its inputs' way through a pipe, the best of all rounds; a ratio is the median of
those of the rounds, so that other work on the machine weighs on both sides. Without a checkout of RTNeural, which no registry
has as a package, its column is empty.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import rnnconvert as rc
from tests.helpers import audio_plugins

_SIZES = (8, 16, 32, 64)
_WIDTH = 8
_OUTPUTS = 4
_FLAGS = ("-O3", "-march=native")
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "m.h"
int main(int count, char **words) {
    const size_t steps = (size_t)atoi(words[1]), runs = (size_t)atoi(words[2]);
    float *x = malloc(steps * M_X_SIZE * sizeof *x), *y = malloc(steps * M_Y_SIZE * sizeof *y), sum = 0;
    struct timespec begin, end;
    size_t i;
    (void)count;
    for (i = 0; i < steps * M_X_SIZE; i++) x[i] = (float)(i % 7) / 7;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (i = 0; i < runs; i++) {
        m_state state;
        memset(&state, 0, sizeof state);
        m_run(x, steps, &state, y);
        sum += y[0];
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    printf("%g %g\\n", ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / (double)runs, sum);
    return 0;
}
"""


class Tagged(torch.nn.Module):
    """An LSTM with a dense layer on every step."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.rnn, self.head = torch.nn.LSTM(_WIDTH, units, batch_first=True), torch.nn.Linear(units, _OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the dense layer gives at each step."""
        return self.head(self.rnn(x)[0])


def compiled(folder: Path) -> Callable[[int, int], float]:
    """Compile the model in a folder's m.h, and return what gives the seconds of a sequence of so many steps, run so many times."""
    (folder / "main.c").write_text(_MAIN)
    subprocess.run(["gcc", "-std=gnu99", *_FLAGS, "-o", "main", "main.c", "-lm"], cwd=folder, check=True)

    def seconds(steps: int, runs: int) -> float:
        done = subprocess.run([folder / "main", str(steps), str(runs)], capture_output=True, text=True, check=True)
        return float(done.stdout.split()[0])

    return seconds


def in_rtneural(units: int, folder: Path, x: np.ndarray, sequences: int) -> float:
    """Return the seconds of a sequence in RTNeural."""
    sizes = [f"-DUNITS={units}", f"-DWIDTH={_WIDTH}", f"-DOUTPUTS={_OUTPUTS}"]
    program = audio_plugins.program("RTNEURAL", "-DRTNEURAL_USE_EIGEN=1", *_FLAGS, *sizes)
    command = [str(program), str(folder / "m.json"), str(x.shape[1]), str(sequences), "time"]
    done = subprocess.run(command, input=np.repeat(x, sequences, 0).tobytes(), capture_output=True, check=True)
    return float(done.stdout.split()[0])


def measured(units: int, steps: int, rounds: int, folder: Path, storage: str) -> list[list[float]]:
    """Return the seconds of a sequence in C, in onnxruntime and in RTNeural, in each of some rounds, which run all three in turn."""
    module, example = Tagged(units).eval(), torch.zeros(2, 9, _WIDTH)
    rc.export_model(module, folder / "m.h", example=example, force=True, settings=[f"storage={storage}"])
    rc.export_model(module, folder / "m.onnx", example=example, force=True)
    rc.export_model(module, folder / "m.json", example=example, format="rtneural", force=True)
    run_in_c = compiled(folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"), options, providers=["CPUExecutionProvider"])
    x, runs = np.zeros((1, steps, _WIDTH), np.float32), max(20, 20_000 // (units * 2))
    x[0] = (np.arange(steps * _WIDTH) % 7 / 7).reshape(steps, _WIDTH)
    times: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        times[0].append(run_in_c(steps, runs))
        begun = time.perf_counter()
        for _ in range(runs):
            session.run(None, {"x": x})
        times[1].append((time.perf_counter() - begun) / runs)
        there = audio_plugins.checkout("RTNEURAL") is not None
        times[2].append(in_rtneural(units, folder, x, runs) if there else float("nan"))
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    heads = ["LSTM", "storage", "C", "onnxruntime", "RTNeural", "C / onnxruntime", "C / RTNeural"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    with tempfile.TemporaryDirectory() as folder:
        for units in _SIZES:
            for storage in ("float", "int8"):
                times = measured(units, asked.steps, asked.rounds, Path(folder), storage)
                cells = [f"{_WIDTH} -> {units}", storage, *(f"{min(each) * 1e6:.0f} us" for each in times)]
                cells += [f"{np.median(np.divide(times[0], other)):.2f}" for other in times[1:]]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
