"""The computation of trainer.toml's trainer: its own LSTM, in numpy, and the weights that it left behind.

python examples/own_layout/trainer.py     writes trained.npz again
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
INPUTS, UNITS = 3, 4


def lstm(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the outputs (time, units) of a sequence (time, inputs)."""

    def sigmoid(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    units = bias.size // 4
    h, c, outputs = np.zeros(units), np.zeros(units), []
    for step in x:
        i, g, f, o = np.split(np.concatenate([step, h]) @ kernel + bias, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs)


def main() -> None:
    """Write weights as the trainer does."""
    random = np.random.default_rng(7)
    kernel = random.uniform(-0.6, 0.6, (INPUTS + UNITS, 4 * UNITS)).astype(np.float32)
    bias = random.uniform(-0.3, 0.3, 4 * UNITS).astype(np.float32)
    head = random.uniform(-0.5, 0.5, (UNITS, 2)).astype(np.float32)
    np.savez(HERE / "trained.npz", **{"encoder/kernel": kernel, "encoder/bias": bias, "head": head})


if __name__ == "__main__":
    main()
