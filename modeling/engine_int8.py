"""An encoder whose linear layers hold 8-bit integers: a quarter of the size, faster on a CPU, and not exact.

A weight is an integer times the scale of its row. Each token's vector is rounded to integers with a scale of its own,
so a document's score does not depend on the rest of the batch, as it would with one scale for the batch. oneDNN
multiplies the integers if torch has it for the device; otherwise they are multiplied as floats.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

Ranker = TypeVar("Ranker", bound="DocumentRanker")

# The largest integer of a weight, and of an input, which has no sign. CPUs without VNNI add two products in 16 bits,
# which larger integers would overflow, without an error.
LARGEST_WEIGHT, LARGEST_INPUT = 127, 127


class Int8Linear(nn.Module):
    """A linear layer of 8-bit integers: y = x̂ Ŵᵀ + b, where x̂ and Ŵ are x and W rounded to 127 steps.

    The steps of a row of W go up to its largest weight; the steps of a row of x, from its least value to its greatest.

    Example:
        >>> layer = Int8Linear.of(nn.Linear(384, 1536))
        >>> layer(torch.zeros(1, 384)).shape
        torch.Size([1, 1536])
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("bias", torch.zeros(outputs))
        self._ready: tuple[Tensor, Tensor, Tensor] | None = None

    @classmethod
    def of(cls, linear: nn.Linear) -> Int8Linear:
        """Round a linear layer."""
        layer = cls(linear.in_features, linear.out_features)
        weight = linear.weight.detach().float()
        layer.scale = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / LARGEST_WEIGHT
        layer.weight = (weight / layer.scale[:, None]).round().to(torch.int8)
        if linear.bias is not None:
            layer.bias = linear.bias.detach().float()
        return layer

    def forward(self, states: Tensor) -> Tensor:
        """Multiply in integers."""
        if torch.is_grad_enabled() and states.requires_grad:
            raise RuntimeError("An int8 ranker cannot be trained: train the one it was made from, and export it again.")
        packed, row_sums, zeros = self._ready or self._prepare()
        rows = states.flatten(0, -2).float()
        # aminmax takes more than ten times as long as these two.
        least, greatest = rows.amin(dim=-1, keepdim=True), rows.amax(dim=-1, keepdim=True)
        step = (greatest - least) / LARGEST_INPUT
        step.masked_fill_(step == 0, 1)  # a row of equal values
        # (x − least) / step + 1/2: the conversion to integers drops the fraction, so this rounds.
        integers = rows.mul(1 / step).add_(0.5 - least / step).to(torch.uint8)
        # x̂ = step · integers + least, so x̂ Ŵᵀ = step · (integers Ŵᵀ) + least · (sums of Ŵ's rows).
        outputs = torch.addmm(self.bias.float(), least, row_sums)
        outputs = outputs.addcmul_(self._multiply(integers, packed, zeros), step)
        return outputs.unflatten(0, states.shape[:-1]).to(states.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ready": None}  # weights in oneDNN's format cannot be copied

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._ready = None
        super()._load_from_state_dict(*arguments, **options)

    def _apply(self, *arguments: Any, **options: Any) -> Int8Linear:
        self._ready = None  # it belongs to one device
        return super()._apply(*arguments, **options)

    def _prepare(self) -> tuple[Tensor, Tensor, Tensor]:
        """Compute once: the weights in oneDNN's format, the sums of their rows, and zero points."""
        packed = self.weight
        if _has_integer_products(packed.device):
            packed = torch.ops.onednn.qlinear_prepack(self.weight, None)
        zeros = torch.zeros_like(self.scale, dtype=torch.int32)
        self._ready = packed, (self.weight.sum(dim=1) * self.scale.float())[None], zeros
        return self._ready

    def _multiply(self, integers: Tensor, packed: Tensor, zeros: Tensor) -> Tensor:
        if not _has_integer_products(integers.device):
            return F.linear(integers.float(), packed.float()) * self.scale.float()
        return torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, 0, packed, self.scale.float(), zeros, None, 1.0, 0, torch.float32, "none", [], "none"
        )


def to_int8(model: Ranker) -> Ranker:
    """A copy of a ranker whose encoder computes in 8-bit integers. It is saved, loaded and used like any other.

    Example:
        ```python
        to_int8(AutoModel.from_pretrained("org/ranker")).save_pretrained("ranker-int8")
        ```
    """
    if model.config.int8:
        raise ValueError("The ranker is in int8 already.")
    quantized = copy.deepcopy(model).float()
    quantized.config.int8 = True
    replace_linears(quantized.encoder)
    return quantized.eval()


def replace_linears(encoder: PreTrainedModel) -> None:
    """Replace the linear layers of an encoder's body, except its pooler, by layers of integers."""
    for name, module in list(encoder.base_model.named_modules()):
        if "pooler" in name:
            continue
        for child_name, child in module.named_children():
            if isinstance(child, nn.Linear) and "pooler" not in child_name:
                setattr(module, child_name, Int8Linear.of(child))


def _has_integer_products(device: torch.device) -> bool:
    on_cpu = device.type == "cpu" and torch.backends.mkldnn.is_available()
    return on_cpu and hasattr(torch.ops.onednn, "qlinear_pointwise")
