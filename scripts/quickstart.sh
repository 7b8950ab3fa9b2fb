#!/usr/bin/env bash
# Sets everything up and does the main job on a collection that is on every machine: retrieves with BM25, trains a small
# ranker of long documents, reranks, and shows what came out. Nothing is fetched but packages. Arguments change the
# recipe: bash scripts/quickstart.sh --training.num_train_epochs 4
set -euo pipefail
source "$(dirname "$0")/environment.sh"

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec python scripts/quickstart.py "$@"
