"""Further references of a test set: `--references=FILE,FILE`.

They are as sacreBLEU takes them: each file has a line for each line of the set. An
empty line is a reference that is missing there; the signature then has `nrefs:var`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_jax.data.corpus import Corpus, scheme_of
from t2t_jax.data.text_files import read_lines, similar_files
from t2t_jax.extensions.data.sacrebleu_sets import set_files
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.parallel import processes

if TYPE_CHECKING:
    from t2t_jax.tasks.task import Task

ALL = "all"  # references of a published set


def with_references(
    corpora: Sequence[Corpus],
    references: str | Sequence[str | Path | Sequence[str]],
    task: "Task | None" = None,
) -> list[Corpus]:
    """Adds references to a test set, which gets a name of its own: SET+3refs.

    Args:
      corpora: one set.
      references: besides that of the set: names of files separated by commas, or a list
        of files or of lists of lines; "all" for all that a `sacrebleu:` set has.
      task: that of the model, if there is one.

    Raises:
      UserError: several sets; no file; another number of lines than the set has; a
        reference that is given twice.
    """
    if len(corpora) != 1:
        names = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"references belong to one test set, and there are {len(corpora)} "
            f"({names}); give one --test at a time"
        )
    (corpus,) = corpora
    if task and (chosen_by := task.of(corpus).chosen_by) != "bleu":
        raise UserError(
            f"--references: {corpus.name} is scored by {chosen_by!r}; want a set of "
            "translations, which are scored by BLEU"
        )

    def read() -> list[list[str]]:
        files = split_names(references) if isinstance(references, str) else references
        if [*files] == [ALL]:
            files = _published(corpus)
        pairs = [*corpus.pairs()]
        lists = {f"{corpus.spec}, its own": [target for _, target in pairs]}
        for number, given in enumerate(files, 2):
            name, lines = f"reference {number}", given
            if isinstance(given, str | Path):
                file = Path(given).expanduser()
                if not file.is_file():
                    raise UserError(
                        f"--references: {file} is not a file; {similar_files(file)}"
                    )
                name, lines = str(file), [*read_lines(file)]
            if len(lines) != len(pairs):
                raise UserError(
                    f"--references: {name} has {len(lines):,} lines, but {corpus.spec} "
                    f"has {len(pairs):,}; want a reference of each line, in the same "
                    "order, and an empty line where there is none"
                )
            if twice := [n for n, other in lists.items() if other == [*lines]]:
                raise UserError(
                    f"--references: {name} has the same lines as {twice[0]}; give each "
                    "reference once, without the set's own"
                )
            lists[name] = [*lines]
        if len(lists) == 1:
            raise UserError(
                f"--references={references!r}: there is no further one; want FILE,FILE"
            )
        return [*lists.values()][1:]

    further = processes.from_first("references", read)
    number = len(further) + 1
    comparable = (
        f"scored with {number} references: compare only with systems scored on the "
        "same lines with the same references, same signature; perplexity is of the "
        "first reference"
    )
    name = f"{corpus.name}+{number}refs"
    return [
        dataclasses.replace(
            corpus, name=name, compare_with=comparable, further=tuple(further)
        )
    ]


def _published(corpus: Corpus) -> list[Path]:
    """The files of a set's references but the first."""
    if scheme_of(corpus.spec) != "sacrebleu":
        raise UserError(
            f"--references={ALL}: {corpus.spec} is not a published set, such as "
            "sacrebleu:wmt20/tworefs; name files"
        )
    return set_files(corpus.spec, corpus.source, corpus.target)[2:]
