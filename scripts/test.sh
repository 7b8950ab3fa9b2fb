#!/usr/bin/env bash
# Sets everything up and runs every check: scripts/check.sh (ruff, mypy), then pytest. Arguments go to pytest:
#   bash scripts/test.sh                      all of it
#   bash scripts/test.sh tests/modeling -k attn
set -euo pipefail
source "$(dirname "$0")/environment.sh"

bash scripts/check.sh

# One thread: what is compared to the last bit must be added up in the same order every time.
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
exec python -m pytest -n auto --dist worksteal "$@"
