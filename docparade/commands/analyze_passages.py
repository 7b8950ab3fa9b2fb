"""`docparade analyze relevant-passages`: how many relevant passages documents have."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.inputs import read_judgments
from docparade.commands.output import JsonOption, PlotOption, check_outputs, counted, note, print_json, print_table
from docparade.retrieval.errors import InputError, check_choice

if TYPE_CHECKING:
    from docparade.retrieval.runs import PassageGrades

FORMS = {"trec": 1, "fira": 3, "webap": 3, "genomics": 1}
"""How judgments of passages are written, and the lowest grade of a relevant passage, as in Li et al. (2023)."""


def relevant_passages(
    passages: Annotated[
        str, typer.Argument(help="Judgments of passages: a file, or for 'trec' and 'genomics' an ir_datasets id.")
    ],
    mapping: Annotated[
        str | None,
        typer.Argument(help="For 'trec': a file of lines 'passage document', or msmarco-qna, which has MS MARCO's."),
    ] = None,
    form: Annotated[str, typer.Option(help="How they are written: trec, fira, webap or genomics.")] = "trec",
    min_grade: Annotated[
        int | None,
        typer.Option(help="The lowest grade of a relevant passage.", show_default="3 for fira and webap, else 1"),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Count only documents that are relevant in this collection.")
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Count only documents that are relevant in this qrels file.")
    ] = None,
    min_document_grade: Annotated[
        int | None, typer.Option(help="The lowest grade of a relevant document.", show_default="1")
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    r"""How many relevant passages documents have, from judgments of passages.

    If nearly all documents have one, the best passage is enough; if many have several, combining passages can help.

    - **trec**: TREC judgments; the mapping names the document of each passage, or several.
    - **fira**: FiRA's file fira-trec19-qrels-snippets.txt.
    - **webap**: WebAP's file grade.trectext_patched. Perfect is grade 4, fair is 1. A relevant sentence and those after
      it are one passage of at most 130 words.
    - **genomics**: the passages that TREC Genomics judged, highwire/trec-genomics-2006 or a file of the track.

    Examples:

        docparade analyze relevant-passages --form fira \
            fira-trec19-qrels-snippets.txt
        docparade analyze relevant-passages --min-grade 3 \
            msmarco-passage/trec-dl-2019/judged msmarco-qna \
            --collection msmarco-document/trec-dl-2019 --min-document-grade 2
    """
    from docparade.retrieval.evaluation import analyses

    check_outputs({"--plot": plot})
    documents = None if collection is None and qrels is None else read_judgments(collection, qrels)
    if min_document_grade is not None and documents is None:
        raise InputError("--min-document-grade needs judgments of documents; add --qrels or --collection.")
    chosen = check_choice(form, tuple(FORMS), "--form")
    lowest = FORMS[chosen] if min_grade is None else min_grade
    judged = _read_passages(passages, mapping, chosen, lowest)
    counts = analyses.relevant_passages(
        judged, lowest, documents, 1 if min_document_grade is None else min_document_grade
    )
    shares = analyses.passage_shares(counts)
    if plot:
        from docparade.retrieval.evaluation.plots import plot_relevant_passages

        plot_relevant_passages(plot, counts)
        note(f"the plot is in {plot}.")
    if as_json:
        print_json({"documents": counts, "shares": shares})
        return
    rows = [[number, f"{100 * share:.0f}%"] for number, share in shares.items()]
    print_table(counted(sum(counts.values()), "document"), ["relevant passages", "documents"], rows)


def _read_passages(source: str, mapping: str | None, form: str, min_grade: int) -> "PassageGrades":
    from docparade.retrieval.collections import passage_judgments

    if (mapping is not None) != (form == "trec"):
        raise InputError(
            "name the document of each passage: a file of lines 'passage document', or msmarco-qna."
            if mapping is None
            else f"--form {form} needs no mapping; leave out {mapping}."
        )
    if form == "fira":
        return passage_judgments.read_fira(source)
    if form == "webap":
        return passage_judgments.read_webap(source, min_grade)
    if form == "genomics":
        return passage_judgments.read_genomics(source)
    qrels = read_judgments(None, Path(source)) if Path(source).is_file() else read_judgments(source, None)
    relevant = [passage for grades in qrels.values() for passage, grade in grades.items() if grade >= min_grade]
    if Path(str(mapping)).is_file():
        documents_of = passage_judgments.read_passage_map(str(mapping))
    else:
        documents_of = passage_judgments.load_passage_map(str(mapping), set(relevant))
    if missing := sum(passage not in documents_of for passage in relevant):
        note(f"{missing} of {counted(len(relevant), 'relevant passage')} have no document in {mapping}: left out.")
    return passage_judgments.place_passages(qrels, documents_of)
