"""What a card says about training: data, settings, learning curve, hardware and time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docparade.hub_cards.record_files import CURVE_FILE
from docparade.retrieval.evaluation.plots import BLUE, ORANGE, figure_axes

from .markdown import as_table
from .saved_model import SavedModel

# Arguments in the table; a row is left out if the argument has the value given here.
_SETTINGS: dict[str, Any] = {
    "loss": None,
    "margin": None,
    "temperature": 1.0,
    "teacher_temperature": None,
    "distillation_alpha": None,
    "examples": "pairs",
    "negatives": 1,
    "unretrieved_positives": False,
    "pairs_per_epoch": None,
    "passage_level": False,
    "resample_passages": False,
    "num_train_epochs": None,
    "max_steps": -1,
    "learning_rate": None,
    "head_learning_rate": None,
    "warmup_epochs": 0.0,
    "warmup_steps": 0,
    "decay": None,
    "weight_decay": 0.0,
    "max_grad_norm": None,
    "optim": None,
    "bf16": False,
    "fp16": False,
    "seed": None,
}


def training_data(model: SavedModel) -> list[str]:
    """A line for each stage: what it was trained on, and what its model was chosen by."""
    stages = model.record.get("stages", [])
    lines = []
    for number, stage in enumerate(stages, start=1):
        line = f"trained on {describe_data(stage['data'])}"
        if len(stages) > 1:
            line += f", loss `{stage['training']['loss']}`"
        if validation := [describe_data(data) for data in stage.get("validation", [])]:
            line += f"; the best checkpoint was chosen on {', '.join(validation)}"
        if teacher := stage.get("teacher"):
            line += f"; distilled from {teacher}"
        lines.append(f"Stage {number}: {line}." if len(stages) > 1 else f"{line[0].upper()}{line[1:]}.")
    return lines


def describe_data(data: dict[str, Any]) -> str:
    """A training, validation or test set in a few words."""
    names = data.get("collection") or data.get("triples") or []
    text = ", ".join(map(_linked, names)) if names else f"{data['name']} (not public)"
    if data.get("triples"):
        text += " (triples)"
    if data.get("max_queries"):
        text += f", {data['max_queries']} queries"
    if data.get("sample"):
        text += f", a {data['sample']['style']} sample of {data['sample']['rate']:g} of the judgments"
    if data.get("folds"):
        count = data["folds"].get("count")
        text += f", one of {count} folds" if count else ", one fold"
    return text


def settings_table(model: SavedModel) -> str:
    """The training arguments that matter, as a table; empty if they were not recorded, or nothing was trained."""
    if model.record.get("stages") == []:
        return ""
    arguments = model.record.get("arguments", {})
    rows = [
        (f"`{name}`", _shown(arguments[name]))
        for name, usual in _SETTINGS.items()
        if arguments.get(name) is not None and arguments[name] != usual
    ]
    if batch := _batch_size(model, arguments):
        counted = "documents" if arguments.get("examples") == "lists" else "pairs"
        rows.append((f"{counted} per step", str(batch)))
    if model.record.get("lora"):
        rows.append(("LoRA", "merged into the weights"))
    return as_table(["setting", "value"], rows) if rows else ""


def history_table(model: SavedModel) -> str:
    """The validation measure after each evaluation, as a table; empty without one."""
    history = model.record.get("history", [])
    if not history:
        return ""
    measure = model.record["arguments"]["measure"]
    best = model.record.get("best", {}).get("step")
    rows = [
        [f"**{one['step']}**" if one["step"] == best else one["step"], f"{one['epoch']:g}", f"{one[measure]:.4f}"]
        for one in history
    ]
    return as_table(["step", "epoch", f"{measure} (validation)"], rows)


def draw_learning_curve(model: SavedModel, folder: Path) -> str | None:
    """Draw validation measure and loss over steps into the folder; gives the file's name.

    `None` if there are fewer than two points, or no matplotlib. An old picture is then removed.
    """
    history, losses = model.record.get("history", []), model.log.get("losses", [])
    if max(len(history), len(losses)) < 2 or find_spec("matplotlib") is None:
        (folder / CURVE_FILE).unlink(missing_ok=True)
        return None
    measure = model.record.get("arguments", {}).get("measure", "")
    with figure_axes(folder / CURVE_FILE, "step", "training loss" if losses else f"{measure}, validation") as axes:
        lines = []
        if losses:
            points = [one["step"] for one in losses], [one["loss"] for one in losses]
            lines += axes.plot(*points, color=ORANGE, label="loss")
        if history:
            right = axes.twinx() if losses else axes
            points = [one["step"] for one in history], [one[measure] for one in history]
            lines += right.plot(*points, color=BLUE, marker="o", label=f"{measure}, validation")
            right.set_ylabel(f"{measure}, validation")
        axes.legend(handles=lines, loc="best")
    return CURVE_FILE


def describe_hardware(model: SavedModel) -> str:
    """Hardware, time and emissions, as far as they were measured."""
    hardware, parts = model.log.get("hardware") or {}, []
    if hardware.get("name"):
        processes = hardware.get("processes", 1)
        parts.append(hardware["name"] + (f", {processes} processes" if processes > 1 else ""))
    if model.log.get("seconds"):
        parts.append(f"{show_time(model.log['seconds'])} with validation")
    if model.log.get("emissions_kg") is not None:
        parts.append(f"{model.log['emissions_kg']:.3g} kg CO₂eq (CodeCarbon)")
    return f"Hardware and time: {'; '.join(parts)}." if parts else ""


def show_time(seconds: float) -> str:
    """A duration, for people.

    >>> show_time(42.3), show_time(100), show_time(7500)
    ('42 seconds', '1.7 minutes', '2.1 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"


def describe_versions(model: SavedModel) -> str:
    """The versions of the packages."""
    return ", ".join(f"{name} {version}" for name, version in model.record.get("versions", {}).items())


def _batch_size(model: SavedModel, arguments: dict[str, Any]) -> int | None:
    stages = model.record.get("stages", [])
    if stages and "batch_size" in stages[-1]["training"]:
        return int(stages[-1]["training"]["batch_size"])
    processes = (model.log.get("hardware") or {}).get("processes")
    parts = (arguments.get("per_device_train_batch_size"), arguments.get("gradient_accumulation_steps"), processes)
    return parts[0] * parts[1] * parts[2] if all(parts) else None  # type: ignore[operator]


def _linked(name: str) -> str:
    if name.startswith("hf:"):
        identifier = name.removeprefix("hf:")
        return f"[{identifier}](https://huggingface.co/datasets/{identifier})"
    if name.startswith("docparade:"):
        return f"`{name}`"
    return f"[{name}](https://ir-datasets.com/{name.partition('/')[0]}.html)"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def dataset_names(model: SavedModel) -> Iterator[str]:
    """The names of all collections that a model was trained on."""
    for stage in model.record.get("stages", []):
        yield from stage["data"].get("collection") or stage["data"].get("triples") or [stage["data"]["name"]]
