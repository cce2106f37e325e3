"""Unpack Mesa's software Vulkan drivers that tests want, without installing them and without root.

    python scripts/software_driver.py [--stable FOLDER] [--matrices FOLDER]

The driver of this Debian itself, and one that offers matrices to Dawn; `liveshape devices --install-software-driver`
has the newest. The one with matrices needs a newer libc than many systems have: its folder has all libraries down to
that, on which `with-matrices.sh` runs Python.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from liveshape.errors import LiveshapeError
from liveshape.tools.debian_archive import Archive, check_tools, replacing
from liveshape.tools.driver_packages import PACKAGES, install, write_manifest

WITH_MATRICES = "trixie"  # the release whose backports have a Mesa that offers matrices


def install_with_matrices(folder: Path) -> str:
    """Every library, down to the loader of programs; the version of Mesa."""
    check_tools()
    with replacing(folder) as work:
        version = Archive(work / "archive", WITH_MATRICES).unpack(work / "root", *PACKAGES, newest=True)
        (libraries,) = (work / "root").glob("usr/lib/*-linux-gnu*")
        shutil.move(libraries, work / "new")
        write_manifest(work / "new", folder)
    return version


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stable", type=Path, metavar="FOLDER", help="for the driver of the release itself")
    parser.add_argument("--matrices", type=Path, metavar="FOLDER", help="for one that offers matrices, with its libc")
    options = parser.parse_args()
    try:
        if options.stable is not None:
            version = install(options.stable.resolve(), lambda step: None, newest=False)
            print(f"Mesa {version} in {options.stable}")
        if options.matrices is not None:
            print(f"Mesa {install_with_matrices(options.matrices.resolve())} in {options.matrices}")
    except LiveshapeError as error:
        raise SystemExit(f"software_driver.py: {error}") from error


if __name__ == "__main__":
    main()
