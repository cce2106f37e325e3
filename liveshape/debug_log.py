"""What `LIVESHAPE_DEBUG=1..4` shows on stderr, through the standard library's logging.

1 is the adapter and the memory of programs, 2 every call with its shapes and times, 3 what is planned, 4 the WGSL of
what is compiled. The loggers are children of `liveshape`: a program may set their levels and handlers itself instead.
"""

from __future__ import annotations

import logging

DEVICE, STEPS, PLANS, SHADERS = LEVELS = tuple(
    logging.getLogger(f"liveshape.{name}") for name in ("device", "steps", "plans", "shaders")
)


def show(wanted: str) -> None:
    """Print what the levels up to a number tell; any other text counts as 1.

    Example: `show("2")` before a program is loaded.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(relativeCreated)9.1f ms %(name)s: %(message)s"))
    for logger in LEVELS[: int(wanted) if wanted.isdecimal() else 1]:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
