"""`docparade benchmark` as a script: python scripts/benchmark.py --help"""

from docparade.cli import main

if __name__ == "__main__":
    main("benchmark")
