"""A watch over the processes of a group: when one dies, the others exit with a message instead of waiting for it.

torch waits for another process until its timeout, which here is as long as work may take: days. So a thread in every
process writes heartbeats to a shared store and reads those of the others. A process on another machine counts as dead
once its heartbeats have stopped for a while. One on the same machine may just be too busy to write them: it counts as
dead only if its process id is gone, too.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from threading import Event, Thread
from typing import Literal

import psutil
from torch.distributed import PrefixStore, Store

BEAT_SECONDS = 5.0
"""Time between two heartbeats."""
SILENCE_SECONDS = 120.0
"""Without heartbeats for this long, a process on another machine counts as dead."""
MISSED_BEATS = 3
"""After this many missed heartbeats, a process on the same machine whose id is gone counts as dead."""

State = Literal["alive", "done", "failed"]


@dataclass(frozen=True)
class Status:
    """What a process tells the others."""

    host: str
    process: int
    started: float
    """When the process started: its id may be reused."""
    state: State = "alive"
    message: str = ""
    """Why it failed."""
    beat: int = 0


class ProcessWatch(Thread):
    """The watching thread of one process. Creating it waits until all processes have written their status.

    Args:
        store: A store that all processes share, over a connection that is used for nothing else.
        rank: The rank of this process.
        size: The number of processes.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        super().__init__(name="watch", daemon=True)
        self.store = PrefixStore("watch", store)
        self.rank, self.size = rank, size
        process = psutil.Process()
        self.status = Status(socket.gethostname(), process.pid, process.create_time())
        self._stopped = Event()
        self._is_store_lost = False
        self._write_status()
        self.peers = {peer: Peer(self._read_status(peer)) for peer in range(size) if peer != rank}
        self.store.set_timeout(timedelta(seconds=SILENCE_SECONDS))
        # A daemon thread that is inside torch when Python exits would crash the process.
        atexit.register(self.stop)

    def run(self) -> None:
        """Exchange heartbeats until this process ends or another one has died."""
        beat = 0
        while not self._stopped.is_set():
            beat += 1
            self._exchange(beat)
            for rank, peer in self.peers.items():
                # A process that failed reports its own error, and one that is done needs no others.
                if self.status.state == "alive" and (message := peer.describe_end(rank, self.size)):
                    self._exit(message)
            self._stopped.wait(BEAT_SECONDS)

    def report(self, state: State, message: str = "") -> None:
        """Tell the other processes that this one is done or has failed."""
        self.status = replace(self.status, state=state, message=message)
        self._exchange(-1)
        if state == "failed" and self.rank == 0:
            self._wait_for_readers()

    def wait_for_detection(self) -> None:
        """Wait as long as it takes to detect that another process has died, which ends this one."""
        is_local = all(peer.is_local for peer in self.peers.values())
        time.sleep(BEAT_SECONDS + (2 * MISSED_BEATS * BEAT_SECONDS if is_local else SILENCE_SECONDS))

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stopped.set()
        if self.is_alive():
            self.join(BEAT_SECONDS)

    def _exchange(self, beat: int) -> None:
        """Write this process's status, and read that of the others."""
        if self._is_store_lost:
            return
        try:
            self._write_status(beat)
            for rank, peer in self.peers.items():
                peer.update(self._read_status(rank))
        except RuntimeError:
            # The process that held the store is gone, so its heartbeats have stopped.
            self._is_store_lost = True

    def _write_status(self, beat: int = 0) -> None:
        self.store.set(str(self.rank), json.dumps(asdict(replace(self.status, beat=beat))))

    def _read_status(self, rank: int) -> Status:
        """Read the status of another process; wait until it has written one."""
        return Status(**json.loads(self.store.get(str(rank))))

    def _wait_for_readers(self) -> None:
        """Stay for a while: this process may hold the store in which the others read why it failed."""
        end = time.monotonic() + 2 * BEAT_SECONDS
        while time.monotonic() < end and any(peer.status.state == "alive" for peer in self.peers.values()):
            time.sleep(BEAT_SECONDS / 20)
            self._exchange(-1)

    def _exit(self, message: str) -> None:
        """End this process, whatever its main thread is waiting for."""
        print(f"docparade: {message}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)


class Peer:
    """Another process, as seen from this one."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._updated = time.monotonic()

    def update(self, status: Status) -> None:
        """Take the status that the process wrote last."""
        if status != self.status:
            self.status, self._updated = status, time.monotonic()

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that its process id can be checked."""
        return self.status.host == socket.gethostname()

    def describe_end(self, rank: int, size: int) -> str:
        """Say how the process failed or died; an empty string while it is alive, and once its work is done."""
        name = f"process {rank} of {size} (counted from 0)"
        silence = time.monotonic() - self._updated
        if self.status.state == "done":
            return ""
        if self.status.state == "failed":
            return f"{name} failed, so all processes stop: {self.status.message}"
        if self.is_local:
            is_dead = silence > MISSED_BEATS * BEAT_SECONDS and not self._is_running()
        else:
            is_dead = silence > SILENCE_SECONDS
        if not is_dead:
            return ""
        return (
            f"{name} is gone: it was killed, or its machine cannot be reached. Start all processes again; "
            "finished work is kept."
        )

    def _is_running(self) -> bool:
        """Whether the process runs on this machine; a later process may have the same id."""
        try:
            found = psutil.Process(self.status.process)
            return bool(found.create_time() == self.status.started and found.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
