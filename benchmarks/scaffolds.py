"""Whole models of real files written as PyTorch, filled and run beside their source: the table of docs/gallery.md.

python -m benchmarks.scaffolds FILES.json [--count 20] [--seed 0] [--to pytorch] [--keep FOLDER] [--record RESULTS.json]

FILES.json is a list of {"repo", "path", "file"}: what a file is called in the table, and where it lies here. A count draws that many
of them by the seed. `rnnconvert scaffold FILE --to pytorch --weights --verify` is run on each, and without --verify where that fails,
to tell a refusal from a difference.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIMEOUT = 300
"""Seconds for one file."""
_WEIGHTS = {"pytorch": "model.pt", "keras": "model.weights.h5", "flax": "model.msgpack"}


def measured(file: str, to: str, folder: Path) -> dict[str, Any]:
    """Return what became of a file: its lines, layers, largest difference and seconds, or why it was refused."""
    written = folder / "model.py"
    command = [sys.executable, "-m", "rnnconvert", "scaffold", file, "--to", to, "-o", str(written), "--force", "--json"]
    begun = time.monotonic()
    try:
        ran = subprocess.run(
            [*command, "--weights", str(folder / _WEIGHTS[to]), "--verify"], capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return {"result": "failed", "why": f"no answer within {TIMEOUT} seconds", "seconds": TIMEOUT}
    seconds = round(time.monotonic() - begun, 1)
    if ran.returncode:
        kind = "refused" if ran.returncode == 4 else f"exit {ran.returncode}"
        try:
            why = json.loads(ran.stdout)["error"]["message"]
        except (ValueError, KeyError):
            why = ran.stderr.strip()[-300:]
        return {"result": kind, "why": " ".join(why.split()), "seconds": seconds}
    report = json.loads(ran.stdout)
    differences = [
        float(number) for entry in report["proof"] for number in re.findall(r"differ(?:s|ence)?[^0-9]*([0-9.e+-]+)", entry["text"])
    ]
    return {
        "result": "equal",
        "layers": report["layers"],
        "lines": sum(1 for line in report["text"].splitlines() if line.strip()),
        "largest": max(differences, default=None),
        "proof": [entry["text"] for entry in report["proof"]],
        "seconds": seconds,
    }


def row(entry: dict[str, Any]) -> str:
    """Return a row of the table."""
    name = f"[{entry['repo']}](https://github.com/{entry['repo']}) `{entry['path']}`"
    if entry["result"] != "equal":
        return f"| {name} | {entry['result']}: {entry['why'].removeprefix('error: ')} | | | | {entry['seconds']:.0f} |"
    largest = "" if entry["largest"] is None else f"{entry['largest']:.1e}"
    return f"| {name} | equal | {entry['lines']} | {entry['layers']} | {largest} | {entry['seconds']:.0f} |"


def main() -> None:
    """Print the table, row by row as files are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", default="pytorch", choices=list(_WEIGHTS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    files = json.loads(asked.files.read_text())
    chosen = random.Random(asked.seed).sample(files, asked.count) if asked.count else files
    results = []
    print("| file | result | lines | layers | largest difference | seconds |\n|---|---|---|---|---|---|", flush=True)
    for number, entry in enumerate(sorted(chosen, key=lambda one: (one["repo"], one["path"]))):
        with tempfile.TemporaryDirectory() as folder:
            place = asked.keep / f"{number}" if asked.keep else Path(folder)
            place.mkdir(parents=True, exist_ok=True)
            entry = {**entry, **measured(entry["file"], asked.to, place)}
        entry.pop("file")
        results.append(entry)
        print(row(entry), flush=True)
        if asked.record:
            asked.record.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
