"""Weights at aligned addresses, so that products round the same in every process."""

from docparade.modeling import DocumentRanker

ALIGNMENT = 64
"""torch's own alignment of memory on a CPU, in bytes."""


def align_weights(model: DocumentRanker) -> None:
    """Move weights on a CPU to aligned addresses; their values do not change.

    A single process maps weights from the checkpoint's file, at any address; several processes copy them. Matrix
    products round differently at unaligned addresses, so scores would otherwise differ in the last digit.
    """
    for weights in (*model.parameters(), *model.buffers()):
        if weights.device.type == "cpu" and weights.data_ptr() % ALIGNMENT:
            weights.data = weights.data.clone()
