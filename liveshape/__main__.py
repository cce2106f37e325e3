"""`python -m liveshape` is the `liveshape` command."""

import signal
import sys
from contextlib import suppress

_INTERRUPTED = 130  # as in docs/commands.md


def run() -> int:
    """Run the command, whose imports take a while: Ctrl-C ends it there, too, without a trace, and once.

    Example: `sys.exit(run())`.
    """
    code = _INTERRUPTED
    try:
        from liveshape.cli import main

        code = main()
    except BaseException as error:
        if not _is_interrupt(error):
            raise
    finally:
        # It ends by itself now; another Ctrl-C would tear what is closed on the way out.
        while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            with suppress(KeyboardInterrupt):  # one that came with the first
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is that of Ctrl-C, or was made of it: Python wraps what comes up while a class is made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


if __name__ == "__main__":
    sys.exit(run())
