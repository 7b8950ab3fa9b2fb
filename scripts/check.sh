#!/usr/bin/env bash
# Sets everything up and runs the checks that need no test: ruff, its formatter, and mypy.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

# mypy follows folders, not setuptools' package-dir: show it the rooms under their import name.
check_types() {
    rm -rf .venv/typed/docparade && mkdir -p .venv/typed/docparade  # the cache of mypy, beside it, is kept
    ln -s "$PWD"/docparade/* "$PWD"/{modeling,retrieval,reranking,trainer,experiments,hub_cards,benchmarks,configs} .venv/typed/docparade/
    (cd .venv/typed && mypy --config-file "$OLDPWD/pyproject.toml" -p docparade)
}

ruff check .
ruff format --check .
check_types
