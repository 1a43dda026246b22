"""Measures how fast a trained model translates."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from t2t_jax.data.corpus import open_corpora
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.tools.experiment.context import Context


def speed(context: Context, lines: int = 200, repeats: int = 3) -> dict[str, Any]:
    """Measures sentences translated in a second, by the config's beam and greedily.

    Args:
      lines: the number of lines, the first of the first test set.
      repeats: passes over them, of which the median counts; one more, before them,
        compiles.

    Returns:
      `sentences_per_second`, `greedy_sentences_per_second`, `lines` and `beam`.

    Raises:
      UserError: the config has no test set.
    """
    context.check_translates("speed")
    data = context.config.data
    corpora = open_corpora(data.test, data.source, data.target, data.dir)
    if not corpora:
        raise UserError(
            "speed is measured on the first test set, and config.data.test is empty; "
            "name one"
        )
    sources = [source for source, _ in itertools.islice(corpora[0].pairs(), lines)]
    translator = Translator.load(context.workdir)

    def rate(beam: int) -> float:
        return lines_per_second(
            lambda lines: translator.translate(lines, beam=beam), sources, repeats
        )

    beam = context.config.decode.beam
    return {
        "sentences_per_second": rate(beam),
        "greedy_sentences_per_second": rate(1),
        "lines": len(sources),
        "beam": beam,
    }


def lines_per_second(
    translate: Callable[[Sequence[str]], Any],
    lines: Sequence[str],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Returns the lines a second of the median of several passes, after a first one."""
    seconds = []
    for _ in range(1 + repeats):
        start = clock()
        translate(lines)
        seconds.append(clock() - start)
    return len(lines) / statistics.median(seconds[1:])
