"""The steps between two saves that `config.train.save_minutes` stands for."""

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.parallel import processes
from t2t_jax.training.metrics_log import METRICS, read_log
from t2t_jax.workdir import Workdir


def with_save_steps(config: Config, workdir: Workdir) -> Config | None:
    """Returns the config with these steps as `save_every`.

    They follow from the first logged speed of the run, and stay those of its later
    starts; None if there is none yet. They divide the run's steps if such a number is
    near.
    """

    def save_steps() -> int | None:
        if workdir.has_run():
            recorded = workdir.config().train
            if recorded.save_every < recorded.steps:
                return recorded.save_every
        entries = read_log(workdir / METRICS).entries
        seconds = [e["seconds_per_step"] for e in entries if e.get("seconds_per_step")]
        if not seconds:
            return None
        last = config.train.steps
        steps = min(last, max(1, round(60 * config.train.save_minutes / seconds[0])))
        near = range(steps, steps // 2, -1)
        return next((n for n in near if last % n == 0), steps)

    steps = processes.from_first("the steps between saves", save_steps)
    return steps and fields.changed(config, "train", save_every=steps)
