#!/usr/bin/env bash
# Sets everything up and runs transformers' own tests of models on rankers: ModelTesterMixin and ConfigTester, from the
# source distribution of the pinned transformers. Arguments go to pytest: bash scripts/conformance.sh -k MaxPBert
set -euo pipefail
source "$(dirname "$0")/environment.sh"

version=$(python -c 'import transformers; print(transformers.__version__)')
folder=$PWD/.venv/conformance/transformers-$version
if [ ! -e "$folder/ready" ]; then
    say "fetching the source distribution of transformers $version"
    scratch=$(mktemp -d)
    trap 'rm -r "$scratch"' EXIT
    # The lock has the hashes of all files of the pinned version, also of this one.
    awk '/^transformers==/ {keep = 1} keep {print} !/\\$/ {keep = 0}' requirements.lock >"$scratch/transformers.txt"
    python -m pip download --progress-bar off --require-hashes --no-deps --no-build-isolation \
        --no-binary transformers -r "$scratch/transformers.txt" -d "$scratch" >"$scratch/log" 2>&1 ||
        fail "could not fetch it: $(tail -n 2 "$scratch/log" | tr '\n' ' ')"
    rm -rf "$folder" && mkdir -p "$folder"
    tar -xzf "$scratch/transformers-$version.tar.gz" -C "$folder" --strip-components 1 "transformers-$version/tests"
    touch "$folder/tests/__init__.py" # one of its files imports the folder, and it is not in the distribution
    python -m pip install --progress-bar off --require-hashes --no-deps --target "$folder/packages" \
        -r tests/conformance/requirements.txt >"$scratch/log" 2>&1 ||
        fail "could not install what transformers' tests need: $(tail -n 2 "$scratch/log" | tr '\n' ' ')"
    touch "$folder/ready"
fi

export TRANSFORMERS_TESTS=$folder/tests PYTHONPATH=$folder/packages
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1
python -m pytest tests/conformance -n auto --dist worksteal -q -p no:cacheprovider "$@"
