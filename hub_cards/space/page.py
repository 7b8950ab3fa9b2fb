"""The Gradio page: a query, documents, one or two methods, and the rankings. `launch` serves it."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, cast
from urllib.parse import urlsplit

from transformers.utils import logging

from docparade.reranking.loading import load_ranker
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.errors import InputError

from .drawing import count, draw_error, draw_rankings
from .guard import CHECK_SECONDS, KEPT_SECONDS, Guard
from .ranking import Method, list_methods, rank_documents
from .sources import (
    EXAMPLE_QUERY,
    LIMITS,
    MAX_FILE_BYTES,
    READERS,
    FirstStageSource,
    SourceDocument,
    check_query,
    example_documents,
    read_files,
    split_typed,
)

logger = logging.get_logger(__name__)

DEFAULT_MODEL = str(files("docparade") / "default_ranker")
"""The ranker that comes with docparade."""
DEFAULT_DEPTH = 20
EXAMPLES, TYPED, UPLOADED, COLLECTION = "Examples", "Type or paste", "Upload files", "Search a collection"
NOTHING = "Nothing"
ANSWERS_AT_ONCE = 8
"""So many visitors are answered at the same time: one ranking, the others reading files or waiting for their turn."""
READINGS_AT_ONCE = 2
"""So many visitors have files read at the same time."""
MAX_WAITING = 100
"""So many visitors may wait."""

THEME = {
    "background_fill_primary": "var(--dp-card)",
    "background_fill_secondary": "var(--dp-page)",
    "block_background_fill": "var(--dp-card)",
    "block_border_color": "var(--dp-line)",
    "block_info_text_color": "var(--dp-soft)",
    "block_label_text_color": "var(--dp-soft)",
    "block_title_text_color": "var(--dp-ink)",
    "body_text_color": "var(--dp-ink)",
    "body_text_color_subdued": "var(--dp-soft)",
    "border_color_accent": "var(--dp-accent)",
    "border_color_primary": "var(--dp-line)",
    "button_primary_background_fill": "var(--dp-accent)",
    "button_primary_background_fill_hover": "var(--dp-accent)",
    "button_primary_text_color": "var(--dp-on-accent)",
    "checkbox_background_color_selected": "var(--dp-accent)",
    "checkbox_border_color_selected": "var(--dp-accent)",
    "checkbox_label_background_fill": "var(--dp-page)",
    "checkbox_label_background_fill_hover": "var(--dp-page)",
    "checkbox_label_background_fill_selected": "var(--dp-page)",
    "checkbox_label_border_color": "var(--dp-line)",
    "checkbox_label_border_color_selected": "var(--dp-accent)",
    "checkbox_label_text_color": "var(--dp-ink)",
    "checkbox_label_text_color_selected": "var(--dp-ink)",
    "input_background_fill": "var(--dp-page)",
    "input_border_color": "var(--dp-line)",
    "input_border_color_focus": "var(--dp-accent)",
    "input_placeholder_color": "var(--dp-soft)",
    "loader_color": "var(--dp-accent)",
}
"""The theme's colors, for light and dark alike: the variables differ."""

INTRODUCTION = """
<div class="dp-intro"><h1>Rank long documents</h1>
<p>The model reads every document to its end, passage by passage. Each document is shown as a strip of its passages,
and the passages that made its score are marked in the text.</p></div>
"""
TYPED_HINT = "Separate documents by a line of three dashes (---). The first line of a document is shown as its name."


