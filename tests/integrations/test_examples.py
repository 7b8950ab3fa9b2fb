"""Every example of docs/integrations.md, run from the page in a fresh process: the order and scores of `model.rank`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from support.project import LICENSE, PROJECT

from docparade import DocumentRanker, MaxPForSequenceClassification, RankedDocument

PAGE = (PROJECT / "docs" / "integrations.md").read_text(encoding="utf-8")
QUERY = "who may grant a patent license"
START = "Integrations"
# More than any cross-encoder of 512 tokens would read.
TOKENS_BEFORE = 600
BLOCK_DOCPARADE = "import sys; sys.modules['docparade'] = None\n"


@dataclass(frozen=True)
class Example:
    """How the result of an example is read, and what else the page says about it."""

    packages: tuple[str, ...]
    ranking: str
    """An expression: the ranked documents as pairs of position in `documents` and score."""
    claims: str = ""
    """Assertions of what the page says in words; they run after the example."""
    with_docparade: bool = False


EXAMPLES = {
    "AutoModel": Example((), "[(each.index, each.score) for each in ranking]"),
    "transformers pipeline": Example(
        (),
        "[(each['index'], each['score']) for each in ranking]",
        """
both = ranker([{"query": query, "documents": documents}] * 2)
assert [[each["score"] for each in one] for one in both] == [[each["score"] for each in ranking]] * 2
""",
    ),
    "With docparade installed": Example(
        (), "[(each['index'], each['score']) for each in ranking]", with_docparade=True
    ),
    "Inference Endpoints": Example((), "[(each['index'], each['score']) for each in ranking]"),
    "sentence-transformers": Example(
        ("sentence-transformers",),
        "[(each['corpus_id'], float(each['score'])) for each in ranking]",
        """
import torch
pairs = [(query, document) for document in documents]
scores = encoder.predict(pairs, convert_to_tensor=True)
torch.testing.assert_close(encoder.predict(pairs, batch_size=1, convert_to_tensor=True), scores)
sigmoid = encoder.predict(pairs, activation_fn=torch.nn.Sigmoid(), convert_to_tensor=True)
torch.testing.assert_close(sigmoid, scores.sigmoid())
limited = CrossEncoder(path, trust_remote_code=True, model_kwargs={"max_passages": 1})
assert not torch.allclose(limited.predict(pairs, convert_to_tensor=True), scores)
for word, options in {"trust_remote_code": {}, "max_length": {"trust_remote_code": True, "max_length": 8}}.items():
    try:
        CrossEncoder(path, **options)
    except ValueError as error:
        assert word in str(error)
    else:
        raise AssertionError(f"loaded with {options}")
""",
    ),
    "LangChain": Example(
        ("langchain-classic", "langchain-community", "sentence-transformers"),
        "[(documents.index(text), float(*encoder.score([(query, text)]))) for text in texts]",
        """
from langchain_core.cross_encoders import BaseCrossEncoder
from transformers import AutoModel

class Ranker(BaseCrossEncoder):
    model = AutoModel.from_pretrained(path, trust_remote_code=True)

    def score(self, text_pairs):
        return self.model.score(text_pairs)

assert CrossEncoderReranker(model=Ranker(), top_n=10).compress_documents(ranking[::-1], query) == ranking
assert CrossEncoderReranker(model=Ranker()).top_n == 3
texts = [each.page_content for each in ranking]
""",
    ),
    "LlamaIndex": Example(
        ("llama-index-core", "llama-index-postprocessor-sbert-rerank", "sentence-transformers"),
        "[(documents.index(each.text), each.score) for each in ranking]",
        """
import inspect
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
index = VectorStoreIndex([each.node for each in nodes], embed_model=MockEmbedding(embed_dim=2))
retrieved = index.as_retriever(similarity_top_k=10).retrieve(query)
assert sorted(each.text for each in retrieved) == sorted(documents)
titled = TextNode(text=documents[0], metadata={"title": "License"})
plain = TextNode(text=f"title: License\\n\\n{documents[0]}")
first, second = reranker.postprocess_nodes([NodeWithScore(node=titled), NodeWithScore(node=plain)], query_str=query)
assert abs(first.score - second.score) < 1e-5 < abs(first.score - nodes[0].score)
assert inspect.signature(SentenceTransformerRerank.__init__).parameters["top_n"].default == 2
""",
    ),
    "Haystack": Example(
        ("haystack-ai", "sentence-transformers-haystack"),
        "[(documents.index(each.content), each.score) for each in ranking]",
        """
