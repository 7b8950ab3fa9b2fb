"""Open a collection by its name.

`load_collection` takes one of these names:

- an ir_datasets id, such as `cranfield` or `msmarco-document/trec-dl-2019`;
- a folder with `docs.jsonl` (or `.jsonl.gz`), `queries.tsv` and `qrels.txt`;
- a folder in BEIR's format, with `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, or the path of another split;
- a folder with Hugging Face datasets saved as `corpus`, `queries` and `qrels`, or `hf:` and a dataset's name;
- `docparade:pydocs`, made from documentation that is on every machine, and its parts `docparade:pydocs/train`,
  `/validation` and `/test`.

To add a format, write a subclass of `Collection` in a file of its own, and open it in `load_collection`.
"""

from pathlib import Path

from docparade.retrieval.errors import InputError

from .collection import Collection


def load_collection(name_or_path: str | Path) -> Collection:
    """Open a collection by its ir_datasets id, its folder, `hf:` and a Hugging Face dataset, or `docparade:pydocs`.

    Opening is fast: files are read only when they are needed.

    >>> len(load_collection("cranfield"))
    1400
    """
    name = str(name_or_path)
    path = Path(name_or_path)
    if name.startswith("docparade:"):
        from docparade.retrieval.pydocs.pydocs_collection import load_pydocs

        return load_pydocs(name)
    if name.startswith("hf:"):
        from .hugging_face import check_hub_name, load_hugging_face

        check_hub_name(name)
        return load_hugging_face(name)
    try:
        if path.is_dir() or path.suffix == ".tsv":
            return _load_folder(path)
    except OSError as error:  # a name that is too long, or a folder without permission to read
        raise InputError(f"the collection {name} cannot be opened: {error.strerror}.") from error
    from .irds import IrDatasetsCollection

    return IrDatasetsCollection(name)


def _load_folder(path: Path) -> Collection:
    if path.suffix == ".tsv":
        from .beir import BeirCollection

        return BeirCollection(path.parent.parent, judgments=path)
    if any((path / name).is_file() for name in ("docs.jsonl", "docs.jsonl.gz")):
        from .jsonl_folder import LocalCollection

        return LocalCollection(path)
    if any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz")):
        from .beir import BeirCollection

        return BeirCollection(path)
    if (path / "corpus").is_dir():
        from .hugging_face import load_saved

        return load_saved(path)
    raise InputError(
        f"{path} is not a collection: it must have docs.jsonl (or docs.jsonl.gz), queries.tsv and qrels.txt; "
        "or BEIR's corpus.jsonl; or a Hugging Face dataset saved as corpus."
    )
