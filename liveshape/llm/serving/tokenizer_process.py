"""Long texts are encoded in a process of its own, one at a time: nobody waits for the interpreter's lock, one whose
reader has left ends at once, and what it took of memory goes with the process."""

from __future__ import annotations

import array
import multiprocessing
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from liveshape.errors import LiveshapeError
from liveshape.llm.serving.engine_process import ignore, portable, start_uninterrupted
from liveshape.llm.text.tokenizer import Tokenizer

_IDLE_SECONDS = 60.0  # without a text, after which the process ends
_LOOK = 0.02  # seconds between two looks at whether the reader has left
_Reply = tuple[bytes, BaseException | None]


class ReaderLeft(LiveshapeError):
    """Whom a text was encoded for has left before its end."""


class TokenizerProcess:
    """Encodes texts as a tokenizer does, in another process, which is started for the first of them.

    Example: `ids = TokenizerProcess(tokenizer).encode("Once upon a time", True, None, threading.Event())`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._turn = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._closed = False

    def encode(self, text: str, add_special_tokens: bool, mark: str | None, left: threading.Event) -> list[int]:
        """The token ids of a text, with `mark` of a rendered one; ReaderLeft when `left` is set before its end."""
        while not self._turn.acquire(timeout=_LOOK):
            _check(left)
        try:
            _check(left)
            fresh = self._process is None
            reply = self._reply((text, add_special_tokens, mark), left)
            if reply is None and not fresh:  # it has ended since it was used, as it does without texts
                reply = self._reply((text, add_special_tokens, mark), left)
        finally:
            self._turn.release()
        if reply is None:
            raise LiveshapeError("the process that encodes long texts has died at this one; ask with a shorter text")
        ids, error = reply
        if error is not None:
            raise error
        return list(array.array("I", ids))

    def close(self) -> None:
        """End the process; who waits for it gets an error."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

    def _reply(self, text: tuple[str, bool, str | None], left: threading.Event) -> _Reply | None:
        """What the process makes of a text; None if it ends without a reply."""
        connection = self._connection or self._started()
        try:
            connection.send(text)
            while not connection.poll(_LOOK):
                _check(left)
            reply: _Reply = connection.recv()
            return reply
        except (EOFError, OSError):
            self._end()
            return None
        except BaseException:
            self._end()
            raise

    def _started(self) -> Connection:
        if self._closed:
            raise ReaderLeft("the server ends")
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        args = (theirs, self.tokenizer)
        process = context.Process(target=encode_texts, args=args, name="liveshape tokenizer", daemon=True)
        start_uninterrupted(process)
        theirs.close()
        self._process, self._connection = process, ours
        return ours

    def _end(self) -> None:
        """Kill the process: a text cannot be stopped otherwise."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is not None and connection is not None:
            process.kill()
            connection.close()
            process.join()


def encode_texts(connection: Connection, tokenizer: Tokenizer) -> None:
    """The main function of the process: encode what comes, until nothing does or the server is gone.

    Example: `Process(target=encode_texts, args=(connection, tokenizer))`.
    """
    ignore(signal.SIGINT)  # the terminal sends its signals to all processes; when to end is the server's to say
    with suppress(EOFError, OSError):
        while connection.poll(_IDLE_SECONDS):
            text, add_special_tokens, mark = connection.recv()
            reply: _Reply = (b"", None)
            try:
                if mark is None:
                    ids = tokenizer.encode(text, add_special_tokens)
                else:
                    ids = tokenizer.encode_marked(text, mark)
                reply = (array.array("I", ids).tobytes(), None)
            except Exception as error:
                reply = (b"", portable(error))
            connection.send(reply)


def _check(left: threading.Event) -> None:
    if left.is_set():
        raise ReaderLeft("whom this text was encoded for has left")
