"""Adapters at a base (`Translator.with_adapter`), and lines that name theirs."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from etils import epath

from t2t_jax.config import Config
from t2t_jax.decoding.batches import replicate
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.training.adapters import check_base
from t2t_jax.extensions.training.current_adapter import adapter_at
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters
from t2t_jax.parallel import processes
from t2t_jax.training.averaging import average_checkpoints, choose_checkpoints
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator


def attach(
    base: "Translator",
    place: Workdir | epath.PathLike,
    checkpoint: str | int | None = None,
) -> "Translator":
    """A translator of the base's arrays and an adapter's: `Translator.with_adapter`."""
    if not isinstance(place, Workdir):
        place = adapter_at(place)
    workdir, (member, *others) = Workdir.open(place), base.members
    config, vocabulary = workdir.config_and_vocabulary()
    adapter = config.train.variant("adapter")
    if adapter is None:
        raise UserError(
            f"{workdir} holds a whole model and no adapter (config.train.adapter="
            "'none'); load it by itself"
        )
    if others or member.weights != "float32" or base.engine != "jax":
        raise UserError(
            f"the adapter {workdir} wants one model with float32 weights and the "
            f"engine jax, and got {base!r}, engine {base.engine}; or load the adapter "
            "by itself, merged with its base"
        )
    shapes = adapter.model(member.model, config).shapes
    if any(map(_is_changed, jax.tree.leaves(member.parameters, is_leaf=_is_changed))):
        raise UserError(f"{base!r} has an adapter already; want its base")

    def read() -> tuple:
        check_base(workdir, "this model", jax.tree.map(np.asarray, member.parameters))
        choice = choose_checkpoints(workdir, config, checkpoint)
        return average_checkpoints(choice, shapes)

    steps, trained = processes.arrays_from_first("the adapter", read, shapes)
    if vocabulary.model != base.vocabulary.model:
        raise UserError(f"{workdir} and its base have different tokenizers")
    return adapted(base, trained, config, steps)


def adapted(
    base: "Translator", trained: Parameters, config: Config, steps: Sequence[int] = ()
) -> "Translator":
    """A translator of the base's arrays and those that an adapter has trained.

    Args:
      config: that of the adapter.
    """
    (member,), adapter = base.members, config.train.variant("adapter")
    trained = replicate(trained, [*member.mesh.devices.flat])
    parameters, searched = (
        adapter.applied(arrays, trained, config)
        for arrays in (member.parameters, base.search_parameters[0])
    )
    translator = copy.copy(base)
    member = member._replace(parameters=parameters, steps=tuple(steps))
    translator.members = (member,)
    translator.__dict__["search_parameters"] = (searched,)  # cached: not made anew
    return translator


def _is_changed(x: object) -> bool:
    return hasattr(x, "is_factor")


def by_name(
    base: "Translator", adapters: dict[str, str], respond: Callable
) -> tuple[Callable[[list[str], int], list[Translation]], dict]:
    """Answers lines NAME<tab>TEXT, each with the adapter of its name; none: the base.

    Args:
      adapters: their workdirs by name.
      respond: (translator, lines, number of the first) -> translations.

    Returns:
      (lines, number of the first) -> translations, in order; and what they depend on.
    """
    translators = {"": base} | {n: attach(base, d) for n, d in adapters.items()}

    def translate(lines: Sequence[str], number: int) -> list[Translation]:
        rows: dict[str, list[int]] = {}
        texts = list[str]()
        for row, line in enumerate(lines):
            name, tab, text = line.partition("\t")
            if not tab or name not in translators:
                raise UserError(
                    f"line {number + row}: {line[:60]!r}; want NAME<tab>TEXT with the "
                    "name of an --adapter, or nothing before the tab for the base"
                    + did_you_mean(name, [*adapters])
                )
            rows.setdefault(name, []).append(row)
            texts.append(text)
        answers = dict[int, Translation]()
        for name, listed in rows.items():
            # Numbers in warnings are right for lines without others in between.
            selected = [texts[row] for row in listed]
            found = respond(translators[name], selected, number + listed[0])
            answers |= zip(listed, found, strict=True)
        return [answers[row] for row in range(len(lines))]

    sha256 = {n: t.members[0].parameters_sha256() for n, t in translators.items() if n}
    return translate, {"adapters": sha256}
