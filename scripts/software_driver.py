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
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DRIVER, LOADER, MANIFEST = "libvulkan_lvp.so", "libvulkan.so.1", "driver.json"
PACKAGES = ("mesa-vulkan-drivers", "libvulkan1", "patchelf")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
WITH_MATRICES = "trixie"  # the release whose backports have a Mesa that offers matrices
# llvmpipe has them where its vectors are of 256 bits.
PYTHON = """\
#!/bin/sh
# Python on the libc of this software Vulkan driver, which offers matrices to Dawn.
export VK_DRIVER_FILES='{folder}/{manifest}' LP_NATIVE_VECTOR_WIDTH=256
exec '{folder}/{loader}' --library-path '{folder}' '{python}' "$@"
"""


def sources(other: str | None) -> Iterator[tuple[str, str, str]]:
    """The archives of Debian that this system knows, (address, release, component), and the backports beside them; or
    those of another release at the same addresses."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = _said("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    # Lists that were never fetched have no origin to ask for: the address tells.
    found = sorted({line for line in told.splitlines() if re.search(r"/debian(-security)?/? ", line)})
    if not found:
        raise SystemExit("software_driver.py: this system knows no archive of Debian")
    for address, release, component in map(str.split, found):
        if "-" not in release:
            yield address, other or release, component
            yield address, f"{other or release}-backports", component
        elif other is None:
            yield address, release, component


class Archive:
    """Debian's packages with package lists of our own: the system's are neither locked nor changed.

    Of another release than the system's, where one is named, as if nothing were installed.
    """

    def __init__(self, work: Path, release: str | None = None) -> None:
        self.work, self.release = work, release
        for part in ("lists/partial", "cache/archives/partial"):
            (work / part).mkdir(parents=True)
        known = list(sources(release))
        self.backports = next(release for _, release, _ in known if release.endswith("-backports"))
        lines = [f"deb [signed-by={KEYS}] {address} {release} {component}" for address, release, component in known]
        (work / "sources.list").write_text("\n".join(lines) + "\n")
        self.apt = [
            *("apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
            *("-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache", "-o", "Debug::NoLocking=1"),
            *("-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3"),
        ]
        if release is not None:
            (work / "status").touch()
            self.apt += ["-o", f"Dir::State::status={work}/status"]
        _said(*self.apt, "update")

    def bring(self, folder: Path, stable: bool = False) -> str:
        """Fill a folder atomically and return the version of Mesa."""
        fetched, root, made = self.work / "cache" / "archives", self.work / "root", self.work / "made"
        newest = () if stable else ("-t", self.backports)
        options = ("--reinstall", "--download-only", "--yes", "--no-install-recommends")
        _said(*self.apt, "install", *options, *newest, *PACKAGES)
        packages = sorted(fetched.glob("*.deb"))
        for package in packages:
            _said("dpkg-deb", "-x", str(package), str(root))
        if self.release is None:
            _collect(root, made)
        else:
            _collect_all(root, made, folder.resolve())
        version = next(package.name.split("_")[1] for package in packages if package.name.startswith(PACKAGES[0]))
        manifest = {"library_path": str(folder.resolve() / DRIVER), "api_version": "1.3.0"}
        (made / MANIFEST).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": manifest}) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, folder)
        shutil.rmtree(root)
        for package in packages:
            package.unlink()
        return version.split("-")[0]


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
        waiting += _said(patchelf, "--print-needed", str(made / name)).split()
        _said(patchelf, "--set-rpath", "$ORIGIN", str(made / name))


def _collect_all(root: Path, made: Path, folder: Path) -> None:
    """Every library, and the interpreter that runs on them once they are in their folder."""
    (libraries,) = root.glob("usr/lib/*-linux-gnu*")
    shutil.move(libraries, made)
    (loader,) = made.glob("ld-linux*")
    names = {"folder": folder, "manifest": MANIFEST, "loader": loader.name, "python": sys.executable}
    (made / "python").write_text(PYTHON.format(**names))
    (made / "python").chmod(0o755)


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise SystemExit(f"software_driver.py: {command[0]} failed ({done.returncode}):\n{told}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--newest", type=Path, metavar="FOLDER", help="for the newest driver, of the backports")
    parser.add_argument("--stable", type=Path, metavar="FOLDER", help="for the driver of the release itself")
    parser.add_argument("--matrices", type=Path, metavar="FOLDER", help="for one that offers matrices, with its libc")
    options = parser.parse_args()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SystemExit("software_driver.py: it takes Debian's packages, and there is no apt-get here")
    asked = {False: options.newest, True: options.stable}
    with tempfile.TemporaryDirectory() as home:
        if any(asked.values()):
            archive = Archive(Path(home) / "system")
        for stable, folder in asked.items():
            if folder is not None:
                print(f"Mesa {archive.bring(folder, stable)} in {folder}")
        if options.matrices is not None:
            archive = Archive(Path(home) / WITH_MATRICES, WITH_MATRICES)
            print(f"Mesa {archive.bring(options.matrices)} in {options.matrices}")


if __name__ == "__main__":
    main()
