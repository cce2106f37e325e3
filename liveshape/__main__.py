"""`python -m liveshape` is the `liveshape` command."""

import sys

from liveshape.cli import main

if __name__ == "__main__":
    sys.exit(main())
