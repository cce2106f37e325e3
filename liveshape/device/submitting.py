"""Submission strategies: directly; deferred to a worker thread while the device is busy; in pieces while it is idle,
by the worker, too, unless a part of a step does no harm.

`finish()` may run on another thread: where it costs as much as encoding, it overlaps with encoding the next step.
The submitting thread may be interrupted between any two lines; the worker is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from liveshape.device.buffers import Allocation
from liveshape.device.passes import Pieces, Recorder, check_commands
from liveshape.device.protocol import Command
from liveshape.device.waiting import Pace
from liveshape.device.worker import Job, Worker
from liveshape.errors import DeviceError

_SMALL_WRITE = 1 << 16  # bytes up to which a write is copied and queued behind deferred submits


class Handed(NamedTuple):
    """Result of a submit: its submission index (-1 without one), or the worker's job that it is deferred to."""

    submission: int = -1
    job: Job | None = None
    commands_in_use: bool = False  # by the worker, until the job is over


class Submitter:
    """Orders the submits and writes of one device; `failure` converts errors, `check_alive` raises once it is lost.

    Only one thread at a time may submit.
    """

    def __init__(
        self,
        recorder: Recorder,
        pace: Pace,
        failure: Callable[[str, Exception], DeviceError],
        check_alive: Callable[[], None],
    ) -> None:
        self.recorder = recorder
        self._pace, self._failure, self._check_alive = pace, failure, check_alive
        self._worker = Worker("liveshape submits")
        self._failed: DeviceError | None = None  # the first error of the worker that nobody was told

    def check(self) -> None:
        """Raise a pending error of the worker."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def submit(
        self,
        input_copies: Pieces,
        commands: Sequence[Command],
        output_copies: Pieces,
        what: str,
        busy: bool,
        software: bool,
        stateless: bool,
    ) -> Handed:
        """Submit one step. `busy`: earlier steps are in flight; `software`: the device runs on the host's cores;
        `stateless`: an interrupt may leave a part of it."""
        recorder, heuristics, count = self.recorder, self.recorder.heuristics, len(commands)
        try:
            if heuristics is not None and not software and not busy and count >= heuristics.pieces:
                check_commands(commands)  # all, before any is submitted
                first = heuristics.first_piece
                call = partial(submit_in_pieces, recorder, input_copies, commands, output_copies, what, first)
                if stateless:  # handing it to the worker and back takes 100 us
                    self._worker.drain()
                    return Handed(call())
                return Handed(job=self._defer(call, commands, what), commands_in_use=True)
            encoder = recorder.encode(input_copies, commands, output_copies, what)
            self._pace.submitted(commands)
            deferred = None if heuristics is None else heuristics.deferred
            if deferred is not None and busy and count >= deferred:
                return Handed(job=self._defer(lambda: recorder.submit(recorder.finish(encoder)), commands, what))
            self._worker.drain()
            self._pace.submission = recorder.submit(recorder.finish(encoder))
            return Handed(self._pace.submission)
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure(self._culprit(commands, what), error) from error

    def write(self, memory: Allocation, begin: int, data: memoryview) -> None:
        """Queue write, ordered after deferred submits."""
        recorder = self.recorder
        if self._worker.busy and len(data) <= _SMALL_WRITE:
            copied = memoryview(bytes(data))
            self._defer(lambda: recorder.write(memory, begin, copied), (), "writing")
            return
        self._worker.drain()
        recorder.write(memory, begin, data)

    def drain(self) -> None:
        """Wait for every deferred submit and write."""
        self._worker.drain()

    def wait(self, job: Job | None) -> None:
        """Wait for a deferred submit; raise its error, or that of one before it, which its results lack."""
        if job is not None:
            job.end()
            self.check()
            if job.error is not None:
                raise job.error

    def _defer(self, call: Callable[[], Any], commands: Sequence[Command], what: str) -> Job:
        """Run a call on the worker; its error is kept for the next caller."""

        def deferred() -> None:
            try:
                self._check_alive()  # lost since it was deferred: wgpu-native would abort the process
                call()
            except DeviceError as error:
                self._failed = self._failed or error
                raise
            except Exception as error:
                failed = self._failure(self._culprit(commands, what), error)
                self._failed = self._failed or failed
                raise failed from error

        return self._worker.start(deferred)

    def _culprit(self, commands: Sequence[Command], what: str) -> str:
        """Find the command that fails validation, by encoding them one at a time without running them."""
        check_commands(commands)
        for command in commands:
            try:
                self.recorder.finish(self.recorder.encode((), [command], (), what))
            except Exception:
                return command.label
        return f"the device refused {what}"


def submit_in_pieces(
    recorder: Recorder, input_copies: Pieces, commands: Sequence[Command], output_copies: Pieces, what: str, first: int
) -> int:
    """Submit a step in growing pieces, the `first` of so many commands: the device starts while the rest is encoded.
    Returns the last submission index, -1 where there is none.

    Example: `submit_in_pieces(recorder, (), commands, (), "step", 32)`.
    """
    begin, size, submission = 0, first, -1
    while begin < len(commands):
        end = begin + size if len(commands) - begin >= 2 * size else len(commands)
        last = end == len(commands)
        encoder = recorder.encode(
            () if begin else input_copies, commands[begin:end], output_copies if last else (), what
        )
        submission = recorder.submit(recorder.finish(encoder))
        begin, size = end, 2 * size
    return submission
