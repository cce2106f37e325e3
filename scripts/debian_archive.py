"""Debian's packages, unpacked into a folder: nothing is installed, nobody has to be root."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def sources(other: str | None) -> Iterator[tuple[str, str, str]]:
    """The archives of Debian that this system knows, (address, release, component), and the backports beside them; or
    those of another release at the same addresses."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    told = said("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    # Lists that were never fetched have no origin to ask for: the address tells.
    found = sorted({line for line in told.splitlines() if re.search(r"/debian(-security)?/? ", line)})
    if not found:
        raise _failed("this system knows no archive of Debian")
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
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise _failed("it takes Debian's packages, and there is no apt-get here")
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
        said(*self.apt, "update")

    def unpack(self, root: Path, *packages: str, newest: bool = False) -> str:
        """Fill a folder with packages and what of theirs the system lacks; the newest may come from the backports.

        Returns the upstream version of the first one.
        """
        options = ("--reinstall", "--download-only", "--yes", "--no-install-recommends")
        said(*self.apt, "install", *options, *(("-t", self.backports) if newest else ()), *packages)
        fetched = sorted((self.work / "cache" / "archives").glob("*.deb"))
        version = next(package.name.split("_")[1] for package in fetched if package.name.startswith(f"{packages[0]}_"))
        for package in fetched:
            said("dpkg-deb", "-x", str(package), str(root))
            package.unlink()
        return version.split("-")[0]


def put(made: Path, folder: Path) -> None:
    """Move what was made to where it is looked for, in place of what was there: all of it, or nothing."""
    part = folder.with_name(f"{folder.name}.part")  # on the same disk, which that of temporary files may not be
    shutil.rmtree(part, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise _failed(f"{command[0]} failed ({done.returncode}):\n{told}")
    return done.stdout


def _failed(why: str) -> SystemExit:
    return SystemExit(f"{Path(sys.argv[0]).name}: {why}")
