"""Weights of another type than the inputs: what a target writes of them is a file that runs, or they are refused with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")


def test_a_model_of_another_type_is_written_or_refused_with_a_way_out(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    cases = [(dtype, form) for dtype in (torch.float64, torch.float16, torch.bfloat16) for form in ("chain", "traced")]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 2)

        def forward(self, x: object) -> object:
            return self.fc(self.lstm(x)[0])

    def check(case: tuple[object, str]) -> None:
        dtype, form = case
        source, chain = tmp_path / f"{dtype}_{form}.pt", "lstm fc" if form == "chain" else None

        def saved(net: Any) -> Path:
            if form == "chain":
                torch.save(net.state_dict(), source)
            else:
                torch.jit.save(torch.jit.trace(net, torch.zeros(1, 2, 3, dtype=next(net.parameters()).dtype)), source)
            return source

        net = Net().eval().to(dtype)
        with pytest.raises(rc.RefusedError, match=r"model\.float\(\)"):
            rc.export_model(saved(net), source.with_suffix(".onnx"), chain=chain)
        rc.export_model(saved(net.float()), source.with_suffix(".onnx"), chain=chain)

    each(cases, check, str)
