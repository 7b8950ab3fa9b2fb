#!/usr/bin/env bash
# Sets everything up and builds the documentation site into site/. A warning, such as a broken link, fails the build.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

export NO_MKDOCS_2_WARNING=1 # an announcement of the theme's, on every build
exec python -m mkdocs build --strict "$@"
