"""Damages files for real, and shows what a run makes of it.

    python -m tests.faults.damage

trains a run of seconds, damages every file of its newest checkpoints in a copy of its
own, continues and translates, and prints a table: some minutes on two cores.
"""

import collections
import contextlib
import dataclasses
import io
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp

from t2t_jax.training import loop, losses

Damage = Callable[[Path, Random], object]


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
    """Takes away a file or a folder."""
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def zeros(file: Path, random: Random) -> None:
    """Overwrites a file, its size being what it was."""
    file.write_bytes(bytes(file.stat().st_size))


def garbage(file: Path, random: Random) -> None:
    """Overwrites a file, its size being what it was."""
    file.write_bytes(random.randbytes(file.stat().st_size))


def become_a_folder(place: Path, random: Random) -> None:
    """Puts an empty folder where a file or a folder was."""
    delete(place, random)
    place.mkdir()


def become_a_file(place: Path, random: Random) -> None:
    """Puts a file where a file or a folder was."""
    delete(place, random)
    place.write_bytes(random.randbytes(100))


def swap(one: Path, other: Path) -> None:
    """Gives two files or folders each other's names."""
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


EVERY: tuple[Damage, ...] = (
    *(flip, truncate, empty, delete, zeros, garbage, become_a_folder),
)


def files_of(folder: Path) -> list[Path]:
    """All files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def largest(folder: Path) -> Path:
    """The file of a checkpoint that has most of its numbers."""
    return max(files_of(folder), key=lambda file: (file.stat().st_size, file))


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder, by name."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in files_of(folder)}


def arrays_of(checkpoint: Path) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, as Orbax reads them, whatever they belong to."""
    item = "state" if checkpoint.parent.name == "state" else "parameters"
    with ocp.PyTreeCheckpointer() as reader, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Orbax, that it is not told of devices
        tree = reader.restore(checkpoint.absolute() / item)
    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def same_arrays(one: Path, other: Path) -> bool:
    """True if two checkpoints hold the same numbers, to the bit."""
    ours, theirs = arrays_of(one), arrays_of(other)
    return ours.keys() == theirs.keys() and all(
        array.dtype == theirs[name].dtype and array.tobytes() == theirs[name].tobytes()
        for name, array in ours.items()
    )


