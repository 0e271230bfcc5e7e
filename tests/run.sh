#!/usr/bin/env bash
# Sets up everything the tests need in .venv-tests, then runs every check: lint, types, generated pages, tests.
# Arguments go to pytest. PYTHON names the interpreter (3.11 or newer); RNNCONVERT_REQUIRE what may not be absent.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x .venv-tests/bin/python ]; then
  "${PYTHON:-python3}" -m venv .venv-tests
fi
.venv-tests/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'

export PATH="$PWD/.venv-tests/bin:$PATH"
ruff check .
ruff format --check .
mypy
python docs/generate.py --check

export RNNCONVERT_REQUIRE="${RNNCONVERT_REQUIRE-torch,keras,tensorflow,onnxruntime,jax,flax,haiku,equinox,mkdocs}"
# Two processes, each with whole files of tests; "-n 0" for one, "--long" for every case (tests/helpers/drawn.py).
# The order is that of tests/conftest.py: the longest files first.
# A worker that ends, for a test that never did among them (pyproject.toml), is not replaced: it would run that test again.
exec python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 "$@"
