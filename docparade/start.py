"""Where the command `docparade` starts. It imports nothing before Ctrl+C is answered in a sentence."""

import sys

INTERRUPTED = 130
"""The exit code after Ctrl+C."""


def main() -> None:
    """Load the command line, and run it."""
    try:
        from docparade.cli import main as run
    except KeyboardInterrupt:
        print("docparade: interrupted while it was starting; nothing was done.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    run()
