"""What executors' `run` is given besides numbers: a name that it does not know is an error, and not ignored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rnnconvert.formats.cudnn import run as cudnn
from rnnconvert.formats.keras import run as keras
from rnnconvert.formats.onnx import run as onnx
from rnnconvert.formats.pytorch import run as pytorch

X = np.zeros((5, 2, 3), np.float32)
STATED = {"cell": "gru", "hidden_size": 4, "num_layers": 1, "bidirectional": False}


@pytest.mark.parametrize(("module", "stated"), [(pytorch, ()), (keras, ("GRU", {})), (onnx, ("GRU", {})), (cudnn, (STATED, None))])
def test_an_unknown_name_is_an_error(module: Any, stated: tuple[Any, ...]) -> None:
    for name in ("lenghts", "hiden"):
        with pytest.raises(TypeError, match=name):
            module.run({}, X, *stated, **{name: [1, 2]})
