#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one run of less than eight minutes, without a network:
#
#     bash tests/gpu.sh OUT                 writes OUT/report.html, results.safetensors, junit.xml, versions.json,
#                                           answers.json and log
#     bash tests/gpu.sh OUT --wheels DIR    the same, with packages that are missing here taken from DIR
#     bash tests/gpu.sh --wheels DIR        on a machine with an index: puts these packages into DIR
#
# More: bash tests/gpu.sh --help, and docs/gpu.md. PYTHON names the interpreter (3.10 or newer).
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-python3}" -m tests.gpu --from "$from" "$@"
