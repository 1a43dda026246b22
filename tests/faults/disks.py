"""Disks that are full or may only be read, as far as one may mount them."""

import contextlib
import os
import subprocess

import pytest


def _mount(*arguments):
    command = ["mount", *map(str, arguments)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")


@contextlib.contextmanager
def small_disk(folder, size):
    """A folder becomes a disk of its own; yields a function that makes it larger."""
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield lambda size: _mount("-o", f"remount,size={size}", folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def read_only(folder):
    """A folder that may only be read, by root too."""
    if os.geteuid():
        places = [folder, *folder.rglob("*")]
        modes = [place.stat().st_mode for place in places]
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode & ~0o222)
        yield
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)
        return
    _mount("--bind", folder, folder)
    try:
        _mount("-o", "remount,bind,ro", folder)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