@dataclass(frozen=True)
class Space:
    """The methods that the page offers, by label, and optionally a collection to search."""

    methods: dict[str, Method]
    first_stage: FirstStageSource | None = None
    ranking_turn: Lock = field(default_factory=Lock, repr=False, compare=False)
    reading_turn: BoundedSemaphore = field(
        default_factory=lambda: BoundedSemaphore(READINGS_AT_ONCE), repr=False, compare=False
    )

    @classmethod
    def open(cls, models: Sequence[str], collection: str | None = None, depth: int = DEFAULT_DEPTH) -> Space:
        """Load models and a collection by name; what cannot be loaded is an `InputError`."""
        first_stage = FirstStageSource(load_collection(collection), depth) if collection else None
        loaded = {_short_name(name, models): load_ranker(name, "--model") for name in dict.fromkeys(models)}
        return cls(list_methods(loaded), first_stage)

    @property
    def start_query(self) -> str:
        """The query that the page begins with: the collection's first, or the examples'."""
        if self.first_stage is not None:
            with suppress(InputError, StopIteration):  # not every collection has queries
                return next(iter(self.first_stage.collection.queries().values()))
        return EXAMPLE_QUERY

    @property
    def kinds(self) -> list[str]:
        """Where documents can come from; the first is chosen at the start."""
        return [*([COLLECTION] if self.first_stage else []), EXAMPLES, TYPED, UPLOADED]

    def answer(self, query: str, kind: str, typed: str, uploaded: Sequence[str] | None, label: str, other: str) -> str:
        """The rankings as HTML, or the sentence that says what is wrong."""
        try:
            query = check_query(query)
            documents = self.find_documents(query, kind, typed, uploaded)
            methods = [self.methods[name] for name in dict.fromkeys([label, other]) if name in self.methods]
            # Two rankings at a time would take longer than one after the other.
            with self.ranking_turn:
                rankings = rank_documents(methods, query, documents)
            return draw_rankings(query, rankings)
        except InputError as error:
            return draw_error(str(error))
        except Exception as error:  # a visitor gets a sentence, whoever runs the page the traceback
            logger.exception("The ranking failed.")
            return draw_error(f"The ranking failed ({type(error).__name__}). The log of the server has the details.")

    def find_documents(self, query: str, kind: str, typed: str, uploaded: Sequence[str] | None) -> list[SourceDocument]:
        """The documents of the chosen kind."""
        if kind == COLLECTION and self.first_stage is not None:
            return self.first_stage.search(query)
        if kind == TYPED:
            return split_typed(typed)
        if kind == UPLOADED:
            with self.reading_turn:
                return read_files(uploaded)
        return example_documents()


def _short_name(name: str, names: Sequence[str]) -> str:
    """The last part of a model's name, or the whole name if two end alike.

    >>> _short_name("org/parade", ["org/parade", "org/maxp"]), _short_name("a/best", ["a/best", "b/best"])
    ('parade', 'a/best')
    """
    last = Path(name).name
    return last if sum(Path(one).name == last for one in set(names)) == 1 else name


def read_style() -> str:
    """The CSS of the page and of `draw_rankings`."""
    return _read("page.css")


def _read(name: str) -> str:
    return (files("docparade.hub_cards.space") / name).read_text(encoding="utf-8")


def build_page(space: Space) -> Any:
    """The page as a `gradio.Blocks`."""
    gradio = import_gradio()
    labels, kinds = list(space.methods), space.kinds
    with gradio.Blocks(
        title="docparade: rank long documents", analytics_enabled=False, delete_cache=(CHECK_SECONDS, KEPT_SECONDS)
    ) as page:
        gradio.HTML(INTRODUCTION)
        with gradio.Row(equal_height=True, elem_id="dp-ask"):
            query = gradio.Textbox(space.start_query, label="Query", scale=6, min_width=240, elem_id="dp-query")
            button = gradio.Button("Rank", variant="primary", scale=1, min_width=120, elem_id="dp-rank")
        kind = gradio.Radio(kinds, value=kinds[0], label="Documents", elem_id="dp-kind")
        parts = {name: gradio.Column(visible=name == kinds[0]) for name in kinds}
        if space.first_stage is not None:
            with parts[COLLECTION]:
                gradio.HTML(_describe_collection(space.first_stage))
        with parts[EXAMPLES]:
            gradio.HTML(_list_examples())
        with parts[TYPED]:
            typed = gradio.Textbox(
                label="Your documents", info=TYPED_HINT, lines=8, max_lines=20, elem_id="dp-typed",
                placeholder="First document …\n---\nSecond document …",
            )  # fmt: skip
            gradio.HTML(f'<p class="dp-hint">{LIMITS}</p>')
        with parts[UPLOADED]:
            # Not limited to these kinds by Gradio: `read_file` says it better.
            kinds_of_files = ", ".join(READERS)
            uploaded = gradio.File(
                label=f"Your files ({kinds_of_files})", file_count="multiple", height=150, elem_id="dp-files"
            )
            _refuse_addresses(uploaded)
            gradio.HTML(f'<p class="dp-hint">{LIMITS} Files are deleted from the server after an hour.</p>')
        with gradio.Row(elem_id="dp-methods"):
            method = gradio.Dropdown(
                labels, value=labels[0], label="A document's score", filterable=False, min_width=300
            )
            other = gradio.Dropdown(
                [NOTHING, *labels], value=NOTHING, label="Compare with", filterable=False, min_width=300
            )
        results = gradio.HTML(js_on_load=_read("page.js"), apply_default_css=False, elem_id="dp-output")

        def show_part(chosen: str) -> list[Any]:
            return [gradio.Column(visible=name == chosen) for name in parts]

        hidden: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        kind.change(show_part, kind, list(parts.values()), queue=False, **hidden)
        gradio.on(
            [button.click, query.submit],
            space.answer,
            [query, kind, typed, uploaded, method, other],
            results,
            api_visibility="private",
            show_progress="minimal",
            concurrency_limit=ANSWERS_AT_ONCE,
        )
    # Every visitor waits in the queue.
    return page.queue(max_size=MAX_WAITING, api_open=False)


