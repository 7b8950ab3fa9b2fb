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
        passages = {
            name: tensor[mask]
            for name, tensor in inputs.items()
            if name != "passage_mask" and not name.startswith("query_")
        }
        # Passages of similar length are encoded together, to save padding.
        order = passages["attention_mask"].sum(dim=1).argsort(descending=True, stable=True)
        chunks = order.split(self.chunk)
        states = []
        features = []
        with torch.no_grad():
            for rows in chunks[:-1]:
                states.append(_RandomState(order))
                features.append(self._encode(passages, rows))
        # The last chunk keeps its activations, so it is not encoded again.
        last = self._encode(passages, chunks[-1])
        leaf = join_features([*features, last.detach()])[order.argsort()].requires_grad_()
        with self.autocast():
            loss = loss_of(self._score(leaf, mask, queries))
        self.backward(loss)
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        *earlier_gradients, last_gradient = gradient[order].split(self.chunk)
        _backpropagate(last, last_gradient)
        del last
        for rows, state, chunk_gradient in zip(chunks[:-1], states, earlier_gradients, strict=True):
            # With MaxP and similar aggregations, most passages do not affect the loss.
            if chunk_gradient.any():
                with state.replay():
                    _backpropagate(self._encode(passages, rows), chunk_gradient)
        return loss.detach()

    def _encode(self, passages: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        longest = int(passages["attention_mask"][rows].sum(dim=1).max())
        # Each call needs its own autocast context: a shared one would cache weights that were cast without a graph.
        with self.autocast():
            return self.model.encode(**{name: tensor[rows, :longest] for name, tensor in passages.items()})

    def _encode_queries(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """For a bi-encoder: the vectors of the documents' queries, which are short and keep their values."""
        if "query_input_ids" not in inputs:
            return None
        with self.autocast():
            return self.model.encode_queries(inputs["query_input_ids"], inputs["query_attention_mask"])

    def _score(self, features: Tensor, mask: Tensor, queries: Tensor | None) -> Tensor:
        if queries is not None:
            if self.compare_all:
                return self.model.score_all(queries, features, mask.sum(dim=1))
            features = self.model.relate(queries.repeat_interleave(mask.sum(dim=1), dim=0), features)
        passages = features.new_zeros((*mask.shape, *features.shape[1:]))
        passages[mask] = features
        return self.model.aggregator(passages, mask).score


def _backpropagate(features: Tensor, gradient: Tensor) -> None:
    # The features of a frozen encoder have no graph.
    if features.requires_grad:
        # Token vectors of other chunks may be longer: their padding has no gradient.
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
