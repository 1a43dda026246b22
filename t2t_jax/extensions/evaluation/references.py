"""Further references of a test set, as sacreBLEU takes them: `--references=FILE,FILE`.

An empty line is a reference that is missing there; the signature then has `nrefs:var`.
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


def with_references(
    corpora: Sequence[Corpus],
    references: str | Sequence[str | Path | Sequence[str]],
    task: "Task | None" = None,
) -> list[Corpus]:
    """Adds references to a test set, which gets a name of its own: SET+3refs.

    Args:
      corpora: one set.
      references: besides that of the set: names of files separated by commas, or a list
        of files or of lists of lines; "all" for those of a `sacrebleu:` set.
      task: that of the model, if there is one.

    Raises:
      UserError: several sets, or no translations; a file that is not there or has
        another number of lines than the set; a reference that is given twice.
    """
    chosen_by = {task.of(corpus).chosen_by for corpus in corpora} if task else set()
    if len(corpora) != 1 or chosen_by - {"bleu"}:
        names = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            "--references belong to one test set of translations, and --test names "
            f"{len(corpora)} ({names}), scored by {', '.join(chosen_by) or 'bleu'}; "
            "give one at a time"
        )
    further = processes.from_first("references", lambda: _read(corpora[0], references))
    number = len(further) + 1
    return [
        dataclasses.replace(
            corpora[0],
            name=f"{corpora[0].name}+{number}refs",
            further=tuple(further),
            compare_with=f"scored with {number} references: compare only with systems "
            "scored on the same lines with the same references, same signature; "
            "perplexity is of the first reference",
        )
    ]


def _read(corpus: Corpus, references: str | Sequence) -> list[list[str]]:
    files = split_names(references) if isinstance(references, str) else references
    if [*files] == ["all"]:
        if scheme_of(corpus.spec) != "sacrebleu":
            raise UserError(
                f"--references=all: {corpus.spec} is not a published set, such as "
                "sacrebleu:wmt20/tworefs; name files"
            )
        files = set_files(corpus.spec, corpus.source, corpus.target)[2:]
    own = [target for _, target in corpus.pairs()]
    lists = {f"{corpus.spec}, its own": own}
    for number, lines in enumerate(files, 2):
        name = f"reference {number}"
        if isinstance(lines, str | Path):
            file = Path(lines).expanduser()
            if not file.is_file():
                raise UserError(
                    f"--references: {file} is not a file; {similar_files(file)}"
                )
            name, lines = str(file), read_lines(file)
        lines = [*lines]
        if len(lines) != len(own):
            raise UserError(
                f"--references: {name} has {len(lines):,} lines, but {corpus.spec} has "
                f"{len(own):,}; want a reference of each line, in the same order, and "
                "an empty line where there is none"
            )
        if twice := [other for other in lists if lists[other] == lines]:
            raise UserError(
                f"--references: {name} has the same lines as {twice[0]}; give each "
                "reference once, without the set's own"
            )
        lists[name] = lines
    if len(lists) == 1:
        raise UserError(
            f"--references={references!r}: there is no further one; want FILE,FILE"
        )
    return [*lists.values()][1:]
