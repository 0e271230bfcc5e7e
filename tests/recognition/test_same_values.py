"""Which values have the numbers of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rnnconvert.graphs.program.operations import Body, Operation, Program
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition.masks import same, same_numbers


@pytest.mark.parametrize(("domain", "value"), [("", "x"), ("acme", "y")])
def test_an_operation_of_another_domain_may_compute_anything_under_any_name(domain: str, value: str) -> None:
    nodes = [Operation("Identity", ["x"], ["y"], domain=domain), Operation("Identity", ["y"], ["z"])]
    (scope,) = walk(Program(Path("m.onnx"), Body(nodes, ["x"], ["z"]), {"": 17}))
    assert same(scope, "z") == same_numbers(scope, "z") == value


def test_a_cast_to_float32_has_the_same_numbers() -> None:
    nodes = [Operation("Cast", ["x"], ["y"], attributes={"to": np.dtype(np.float32)})]
    (scope,) = walk(Program(Path("m.onnx"), Body(nodes, ["x"], ["y"]), {"": 17}))
    assert same_numbers(scope, "y") == "x" and same(scope, "y") == "y"
