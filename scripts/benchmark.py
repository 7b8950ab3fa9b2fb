"""The same as `docparade benchmark`: how fast a ranker reads. Try `python scripts/benchmark.py --help`."""

import sys

from docparade.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["benchmark"]
    main()