# Fields of `config.train` that say when a run does something, not what a step is.
WHEN = ("steps", "minutes", "log_every", "eval_every", "save_every", "patience")


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Runs of the same model and training share their compiled functions."""
    compiled, compile_steps = {}, loop.compile_steps

    def once(model, config, mesh, bos, frozen):
        what = dataclasses.asdict(config.train)
        for name in WHEN:
            del what[name]
        # The loss may be one that a test has put in its place.
        parts = config.model, what, model.count(), mesh, bos, frozen
        key = repr(parts), losses.projected
        if key not in compiled:
            compiled[key] = compile_steps(model, config, mesh, bos, frozen)
        return compiled[key]

    with mock.patch.object(loop, "compile_steps", once):
        yield


class Case(NamedTuple):
    """One damage of one file.

    Attributes:
      kind: of checkpoint: state, parameters or best.
      file: as a row of the table names it.
      how: the damage, in a word.
      said: the warnings of the run and of the translator, shortened.
      loaded: what both went on with.
      same: the run ended in the state, to the bit, and its average in the translations
        of one that was left alone.
    """

    kind: str
    file: str
    how: str
    said: str
    loaded: str
    same: bool


class Trial:
    """A run of seconds that was stopped, and what becomes of it where it is damaged."""

    LINES = ("The cat sleeps.", "A dog sees the man.")

    def __init__(self, folder: Path):
        from t2t_jax.grammar import corpus

        self.folder, lines = folder, corpus.pairs("dev")
        for name, part in (("train", lines[:300]), ("dev", lines[300:302])):
            for side, language in enumerate(("en", "de")):
                text = "".join(f"{pair[side]}\n" for pair in part)
                (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
        self.stopped, self.whole = folder / "stopped", folder / "whole"
        self._train(self.stopped, 8)
        shutil.copytree(self.stopped, self.whole)
        self._train(self.whole, 12)
        self.wanted, _ = self._end(self.whole)

    def _train(self, workdir: Path, steps: int) -> None:
        from t2t_jax import train
        from tests.small_run import config_for

        fields = {"steps": steps, "eval_every": 4, "keep_best": 2, "dev_lines": 2}
        config = config_for(self.folder, data={"test": ""}, train=fields)
        train(config, workdir)

    def newest(self, workdir: Path, kind: str) -> Path:
        """The checkpoint that would be used."""
        from t2t_jax.training.averaging import choose_checkpoints
        from t2t_jax.workdir import Workdir

        if kind == "best":
            return Path(
                choose_checkpoints(workdir, Workdir(workdir).config(), "best").folders[
                    0
                ]
            )
        return workdir / "checkpoints" / kind / "8"

    def _end(self, workdir: Path) -> tuple[dict, dict[str, list[int]]]:
        """All that a run came to, to the bit, and the steps of each translator."""
        from t2t_jax import Translator

        average, best = (Translator.load(workdir, n) for n in ("average", "best"))
        state = arrays_of(workdir / "checkpoints" / "state" / "12")
        end = {name: array.tobytes() for name, array in state.items()}
        end["translations"] = [str(found) for found in average.translate(self.LINES)]
        return end, {"average": [*average.steps], "best": [*best.steps]}

    def run(self, kind: str, name: str, damage: Damage, random: Random) -> Case:
        """Damages a file in a copy of the run, and lets that go on."""
        workdir = self.folder / "damaged"
        shutil.copytree(self.stopped, workdir)
        damage(self.newest(workdir, kind) / name, random)
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            try:
                self._train(workdir, 12)
                end, steps = self._end(workdir)
                same = end == self.wanted
                first = re.search(r"continuing after step (\d+)", told.getvalue())
                used = {"state": first[1] if first else 0} | steps
                loaded = ", ".join(f"{what} {which}" for what, which in used.items())
            except Exception as e:  # what a person would see
                loaded, same = f"{type(e).__name__}: {e}"[:200], False
        shutil.rmtree(workdir)
        said = self._shortened(told.getvalue(), workdir)
        return Case(kind, kind_of_file(name), damage.__name__, said, loaded, same)

    def _shortened(self, told: str, workdir: Path) -> str:
        told = told.replace(f"{workdir}/checkpoints/", "")
        told = re.sub(r"\((?!it |its )\S+", "(FILE", told)
        told = re.sub(r"has [\d,]+ bytes, not [\d,]+", "has N bytes, not M", told)
        told = re.sub(r"cannot be read: .*?\)(?=;|,| is)", "cannot be read: ...)", told)
        kept = ("warning", "continuing from", "starting anew")
        lines = [line for line in told.splitlines() if line.startswith(kept)]
        return "; ".join(line.removeprefix("warning: ") for line in lines) or "nothing"


def kind_of_file(name: str) -> str:
    """What a file of a checkpoint is for, by its name."""
    if re.search(r"/d/[0-9a-f]{32}$", name):
        return "arrays"
    return Path(name).name


def table(cases: list[Case]) -> str:
    """Cases that came to the same, in a row of Markdown each."""
    rows: dict[tuple, list[Case]] = collections.defaultdict(list)
    for case in cases:
        rows[case.kind, case.said, case.loaded, case.same].append(case)
    lines = [
        "| damaged | cases | said | loaded | same end |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (kind, said, loaded, same), alike in rows.items():
        hows, names = (
            ", ".join(f"{n} {count}" for n, count in collections.Counter(of).items())
            for of in zip(*((case.how, case.file) for case in alike), strict=True)
        )
        end = "yes" if same else "NO"
        lines.append(
            f"| {kind}, {hows}: {names} | {len(alike)} | {said} | {loaded} | {end} |"
        )
    return "\n".join(lines)


def main() -> None:
    logging.getLogger("t2t_jax").setLevel(logging.ERROR)
    random = Random(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, T2T_JAX_CACHE=f"{folder}/cache"),
        compiled_once(),
    ):
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_compilation_cache_dir", f"{folder}/xla")
        trial, cases = Trial(Path(folder)), []
        for kind in ("state", "parameters", "best"):
            checkpoint = trial.newest(trial.stopped, kind)
            names = sorted(contents(checkpoint))
            sample = [name for name in names if name == "manifest.json"]
            sample += random.sample([n for n in names if n not in sample], 3)
            cases += [trial.run(kind, name, flip, random) for name in names]
            for damage in (truncate, empty, delete):
                cases += [trial.run(kind, name, damage, random) for name in sample]
        print(table(cases))
        print(f"\n{len(cases)} cases, {sum(case.same for case in cases)} the same end")


if __name__ == "__main__":
    main()
