"""Text without a source, as of a language model, and text of one task of several."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.data.corpus import (
    Corpus,
    LowScore,
    derived,
    in_folder,
    named_hash,
    open_corpus,
    scheme_of,
)
from t2t_jax.data.text_files import file_hash, not_empty, read_lines, similar_files
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Pair


def open_lines(spec: str, source: str, target: str, folder: str = "") -> Corpus:
    """Opens one-sided text, for language models; an example is ("", line).

    A spec is a text file, plain or `.gz`, one example a line; or one of sentence pairs
    with a scheme, such as `grammar:train`, of which the target is read. Raises
    UserError if there is none.
    """
    if scheme_of(spec):
        return derived(
            open_corpus(spec, source, target, folder),
            "targets",
            lambda pairs: (("", line) for _, line in pairs),
            source="",
            target="lines",
        )
    named = in_folder(spec, folder)
    file = next(filter(Path.is_file, (named, Path(f"{named}.gz"))), None)
    if file is None:
        raise UserError(
            f"{named} does not exist; {similar_files(named)}. One-sided text is named "
            "by its file, such as news.en"
        )

    def pairs() -> Iterator[Pair]:
        for line in not_empty(
            read_lines(file), f"{file} is empty; want one sentence a line"
        ):
            yield "", line

    return Corpus(
        str(file),
        file.name.removesuffix(".gz"),
        "",
        "lines",
        pairs,
        lambda: named_hash("lines", file_hash(file)),
    )


def documents(corpus: Corpus) -> Corpus:
    """The documents of one-sided text; an example is ("", lines joined by line feeds).

    Lines of white space alone separate documents; how many does not matter. Examples
    are numbered as documents, from 1. Reading it raises UserError if there is none.
    """

    def joined(pairs: Iterator[Pair]) -> Iterator[Pair]:
        text = (line for _, line in pairs)
        for has_text, lines in itertools.groupby(text, lambda line: bool(line.strip())):
            if has_text:
                yield "", "\n".join(lines)

    complaint = (
        f"{corpus.spec} has no document: all its lines are empty; want text, with an "
        "empty line between two documents"
    )
    return derived(
        corpus,
        "documents",
        lambda pairs: not_empty(joined(pairs), complaint),
        source="",
        target="documents",
    )


def copied(corpus: Corpus) -> Corpus:
    """One-sided text, whose source is its target."""
    return derived(corpus, "copy", lambda pairs: ((line, line) for _, line in pairs))


def tagged(corpus: Corpus, subtask: str, tag: str) -> Corpus:
    """The corpus of a subtask; each source begins with the subtask's tag.

    Its name is `SUBTASK.NAME`: several subtasks may have a set called "test".
    """
    return derived(
        corpus,
        tag,
        lambda pairs: (
            (LowScore if isinstance(pair, LowScore) else tuple)(
                (f"{tag} {pair[0]}", pair[1])
            )
            for pair in pairs
        ),
        spec=f"{subtask}:{corpus.spec}",
        name=f"{subtask}.{corpus.name}",
        subtask=subtask,
        tag=tag,
    )
