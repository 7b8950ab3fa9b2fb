#!/usr/bin/env bash
# Sets everything up and runs every check: scripts/check.sh (ruff, mypy), then pytest.
#   bash scripts/test.sh                          all tests
#   bash scripts/test.sh --fast                   without those marked slow: about three minutes on two cores
#   bash scripts/test.sh tests/modeling -k attn   other arguments go to pytest
set -euo pipefail
source "$(dirname "$0")/environment.sh"

bash scripts/check.sh

if [ "${1:-}" = --fast ]; then
    set -- -m "not slow and not long" "${@:2}"
fi

# One thread: what is compared to the last bit must be added up in the same order every time.
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
exec python -m pytest -n auto --dist worksteal "$@"
