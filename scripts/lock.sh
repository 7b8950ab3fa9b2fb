#!/usr/bin/env bash
# Writes requirements.lock: the pins of constraints.txt with the hashes of all their files, for pip's --require-hashes.
# Run it after constraints.txt has changed; needs uv (pip install uv).
# torch is left out: which build it is, and which further packages it brings, depends on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
pins=$folder/pins.txt # uv tells the kind of a file by its ending
grep -v '^torch==' constraints.txt >"$pins"
{
    echo "# Made by scripts/lock.sh from constraints.txt; do not edit."
    uv pip compile --universal --no-deps --generate-hashes --no-header --no-annotate --python-version 3.10 -q "$pins"
} >requirements.lock
