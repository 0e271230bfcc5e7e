"""What layers read: a name that it does not know is an error, and not ignored."""

from __future__ import annotations

import numpy as np
import pytest

from rnnconvert.running.sequences import Sequences

X = np.zeros((5, 2, 3), np.float32)


@pytest.mark.parametrize("name", ["lenghts", "hiden"])
def test_an_unknown_name_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Sequences(X, **{name: [1, 2]})  # type: ignore[arg-type]
