"""Late interaction (ColBERT: Khattab and Zaharia, 2020): a vector for every token, and one for the whole input.

The score of a passage adds how well each token of the query is matched by the passage's best token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .reader_bi_encoder import BiEncoder, BiEncoderSettings, Calibration, unit_vectors

if TYPE_CHECKING:
    from .processing_document import DocumentProcessor


class LateInteractionSettings(BiEncoderSettings):
    """The settings of a bi-encoder with one pooling and no dense layers."""

    kind = "late_interaction"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dense or len(self.pooling) > 1:
            raise ValueError("late_interaction needs a bi-encoder with one pooling and no dense layers.")


class LateInteraction(BiEncoder):
    """A bi-encoder that also gives the vectors of tokens: `(inputs, 1 + length, width)`.

    The vector of the whole input comes first, and then the vectors of its tokens. These have length 1, but padding and
    special tokens have zero vectors: special tokens are in every text, and would match each other.
    """

    settings_class = LateInteractionSettings
    features = frozenset({"score"})
    single_vector = False
    described_matches = (
        " plus, times a learned weight, how well the passage matches the query's tokens (late interaction: the mean, "
        "over these, of the greatest cosine with a token of the passage)"
    )
    drawn_matches = " + matches"

    special: tuple[int, int] | None = None
    """How many special tokens an input begins and ends with."""

    def use_format(self, processor: DocumentProcessor | None) -> None:
        """Take over how many special tokens there are."""
        template = None if processor is None else processor.single_template
        self.special = None if template is None else (len(template.before), len(template.after))

    @property
    def all_states(self) -> bool:
        """True: every token has a vector."""
        return True

    def make_vectors(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """The vectors of inputs and of their tokens."""
        if self.special is None:
            raise ValueError("The model has no processor, so it cannot tell special tokens: set model.processor.")
        before, after = self.special
        places = torch.arange(states.size(1), device=states.device)
        of_text = (places >= before) & (places < attention_mask.sum(dim=1, keepdim=True) - after)
        own = super().make_vectors(states, attention_mask)
        return torch.cat([own.unsqueeze(1), unit_vectors(states) * of_text.unsqueeze(-1)], dim=1)

    def new_calibration(self) -> MatchCalibration:
        """The module that makes scores of similarities and matches."""
        return MatchCalibration()

    def compare(self, queries: Tensor, passages: Tensor) -> tuple[Tensor, ...]:
        """The similarities, and how well tokens match; only the similarities if passages have no token vectors."""
        similarities = super().compare(without_tokens(queries), without_tokens(passages))
        if passages.dim() == 2:
            return similarities
        return (*similarities, match_tokens(queries[:, 1:], passages[:, 1:]))

    def compare_all(self, queries: Tensor, passages: Tensor) -> tuple[Tensor, ...]:
        """The similarities and matches of all pairs, query by query."""
        if passages.dim() == 2:
            return super().compare_all(queries, passages)
        rows = [self.compare(query.expand(len(passages), *query.shape), passages) for query in queries]
        return tuple(torch.stack(values) for values in zip(*rows, strict=True))


class MatchCalibration(Calibration):
    """Also the learned weight of the tokens' matches beside the similarity."""

    def __init__(self) -> None:
        super().__init__()
        self.match_weight = nn.Parameter(torch.ones(()))

    def forward(self, similarities: Tensor, matches: Tensor | None = None) -> Tensor:
        """Scores from similarities, and from tokens' matches where they were compared."""
        if matches is not None:
            similarities = similarities + self.match_weight.to(matches.dtype) * matches
        return super().forward(similarities)


def match_tokens(queries: Tensor, passages: Tensor) -> Tensor:
    """How well passages match the tokens of queries, row by row: `(inputs,)`.

    The mean, over the query's tokens, of the greatest cosine with a token of the passage; 0 if one of them has no
    tokens. Vectors of padding and of special tokens are zero.

    Args:
        queries: The vectors of the queries' tokens, `(inputs, query length, width)`.
        passages: The vectors of the passages' tokens, `(inputs, length, width)`.
    """
    if not passages.size(1):
        return queries.new_zeros(len(queries))
    cosines = torch.bmm(queries, passages.transpose(1, 2))
    in_passage, in_query = passages.any(dim=-1).unsqueeze(1), queries.any(dim=-1)
    best = cosines.masked_fill(~in_passage, -torch.inf).amax(dim=-1)
    matched = in_query & in_passage.any(dim=-1)
    return best.where(matched, 0).sum(dim=-1) / in_query.sum(dim=-1).clamp_min(1)


def without_tokens(vectors: Tensor) -> Tensor:
    """The vectors of whole inputs, `(inputs, width)`, without the vectors of tokens."""
    return vectors[:, 0] if vectors.dim() == 3 else vectors
