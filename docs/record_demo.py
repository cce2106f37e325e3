"""Draw what `liveshape demo` prints as docs/demo.svg, for README. Run: python docs/record_demo.py"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 96


def main() -> None:
    environment = {"COLUMNS": str(WIDTH), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "liveshape", "demo"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text("$ make demo", style="bold"))
    console.print(Text(printed.rstrip()))
    Path(__file__).with_name("demo.svg").write_text(console.export_svg(title="liveshape"))


if __name__ == "__main__":
    main()
