"""Unpack Debian's Chromium into a folder, without installing it and without root.

    python scripts/chromium.py FOLDER

`FOLDER/chromium` runs it, on its own libraries where the system lacks them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from debian_archive import Archive, put

RUN = """\
#!/bin/sh
export LD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec '{program}' "$@"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder.resolve()
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "root"
        version = Archive(Path(home) / "archive").unpack(root, "chromium")
        # Some packages have libraries in a folder of their own.
        homes = {path.parent.relative_to(root) for path in root.glob("usr/lib/**/lib*.so*")}
        libraries = ":".join(str(folder / each) for each in sorted(homes))
        run = root / "chromium"
        run.write_text(RUN.format(libraries=libraries, program=folder / "usr/lib/chromium/chromium"))
        run.chmod(0o755)
        put(root, folder)
    print(f"Chromium {version} in {folder}")


if __name__ == "__main__":
    main()
