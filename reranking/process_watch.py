"""Processes that look after each other: when one is gone, the others end with a sentence instead of waiting for it.

torch waits for a process as long as its timeout allows, and here that is as long as work may take: days. A thread in
every process tells the others that it is alive, and looks at what they tell. A process is gone when it has been silent
for a while; one on the same machine, which may only be too busy to speak, when its process id is gone as well.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import psutil
from torch.distributed import PrefixStore, Store

BEAT = 5.0
"""Seconds from one sign of life to the next."""
SILENCE = 120.0
"""Seconds after which a process on another machine that gave no sign is gone."""
BEATS_MISSED = 3
"""On the same machine, a process whose id is gone is given up after so many."""

ALIVE, DONE, FAILED = "alive", "done", "failed"


class Watch(Thread):
    """The thread of one process.

    Args:
        store: What all processes write to and read from; a connection that is used for nothing else.
        rank: This process's number.
        size: How many processes there are.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        super().__init__(name="watch", daemon=True)
        self.store = PrefixStore("watch", store)
        self.rank, self.size = rank, size
        self.state: dict[str, Any] = {"is": ALIVE, **_identity()}
        self.others = {other: Peer() for other in range(size) if other != rank}
        self._stopped = Event()
        self._store_is_gone = False
        self._greet()
        # A daemon thread that is inside torch when Python ends would bring the process down.
        atexit.register(self.stop)

    def run(self) -> None:
        """Speak and look, until this process ends or another one is gone."""
        beat = 0
        while not self._stopped.is_set():
            beat += 1
            self._exchange(beat)
            for rank, other in self.others.items():
                # One that has failed says so itself, and one that is done needs nobody.
                if self.state["is"] == ALIVE and (sentence := other.why_gone(rank, self.size)):
                    self._end(sentence)
            self._stopped.wait(BEAT)

    def tell(self, is_now: str, sentence: str = "") -> None:
        """Tell the others what has become of this process."""
        self.state |= {"is": is_now, "sentence": sentence}
        self._exchange(-1)
        if is_now == FAILED and self.rank == 0:
            self._let_others_read()

    def _let_others_read(self) -> None:
        """Stay a while: this process may hold the store in which the others read why it failed."""
        end = time.monotonic() + 2 * BEAT
        while time.monotonic() < end and any(other.last["is"] == ALIVE for other in self.others.values()):
            time.sleep(BEAT / 20)
            self._exchange(-1)

    def wait_for_verdict(self) -> None:
        """Wait as long as it takes to notice that another process is gone, which ends this one."""
        here = all(other.on_this_machine for other in self.others.values())
        time.sleep(BEAT + (2 * BEATS_MISSED * BEAT if here else SILENCE))

    def stop(self) -> None:
        """Give no more signs of life."""
        self._stopped.set()
        if self.is_alive():
            self.join(BEAT)

    def _greet(self) -> None:
        """Wait until all have said who they are."""
        self.store.set(str(self.rank), json.dumps({**self.state, "beat": 0}))
        for rank, other in self.others.items():
            other.hear(json.loads(self.store.get(str(rank))))
        self.store.set_timeout(timedelta(seconds=SILENCE))

    def _exchange(self, beat: int) -> None:
        """Speak, and hear what the others say."""
        if self._store_is_gone:
            return
        try:
            self.store.set(str(self.rank), json.dumps({**self.state, "beat": beat}))
            for rank, other in self.others.items():
                other.hear(json.loads(self.store.get(str(rank))))
        except RuntimeError:
            # So is the process that held it: its silence tells.
            self._store_is_gone = True

    def _end(self, sentence: str) -> None:
        """End this process, whatever its main thread waits for."""
        print(f"docparade: {sentence}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)


class Peer:
    """What is known of another process."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.heard = time.monotonic()

    def hear(self, said: dict[str, Any]) -> None:
        """Take in what it last said."""
        if said != self.last:
            self.last, self.heard = said, time.monotonic()

    @property
    def on_this_machine(self) -> bool:
        """Whether it can be looked for among the processes here."""
        return bool(self.last.get("host") == socket.gethostname())

    def why_gone(self, rank: int, size: int) -> str:
        """A sentence about the end of this process; nothing while it is alive, or once its work is done."""
        name = f"process {rank} of {size} (counted from 0)"
        state, silence = self.last.get("is"), time.monotonic() - self.heard
        if state == DONE:
            return ""
        if state == FAILED:
            return f"{name} gave up, and the others with it: {self.last['sentence']}"
        if self.on_this_machine:
            gone = silence > BEATS_MISSED * BEAT and not _is_running(self.last["process"], self.last["started"])
        else:
            gone = silence > SILENCE
        if not gone:
            return ""
        return (
            f"{name} is gone: it was killed, or its machine cannot be reached. Start all processes again; what is done "
            "is kept."
        )


def _identity() -> dict[str, Any]:
    process = psutil.Process()
    return {"host": socket.gethostname(), "process": process.pid, "started": process.create_time()}


def _is_running(process: int, started: float) -> bool:
    """Whether a process of this machine runs; a later one may have its id."""
    try:
        found = psutil.Process(process)
        return found.create_time() == started and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
