"""Whole models of real files written as PyTorch, filled and run beside their source: the table of benchmarks/scaffolds.md.

python -m benchmarks.scaffolds FILES.json [--count 20] [--seed 0] [--to pytorch] [--keep FOLDER] [--record RESULTS.json]

FILES.json is a list of {"repo", "path", "file"}: what a file is called in the table, and where it lies here. A count draws that many
of them by the seed. What `rnnconvert scaffold FILE --to pytorch --weights model.pt --verify` does is done to each: the seconds are
those of importing both frameworks, too.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import rnnconvert as rc

_WEIGHTS = {"pytorch": "model.pt", "keras": "model.weights.h5", "flax": "model.msgpack"}


def measured(file: str, to: str, folder: Path) -> dict[str, Any]:
    """Return what became of a file: its lines, layers, largest difference and seconds, or why it was refused."""
    begun = time.monotonic()
    try:
        done = rc.scaffold(file, to, folder / "model.py", weights=folder / _WEIGHTS[to], verify=True, force=True)
    except rc.RnnConvertError as error:
        kind = "refused" if error.exit_code == 4 else f"exit {error.exit_code}"
        return {"result": kind, "why": " ".join(str(error).split()), "seconds": round(time.monotonic() - begun, 1)}
    except Exception as error:  # a file that breaks the command is a row of the table, and does not end it
        return {"result": "failed", "why": f"{type(error).__name__}: {error}"[:200], "seconds": round(time.monotonic() - begun, 1)}
    differences = [float(number) for entry in done.proof for number in re.findall(r"off by ([0-9.e+-]+)", str(entry))]
    return {
        "result": "equal",
        "layers": done.layers,
        "lines": sum(1 for line in done.text.splitlines() if line.strip()),
        "largest": max(differences, default=None),
        "seconds": round(time.monotonic() - begun, 1),
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
    for number, entry in enumerate(sorted(chosen, key=lambda entry: (entry["repo"], entry["path"]))):
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
