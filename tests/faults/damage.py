"""Damages files for real, and trains on."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from t2t_jax import train
from tests.small_run import config_for

Damage = Callable[[Path, Random], object]
QUIET = {"dev": "", "test": ""}  # data of a run that translates nothing


def flip(file: Path, random: Random) -> None:
    """Changes one bit of a file that is not empty."""
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def truncate(file: Path, random: Random) -> None:
    """Cuts off a file that is not empty, as a disk that was full would."""
    os.truncate(file, random.randrange(file.stat().st_size))


def empty(file: Path, random: Random) -> None:
    """Leaves a file without its bytes, as the loss of power may."""
    os.truncate(file, 0)


def delete(place: Path, random: Random) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def garbage(file: Path, random: Random) -> None:
    """Overwrites a file; its size stays."""
    file.write_bytes(random.randbytes(file.stat().st_size))


def become_a_folder(place: Path, random: Random) -> None:
    delete(place, random)
    place.mkdir()


def become_a_file(place: Path, random: Random) -> None:
    delete(place, random)
    place.write_bytes(random.randbytes(100))


def swap(first_path: Path, second_path: Path) -> None:
    """Gives two files or folders each other's names."""
    temporary = first_path.with_name("between")
    first_path.rename(temporary)
    second_path.rename(first_path)
    temporary.rename(second_path)


EVERY: tuple[Damage, ...] = (flip, truncate, empty, delete, garbage, become_a_folder)


def files_of(folder: Path) -> list[Path]:
    """All files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def largest(folder: Path) -> Path:
    """The file of a checkpoint that has most of its numbers."""
    return max(files_of(folder), key=lambda file: (file.stat().st_size, file))


def go_on(workdir, text, steps=12, data=None, **fields):
    """Trains on the same text to a step; saved after 4, 8 and 12."""
    fields = {"steps": steps, "log_every": 2} | fields
    train(config_for(text, train=fields, data=QUIET | (data or {})), workdir)
