"""A tiny world to train in, and processes to train with."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, TrainerCallback

from docparade import DocumentRanker
from docparade.reranking import QuerySet
from docparade.retrieval import Qrels, Run
from docparade.trainer.arguments import RankingTrainingArguments
from docparade.trainer.data.labeled_documents import LabeledDocuments, TrainingExample
from docparade.trainer.data.pairs import PairSampler
from docparade.trainer.distillation import DistillationTrainer
from docparade.trainer.trainer import RankingTrainer
from support.project import WORDS

# The server of processes imports these once; each of its processes then starts in no time.
multiprocessing.set_forkserver_preload(["docparade.trainer.trainer", "docparade.modeling"])


@dataclass
class World:
    """Queries of two words each, documents in which those words stand or do not, and lists of both."""

    queries: dict[str, str] = field(default_factory=dict)
    documents: dict[str, dict[str, str]] = field(default_factory=dict)
    run: Run = field(default_factory=dict)
    qrels: Qrels = field(default_factory=dict)

    def sampler(self, pairs_per_epoch: int | None = 12, **options: Any) -> PairSampler:
        return PairSampler(self.run, self.qrels, self.queries, pairs_per_epoch=pairs_per_epoch, seed=7, **options)

    def validation(self, name: str = "dev", documents: Any = None) -> QuerySet:
        return QuerySet(name, self.queries, self.run, self.qrels, documents or self.documents)


def world(queries: int = 5) -> World:
    made = World()
    draw = random.Random(3)
    for number in range(queries):
        query = f"q{number}"
        words = draw.sample(WORDS, 2)
        made.queries[query] = " ".join(words)
        made.run[query], made.qrels[query] = {}, {}
        for place in range(8):
            relevant = place in (2, 5)
            text = draw.choices(WORDS, k=draw.choice([4, 15, 30, 60])) + (words * 3 if relevant else [])
            draw.shuffle(text)
            document = f"{query}-d{place}"
            made.documents[document] = {"id": document, "title": "", "headings": "", "text": " ".join(text)}
            made.run[query][document] = 10.0 - place
            if place < 6:
                made.qrels[query][document] = int(relevant)
    return made


def arguments(folder: Path | str, **options: Any) -> RankingTrainingArguments:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 11,
        **options,
    }
    return RankingTrainingArguments(str(folder), **settings)


def without_dropout(model: DocumentRanker, probability: float = 0.0) -> DocumentRanker:
    """The model itself, with another probability of dropout: by default none."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = probability
    return model


# --- Training in processes of their own, which may be killed ---------------------------------------------------------


@dataclass
class Job:
    """A training: what, where, and when it kills itself."""

    model: str
    folder: str
    options: dict[str, Any]
    resume: bool = False
    kill_at_step: int | None = None
    kill_in_evaluation: int | None = None
    """At which reading of a validation document, counted from the first."""
    lora: bool = False
    teacher: str | None = None


def run_job(job: Job, processes: int = 1) -> list[dict[str, Any]]:
    """Train in new processes; what each reports, or nothing where one was killed."""
    context = multiprocessing.get_context("forkserver")
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [context.Process(target=_work, args=(job, rank, processes, port)) for rank in range(processes)]
    for worker in workers:
        worker.start()
    killed = False
    for worker in workers:
        worker.join(5 if killed else 120)
        killed = killed or worker.exitcode == -signal.SIGKILL
    for worker in workers:
        # What waits for a killed process is ended, as torchrun does.
        if worker.is_alive():
            worker.kill()
            worker.join()
    if job.kill_at_step is not None or job.kill_in_evaluation is not None:
        assert killed, "the training was to be killed, and was not"
        return []
    codes = [worker.exitcode for worker in workers]
    assert codes == [0] * processes, f"exit codes: {codes}"
    return [json.loads(Path(job.folder, f"report-{rank}.json").read_text()) for rank in range(processes)]


def _work(job: Job, rank: int, processes: int, port: int) -> None:
    torch.set_num_threads(1)
    if processes > 1:
        os.environ |= {
            "ACCELERATE_USE_CPU": "true",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    # The process that is killed is the last one, so that with two of them the first waits for it in vain.
    dies = rank == processes - 1
    trainer = _trainer(job, dies)
    trainer.train_dataset.numbers.clear()  # building a trainer looks at one pair; what counts is what is learned from
    trainer.train(resume_from_checkpoint=job.resume)
    report = {
        "processes": torch.distributed.get_world_size() if processes > 1 else 1,
        "numbers": trainer.train_dataset.numbers,
        "losses": {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry},
        "norms": {entry["step"]: entry["grad_norm"] for entry in trainer.state.log_history if "loss" in entry},
        "measures": {e["step"]: e["eval_nDCG@5"] for e in trainer.state.log_history if "eval_nDCG@5" in e},
    }
    Path(job.folder, f"report-{rank}.json").write_text(json.dumps(report))
    if rank == 0:
        torch.save(trainer.ranker.state_dict(), Path(job.folder, "weights.pt"))
    if processes > 1:
        torch.distributed.barrier()
        sys.stdout.flush()
        # All is written. Leave without taking torch's process group apart, in which one may be faster than the other.
        os._exit(0)


def _trainer(job: Job, dies: bool) -> RankingTrainer:
    there = world()
    documents = _Deadly(there.documents, job.kill_in_evaluation if dies else None)
    callbacks = [_KillAtStep(job.kill_at_step)] if dies and job.kill_at_step is not None else []
    sampler: PairSampler | LabeledDocuments = there.sampler()
    if job.options.get("examples") == "lists":
        sampler = LabeledDocuments.from_run(there.run, there.qrels, there.queries, seed=7)
    model = AutoModel.from_pretrained(job.model)
    if job.lora:
        torch.manual_seed(0)
        targets = {"target_modules": r"encoder\..*\.(query|value)", "modules_to_save": ["aggregator"]}
        model = get_peft_model(model, LoraConfig(r=4, **targets))
    kind = RankingTrainer if job.teacher is None else partial(DistillationTrainer, teacher=job.teacher)
    return kind(
        model,
        arguments(job.folder, **job.options),
        _Recorded(sampler),
        there.queries,
        there.documents,
        there.validation(documents=documents) if job.options.get("eval_strategy", "no") != "no" else None,
        callbacks=callbacks,
    )


class _Recorded:
    """The pairs, and which of them were asked for."""

    def __init__(self, pairs: PairSampler | LabeledDocuments) -> None:
        self.pairs = pairs
        self.numbers: list[int] = []

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, number: int) -> TrainingExample:
        self.numbers.append(number)
        return self.pairs[number]


class _Deadly(dict):
    """Documents of which the n-th that is read kills the process."""

    def __init__(self, documents: dict[str, dict[str, str]], deadly: int | None) -> None:
        super().__init__(documents)
        self.left = deadly

    def __getitem__(self, key: str) -> dict[str, str]:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(key)


class _KillAtStep(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="session")
def small() -> World:
    """A collection of four queries."""
    return world(4)
