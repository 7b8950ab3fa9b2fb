"""The card of an adapter: how it is loaded, and what was measured while it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from docparade.hub_cards.record_files import ADAPTER, CARD_FILE, RECORD_FILE, read_json
from docparade.retrieval.storage.files import atomic_write

from .fields import CardFields


def write_adapter_card(folder: Path, fields: CardFields) -> Path:
    """Write the card of an adapter whose configuration names the ranker it belongs to."""
    base = str(read_json(folder / ADAPTER)["base_model_name_or_path"])
    data = ModelCardData(
        license=fields.license,
        language=list(fields.language) or None,
        base_model=base,
        base_model_relation="adapter",
        library_name="peft",
        pipeline_tag="text-ranking",
        tags=["docparade", "lora"],
    )
    record = read_json(folder / RECORD_FILE)
    sections = [_USE.format(title=str(fields.repo_id).partition("/")[2], base=base, repo_id=fields.repo_id)]
    sections += _describe_validation(record)
    path = folder / CARD_FILE
    with atomic_write(path) as file:
        file.write(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(sections))
    return path


def _describe_validation(record: dict[str, Any]) -> list[str]:
    best = dict(record.get("best", {}))
    step, _ = best.pop("step", None), best.pop("epoch", None)
    found = ", ".join(f"{measure} = {value:.4f}" for measure, value in best.items())
    return [f"## Validation\n\nOn the validation queries, at step {step}: {found}.\n"] if found else []


_USE = """# {title}

An adapter for the ranker of long documents [{base}](https://huggingface.co/{base}).

```python
from transformers import AutoModel     # and pip install peft

model = AutoModel.from_pretrained("{repo_id}", trust_remote_code=True)
model.rank("why is the sky blue", ["a long document", "another long document"])
```
"""
