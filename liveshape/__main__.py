"""`python -m liveshape` is the `liveshape` command."""

import signal
import sys
from contextlib import suppress

_INTERRUPTED = 130  # as in docs/commands.md


def run() -> int:
    """Run the command, whose imports take a while: Ctrl-C ends it there, too, without a trace, and once.

    Example: `sys.exit(run())`.
    """
    code, interrupts = _INTERRUPTED, list[int]()

    def interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, interrupt)
    try:
        from liveshape.cli import main

        code = main()
    except BaseException:
        if not interrupts:  # of one that comes in the middle of an import, libraries make other errors
            raise
    finally:
        # It ends by itself now; another Ctrl-C would tear what is closed on the way out.
        while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            with suppress(KeyboardInterrupt):  # one that came with the first
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(run())
