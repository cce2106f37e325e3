"""Unpack Debian's Chromium into a folder, without installing it and without root.

    python scripts/chromium.py FOLDER

`FOLDER/chromium` runs it, on its own libraries where the system lacks them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from liveshape.errors import LiveshapeError
from liveshape.tools.debian_archive import Archive, check_tools, replacing

RUN = """\
#!/bin/sh
export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec '{program}' "$@"
"""


def install(folder: Path) -> str:
    """Fill the folder, whole or not at all; the version of Chromium."""
    check_tools()
    with replacing(folder) as work:
        new = work / "new"
        version = Archive(work / "archive").unpack(new, "chromium")
        # Some packages have libraries in a folder of their own.
        homes = {path.parent.relative_to(new) for path in new.glob("usr/lib/**/lib*.so*")}
        libraries = ":".join(str(folder / each) for each in sorted(homes))
        run = new / "chromium"
        run.write_text(RUN.format(libraries=libraries, program=folder / "usr/lib/chromium/chromium"))
        run.chmod(0o755)
    return version


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder.resolve()
    try:
        print(f"Chromium {install(folder)} in {folder}")
    except LiveshapeError as error:
        raise SystemExit(f"chromium.py: {error}") from error


if __name__ == "__main__":
    main()