import math
scaled = SentenceTransformersSimilarityRanker(model=path, trust_remote_code=True).run(
    query=query, documents=[*ranking, ranking[0]]
)["documents"]
assert len(scaled) == len(ranking)
for each, raw in zip(scaled, ranking):
    assert abs(each.score - 1 / (1 + math.exp(-raw.score))) < 1e-5
""",
    ),
    "PyTerrier": Example(
        ("pyterrier",),
        "[(names.index(each.docno), each.score) for each in ranking.itertuples()]",
        """
assert not pt.java.started()
in_pipeline = pt.Transformer.from_df(first_stage) >> reranker
found = in_pipeline(first_stage[["qid", "query"]].drop_duplicates()).sort_values("rank")
assert found["docno"].tolist() == ranking["docno"].tolist()
""",
    ),
}


def examples() -> dict[str, str]:
    """The page's Python blocks by the heading that they stand under."""
    sections = re.split(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)[1:]
    found = {}
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        if blocks := re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
            assert len(blocks) == 1, f"{heading} has {len(blocks)} examples"
            found[heading] = blocks[0]
    return found


@pytest.fixture(scope="module")
def folder(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples run: a checkpoint, and documents that differ far from where they begin."""
    model = tiny_ranker(MaxPForSequenceClassification, "max", max_passages=None)
    lines = sorted({line.strip() for line in LICENSE.splitlines() if len(line.split()) > 5})
    scores = dict(zip(lines, model.score([(QUERY, line) for line in lines]), strict=True))
    worst, *_, best = sorted(lines, key=scores.__getitem__)
    long = " ".join([worst] * 100)
    assert len(model.processor.tokenizer(long)["input_ids"]) > TOKENS_BEFORE
    made = tmp_path_factory.mktemp("examples")
    (made / "documents").mkdir()
    texts = {"a": long, "b": f"{long} {best}", "c": LICENSE[:2000], "d": LICENSE[2000:2300]}
    for name, text in texts.items():
        (made / "documents" / f"{name}.txt").write_text(text)
    model.save_pretrained(made / "my-ranker")
    return made


@pytest.fixture(scope="module")
def expected(tiny_ranker: Callable[..., DocumentRanker], folder: Path) -> list[RankedDocument]:
    """What `model.rank` itself gives."""
    texts = [file.read_text() for file in sorted((folder / "documents").iterdir())]
    ranking = tiny_ranker(MaxPForSequenceClassification, "max", max_passages=None).rank(QUERY, texts)
    # The first two documents begin alike: whoever cuts them gives them equal scores.
    first = {each.index: each for each in ranking}
    assert first[1].score > first[0].score + 1e-3
    assert first[1].best_passage.end > len(texts[0])
    return ranking


def run(script: str, folder: Path, cache: Path) -> str:
    """The last line that a script prints, run in a fresh process with its own cache of checkpoints' code."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_MODULES_CACHE": str(cache),
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def skip_without(package: str) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install -c constraints.txt -e '.[integrations]'")


def test_every_example_of_the_page_is_run() -> None:
    assert list(examples()) == [START, *EXAMPLES]
    assert f'query = "{QUERY}"' in examples()[START]


@pytest.mark.slow
@pytest.mark.parametrize("heading", EXAMPLES)
def test_example(heading: str, folder: Path, expected: list[RankedDocument], tmp_path: Path) -> None:
    example = EXAMPLES[heading]
    for package in example.packages:
        skip_without(package)
    blocks = examples()
    start = "" if example.with_docparade else BLOCK_DOCPARADE
    end = f"import json; print(json.dumps({example.ranking}))"
    script = "\n".join([start, blocks[START], blocks[heading], example.claims, end])
    found = json.loads(run(script, folder, tmp_path / "modules"))
    assert [index for index, _ in found] == [each.index for each in expected]
    assert [score for _, score in found] == pytest.approx([each.score for each in expected], abs=1e-5)
