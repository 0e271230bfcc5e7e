"""Make the README's picture of a report: run two models that are not equal, and photograph the page in Chromium.

python docs/images/make.py

Needs torch and onnxruntime (`pip install '.[torch,onnxruntime]'`), and `chromium`, or the browser that the variable CHROMIUM names.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import rnnconvert as rc

HERE = Path(__file__).parent
SIZE = "1000,1085"
MOST_BYTES = 150_000


def models(folder: Path) -> tuple[Path, Path]:
    """Write an LSTM, and the same in ONNX with two gates of one matrix swapped."""
    torch.manual_seed(3)
    module = torch.nn.ModuleDict({"encoder": torch.nn.LSTM(6, 8, num_layers=2, bidirectional=True)})
    right, wrong, exported = folder / "tagger.pt", folder / "wrong.pt", folder / "tagger.onnx"
    torch.save(module.state_dict(), right)
    i, f, g, o = module["encoder"].weight_hh_l1_reverse.detach().chunk(4)
    torch.save({**module.state_dict(), "encoder.weight_hh_l1_reverse": torch.cat([i, g, f, o])}, wrong)
    rc.convert(wrong, exported)
    return right, exported


def photograph(page: Path, picture: Path) -> None:
    """Write what a browser shows of a page."""
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or sys.exit("chromium is missing")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}"]
    subprocess.run([browser, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True, timeout=120)


def main() -> None:
    """Make report.png."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.chdir(folder)  # the report shows the paths as they are given
        models(folder)
        report = rc.verify("tagger.pt", "tagger.onnx")
        report.write("report.html")
        photograph(folder / "report.html", folder / "report.png")
        if (folder / "report.png").stat().st_size > MOST_BYTES:
            sys.exit(f"the picture is larger than {MOST_BYTES} bytes: choose a smaller SIZE")
        shutil.copy(folder / "report.png", HERE / "report.png")


if __name__ == "__main__":
    main()
