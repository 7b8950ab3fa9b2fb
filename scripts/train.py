"""`docparade train` on any number of processes; the arguments are the same.

accelerate launch scripts/train.py configs/recipes/NAME.yaml [--variant LABELS] [--output FOLDER] [--KEY VALUE ...]
"""

import sys

from docparade.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["train"]
    main()
