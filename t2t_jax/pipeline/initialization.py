"""`config.train.init_from`: a run that starts from another workdir's parameters."""

from collections.abc import Callable

from t2t_jax import config as fields
from t2t_jax.config import Config
from t2t_jax.data import prepare
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.tokenizer import Vocabulary, parse_symbols
from t2t_jax.model.layers import Parameters
from t2t_jax.model.model import Model
from t2t_jax.terminal.errors import UserError
from t2t_jax.terminal.messages import say
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir.workdir import Workdir

# Fields of the model that change no weight's shape or meaning.
_FREE = {f"model.{name}" for name in ("dropout", "dtype", "attention", "remat")}


def check_source(config: Config) -> None:
    """Checks, before anything is prepared, that the other workdir's model fits."""
    source = Workdir(config.train.init_from)
    theirs = source.config()
    choose_checkpoints(source, theirs, config.train.init_checkpoint)
    free = set(_FREE)
    if config.model.positions != "learned":
        free.add("model.max_positions")
    directions = [f"{data.source}-{data.target}" for data in (theirs.data, config.data)]
    if directions[0] != directions[1]:
        say(f"{source} translates {directions[0]}, this run will {directions[1]}")
    changed = fields.differences(Config(model=theirs.model), Config(model=config.model))
    listed = "".join(
        f"\n  --config.{name}={old!r} there, {new!r} here"
        for name, (old, new, _) in changed.items()
        if name not in free
    )
    if listed:
        raise UserError(
            f"config.train.init_from={source} has a model of another shape:{listed}\n"
            "Give this run the values of that one"
        )


def vocabulary(training: list[Corpus], config: Config) -> Vocabulary:
    """The other workdir's tokenizer, without which its embeddings mean nothing."""
    source = config.train.init_from
    _, found = Workdir(source).config_and_vocabulary()
    if config.data.tokenizer:
        if prepare.make_tokenizer(training, config.data).model != found.model:
            raise UserError(
                f"config.data.tokenizer={config.data.tokenizer} is not that of "
                f"config.train.init_from={source}, whose embeddings mean nothing for "
                "other pieces; leave config.data.tokenizer out"
            )
    found.check_symbols(
        parse_symbols(config.data.symbols),
        "leave it out, or start from a run that was trained with it",
    )
    say(f"the tokenizer is that of {source}")
    return found


def hook(config: Config, model: Model) -> Callable[[], Parameters] | None:
    """A function that reads the other workdir's parameters; None for random ones."""
    if not config.train.init_from:
        return None

    def read() -> Parameters:
        source = Workdir(config.train.init_from)
        choice = choose_checkpoints(
            source, source.config(), config.train.init_checkpoint
        )
        steps, parameters = average_checkpoints(choice, model.shapes)
        say(f"starting from {source}, steps {', '.join(f'{s:,}' for s in steps)}")
        return parameters

    return read
