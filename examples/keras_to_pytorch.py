"""A whole Keras model into a PyTorch module of your own, and the proof that both give the same.

The model is examples/encoder.keras: a GRU in both directions, an LSTM, a dense layer. The module is written by hand, as
yours would be; `load_into` finds which layer fills which, and `verify` runs both models on the same inputs.

    python examples/keras_to_pytorch.py [output.pt]

Needs: rnnconvert, torch, keras with tensorflow (to run the original; to convert it, it is not needed).
"""

import sys
from pathlib import Path

import keras
import numpy as np
import torch

import rnnconvert as rc

SOURCE = Path(__file__).parent / "encoder.keras"


class Scores(torch.nn.Module):
    """What examples/encoder.keras computes: two scores for a sequence of steps of 6 values."""

    def __init__(self) -> None:
        super().__init__()
        # Keras is called with (batch, time, values); torch.nn is only if it is told so.
        self.encoder = torch.nn.GRU(6, 8, bidirectional=True, batch_first=True)
        self.summary = torch.nn.LSTM(16, 5, batch_first=True)
        self.scores = torch.nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, 2), of x, (batch, time, 6)."""
        every_step, _ = self.encoder(x)
        every_step, _ = self.summary(every_step)
        return self.scores(every_step[:, -1])  # the Keras layer gives only its last output


def main() -> None:
    """Fill the module, compare it with the original, and save it."""
    module = Scores()
    report = rc.load_into(module, SOURCE)
    print(report)

    # Both whole models, each in its own framework, compared at every recurrent layer and at the end.
    x = np.random.default_rng(0).normal(size=(4, 20, 6)).astype(np.float32)
    verdict = report.verify(x)
    print(verdict)

    # The same by hand, for those who trust no report.
    original = keras.models.load_model(SOURCE, compile=False)
    with torch.no_grad():
        difference = np.abs(module(torch.from_numpy(x)).numpy() - np.asarray(original(x))).max()
    print(f"largest difference of the scores: {difference:.2g}")
    if not verdict or difference > 1e-5:
        sys.exit("the two models are not equal")

    if len(sys.argv) > 1:
        torch.save(module.state_dict(), sys.argv[1])
        print(f"wrote {sys.argv[1]}")


if __name__ == "__main__":
    main()
