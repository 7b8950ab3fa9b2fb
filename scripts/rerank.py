"""`docparade rerank` for launchers that need a script: accelerate launch scripts/rerank.py --model …"""

from docparade.cli import main

if __name__ == "__main__":
    main("rerank")
