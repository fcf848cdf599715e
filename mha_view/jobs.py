"""Long work in one bounded queue that all visitors share: done once, in steps, with progress, and stoppable.

A job is a generator that gives something after every step; the last thing it gives is its result. One thread works. It
takes one step of the most urgent job at a time, so that a first look never waits for somebody's curve. Equal work of
two visitors is one job, known by its key; it is stopped when nobody watches it any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cachetools import LRUCache

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"
MAX_UNFINISHED = 40
MAX_FINISHED = 256
# A page looks after its job several times a second; who has not looked for so long has left.
SILENT_SECONDS = 30.0
CLOSE_SECONDS = 10.0


class QueueFullError(Exception):
    """Raised when no more work is taken; the message is for the visitor."""


@dataclass(frozen=True)
class JobView:
    """A job as of now. state: "waiting", "running", "done", "stopped" or "failed".

    latest: what its last step gave, None before the first one. before: unfinished jobs that come first.
    """

    state: str
    latest: Any
    before: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether more may come."""
        return self.state in (WAITING, RUNNING)


@dataclass(eq=False)
class _Job:
    """Work in the queue; only touched while the queue's lock is held, but for the steps themselves."""

    key: Hashable
    urgency: int
    start: Callable[[], Iterator[Any]]
    watchers: dict[str, float] = field(default_factory=dict)
    steps: Iterator[Any] | None = None
    state: str = WAITING
    latest: Any = None


class JobQueue:
    """The queue. Its thread starts with the first job; clock: seconds, may be replaced in tests."""

    def __init__(
        self,
        max_unfinished: int = MAX_UNFINISHED,
        max_finished: int = MAX_FINISHED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_unfinished, self._clock = max_unfinished, clock
        self._changed = threading.Condition()
        self._unfinished: dict[Hashable, _Job] = {}
        self._finished: LRUCache[Hashable, JobView] = LRUCache(max_finished)
        self._worker: threading.Thread | None = None
        self._closed = False

    def ask(
        self, key: Hashable, start: Callable[[], Iterator[Any]], *, watcher: str, urgency: int = 0, again: bool = False
    ) -> JobView:
        """The job of that key, begun if it is not there; ``watcher`` counts as looking at it.

        urgency: steps of jobs with a lower one come first. again: begin anew what was stopped or failed.
        Raises QueueFullError when it would have to wait and too many wait.
        """
        with self._changed:
            if again and key in self._finished and self._finished[key].state != DONE:
                del self._finished[key]
            if key in self._finished:
                return self._finished[key]
            if key not in self._unfinished:
                self._add(_Job(key, urgency, start))
            self._unfinished[key].watchers[watcher] = self._clock()
            return self._view(key)

    def look(self, key: Hashable, watcher: str | None) -> JobView | None:
        """The job of that key, or None where there is none; a watcher's look keeps it alive."""
        with self._changed:
            if key in self._unfinished:
                if watcher is not None:
                    self._unfinished[key].watchers[watcher] = self._clock()
                return self._view(key)
            return self._finished.get(key)

    def leave(self, key: Hashable, watcher: str) -> None:
        """This watcher needs the job no more; it is stopped between two steps if nobody else does."""
        with self._changed:
            job = self._unfinished.get(key)
            if job is not None and job.watchers.pop(watcher, None) is not None and not job.watchers:
                self._finish(job, STOPPED)

    def others(self, key: Hashable, watcher: str) -> int:
        """How many other visitors watch the job of that key."""
        with self._changed:
            job = self._unfinished.get(key)
            return 0 if job is None else len(job.watchers.keys() - {watcher})

    def close(self) -> None:
        """Let the thread finish its step and end: a process must not end while torch computes in a thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join(CLOSE_SECONDS)

    def _add(self, job: _Job) -> None:
        self._drop_unwatched()
        if len(self._unfinished) >= self._max_unfinished:
            raise QueueFullError(
                f"{len(self._unfinished)} measurements are waiting or running, which is as many as fit; "
                "try again in a minute."
            )
        self._unfinished[job.key] = job
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="headroom-jobs", daemon=True)
            self._worker.start()
        self._changed.notify_all()

    def _view(self, key: Hashable) -> JobView:
        job, order = self._unfinished[key], self._in_order()
        return JobView(job.state, job.latest, order.index(job))

    def _in_order(self) -> list[_Job]:
        """The most urgent first, else as they came."""
        return sorted(self._unfinished.values(), key=lambda job: job.urgency)

    def _drop_unwatched(self) -> None:
        oldest = self._clock() - SILENT_SECONDS
        for job in list(self._unfinished.values()):
            if job.watchers and max(job.watchers.values()) < oldest:
                self._finish(job, STOPPED)

    def _finish(self, job: _Job, state: str) -> None:
        """Take the job out of the queue; what was reached is kept among the finished ones."""
        job.state = state
        del self._unfinished[job.key]
        if state != STOPPED or job.latest is not None:
            self._finished[job.key] = JobView(state, job.latest)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._drop_unwatched()
                while not self._unfinished and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                job = self._in_order()[0]
                job.state = RUNNING
            self._step(job)

    def _step(self, job: _Job) -> None:
        """One step, outside the lock: others may ask and look meanwhile."""
        state, latest = RUNNING, None
        try:
            if job.steps is None:
                job.steps = iter(job.start())
            latest = next(job.steps)
        except StopIteration:
            state = DONE
        except Exception as error:
            # Kind and place only: a message may hold what a visitor typed.
            logging.getLogger("headroom").error("%s in a measurement at %s", type(error).__name__, _place(error))
            state = FAILED
        with self._changed:
            if job.state != RUNNING:
                return
            if state == RUNNING:
                job.latest = latest
            else:
                self._finish(job, state)


def _place(error: Exception) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return "unknown place" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
