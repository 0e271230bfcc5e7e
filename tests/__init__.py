"""The proof: contract, literal and native tests, each stronger than the one before.

The folders mirror the product: `tests/formats/<framework>` and `tests/<package of the engine>`. `helpers` has what several of
them need, `literals` the arrays written down by hand, `golden` the files that frameworks wrote; `project` tests the pages, the
names and the release.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""
