"""A GPU where there is none: tensors that say `cuda:0`, hold real values, and refuse to meet those of the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")

# What takes tensors of both devices: copies, and indices, which torch moves to the device of what they select from.
_MOVES = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.copy_}
_SELECTS = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
# What leaves the device by itself: Python's own values, and what is read of a tensor's form.
_READS = {torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__}


class GpuTensor(torch.Tensor):
    """A tensor that says it is on a GPU; its values are in memory."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return GPU

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False


class FakeGpu(TorchFunctionMode):
    """In this context, tensors are made, moved and checked as if there were a GPU."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in _MOVES:
            return self._move(function, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        on_gpu = any(isinstance(tensor, GpuTensor) for tensor in tensors)
        asked = kwargs.get("device")
        if asked is not None:
            on_gpu, kwargs["device"] = torch.device(asked).type == "cuda", CPU
        elif on_gpu:
            _check_devices(function, args, tensors)
        if on_gpu and function is torch.Tensor.numpy:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        result = function(*_as_plain(args), **_as_plain(kwargs))
        if not on_gpu or function in _READS:
            return result
        # What changes a tensor in place returns that tensor.
        if re.fullmatch(r"\w*[a-z]_", function.__name__) and isinstance(result, torch.Tensor):
            return tensors[0]
        return _as_gpu(result)

    def _move(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        tensor, *others = args
        result = function(*_as_plain(args), **_as_plain(kwargs))
        if function is torch.Tensor.copy_:
            return tensor
        named = (_device_of(value) for value in (*others, *kwargs.values()))
        device = CPU if function is torch.Tensor.cpu else next(filter(None, named), tensor.device)
        return _as_gpu(result) if device == GPU else result


def move_to_gpu(model: nn.Module) -> None:
    """Let all weights of a model say that they are on a GPU."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                moved = torch.Tensor._make_subclass(GpuTensor, parameter.detach(), parameter.requires_grad)
                moved._is_param = True  # type: ignore[attr-defined]
                module._parameters[name] = moved  # type: ignore[assignment]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = _as_gpu(buffer)


def _check_devices(function: Callable[..., Any], args: tuple, tensors: list[torch.Tensor]) -> None:
    if function in _SELECTS and isinstance(args[0], GpuTensor):
        return
    # torch takes a single number from the CPU everywhere.
    apart = [tensor for tensor in tensors if not isinstance(tensor, GpuTensor) and tensor.dim() > 0]
    if apart:
        raise RuntimeError(f"Expected all tensors to be on the same device: {function} has one of the CPU.")


def _device_of(value: Any) -> torch.device | None:
    if isinstance(value, torch.Tensor):
        return value.device
    return torch.device(value) if isinstance(value, (str, torch.device)) else None


def _as_plain(values: Any) -> Any:
    """Values as torch has to get them: on the CPU."""
    plain = tree_map_only(GpuTensor, lambda tensor: tensor.as_subclass(torch.Tensor), values)
    return tree_map_only(torch.device, lambda device: CPU, plain)


def _as_gpu(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.as_subclass(GpuTensor), values)
