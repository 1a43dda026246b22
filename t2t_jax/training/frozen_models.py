"""Models that training reads and does not change: a teacher, the base of an adapter.

A loss names their workdirs (`Loss.frozen` in `losses.py`). Their parameters are
arguments of the jitted step, sharded like those of the model that trains. They are not
in the TrainState: no gradient, no moments, no checkpoint. Their SHA-256 is stored with
the run, which does not continue with others.
"""

import functools
from collections.abc import Sequence

from t2t_jax.config import Config, changed
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model, build, check_batching
from t2t_jax.parallel import processes
from t2t_jax.sections import at_address
from t2t_jax.training.step import FrozenModels
from t2t_jax.workdir import Workdir


def frozen_workdirs(config: Config) -> tuple[str, ...]:
    """The workdirs of the models that the config's loss reads, if it reads any."""
    named = config.train.variant("loss").frozen
    return tuple(named(config)) if named else ()


def build_frozen(
    config: Config, model: Model, frozen_config: Config, name: str, sizes: Sequence[int]
) -> Model:
    """Builds a frozen model, which computes in the dtype of the model that trains."""
    frozen = build(
        changed(frozen_config, "model", dtype=config.model.dtype).model, *sizes
    )
    kinds = frozen_config.task.kind, config.task.kind
    if kinds[0] != kinds[1] or frozen.predicts != model.predicts:
        raise UserError(
            f"the frozen model {name} has config.task.kind={kinds[0]!r}, "
            f"config.model.kind={frozen_config.model.kind!r} and predicts the "
            f"{frozen.predicts}; this run has {kinds[1]!r}, {config.model.kind!r} and "
            f"predicts the {model.predicts}. config.train.loss={config.train.loss!r} "
            "compares their predictions token by token; name a model of the same task"
        )
    try:
        check_batching(frozen, changed(config, "model", kind=frozen_config.model.kind))
    except UserError as e:
        raise UserError(f"the frozen model {name}: {e}") from None
    return frozen


def frozen_here(
    config: Config, model: Model, sizes: Sequence[int]
) -> tuple[Model, ...]:
    """Builds the frozen models of a config from workdirs on this machine's disk.

    For forecasts, which need no parameters.
    """
    return tuple(
        build_frozen(config, model, Workdir(name).config(), name, sizes)
        for name in frozen_workdirs(config)
    )


# ---------------------------------------------------------------------- opened by a run


def check_frozen(config: Config) -> None:
    """Checks before any text is prepared that the loss has the models that it reads."""
    from t2t_jax.training.averaging import choose_checkpoints  # loads Orbax

    if config.train.adapter != "none":
        at_address("extensions.training.adapters.check")(config)
    for name in frozen_workdirs(config):
        workdir = Workdir(name)
        choose_checkpoints(workdir, workdir.config())


def open_frozen(config: Config, model: Model, vocabulary: Vocabulary) -> FrozenModels:
    """Builds the models that the loss reads; process 0 also reads their parameters.

    These are those that translate: by default the average of the last checkpoints.
    """
    models, parameters, sha256 = [], [], []
    train = config.train
    for name in frozen_workdirs(config):
        workdir = Workdir(name)
        frozen_config, their_vocabulary = workdir.config_and_vocabulary()
        _check_vocabulary(config, vocabulary, their_vocabulary, name)
        built = build_frozen(config, model, frozen_config, name, vocabulary.sizes)
        models.append(built)
        read = functools.partial(_read, workdir, frozen_config, built, parameters)
        description = f"the frozen model {name}"
        sha256.append(processes.from_first(description, read, processes.LONG_TIMEOUT))

    if train.adapter != "none":  # behind those of the loss: see `Steps.frozen`

        def read() -> str:
            base, checkpoint = Workdir(train.init_from), train.init_checkpoint
            return _read(base, base.config(), model, parameters, checkpoint)

        sha256.append(processes.from_first("the base", read, processes.LONG_TIMEOUT))

    def take() -> list[Parameters]:
        # Emptied, so that this process's memory does not keep a copy of the devices'.
        arrays = parameters[:]
        parameters.clear()
        return arrays

    return FrozenModels(tuple(models), take, sha256)


def check_positions(config: Config, frozen: FrozenModels, longest: int) -> None:
    """Raises UserError if a frozen model cannot read rows of `longest` tokens."""
    for name, model in zip(frozen_workdirs(config), frozen.models, strict=True):
        if model.longest is not None and longest > model.longest:
            raise UserError(
                f"training rows have up to {longest} tokens, but the frozen model "
                f"{name} has {model.longest} positions; lower config.data.row_length "
                "and config.data.max_length, or shorten the longest lines"
            )


def _read(
    workdir: Workdir,
    config: Config,
    model: Model,
    parameters: list[Parameters],
    checkpoint: str | None = None,
) -> str:
    """Appends the parameters that translate to a list; returns their SHA-256."""
    from t2t_jax.training import averaging  # loads Orbax, which `describe` does without

    steps, read = averaging.read_translating(workdir, config, model, checkpoint)
    parameters.append(read)
    sha256 = averaging.parameters_sha256(read)
    listed = ", ".join(f"{step:,}" for step in steps)
    say(f"reading {workdir} during training, steps {listed}, SHA-256 {sha256[:12]}")
    return sha256


def _check_vocabulary(
    config: Config, vocabulary: Vocabulary, frozen_vocabulary: Vocabulary, name: str
) -> None:
    """Raises UserError unless token ids mean the same to both models."""
    pairs = [*zip(vocabulary.sides, frozen_vocabulary.sides, strict=False)]
    if len(vocabulary.sides) == len(frozen_vocabulary.sides) and all(
        a.model == b.model for a, b in pairs
    ):
        return
    listed = [
        ", ".join(sha[:12] for sha in v.sha256) for v in (frozen_vocabulary, vocabulary)
    ]
    raise UserError(
        f"config.train.loss={config.train.loss!r} compares probabilities of the same "
        f"tokens, but {name} has another tokenizer than this run: SHA-256 {listed[0]} "
        f"there, {listed[1]} here. Train this run with that of {name}, in a new "
        f"--workdir: {_tokenizer_flags(frozen_vocabulary, name)}"
    )


def _tokenizer_flags(vocabulary: Vocabulary, name: str) -> str:
    """The flags that give a run the tokenizer of a workdir."""
    flags = f"--config.data.tokenizer={name}/tokenizer.model"
    if len(vocabulary.sides) == 1:
        return flags
    return (
        f"--config.data.joint_vocabulary=False {flags} "
        f"--config.data.source_tokenizer={name}/source_tokenizer.model"
    )
