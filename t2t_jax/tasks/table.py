"""The tasks: `TASKS`."""

from typing import TYPE_CHECKING

from t2t_jax.config import Config
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import Measure
from t2t_jax.sections import Table
from t2t_jax.tasks.task import Task
from t2t_jax.tasks.translation import Translation

if TYPE_CHECKING:  # imports JAX
    from t2t_jax.model.model import Model

# A task is a class with the methods of `Task`, and a line here: it, or its address.
TASKS = Table(
    {
        "translation": Translation,
        "classification": "extensions.tasks.classification.Classification",
        "masked_language_model": (
            "extensions.tasks.masked_language_model.MaskedLanguageModel"
        ),
        "text_to_text": "extensions.tasks.text_to_text.TextToText",
        "language_model": "extensions.tasks.language_model.LanguageModel",
        "parsing": "extensions.tasks.parsing.Parsing",
    }
)


def task_of(config: Config) -> Task:
    """Returns the task of a config."""
    return config.task.variant("kind")(config)


def known_measures() -> dict[str, Measure]:
    """The measures of all tasks by name; a name means the same in every task."""
    return {name: m for task in TASKS.values() for name, m in task.measures.items()}


def check_model(task: Task, model: "Model") -> None:
    """Raises UserError, naming the kinds that fit, unless a model fits a task."""
    from t2t_jax.model.model import MODELS

    def fits(kind) -> bool:
        if kind.has_source != task.has_source or kind.predicts != task.predicts:
            return False
        return kind.generates or task.predicts != "target"

    if fits(model):
        return
    config = task.config
    fitting = [name for name, kind in MODELS.items() if fits(kind)]
    raise UserError(
        f"config.task.kind={config.task.kind!r} does not go with config.model.kind="
        f"{config.model.kind!r}; choose {' or '.join(map(repr, fitting))}"
    )