def _refuse_addresses(component: Any) -> None:
    """Let Gradio take files that were uploaded, and not download those that a request names by their addresses."""
    move_to_cache = component.async_move_resource_to_block_cache

    async def move_file_to_cache(path: str | Path | None) -> str | None:
        if path is not None and not Path(path).is_absolute():
            raise import_gradio().Error("A file has to be uploaded.")
        return cast("str | None", await move_to_cache(path))

    component.async_move_resource_to_block_cache = move_file_to_cache


def _list_examples() -> str:
    documents = "".join(
        f"<li>{html.escape(document.name)}<small>{count(len(document.text.split()), 'word')}</small></li>"
        for document in example_documents()
    )
    return f'<ul class="dp-examples">{documents}</ul>'


def _describe_collection(first_stage: FirstStageSource) -> str:
    name, size = html.escape(first_stage.collection.name), count(len(first_stage.collection), "document")
    return f'<p class="dp-hint">{name}, {size}. BM25 finds {first_stage.depth} of them, and the model ranks these.</p>'


def import_gradio() -> Any:
    """Gradio, or an `InputError` that says how to install it."""
    try:
        import gradio
    except ImportError as error:
        raise InputError("the page needs Gradio: pip install gradio pypdf") from error
    return gradio


def launch(
    models: Sequence[str],
    collection: str | None = None,
    depth: int = DEFAULT_DEPTH,
    **options: Any,
) -> Any:
    """Load the models, and serve the page.

    Args:
        models: Folders or Hub ids of rankers, cross-encoders or bi-encoders.
        collection: A collection to search with BM25, by name.
        depth: How many of its documents are ranked.
        **options: Arguments of `gradio.Blocks.launch`, such as `server_port`.

    Example:
        ```python
        launch([DEFAULT_MODEL], server_port=7860)
        ```
    """
    import_gradio()
    return serve(build_page(Space.open(models, collection, depth)), **options)


def make_theme() -> Any:
    """Gradio's theme in the colors of `page.css`, which has one set for light and one for dark."""
    themes = import_gradio().themes
    # The weight 600 of this font is incomplete in Gradio.
    plex = themes.LocalFont("IBM Plex Sans", weights=(400, 700))
    theme = themes.Base(radius_size="md", font=[plex, "system-ui", "sans-serif"], font_mono=["monospace"])
    return theme.set(**THEME, **{f"{name}_dark": value for name, value in THEME.items()}, block_title_text_weight="700")


def serve(page: Any, **options: Any) -> Any:
    """Serve a page from `build_page`; see `launch`."""
    from starlette.middleware import Middleware

    def own_names() -> set[str]:
        names = {os.environ.get("GRADIO_SERVER_NAME", ""), urlsplit(page.share_url or "").hostname or ""}
        return {name.strip().lower() for name in [*names, *os.environ.get("SPACE_HOST", "").split(",")]} - {""}

    return page.launch(
        app_kwargs={"middleware": [Middleware(Guard, own_names=own_names)]},
        # Every request goes through the guard: not through the servers that Gradio puts before this one.
        ssr_mode=False,
        num_workers=0,
        theme=make_theme(),
        css=read_style(),
        footer_links=[],
        run_history=False,
        pwa=False,
        enable_monitoring=False,
        max_file_size=MAX_FILE_BYTES,
        **options,
    )
