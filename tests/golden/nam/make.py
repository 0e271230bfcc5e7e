"""The files beside this one: a model of Neural Amp Modeler as its trainer exports it, and what its trainer gives for it.

pip install neural-amp-modeler==0.13.0 && python tests/golden/nam/make.py
"""

import json
import pathlib

import numpy as np
import torch
from nam.models import init_from_nam
from nam.models._constants import MODEL_VERSION
from nam.models.recurrent import LSTM

FOLDER = pathlib.Path(__file__).resolve().parent


def main():
    torch.manual_seed(3)
    model = LSTM(hidden_size=4, num_layers=2, sample_rate=48000.0).eval()
    for parameter in model.parameters():
        parameter.data.uniform_(-1, 1)
    # What LSTM.export writes, without the recording that it plays through the model first.
    document = {
        "version": MODEL_VERSION, "architecture": type(model).__name__, "config": model._export_config(),
        "weights": model._export_weights().tolist(), "sample_rate": model.sample_rate,
    }  # fmt: skip
    (FOLDER / "model.nam").write_text(json.dumps(document))
    again = init_from_nam(json.loads((FOLDER / "model.nam").read_text())).eval()
    x = torch.rand(1, 12) * 2 - 1
    np.savez(FOLDER / "answers.npz", x=x.numpy()[0], y=again(x, pad_start=False).detach().numpy()[0])


if __name__ == "__main__":
    main()
