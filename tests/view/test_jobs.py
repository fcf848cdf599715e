"""The queue of long work: bounded, shared, in steps, stoppable; a failure is a state and never a traceback."""

import logging
import threading
from collections.abc import Iterator

import pytest

from mha_view.jobs import DONE, FAILED, RUNNING, STOPPED, WAITING, JobQueue, JobView, QueueFullError

PATIENCE = 10.0


class Steps:
    """Work whose every step waits to be let through, so that a test knows where it stands."""

    def __init__(self, *given: object) -> None:
        self.given, self.begun = given, 0
        self.through = threading.Semaphore(0)
        self.taken = threading.Semaphore(0)

    def __call__(self) -> Iterator[object]:
        self.begun += 1
        for value in self.given:
            assert self.through.acquire(timeout=PATIENCE)
            if isinstance(value, Exception):
                raise value
            self.taken.release()
            yield value

    def let(self, count: int = 1) -> None:
        """Let ``count`` steps through and wait until they were taken."""
        for _ in range(count):
            self.through.release()
            assert self.taken.acquire(timeout=PATIENCE)


def settled(queue: JobQueue, key: str, *, latest: object = None, state: str | None = None) -> JobView:
    """The job once it has this state or gave this: the worker needs a moment to write it down."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.002)):
        view = queue.look(key, None)
        if view is not None and (view.state == state or (state is None and view.latest == latest)):
            return view
        pause.wait(0.002)
    raise AssertionError(f"{key} is {queue.look(key, None)}")


def test_a_job_waits_runs_and_is_done_with_its_last_step_as_result():
    queue, first, second = JobQueue(), Steps("half", "whole"), Steps("other")
    queue.ask("first", first, watcher="ann")
    assert settled(queue, "first", state=RUNNING).latest is None
    assert queue.ask("second", second, watcher="ann") == JobView(WAITING, None, before=1)
    first.let()
    assert settled(queue, "first", latest="half") == JobView(RUNNING, "half")
    first.let()
    assert settled(queue, "first", state=DONE) == JobView(DONE, "whole")
    second.let()
    assert settled(queue, "second", state=DONE).latest == "other"


def test_equal_work_is_done_once():
    queue, work = JobQueue(), Steps("result")
    for name in ("ann", "bob", "ann"):
        queue.ask("same", work, watcher=name)
    work.let()
    assert settled(queue, "same", state=DONE).latest == "result"
    assert queue.ask("same", work, watcher="cid").latest == "result"
    assert work.begun == 1


def test_a_full_queue_says_how_many_wait_and_takes_more_when_one_is_done():
    queue, work = JobQueue(max_unfinished=3), Steps("result")
    queue.ask("at work", work, watcher="ann")
    for key in ("second", "third"):
        queue.ask(key, Steps("never"), watcher="ann")
    with pytest.raises(QueueFullError, match=r"^3 measurements are waiting or running.*try again in a minute\.$"):
        queue.ask("fourth", Steps("never"), watcher="bob")
    assert queue.look("fourth", "bob") is None
    assert queue.ask("third", Steps("never"), watcher="bob").state == WAITING
    work.let()
    settled(queue, "at work", state=DONE)
    assert queue.ask("fourth", Steps("never"), watcher="bob").state == WAITING


def test_stopping_keeps_what_was_reached_and_ends_the_work():
    queue, work, after = JobQueue(), Steps("one", "two", "three"), Steps("next")
    queue.ask("long", work, watcher="ann")
    work.let()
    settled(queue, "long", latest="one")
    queue.leave("long", "ann")
    assert queue.look("long", "ann") == JobView(STOPPED, "one")
    # The step that was under way is taken, and nothing after it.
    work.through.release()
    queue.ask("after", after, watcher="ann")
    after.let()
    settled(queue, "after", state=DONE)
    assert queue.look("long", "ann") == JobView(STOPPED, "one")


def test_a_job_that_another_waits_for_is_not_stopped_for_him():
    queue, work = JobQueue(), Steps("one", "two")
    queue.ask("shared", work, watcher="ann")
    queue.ask("shared", work, watcher="bob")
    work.let()
    settled(queue, "shared", latest="one")
    queue.leave("shared", "ann")
    queue.leave("shared", "ann")
    queue.leave("shared", "nobody")
    assert queue.look("shared", None) == JobView(RUNNING, "one")
    work.let()
    assert settled(queue, "shared", state=DONE).latest == "two"


def test_the_last_watcher_stops_it():
    queue, work = JobQueue(), Steps("one", "two")
    for name in ("ann", "bob"):
        queue.ask("shared", work, watcher=name)
    work.let()
    settled(queue, "shared", latest="one")
    for name in ("bob", "ann"):
        queue.leave("shared", name)
    assert queue.look("shared", None) == JobView(STOPPED, "one")


def test_what_was_stopped_is_begun_anew_when_asked_again():
    queue, work = JobQueue(), Steps("one", "two")
    queue.ask("long", work, watcher="ann")
    work.let()
    settled(queue, "long", latest="one")
    queue.leave("long", "ann")
    work.through.release()
    assert queue.ask("long", work, watcher="ann").state == STOPPED
    again = Steps("fresh")
    assert queue.ask("long", again, watcher="ann", again=True).state in (WAITING, RUNNING)
    again.let()
    assert settled(queue, "long", state=DONE).latest == "fresh"


def test_what_never_began_leaves_no_trace_when_left():
    queue, work = JobQueue(), Steps("one")
    queue.ask("at work", work, watcher="ann")
    settled(queue, "at work", state=RUNNING)
    queue.ask("waits", Steps("never"), watcher="bob")
    queue.leave("waits", "bob")
    assert queue.look("waits", "bob") is None


def test_a_failing_job_is_a_state_and_the_next_one_runs(caplog):
    queue = JobQueue()
    work, after = Steps("one", ValueError("the cat was typed here")), Steps("next")
    with caplog.at_level(logging.DEBUG):
        queue.ask("bad", work, watcher="ann")
        queue.ask("good", after, watcher="ann")
        work.let()
        work.through.release()
        after.let()
        assert settled(queue, "good", state=DONE).latest == "next"
    assert queue.look("bad", "ann") == JobView(FAILED, "one")
    assert "ValueError" in caplog.text
    assert "test_jobs.py:" in caplog.text
    assert "cat" not in caplog.text
    assert "Traceback" not in caplog.text


def test_work_that_cannot_even_begin_fails_too():
    queue = JobQueue()

    def broken() -> Iterator[object]:
        raise OSError

    queue.ask("bad", broken, watcher="ann")
    assert settled(queue, "bad", state=FAILED).latest is None


def test_the_oldest_finished_results_are_forgotten():
    queue = JobQueue(max_finished=2)
    for key in ("a", "b", "c"):
        work = Steps(key)
        queue.ask(key, work, watcher="ann")
        work.let()
        settled(queue, key, state=DONE)
    assert queue.look("a", "ann") is None
    assert [queue.look(key, "ann") for key in "bc"] == [JobView(DONE, "b"), JobView(DONE, "c")]


def test_urgent_work_goes_between_two_steps_of_a_long_one():
    queue, long, quick = JobQueue(), Steps("one", "two", "three"), Steps("now")
    queue.ask("long", long, watcher="ann", urgency=2)
    long.let()
    settled(queue, "long", latest="one")
    # The worker may be in the second step already; the quick job is next, and not the third.
    queue.ask("quick", quick, watcher="bob", urgency=0)
    long.let()
    quick.let()
    assert settled(queue, "quick", state=DONE).latest == "now"
    long.let()
    assert settled(queue, "long", state=DONE).latest == "three"


def test_a_stopped_job_that_fails_in_its_last_step_harms_nobody():
    queue, work, after = JobQueue(), Steps("one", ValueError()), Steps("next")
    queue.ask("bad", work, watcher="ann")
    work.let()
    settled(queue, "bad", latest="one")
    queue.ask("after", after, watcher="ann")
    queue.leave("bad", "ann")
    work.through.release()
    after.let()
    assert settled(queue, "after", state=DONE).latest == "next"
    assert queue.look("bad", None) == JobView(STOPPED, "one")


def test_work_that_nobody_looks_at_any_more_is_stopped():
    now = [0.0]
    queue, work, other = JobQueue(clock=lambda: now[0]), Steps("one", "two"), Steps("next")
    queue.ask("long", work, watcher="ann")
    work.let()
    settled(queue, "long", latest="one")
    now[0] = 29.0
    queue.look("long", "ann")
    now[0] = 58.0
    queue.ask("other", other, watcher="bob")
    assert queue.look("long", None) == JobView(RUNNING, "one")
    now[0] = 59.5
    queue.ask("third", Steps("never"), watcher="bob")
    assert queue.look("long", None) == JobView(STOPPED, "one")


def test_closing_lets_the_step_end_and_takes_no_further_one():
    queue, work = JobQueue(), Steps("one", "two")
    queue.ask("long", work, watcher="ann")
    settled(queue, "long", state=RUNNING)
    closing = threading.Thread(target=queue.close)
    closing.start()
    work.let()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert queue.look("long", None) == JobView(RUNNING, "one")


def test_many_visitors_at_once_lose_nothing():
    queue, counted = JobQueue(max_unfinished=50), dict.fromkeys("abcdefgh", 0)

    def work(key: str) -> Iterator[str]:
        counted[key] += 1
        yield key
        yield key * 2

    def visit(name: str) -> None:
        for key in counted:
            queue.ask(key, lambda key=key: work(key), watcher=name)

    visitors = [threading.Thread(target=visit, args=(str(i),)) for i in range(16)]
    for thread in visitors:
        thread.start()
    for thread in visitors:
        thread.join(PATIENCE)
    assert [settled(queue, key, state=DONE).latest for key in counted] == [key * 2 for key in counted]
    assert set(counted.values()) == {1}
