#!/usr/bin/env bash
# Write, beside the artefacts in a folder, what a release is made of: a bill of materials (CycloneDX) of what a fresh environment gets with
# the wheel, one of what the tests ran with, and the hashes of all. Needs the network.
set -euo pipefail
dist=$(cd "${1:-dist}" && pwd)
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/tools" && "$folder/tools/bin/pip" install --quiet cyclonedx-bom
python3 -m venv "$folder/user" && "$folder/user/bin/pip" install --quiet --constraint constraints.txt "$dist"/rnnconvert-*.whl
bom="$folder/tools/bin/cyclonedx-py"
"$bom" environment "$folder/user" --output-reproducible --of JSON -o "$dist/rnnconvert.cdx.json"
"$bom" requirements constraints.txt --output-reproducible --of JSON -o "$dist/tests.cdx.json"
(cd "$dist" && rm -f SHA256SUMS && sha256sum -- * > "$folder/SHA256SUMS" && mv "$folder/SHA256SUMS" .)
