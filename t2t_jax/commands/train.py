"""Trains, then scores: `python -m t2t_jax.main --config=tiny [--workdir=DIR]`.

After training was stopped or killed, the same command continues it.
"""

import contextlib
from pathlib import Path

from absl import flags

from t2t_jax.commands.config_files import config_name, say_lines
from t2t_jax.commands.flags import define_config_flag, parse_steps
from t2t_jax.config import from_config_dict
from t2t_jax.io.errors import UserError
from t2t_jax.parallel import processes
from t2t_jax.training.trackers import DEFAULT, TRACKERS, check_trackers

DISTRIBUTED = True
PRESET = "tiny"


def define_flags():
    define_config_flag()
    flags.DEFINE_string(
        "workdir",
        None,
        "Where the run is stored: a folder or gs://BUCKET/FOLDER; by default "
        "runs/NAME, named after the config.",
    )
    flags.DEFINE_string(
        "profile", None, "N-M: record steps N to M in profiles/N-M, to look at."
    )
    flags.DEFINE_list(
        "track",
        [*DEFAULT],
        f"Trackers of the metrics: {', '.join(TRACKERS.keys())}, several, or none.",
    )


def main(_):
    from t2t_jax.tasks.table import task_of
    from t2t_jax.tasks.task import open_text

    config_file = flags.FLAGS["config"].config_filename
    workdir = flags.FLAGS.workdir
    if workdir == "":
        raise UserError("--workdir is empty; name a folder, or leave the flag out")
    workdir = workdir or Path("runs") / config_name(config_file)
    # Mistakes in the config and missing text are reported before JAX is imported.
    config = from_config_dict(flags.FLAGS.config)
    with processes.fail_together("opening the text"):
        check_trackers(flags.FLAGS.track)
        open_text(task_of(config))
    say_lines(config_file, "reasons", flags.FLAGS.config)
    profiler = contextlib.nullcontext()
    if flags.FLAGS.profile is not None:
        from t2t_jax.run.profiling import Profiler

        first, last = parse_steps("profile", flags.FLAGS.profile)
        profiler = Profiler(first, last or first, config.train.steps)
    from t2t_jax.run.train import train

    with profiler as after_step:
        train(config, workdir, after_step, flags.FLAGS.track)
    say_lines(config_file, "next_commands", flags.FLAGS.config, workdir)
