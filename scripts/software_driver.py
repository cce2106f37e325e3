"""Unpack Mesa's software Vulkan driver from Debian's packages into a folder, without installing it and without root.

    python scripts/software_driver.py [--newest FOLDER] [--stable FOLDER] [--matrices FOLDER]

The newest that this Debian has, backports included, that of the release itself, and one that offers matrices to Dawn.
Each folder gets `driver.json` for VK_DRIVER_FILES, the driver with those libraries that the system lacks, and a Vulkan
loader. The one with matrices needs a newer libc than many systems have: its folder has all libraries down to that, and
`python`, which runs this environment's interpreter on them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from debian_archive import Archive, put, said

DRIVER, LOADER, MANIFEST = "libvulkan_lvp.so", "libvulkan.so.1", "driver.json"
PACKAGES = ("mesa-vulkan-drivers", "libvulkan1", "patchelf")
WITH_MATRICES = "trixie"  # the release whose backports have a Mesa that offers matrices
# llvmpipe has them where its vectors are of 256 bits.
PYTHON = """\
#!/bin/sh
# Python on the libc of this software Vulkan driver, which offers matrices to Dawn.
export VK_DRIVER_FILES='{folder}/{manifest}' LP_NATIVE_VECTOR_WIDTH=256
exec '{folder}/{loader}' --library-path '{folder}' '{python}' "$@"
"""


def bring(archive: Archive, folder: Path, newest: bool) -> str:
    """Fill a folder atomically and return the version of Mesa."""
    root, made = archive.work / "root", archive.work / "made"
    version = archive.unpack(root, *PACKAGES, newest=newest)
    if archive.release is None:
        _collect(root, made)
    else:
        _collect_all(root, made, folder.resolve())
    manifest = {"library_path": str(folder.resolve() / DRIVER), "api_version": "1.3.0"}
    (made / MANIFEST).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": manifest}) + "\n")
    put(made, folder)
    shutil.rmtree(root)
    return version


def _collect(root: Path, made: Path) -> None:
    """The driver, the loader and their unpacked dependencies, each with an rpath to its own folder."""
    libraries = {path.name: path for path in root.rglob("lib*.so*")}
    patchelf = str(root / "usr" / "bin" / "patchelf")
    made.mkdir()
    waiting = [DRIVER, LOADER]
    while waiting:
        name = waiting.pop()
        if name not in libraries or (made / name).exists():
            continue
        shutil.copyfile(libraries[name].resolve(), made / name)
        waiting += said(patchelf, "--print-needed", str(made / name)).split()
        said(patchelf, "--set-rpath", "$ORIGIN", str(made / name))


def _collect_all(root: Path, made: Path, folder: Path) -> None:
    """Every library, and the interpreter that runs on them once they are in their folder."""
    (libraries,) = root.glob("usr/lib/*-linux-gnu*")
    shutil.move(libraries, made)
    (loader,) = made.glob("ld-linux*")
    names = {"folder": folder, "manifest": MANIFEST, "loader": loader.name, "python": sys.executable}
    (made / "python").write_text(PYTHON.format(**names))
    (made / "python").chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--newest", type=Path, metavar="FOLDER", help="for the newest driver, of the backports")
    parser.add_argument("--stable", type=Path, metavar="FOLDER", help="for the driver of the release itself")
    parser.add_argument("--matrices", type=Path, metavar="FOLDER", help="for one that offers matrices, with its libc")
    options = parser.parse_args()
    asked = {True: options.newest, False: options.stable}
    with tempfile.TemporaryDirectory() as home:
        if any(asked.values()):
            archive = Archive(Path(home) / "system")
        for newest, folder in asked.items():
            if folder is not None:
                print(f"Mesa {bring(archive, folder, newest)} in {folder}")
        if options.matrices is not None:
            archive = Archive(Path(home) / WITH_MATRICES, WITH_MATRICES)
            print(f"Mesa {bring(archive, options.matrices, newest=True)} in {options.matrices}")


if __name__ == "__main__":
    main()
