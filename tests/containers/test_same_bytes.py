"""The same input gives the same bytes: in another process, at another time, under another seed of hashes, in another folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests import ROOT

WRITING = """
import hashlib, json, sys
from pathlib import Path
import numpy as np
import rnnconvert as rc
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN, random_stack
root = Path(sys.argv[1])
for card in registry.cards().values():
    for end in card.written:
        for kind in ("lstm", "gru"):
            for parts in ({"input_bias"}, {"input_bias", "recurrent_bias"}, set()):
                stacks = {f"b{n}": random_stack(Sizes(kind, 3, 4, parts=PLAIN | parts), n, np.float32) for n in (2, 1)}
                for layers in (stacks, {"b1": stacks["b1"]}):
                    folder = root / f"{card.name}{end}-{kind}-{len(parts)}-{len(layers)}"
                    folder.mkdir()
                    named = {name: one.replace(name=name) for name, one in layers.items()}
                    try:
                        rc.save(rc.Checkpoint("memory", "memory", named), folder / f"m{end}", card.name)
                    except RnnConvertError:
                        pass
large = random_stack(Sizes("lstm", 16, 16, parts=PLAIN | {"input_bias"}), 1, np.float32)
(root / "external").mkdir()
rc.save(rc.Checkpoint("memory", "memory", {"rnn": large}), root / "external" / "m.onnx", settings=["external_data=true"])
for name, target in (("examples/encoder.keras", "a.keras"), ("examples/encoder.keras", "a.h5"), ("examples/encoder.keras", "a.onnx")):
    rc.convert(name, root / target)
"""


def written(folder: Path, seed: int) -> dict[str, str]:
    """The digests of every file that a process of its own writes."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)}
    subprocess.run([sys.executable, "-c", WRITING, str(folder)], check=True, cwd=ROOT, env=environment)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def test_every_format_gives_the_same_bytes_again(tmp_path: Path) -> None:
    first = written(tmp_path / "first", 1)
    time.sleep(max(0, 2.1 - time.time() % 2))  # the clocks of zip archives count two seconds
    second = written(tmp_path / "a folder of another name", 2)
    kinds = {name.rpartition("/")[2] for name in first}
    assert len(first) > 60 and len(kinds) > 18, kinds
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []
