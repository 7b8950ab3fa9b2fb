"""Rank your own text files for a question, and show the passage that decided.

    python rerank_long_documents.py "who may grant a patent license" LICENSE docs/

It uses the ranker that comes with docparade. --model takes any other one: a folder, or an id on the Hugging Face Hub,
of a ranker, a cross-encoder or a bi-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import docparade
from docparade.reranking import load_ranker
from docparade.retrieval import InputError


def read_documents(paths: list[Path]) -> list[dict[str, str]]:
    """One document for each file; of a folder, all its text files."""
    files = [path for path in paths if path.is_file()]
    for folder in (path for path in paths if path.is_dir()):
        files += sorted(path for path in folder.rglob("*") if path.suffix in (".md", ".rst", ".txt"))
    return [{"id": str(file), "text": file.read_text(encoding="utf-8", errors="replace")} for file in files]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query")
    parser.add_argument("files", nargs="+", type=Path, help="text files, or folders with .md, .rst and .txt files")
    parser.add_argument("--model", help="a folder, or an id on the Hugging Face Hub; default: docparade's own ranker")
    parser.add_argument("--top", type=int, default=5, help="how many documents to show")
    arguments = parser.parse_args()

    if missing := [str(path) for path in arguments.files if not path.exists()]:
        parser.error(f"there is no {missing[0]}")
    documents = read_documents(arguments.files)
    if not documents:
        parser.error("there are no text files in these folders")
    try:
        model = load_ranker(arguments.model, "--model") if arguments.model else docparade.load_default()
    except InputError as error:
        parser.error(str(error))
    # Documents are read whole, in passages, and documents of all lengths together.
    for rank, document in enumerate(model.rank(arguments.query, documents, top_k=arguments.top), start=1):
        best = document.best_passage
        print(f"{rank}. {document.id}  score {document.score:.3f}, {len(document.passages)} passages read")
        print(f"   characters {best.start} to {best.end} of the text:")
        print(textwrap.indent(textwrap.fill(textwrap.shorten(best.text, 300), 100), "   "), end="\n\n")


if __name__ == "__main__":
    main()
