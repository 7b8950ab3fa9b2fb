"""The table of readers, and their settings in config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from .reader import Reader, ReaderSettings
from .reader_bi_encoder import BiEncoder
from .reader_cross_encoder import CrossEncoder
from .reader_decoder_only import DecoderOnly
from .reader_encoder_decoder import EncoderDecoder
from .reader_late_interaction import LateInteraction
from .reader_layers import Layers

READERS: dict[str, type[Reader]] = {
    reader.settings_class.kind: reader
    for reader in (BiEncoder, LateInteraction, EncoderDecoder, DecoderOnly, CrossEncoder, Layers)
}
"""The kinds of readers, by their name in config.json; a plain model is offered to them in this order."""

INPUT_SETTINGS: dict[str, Any] = {
    name: value for reader in READERS.values() for name, value in reader.processor_settings.items()
}
"""Settings of the processor that belong to one kind of reader, with the values that all others need."""


def make_settings(values: Mapping[str, Any] | ReaderSettings) -> ReaderSettings:
    """The settings of a reader from its section of config.json: its `kind`, and the fields of that kind.

    Example:
        >>> make_settings({"kind": "bi_encoder", "pooling": ["mean"]}).similarity
        'cosine'
    """
    if is_dataclass(values):  # made by this copy of the code or, in a checkpoint's own folder, by another one
        values = {"kind": values.kind, **asdict(values)}
    if not isinstance(values, Mapping) or values.get("kind") not in READERS:
        kind = values.get("kind") if isinstance(values, Mapping) else values
        raise ValueError(
            f"reader: kind is {kind!r}, and has to be one of {', '.join(READERS)}. To use a reader of your own, first "
            "import the module that adds it to docparade.modeling.READERS."
        )
    settings = READERS[values["kind"]].settings_class
    given = {name: value for name, value in values.items() if name != "kind"}
    if unknown := sorted(given.keys() - {field.name for field in fields(settings)}):
        raise ValueError(f"reader: {', '.join(unknown)}: no setting of the kind {values['kind']!r}.")
    try:
        return settings(**given)
    except TypeError as error:  # a setting without a default is missing
        raise ValueError(f"reader of the kind {values['kind']!r}: {error}") from None
