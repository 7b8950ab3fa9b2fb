# Sourced by the other scripts: makes .venv with the pinned packages, once, and puts it on the PATH.
# A second call with the same pyproject.toml, constraints.txt and requirements.lock installs nothing.

say() { printf 'docparade: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "needs Python 3.10 or newer, and found $("${PYTHON:-python3}" --version 2>&1 || true); install one, or name it with PYTHON=/path/to/python3."
}

# Where a virtual environment has its programs: Scripts on Windows, bin elsewhere.
programs() { [ -d .venv/Scripts ] && printf .venv/Scripts || printf .venv/bin; }

make_venv() {
    local python
    python=$(find_python) || exit 1
    "$(programs)/python" -c '' 2>/dev/null && return
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    if ! "$python" -m venv .venv >.venv.log 2>&1; then
        rm -rf .venv
        fail "could not make a virtual environment; on Debian or Ubuntu run 'apt-get install python3-venv' first (details: .venv.log)."
    fi
    rm -f .venv.log
}

install_packages() {
    local wanted log=.venv/install.log
    wanted=$(cat pyproject.toml constraints.txt requirements.lock | cksum)
    [ "$(cat .venv/installed 2>/dev/null || true)" = "$wanted" ] && return
    say "installing the pinned packages into .venv (a few minutes the first time; log: $log)"
    # Every package is checked against its hash, but for torch: its build, and what it needs, depend on the machine.
    if ! python -m pip install --progress-bar off --require-hashes --no-deps -r requirements.lock >"$log" 2>&1 ||
        ! python -m pip install --progress-bar off -c constraints.txt torch >>"$log" 2>&1 ||
        ! python -m pip install --progress-bar off -c constraints.txt --no-build-isolation -e ".[dev]" >>"$log" 2>&1; then
        fail "could not install the packages; is there a network connection? The last lines of $log: $(tail -n 2 "$log" | tr '\n' ' ')"
    fi
    printf '%s' "$wanted" >.venv/installed
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
make_venv
export PATH="$PWD/$(programs):$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
install_packages
