"""Compare the scores and rankings of the engine with those of the plain padded model, on all queries of a run.

    python scripts/benchmark_exactness.py --model outputs/ranker --collection cranfield --run bm25.txt --depth 20

The plain model is transformers' own forward pass: one document at a time, passages padded to the longest, eager
attention, all layers complete. The engine packs the passages of many documents and computes only what is used.
"""

import argparse
from collections.abc import Sequence

from tqdm.auto import tqdm

from docparade.benchmarks.systems import padded_scores
from docparade.modeling.engine import read_pairs
from docparade.reranking.loading import load_ranker
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.runs import cut, ranking, read_run


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the ranker")
    parser.add_argument("--collection", required=True, help="its documents and queries")
    parser.add_argument("--run", required=True, help="the documents of each query: a TREC file")
    parser.add_argument("--depth", type=int, default=20, help="documents of each query")
    arguments = parser.parse_args(words)
    model = load_ranker(arguments.model, "--model")
    plain = load_ranker(arguments.model, "--model")
    plain.encoder.set_attn_implementation("eager")
    source = load_collection(arguments.collection)
    queries = source.queries()
    documents = {document.id: document for document in source.documents()}
    largest, same, run = 0.0, 0, cut(read_run(arguments.run), arguments.depth)
    for query, found in tqdm(run.items(), unit=" queries"):
        texts = [{"title": documents[name].title, "text": documents[name].text} for name in found]
        readings = read_pairs(model, [(queries[query], text) for text in texts])
        ours = dict(zip(found, (reading.score for reading in readings), strict=True))
        theirs = {
            name: padded_scores(plain, queries[query], [text])[0] for name, text in zip(found, texts, strict=True)
        }
        largest = max(largest, *(abs(ours[name] - theirs[name]) for name in found))
        same += ranking(ours) == ranking(theirs)
    print(
        f"{len(run)} queries, {sum(map(len, run.values()))} documents: largest difference of scores {largest:.1e}, "
        f"the same ranking for {same} queries"
    )


if __name__ == "__main__":
    main()
