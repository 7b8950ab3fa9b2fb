"""`docparade rerank` on any number of processes; the options are the same.

accelerate launch scripts/rerank.py --model M --collection C --run bm25.txt --depth 100 --output out.txt
"""

import sys

from docparade.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["rerank"]
    main()
