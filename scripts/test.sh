#!/usr/bin/env bash
# Sets everything up and runs every check: ruff, mypy, then pytest.
#   bash scripts/test.sh                          all tests
#   bash scripts/test.sh --fast                   without those marked slow: under two minutes on two cores
#   bash scripts/test.sh tests/modeling -k attn   other arguments go to pytest
set -euo pipefail
source "$(dirname "$0")/environment.sh"

# One thread: what is compared to the last bit must be added up in the same order every time.
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1

# mypy follows folders, not setuptools' package-dir: show it the rooms under their import name.
check_types() {
    rm -rf .venv/typed/docparade && mkdir -p .venv/typed/docparade  # the cache of mypy, beside it, is kept
    ln -s "$PWD"/docparade/* "$PWD"/{modeling,retrieval,reranking,trainer,experiments,hub_cards,configs} .venv/typed/docparade/
    (cd .venv/typed && mypy --config-file "$OLDPWD/pyproject.toml" -p docparade)
}

if [ "${1:-}" = --fast ]; then
    set -- -m "not slow and not long" "${@:2}"
fi
ruff check .
ruff format --check .
check_types
exec python -m pytest -n auto --dist worksteal "$@"
