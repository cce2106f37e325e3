"""How commands get to the device: at once; by a thread, while it is at work on others; in pieces, while it waits.

`finish()` may run on another thread, and it costs as much as encoding: so encoding the next step overlaps with it.
Whoever submits may be interrupted between any two lines; the thread is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from liveshape.device.buffers import Memory
from liveshape.device.passes import Pieces, Recorder, check_commands
from liveshape.device.protocol import Command
from liveshape.device.waiting import Pace
from liveshape.device.worker import Job, Worker
from liveshape.errors import DeviceError

_LONG_STEP = 32  # commands of a step whose `finish()` is worth running on the thread
# Commands of which the device may have the first ones while the others are encoded. On an H200 217 of them, 32 rows of
# a 1B, took 3.5 ms so and 4.6 ms otherwise, but 152 of them, 8 rows, which it does as fast as they come, 2.4 and 2.3.
_LONG_CALL = 160
_FIRST_PIECE = 32  # of these, and each piece is twice as long as the last
_SMALL_WRITE = 1 << 16  # bytes of which a copy may wait for what was submitted before them


class Handed(NamedTuple):
    """A submit: its number, -1 where it has none, or the call of the thread that it is left to."""

    submission: int = -1
    job: Job | None = None
    commands_in_use: bool = False  # whether the thread reads the commands until its call is over


class Submitter:
    """Submits and writes of one device, in order; what an error is told as is for `failure` to say.

    Only one thread at a time may submit.
    """

    def __init__(self, recorder: Recorder, pace: Pace, failure: Callable[[str, Exception], DeviceError]) -> None:
        self.recorder = recorder
        self._pace, self._failure = pace, failure
        self._worker = Worker("liveshape submits")
        self._failed: DeviceError | None = None  # what the thread met with, until somebody is told

    def check(self) -> None:
        """Tell what the thread met with, if nobody heard of it yet."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def submit(
        self, arriving: Pieces, commands: Sequence[Command], leaving: Pieces, what: str, at_work: bool, beside: bool
    ) -> Handed:
        """Copies, commands and copies: the device is `at_work` on what came before, and it works `beside` the host or,
        if it is software, on its cores."""
        recorder = self.recorder
        try:
            if recorder.can_finish_elsewhere and beside and not at_work and len(commands) >= _LONG_CALL:
                check_commands(commands)  # all of them, before the device has any
                call = partial(submit_in_pieces, recorder, arriving, commands, leaving, what)
                return Handed(job=self._leave(call, commands, what), commands_in_use=True)
            encoder = recorder.encode(arriving, commands, leaving, what)
            self._pace.submitted(commands)
            if recorder.can_finish_elsewhere and at_work and len(commands) >= _LONG_STEP:
                return Handed(job=self._leave(lambda: recorder.submit(recorder.finish(encoder)), commands, what))
            self._worker.drain()
            self._pace.submission = recorder.submit(recorder.finish(encoder))
            return Handed(self._pace.submission)
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure(self._culprit(commands, what), error) from error

    def write(self, memory: Memory, begin: int, data: memoryview) -> None:
        """Host bytes, behind every submit that is left to the thread."""
        recorder = self.recorder
        if self._worker.busy and len(data) <= _SMALL_WRITE:
            copied = memoryview(bytes(data))
            self._leave(lambda: recorder.write(memory, begin, copied), (), "writing")
            return
        self._worker.drain()
        recorder.write(memory, begin, data)

    def drain(self) -> None:
        """Wait until the thread has nothing left to do."""
        self._worker.drain()

    def wait(self, job: Job | None) -> None:
        """Wait for what was left to the thread, and raise what went wrong with it."""
        if job is not None:
            job.end()
            if job.error is not None:
                self._failed = None
                raise job.error

    def _leave(self, call: Callable[[], Any], commands: Sequence[Command], what: str) -> Job:
        """Leave a call to the thread; an error is kept for whoever comes next."""

        def left() -> None:
            try:
                call()
            except Exception as error:
                self._failed = self._failure(self._culprit(commands, what), error)
                raise self._failed from error

        return self._worker.start(left)

    def _culprit(self, commands: Sequence[Command], what: str) -> str:
        """Encode the commands one at a time, without running them, to find the one that the device refuses."""
        check_commands(commands)
        for command in commands:
            try:
                self.recorder.finish(self.recorder.encode((), [command], (), what))
            except Exception:
                return command.label
        return f"the device refused {what}"


def submit_in_pieces(
    recorder: Recorder, arriving: Pieces, commands: Sequence[Command], leaving: Pieces, what: str
) -> None:
    """Submit the first commands of a step while the others are not encoded yet.

    Example: `submit_in_pieces(recorder, (), commands, (), "step")`.
    """
    begin, size = 0, _FIRST_PIECE
    while begin < len(commands):
        end = begin + size if len(commands) - begin >= 2 * size else len(commands)
        last = end == len(commands)
        encoder = recorder.encode(() if begin else arriving, commands[begin:end], leaving if last else (), what)
        recorder.submit(recorder.finish(encoder))
        begin, size = end, 2 * size
