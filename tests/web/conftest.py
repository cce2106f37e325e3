"""What the tests of pages need; without it they are not collected, as `make test` has it."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("playwright") else ["test_browser.py", "test_site.py"]
