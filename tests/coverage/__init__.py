"""How much of ExecuTorch's own test suites runs here: `python -m tests.coverage` writes docs/coverage.md."""
