#!/usr/bin/env bash
# Sets everything up and shows the main job: two rankers of long documents built on real weights, saved, loaded through
# AutoModel, and put to work on long texts that are on every machine. Nothing is fetched but packages.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec python scripts/quickstart.py "$@"
