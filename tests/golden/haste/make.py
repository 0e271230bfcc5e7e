"""The files beside this one: layers of haste_pytorch 0.5.0-rc0 in a model of PyTorch, and what they give on the CPU.

Its extension for CUDA is not needed there: with frameworks/pytorch of lmnt-com/haste as a package haste_pytorch on the path, whose
_version.py setup.py would write, python tests/golden/haste/make.py
"""

import pathlib
import sys
import types

import numpy as np
import torch

sys.modules["haste_pytorch_lib"] = types.ModuleType("haste_pytorch_lib")

import haste_pytorch  # noqa: E402 (the module above stands for its extension)

FOLDER = pathlib.Path(__file__).resolve().parent


class Model(torch.nn.Module):
    """An LSTM and a GRU of haste, and a layer that is not recurrent."""

    def __init__(self):
        super().__init__()
        self.encoder = haste_pytorch.LSTM(5, 7)
        self.decoder = haste_pytorch.GRU(7, 6)
        self.head = torch.nn.Linear(6, 3)


def main():
    torch.manual_seed(4)
    model = Model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
        x, h, c, g = (torch.randn(shape) for shape in ((4, 2, 5), (1, 2, 7), (1, 2, 7), (1, 2, 6)))
        y, (_, c_n) = model.encoder(x, (h, c))
        decoded, _ = model.decoder(y, g)
    torch.save(model.state_dict(), FOLDER / "model.pt")
    named = {"x": x, "h": h[0], "c": c[0], "g": g[0], "encoder": y, "encoder.c": c_n[0], "decoder": decoded}
    np.savez(FOLDER / "answers.npz", **{name: array.numpy() for name, array in named.items()})


if __name__ == "__main__":
    main()
