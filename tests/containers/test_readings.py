"""How often a file is parsed: once by a command, whatever asks for its weights and for its model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.containers.reading import Reading
from tests.helpers.requirements import needed


def model_files(folder: Path) -> list[Path]:
    """One model in every kind of file: an LSTM with a dense layer."""
    keras, torch = needed("keras", "keras"), needed("torch", "torch")
    model = keras.Sequential([keras.layers.Input((None, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)])
    for name in ("a.keras", "a.h5"):
        model.save(folder / name)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0][:, -1])

    module, example = Module().eval(), torch.zeros(2, 5, 3)
    torch.jit.trace(module, example).save(str(folder / "a.pt"))
    torch.export.save(torch.export.export(module, (example,)), folder / "a.pt2")
    rc.export_model(folder / "a.keras", folder / "a.onnx")
    return sorted(folder.glob("a.*"))


@pytest.mark.filterwarnings("ignore:::")  # torch.export warns of torch's own modules
def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: Counter[str] = Counter()
    add = Reading.add

    def counted(reading: Reading, path: object, identity: Any, of_file: Any = None) -> None:
        mapped[Path(str(path)).name] += of_file is not None
        add(reading, path, identity, of_file)

    files = model_files(tmp_path)
    monkeypatch.setattr(Reading, "add", counted)
    commands: dict[str, Callable[[Path], object]] = {
        "convert": lambda path: rc.convert(path, tmp_path / "weights.safetensors", force=True),
        "scaffold": lambda path: rc.scaffold(path, "flax", tmp_path / "model.py", force=True),
        "export": lambda path: rc.export_model(path, tmp_path / "model.onnx", force=True),
        "transplant": lambda path: rc.transplant_file(path, files[0], tmp_path / "filled.h5", force=True),
    }
    counts = {}
    for path in files:
        for word, command in commands.items():
            mapped.clear()
            command(path)
            counts[path.name, word] = mapped[path.name]
    assert counts == dict.fromkeys(counts, 1) | {(files[0].name, "transplant"): 2}
