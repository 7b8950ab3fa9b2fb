"""`docparade train` for launchers that want a script: accelerate launch scripts/train.py quickstart"""

from docparade.cli import main

if __name__ == "__main__":
    main("train")
