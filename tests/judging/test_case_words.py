"""What a case says of its input."""

from __future__ import annotations

import numpy as np
import pytest

from rnnconvert.judging import cases
from tests.helpers.sources import stack


@pytest.mark.parametrize(("time", "words"), [(1, "1 step, batch of 2"), (3, "3 steps, batch of 2")])
def test_the_number_of_steps_is_in_words(time: int, words: str) -> None:
    layer = stack("rnn")
    case = cases.sample_case(np.ones((time, 2, layer.input_size), np.float32), stack=layer)
    assert case.what == f"the input given; {words}"
