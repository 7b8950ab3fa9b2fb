#!/usr/bin/env bash
# Runs the fast tests with the lowest and with the newest versions of the Hugging Face packages that pyproject.toml
# allows, each in a virtual environment of its own. A FutureWarning is an error. torch is the pinned one: of other
# versions, pip takes builds with gigabytes of CUDA on some machines.
#   bash scripts/test_versions.sh                           both, all fast tests
#   bash scripts/test_versions.sh lowest tests/modeling     one of them; further arguments go to pytest
set -euo pipefail
source "$(dirname "$0")/environment.sh"

packages="accelerate datasets evaluate huggingface_hub peft safetensors sentence-transformers transformers"

# The lower bounds of pyproject.toml, as pins.
print_lowest() {
    python - $packages <<'PYTHON'
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement

for requirement in map(Requirement, requires("docparade")):
    lowest = [each.version for each in requirement.specifier if each.operator == ">="]
    if requirement.name in sys.argv[1:] and lowest:
        print(f"{requirement.name}=={lowest[0]}")
PYTHON
}

test_with() {
    local name=$1 folder=$PWD/.venv/$1
    shift
    python -m venv --clear "$folder"
    grep '^torch==' constraints.txt >"$folder/constraints.txt"
    [ "$name" = newest ] || print_lowest >>"$folder/constraints.txt"
    say "installing the $name versions into $folder (log: $folder/install.log)"
    "$folder/bin/python" -m pip install --progress-bar off --prefer-binary -c "$folder/constraints.txt" -e ".[dev]" \
        >"$folder/install.log" 2>&1 || fail "could not install them: $(tail -n 3 "$folder/install.log" | tr '\n' ' ')"
    say "$("$folder/bin/python" -m pip freeze | grep -iE "^(torch|${packages//[ ]/|})==" | tr '\n' ' ')"
    # The tests turn on gradient checkpointing by the only name that the lowest version knows.
    "$folder/bin/python" -m pytest -n auto --dist worksteal -m "not slow and not long" -W error::FutureWarning \
        -W 'ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning' "$@"
}

case "${1:-}" in lowest | newest) versions=$1 && shift ;; *) versions="lowest newest" ;; esac
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
for each in $versions; do test_with "$each" "$@"; done
