"""Systems compared on test sets, for the command, Python and notebooks."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.io.messages import waiting
from t2t_jax.io.output_files import write_file
from t2t_jax.tools.compare.compare import compare_texts
from t2t_jax.tools.compare.summary import comparison_page, overview, summary
from t2t_jax.tools.compare.systems import parse_systems, read_systems
from t2t_jax.tools.pages.page import frame


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare` found; `print` shows a summary, and a notebook the page.

    Attributes:
      sets: for each test set, a dict that JSON can hold, with `totals`, `aspects`,
        `signs`, `sentences` and others.
    """

    sets: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        parts = [*map(summary, self.sets)]
        if len(self.sets) > 1:
            parts.append(overview(self.sets))
        return "\n\n".join(map("\n".join, parts))

    def __repr__(self) -> str:
        names = ", ".join(system["name"] for system in self.sets[0]["systems"])
        return f"Comparison of {names}"

    def html(self) -> str:
        """Returns a page that loads nothing."""
        return comparison_page(self.sets)

    def save(self, path: str | Path) -> None:
        """Writes the page to a file; one that is there already is kept as NAME.1."""
        write_file(Path(path).expanduser(), self.html().encode())

    def _repr_html_(self) -> str:
        return frame(self.html(), repr(self))


def compare(
    systems: Sequence[str | Path] | Mapping[str, str | Path],
    test: str,
    *,
    direction: str | None = None,
    train: str | None = None,
    checkpoint: str | None = None,
    comet: str | None = None,
    new: str | None = None,
    references: str | Sequence[str | Sequence[str]] = (),
    **search: Any,
) -> Comparison:
    """Compares systems on test sets: which is better, and where.

    Args:
      systems: two or more; the first is the baseline. Each is a workdir, WORKDIR@STEP,
        or a text file with a line for each line of the test set. A dict names them, as
        NAME=PLACE does.
      test: sets as in --test, such as "mine/test".
      direction: such as "en-de"; needed only if no system is a workdir.
      train: the training text, by default that of the first workdir.
      checkpoint: of workdirs, as `Translator.load` takes it.
      comet: a COMET model, a .ckpt file on this disk, to score with it, too.
      new: the sets of `test` that are of the new domain, on which a run was fine-tuned;
        by default those that its config tests. The others tell what it forgets.
      references: further references, as for `evaluate`. BLEU, chrF and TER, and tests
        of them, use all; what is counted of words, signs and COMET use the first.
      search: options of workdirs' search, such as `beam=8`.

    Raises:
      UserError: a system or a set does not exist, or their lines do not match.
    """
    if isinstance(systems, Mapping):
        systems = [f"{name}={place}" for name, place in systems.items()]
    places, scorer = parse_systems([*map(str, systems)]), None
    if comet is not None:
        from t2t_jax.tools.compare.scores import Comet

        scorer = Comet(comet)  # mistakes are reported before translating
    compared = []
    for texts, translated in read_systems(
        places, test, direction, train, checkpoint, search, new, references
    ):
        with waiting(f"comparing the translations of {texts.name}"):
            compared.append(compare_texts(texts, translated, scorer))
    return Comparison(tuple(compared))
