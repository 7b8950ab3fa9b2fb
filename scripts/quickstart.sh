#!/usr/bin/env bash
# Sets everything up and does the main job on a collection that is on every machine: retrieves with BM25, trains a small
# ranker of long documents, reranks, and shows what came out. Nothing is fetched but packages. Arguments change the
# recipe: bash scripts/quickstart.sh --training.num_train_epochs 4
set -euo pipefail
source "$(dirname "$0")/environment.sh"

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# glibc would keep much of the memory that is freed; other C libraries ignore this.
export MALLOC_MMAP_THRESHOLD_=2097152 MALLOC_TRIM_THRESHOLD_=16777216
exec python scripts/quickstart.py "$@"
