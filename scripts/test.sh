#!/usr/bin/env bash
# Sets everything up and runs every check: ruff, mypy, then pytest. Arguments go to pytest:
#   bash scripts/test.sh                      all of it
#   bash scripts/test.sh tests/modeling -k attn
set -euo pipefail
source "$(dirname "$0")/environment.sh"

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

# mypy follows folders, not setuptools' package-dir: show it the rooms under their import name.
check_types() {
    rm -rf .venv/typed && mkdir -p .venv/typed/docparade
    ln -s "$PWD"/docparade/* "$PWD"/{modeling,trainer,retrieval,hub_cards} .venv/typed/docparade/
    (cd .venv/typed && mypy --config-file "$OLDPWD/pyproject.toml" -p docparade)
}

ruff check .
ruff format --check .
check_types
exec python -m pytest "$@"
