"""Flash attention over inputs of different length, without a GPU."""

from __future__ import annotations

import torch


def flash_by_formula(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    num_splits: int | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """What torch's flash attention over inputs of different length computes: its kernel needs a GPU."""
    assert num_splits == 1, "otherwise, a score depends on the other inputs of the row"
    asked, given = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert (max(asked), max(given)) == (max_q, max_k)
    outputs = []
    for q_part, k_part, v_part in zip(q.split(asked), k.split(given), v.split(given), strict=True):
        weights = torch.einsum("qhd,khd->hqk", q_part, k_part) * (scale or q.size(-1) ** -0.5)
        if window_size != (-1, -1):
            assert len(q_part) == len(k_part), "otherwise, the window is at the end of the keys"
            places = torch.arange(len(k_part), device=q.device)
            weights = weights.masked_fill((places[:, None] - places).abs() > window_size[0], -torch.inf)
        outputs.append(torch.einsum("hqk,khd->qhd", weights.softmax(dim=-1), v_part))
    return torch.cat(outputs)
