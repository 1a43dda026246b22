"""The engine of a workdir, `--engine`: exports for CTranslate2, kept in the cache.

A workdir is exported once for each choice of checkpoints and type of weights, and the
export is compared with JAX, as by `export`; it is kept in the user's cache. So are the
seconds that a line took with each engine when it was tried.
"""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from etils import epath

from t2t_jax import __version__
from t2t_jax.costs.timing import timed
from t2t_jax.decoding.searcher import JAX
from t2t_jax.decoding.translator import Translator
from t2t_jax.extensions.decoding.exported import NAME, REPEATS, library, trial_lines
from t2t_jax.io import cache, lock, sealed
from t2t_jax.io.atomic import write_atomically
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.messages import say
from t2t_jax.io.threads import core_count
from t2t_jax.parallel.machine import processor_name
from t2t_jax.tools.bridges.exporting import export
from t2t_jax.tools.bridges.exports import to_ctranslate2
from t2t_jax.training.averaging import choose_checkpoints
from t2t_jax.workdir import Workdir


def load(
    workdirs: Workdir | epath.PathLike | Sequence[epath.PathLike],
    checkpoint: str | int | None = None,
    dtype: str | None = None,
    weights: str = "float32",
    engine: str = NAME,
) -> Translator:
    """Loads workdirs for an engine: `ctranslate2`, or `auto`, the quicker one.

    Args:
      workdirs, checkpoint, dtype, weights: as for `Translator.load`.

    Raises:
      UserError: CTranslate2 is missing, cannot hold the model, or does not agree.
    """
    try:
        if isinstance(workdirs, list | tuple):
            raise UserError("an ensemble of several; CTranslate2 holds one model")
        if dtype is not None:
            raise UserError(f"--dtype={dtype} is of the engine jax; leave it out")
        workdir = Workdir.open(workdirs)
        if workdir.export:
            return Translator.load(workdir, checkpoint, weights=weights)
        folder = kept_export(workdir, checkpoint, weights)
        translator = Translator.load(folder, weights=weights)
        speed = ratio(translator)
        if engine == NAME or speed is None or speed > 1:
            return translator
        reason = f"CTranslate2 is {speed:.1f} times as quick"
    except UserError as e:
        if engine == NAME:
            raise UserError(f"--engine={NAME}: {e}") from None
        reason = first_line(e)
    say(f"--engine=auto: jax, since {reason}")
    return Translator.load(workdirs, checkpoint, dtype, weights)


def kept_export(
    workdir: Workdir, checkpoint: str | int | None = None, weights: str = "float32"
) -> Path:
    """The export of a workdir for CTranslate2; it is made and compared if need be."""
    library()
    config, vocabulary = workdir.config_and_vocabulary()
    choice = choose_checkpoints(workdir, config, checkpoint)
    folders = choice.folders[: choice.number]
    key = cache.cache_key(
        t2t_jax=__version__,
        config=dataclasses.asdict(config),
        vocabulary=vocabulary.sha256,
        checkpoints=[sealed.fingerprint(folder) for folder in folders],
        weights=weights,
    )
    kept = cache.cache_folder() / "exports" / key
    refusal = kept.with_name(f"{key}.refused")
    with lock.exclusive(cache.cache_folder() / "turns" / key):
        if refusal.exists():
            raise UserError(f"{refusal.read_text()} (delete {refusal} to try again)")
        if not cache.is_intact(kept):
            shutil.rmtree(kept, ignore_errors=True)
            say(f"exporting {workdir} for CTranslate2, once; it is kept in {kept}")
            translator = Translator.load(workdir, checkpoint)
            if sorted(translator.steps) != choice.steps:
                steps = ",".join(map(str, translator.steps))
                raise UserError(f"checkpoints are damaged: add --checkpoint={steps}")
            try:
                export(translator, NAME, kept, quantization=weights)
            except UserError as e:
                for failed in kept.parent.glob(f"{key}.failed*"):
                    shutil.rmtree(failed)
                write_atomically(refusal, first_line(e).encode())
                raise
            exported = Translator.load(kept, weights=weights)
            for tried in (translator, exported):
                remember(tried, partial(_alone, tried))
    return kept


def remember(translator: Translator, translate: Callable[[str], object]) -> float:
    """Keeps the seconds in which an engine translates a line alone, unless it has them.

    Args:
      translate: called with lines.
    """
    if (known := seconds(translator, translator.engine)) is not None:
        return known
    lines = trial_lines(translator.vocabulary)
    trials = timed(lambda: [translate(line) for line in lines])
    shortest = min(islice(trials, REPEATS)) / len(lines)
    folder = _folder(translator, translator.engine)
    cache.build_once(folder, lambda f: (f / "seconds").write_text(json.dumps(shortest)))
    return shortest


def seconds(translator: Translator, engine: str) -> float | None:
    """The seconds that an engine took for a line of this model; None: unknown."""
    folder = _folder(translator, engine)
    known = folder.is_dir() and not sealed.damage(folder)
    return json.loads((folder / "seconds").read_text()) if known else None


def ratio(translator: Translator) -> float | None:
    """How many times as quick CTranslate2 was as JAX; None: both were not tried."""
    times = [seconds(translator, engine) for engine in (JAX, NAME)]
    return None if None in times else times[0] / times[1]


def _folder(translator: Translator, engine: str) -> Path:
    member = translator.members[0]
    key = cache.cache_key(
        engine=engine,
        parameters=member.parameters_sha256(),
        weights="" if engine == JAX else member.weights,
        beam=translator.config.decode.beam,
        machine=[processor_name(), core_count()],
        t2t_jax=__version__,
    )
    return cache.cache_folder() / "engines" / key


def other_engine(translator: Translator, translate: Callable[[str], object]) -> str:
    """Says how the engines compare, if both can be tried; empty if not.

    Args:
      translate: translates a line with JAX, as it is served.
    """
    if translator.engine == JAX and len(translator.members) == 1:
        try:
            library()
            remember(translator, translate)
            if seconds(translator, NAME) is None:
                with tempfile.TemporaryDirectory() as folder:
                    to_ctranslate2.write(translator, Path(folder), {})
                    exported = Translator.load(folder)
                    remember(exported, partial(_alone, exported))
        except UserError as e:
            return f"only jax: {first_line(e)}"
    if (times := ratio(translator)) is None:
        return ""
    return (
        f"--engine={NAME} was {times:.1f} times as quick as jax for a line alone, when "
        "both were tried"
    )


def _alone(translator: Translator, line: str) -> None:
    translator.translate([line], warn=False)
