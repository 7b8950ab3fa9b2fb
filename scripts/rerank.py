"""`docparade rerank` for launchers that want a script: accelerate launch scripts/rerank.py --model …"""

from docparade.cli import main

if __name__ == "__main__":
    main("rerank")
