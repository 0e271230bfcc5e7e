"""Make the README's picture of a report: run two models that are not equal, and photograph the page in Chromium.

python docs/images/make.py

The picture keeps the words that the page said, so that a test finds it stale once the page says others.

Needs torch and onnxruntime (`pip install '.[torch,onnxruntime]'`), and `chromium`, or the browser that the variable CHROMIUM names.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import torch

import rnnconvert as rc

HERE = Path(__file__).parent
SIZE = "1000,1085"
MOST_BYTES = 150_000
_KEY = b"rnnconvert report\0"
_END = struct.pack(">I", 0) + b"IEND"


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


def words(page: str) -> str:
    """Return what a page says as far as the picture shows it, without what differs from machine to machine: numbers, and the worst case."""
    header, _, rest = page[page.index("<header") :].partition("</header>")
    why = re.sub(r"<(p|li)\b.*?</\1>", " ", rest[: rest.index("</section>")])
    return " ".join(re.sub(r"\d[\d.,:e+-]*", " ", re.sub(r"<[^>]*>", " ", header + why)).split())


def with_words(picture: bytes, text: str) -> bytes:
    """Return a PNG that keeps a text as well."""
    chunk = b"zTXt" + _KEY + b"\0" + zlib.compress(text.encode())
    before, end, after = picture.rpartition(_END)
    return before + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + end + after


def words_in(picture: bytes) -> str:
    """Return the text that `with_words` put into a PNG."""
    return zlib.decompress(picture.partition(b"zTXt" + _KEY + b"\0")[2].rpartition(_END)[0][:-4]).decode()


def report(folder: Path) -> str:
    """Return the page of two models that differ, which are written into the folder: the working one, since the page shows paths."""
    models(folder)
    rc.verify("tagger.pt", "tagger.onnx").write("report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def main() -> None:
    """Make report.png."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.chdir(folder)
        text = words(report(folder))
        photograph(folder / "report.html", folder / "report.png")
        picture = with_words((folder / "report.png").read_bytes(), text)
        if len(picture) > MOST_BYTES:
            sys.exit(f"the picture is larger than {MOST_BYTES} bytes: choose a smaller SIZE")
        (HERE / "report.png").write_bytes(picture)


if __name__ == "__main__":
    main()
