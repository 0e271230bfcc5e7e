"""Models run by onnxruntime, in a separate process: python run.py FOLDER.

FOLDER/jobs.json lists models and, for each, files of inputs; outputs go to FOLDER/OUT.npz. Imports only numpy and onnxruntime.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

_MEMORY = 8 << 30
"""How much memory a proof may take, beside twenty times what its files hold."""


def _bound(folder: Path) -> None:
    """Bound the memory of this process, where the system can: a file may state sizes that it does not have."""
    try:
        import resource
    except ImportError:
        return
    size = _MEMORY + 20 * sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (size, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))


def main(folder: Path) -> dict[str, Any]:
    """Run every job; return what failed, by the name of its output."""
    _bound(folder)
    if importlib.util.find_spec("onnxruntime") is None:
        return {"absent": "onnxruntime"}
    import numpy as np
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    failed: dict[str, str] = {}
    for job in json.loads((folder / "jobs.json").read_text("utf-8")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if job["plain"]:  # quick to load
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
            wanted = {value.name for value in session.get_inputs()}
        except Exception as error:  # a framework raises what it likes
            failed.update(dict.fromkeys((out for _, out in job["runs"]), _first_line(error)))
            continue
        for source, out in job["runs"]:
            try:
                with np.load(folder / source, allow_pickle=False) as archive:
                    feed = {name: archive[str(n)] for n, name in enumerate(job["names"]) if name in wanted}
                results = session.run(job["outputs"], feed)
                np.savez(folder / out, **{str(n): array for n, array in enumerate(results)})
            except Exception as error:  # the same: the parent says it, and proves nothing by this run
                failed[out] = _first_line(error)
    return {"failed": failed, "version": onnxruntime.__version__}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
