"""The tasks: `TASKS`."""

from t2t_jax.config import Config
from t2t_jax.tasks.task import Task
from t2t_jax.tasks.translation import Translation

# A task is a class with the methods of `Task`, and a line here.
TASKS = {
    "translation": Translation,
}


def task_of(config: Config) -> Task:
    """Returns the task of a config."""
    return config.task.variant("kind")(config)
