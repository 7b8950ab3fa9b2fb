"""Exact gradients of documents with many passages, in the memory of a few passages.

Plain training keeps the encoder's activations of all passages until the backward pass. Here passages are encoded chunk
by chunk without keeping activations. The loss is computed from the passages' features through the aggregator, which
gives the gradient of each feature. Then each chunk is encoded again, with the same dropout, and the gradients of its
features are backpropagated through the encoder. The result is the plain gradient, but only one chunk's activations are
in memory at a time (gradient caching: Gao et al., 2021, for in-batch negatives of bi-encoders).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import get_device_states, set_device_states

from docparade.modeling import DocumentRanker
from docparade.modeling.bi_encoder import join_features

Autocast = Callable[[], AbstractContextManager[None]]


class CachedBackward:
    """Computes the loss of a batch and its gradients, encoding `chunk` passages at a time.

    Args:
        model: The ranker itself, not a distributed wrapper: gradients are not averaged over processes.
        chunk: Passages to encode at a time.
        backward: Backpropagates the loss, such as `accelerator.backward`, which may scale it.
        autocast: Context for the encoder and the aggregator, for mixed precision.
        compare_all: For a bi-encoder: whether every query of a batch is compared with every document.

    Example:
        ```python
        step = CachedBackward(model, chunk=8, backward=accelerator.backward)
        step(batch, lambda scores: (1 - scores[::2] + scores[1::2]).relu().mean())
        ```
    """

    def __init__(
        self,
        model: DocumentRanker,
        chunk: int,
        backward: Callable[[Tensor], None],
        autocast: Autocast,
        compare_all: bool = False,
    ) -> None:
        self.model = model
        self.chunk = chunk
        self.backward = backward
        self.autocast = autocast
        self.compare_all = compare_all

    def __call__(self, inputs: Mapping[str, Tensor], loss_of: Callable[[Tensor], Tensor]) -> Tensor:
        """Backpropagate and return the loss of a batch from `PairCollator`.

        `loss_of` computes the loss from the documents' scores, of shape `(documents,)`; with `compare_all`, of shape
        `(queries, documents)`.
        """
        mask = inputs["passage_mask"].bool()
        queries = self._encode_queries(inputs)
        # Chunks add their gradients up in a copy of the queries' vectors; the encoder gets the sum, once.
        collected = None if queries is None else queries.detach().requires_grad_()
        read = partial(self._read, _flatten(inputs, mask), mask.nonzero()[:, 0], collected)
        # Passages of similar length are encoded together, to save padding.
        order = inputs["attention_mask"][mask].sum(dim=1).argsort(descending=True, stable=True)
        chunks = order.split(self.chunk)
        states = []
        features = []
        with torch.no_grad():
            for rows in chunks[:-1]:
                states.append(_RandomState(order))
                features.append(read(rows))
        # The last chunk keeps its activations, so it is not encoded again.
        last = read(chunks[-1])
        leaf = join_features([*features, last.detach()])[order.argsort()].requires_grad_()
        with self.autocast():
            loss = loss_of(self._aggregate(leaf, mask))
        self.backward(loss)
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        *earlier_gradients, last_gradient = gradient[order].split(self.chunk)
        _backpropagate(last, last_gradient)
        del last
        for rows, state, chunk_gradient in zip(chunks[:-1], states, earlier_gradients, strict=True):
            # With MaxP and similar aggregations, most passages do not affect the loss.
            if chunk_gradient.any():
                with state.replay():
                    _backpropagate(read(rows), chunk_gradient)
        if queries is not None and collected is not None and collected.grad is not None:
            _backpropagate(queries, collected.grad)
        return loss.detach()

    def _read(self, passages: Mapping[str, Tensor], documents: Tensor, queries: Tensor | None, rows: Tensor) -> Tensor:
        """The features of some passages, as the aggregator takes them; with `compare_all` for each query.

        A bi-encoder's vectors are compared with the queries' at once: with late interaction they take hundreds of times
        the space of the features.

        Args:
            passages: The inputs of all passages.
            documents: Each passage's document.
            queries: For a bi-encoder: the queries' vectors.
            rows: The passages to encode.
        """
        longest = int(passages["attention_mask"][rows].sum(dim=1).max())
        # Each call needs its own autocast context: a shared one would cache weights that were cast without a graph.
        with self.autocast():
            features = self.model.encode(**{name: tensor[rows, :longest] for name, tensor in passages.items()})
            if queries is None:
                return features
            if self.compare_all:
                return self.model.relate_all(queries, features).transpose(0, 1)
            return self.model.relate(queries[documents[rows]], features)

    def _encode_queries(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """For a bi-encoder: the vectors of the documents' queries, which are short and keep their activations."""
        if "query_input_ids" not in inputs:
            return None
        with self.autocast():
            return self.model.encode_queries(inputs["query_input_ids"], inputs["query_attention_mask"])

    def _aggregate(self, features: Tensor, mask: Tensor) -> Tensor:
        if self.compare_all:
            return self.model.aggregate_all(features.transpose(0, 1), mask.sum(dim=1))
        passages = features.new_zeros((*mask.shape, *features.shape[1:]))
        passages[mask] = features
        return self.model.aggregator(passages, mask).score


def _flatten(inputs: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """The inputs of the real passages of all documents, `(passages, length)`."""
    return {
        name: tensor[mask]
        for name, tensor in inputs.items()
        if name != "passage_mask" and not name.startswith("query_")
    }


def _backpropagate(features: Tensor, gradient: Tensor) -> None:
    # The features of a frozen encoder have no graph.
    if features.requires_grad:
        # Features of other chunks may have more rows, one for each token: their padding has no gradient.
        features.backward(gradient[:, : features.size(1)] if features.dim() == 3 else gradient)


class _RandomState:
    """The current state of the random number generators of the CPU and of a tensor's device."""

    def __init__(self, tensor: Tensor) -> None:
        self.cpu = torch.get_rng_state()
        self.devices, self.states = get_device_states(tensor)

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Draw the same numbers again, and restore the generators' present state afterwards."""
        with torch.random.fork_rng(devices=self.devices):
            torch.set_rng_state(self.cpu)
            set_device_states(self.devices, self.states)
            yield


def average_gradients(model: torch.nn.Module) -> None:
    """Average every gradient over all processes, as a distributed wrapper would."""
    # Not accelerate's `reduce`: it copies every gradient, and waits for each before it sends the next.
    processes = torch.distributed.get_world_size()
    pending = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad /= processes
            pending.append(torch.distributed.all_reduce(parameter.grad, async_op=True))
    for work in pending:
        work.wait()
