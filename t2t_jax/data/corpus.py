"""Corpora of sentence pairs: text files, the built-in grammar, TensorFlow Datasets.

A spec is a string that names a corpus. `config.data.train`, `dev` and `test`, and
`--test` of the commands, all use the same syntax:

    news/train         the files `news/train.en` and `news/train.de`, or the same with
                       `.gz`. Relative prefixes start at `config.data.dir` in a config,
                       and at the current folder on a command line
    raw/news.tsv       columns of one file, or keys of `news.jsonl`, plain or `.gz`
                       (`extensions/data/table_files.py`)
    raw/*.tsv.gz       all files that match, sorted; `text/part*` all such prefixes
    grammar:unseen     a split of the built-in corpus (`extensions/grammar/corpus.py`)
    tfds:wmt14_translate/de-en:train
                       a split of TensorFlow Datasets (`data/tfds.py`)
    sacrebleu:wmt14/full
                       a published test set (`extensions/data/sacrebleu_sets.py`)

Other tasks have specs of their own, such as a file of one-sided text. What is opened
is a `Corpus`: names, a function that yields the pairs, and one that hashes them.

Commas separate several specs; a comma in a name is written `\\,`. A spec of training
text may end in a weight: how many times an epoch reads it. `news@2,bt/synthetic@0.5`
reads every pair of `news` twice, and half the pairs of `bt/synthetic`; the next epoch
reads the other half.
"""

import dataclasses
import hashlib
import importlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from t2t_jax.config import DataConfig
from t2t_jax.data.text_files import (
    HASHES_ENDING,
    check_hashes,
    file_hash,
    find_file,
    pair_hasher,
    read_lines,
    similar_files,
)
from t2t_jax.data.tfds import TfdsSplit
from t2t_jax.io import ideas
from t2t_jax.io.atomic import read_checked_json
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.sections import at_address
from t2t_jax.text.units import Pair

TABLE_NAME = re.compile(r"\.(tsv|jsonl)(\.gz)?$")


class LowScore(tuple[str, str]):
    """A pair that training leaves out: its score is below `config.data.min_score`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Pairs of lines in a fixed order, which can be read again and again.

    Attributes:
      spec: The string that names it.
      name: Part of the names of its score files.
      source: What the source is, such as a language.
      target: The same for the target; ends the name of the file of answers.
      pairs: Yields (source line, target line), without line ends.
      fingerprint: Returns a hash that changes whenever a line changes; it excludes the
        weight.
      weight: How many times an epoch of training reads it.
      made_of: The corpus that it is made of, if it is `derived`.
      prefix: That of its two text files, if it is stored so.
      subtask, tag: In a mixture of tasks, its task and what begins its sources.
      compare_with: Says in one line what its scores compare with, if they are
        particular, such as those of damaged text.
      is_here: False if reading it downloads it first.
      pairs_after: Yields the pairs after the first N, faster than `pairs`; None if it
        cannot.
      written: What a config names it, with its weight.
      skipped: Pairs of it before those of `pairs`, in a part of a text.
      further: Further references of its lines, a list each (`with_references`).
    """

    spec: str
    name: str
    source: str
    target: str
    pairs: Callable[[], Iterator[Pair]]
    fingerprint: Callable[[], str]
    weight: float = 1.0
    made_of: "Corpus | None" = None
    prefix: Path | None = None
    subtask: str = ""
    tag: str = ""
    compare_with: str = ""
    is_here: Callable[[], bool] = lambda: True
    pairs_after: Callable[[int], Iterator[Pair]] | None = None
    written: str = ""
    skipped: int = 0
    further: tuple[list[str], ...] = ()

    def span(self, begin: int, end: int | None = None) -> Iterator[Pair]:
        """Yields the pairs from `begin` to before `end`, counted from 0."""
        if begin == end:  # nothing is read for it
            return iter(())
        if self.pairs_after is None or not begin:
            return itertools.islice(self.pairs(), begin, end)
        return itertools.islice(
            self.pairs_after(begin), None if end is None else end - begin
        )


def derived(
    corpus: Corpus,
    kind: str,
    change: Callable[[Iterator[Pair]], Iterable[Pair]],
    **attributes,
) -> Corpus:
    """Makes a corpus of another one.

    Args:
      corpus: The other one.
      kind: Tells apart what is made of it: the fingerprint is a hash of this and of its
        own. So the text changes whenever `change` does other things.
      change: Makes the pairs of those of `corpus`. If it is not this package's, its
        code is part of the fingerprint, too.
      attributes: Of the new corpus; the others are those of `corpus`.
    """
    code = "".join(f" {name} {x}" for name, x in ideas.foreign_code(change).items())
    return dataclasses.replace(
        corpus,
        pairs=lambda: iter(change(corpus.pairs())),
        fingerprint=lambda: named_hash(kind + code, corpus.fingerprint()),
        made_of=corpus,
        prefix=None,
        pairs_after=None,
        **attributes,
    )


def named_hash(kind: str, fingerprint: str) -> str:
    """Hashes a fingerprint together with what is made of its text."""
    return hashlib.sha256(f"{kind} {fingerprint}".encode()).hexdigest()


# ------------------------------------------------------------------ sentence pairs


def built_in_grammar() -> ModuleType:
    """Imports the built-in grammar, which only its own corpora need."""
    return importlib.import_module("t2t_jax.extensions.grammar.corpus")


def file_corpus(prefix: Path, source: str, target: str) -> Corpus:
    """Two text files with the same prefix, aligned by line.

    Reading it raises UserError if a file is missing, damaged, empty or not UTF-8; if
    the two files differ in their number of lines (at the end); or if there is a file of
    hashes, and a pair differs from its hash.
    """

    def files() -> tuple[Path, Path]:
        return side_file(prefix, source), side_file(prefix, target)

    def pairs_after(skipped: int) -> Iterator[Pair]:
        names = files()
        aligned = file_pairs(names, skipped)
        if hashes := find_file(prefix, HASHES_ENDING):
            hash_pair = pair_hasher(source, target)
            aligned = check_hashes(aligned, hash_pair, names, hashes, skipped)
        yield from aligned

    def fingerprint() -> str:
        return hash_of(*(bytes.fromhex(file_hash(file)) for file in files()))

    return Corpus(
        str(prefix),
        prefix.name,
        source,
        target,
        lambda: pairs_after(0),
        fingerprint,
        prefix=prefix,
        pairs_after=pairs_after,
    )


def file_pairs(files: tuple[Path, Path], skipped: int = 0) -> Iterator[Pair]:
    """Yields the pairs of two files; raises the errors of the files themselves.

    The first `skipped` pairs are left out.
    """
    counts = [skipped, skipped]
    # zip_longest, so that the error can give both numbers of lines.
    for pair in itertools.zip_longest(*(read_lines(file, skipped) for file in files)):
        for side in range(2):
            counts[side] += pair[side] is not None
        if None not in pair:
            yield pair
    source_file, target_file = files
    if counts[0] != counts[1]:
        raise UserError(
            f"{source_file} has {counts[0]:,} lines but {target_file} has "
            f"{counts[1]:,}; want one sentence a line, the two files aligned by line"
        )
    if not counts[0]:
        raise UserError(
            f"{source_file} and {target_file} are empty; want one sentence a line"
        )


def hash_of(*parts: bytes) -> str:
    """Hashes the hashes of some parts."""
    digest = hashlib.sha256()
    for part in parts:
        # A hash of hashes: ("ab", "c") and ("a", "bc") differ.
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def side_file(prefix: Path, language: str) -> Path:
    """The file of one language, plain or gzipped; raises UserError if missing."""
    if file := find_file(prefix, language):
        return file
    plain = Path(f"{prefix}.{language}")
    unzipped = Path(str(prefix).removesuffix(".gz"))
    if prefix.is_file() and unzipped.suffix == f".{language}":
        ending = prefix.name.removeprefix(unzipped.stem)
        raise UserError(
            f"{plain} does not exist: the prefix of two files names a corpus, and "
            f"{prefix} is one of them; leave out {ending}: want "
            f"{unzipped.with_suffix('')}"
        )
    raise UserError(
        f"{plain} does not exist, nor does {plain.name}.gz; {similar_files(prefix)}. A "
        "spec is a prefix: 'news' stands for news.en and news.de (config.data.source "
        "and target)"
    )


def symbols_of(prefix: Path) -> tuple[str, ...]:
    """The symbols that pairs made by machine have, such as a tag.

    `PREFIX.json` names them, if `translate --pairs` wrote it; another file of this name
    is not looked into.
    """
    try:
        record = read_checked_json(Path(f"{prefix}.json"))
    except (OSError, ValueError):
        return ()
    return tuple(record.get("symbols", ()))


# -------------------------------------------------------------------------- specs


def in_folder(spec: str, folder: str) -> Path:
    """The file or prefix that a spec names; an absolute spec ignores the folder."""
    return Path(folder).expanduser() / Path(spec).expanduser()


def with_folder(specs: str, folder: str) -> list[str]:
    """Lists specs that commas separate; files with the folder that they are in."""
    names = split_names(specs)
    return [n if scheme_of(n) else str(in_folder(n, folder)) for n in names]


def scheme_of(spec: str) -> str:
    """The beginning of a spec that is not files, such as "grammar"; or ""."""
    scheme, colon, _ = spec.partition(":")
    return scheme if colon and scheme in ("grammar", "tfds", "sacrebleu") else ""


def open_corpus(
    spec: str,
    source: str,
    target: str,
    folder: str = "",
    data: DataConfig | None = None,
) -> Corpus:
    """Opens the corpus at one spec.

    Args:
      spec: See the top of this file.
      source, target: The languages to translate from and into.
      folder: The folder where relative prefixes start.
      data: Its columns and scores are those of `.tsv` and `.jsonl` files.

    Raises:
      UserError: An unknown split or data set, languages that it does not have, or no
        such table.
    """
    scheme = scheme_of(spec)
    if scheme == "grammar":
        split = spec.removeprefix("grammar:")
        return built_in_grammar().split_corpus(split, source, target)
    if scheme == "sacrebleu":
        open_set = at_address("extensions.data.sacrebleu_sets.open_set")
        return open_set(spec, source, target)
    if scheme == "tfds":
        split = TfdsSplit(spec, source, target)
        return Corpus(
            spec,
            split.name,
            source,
            target,
            split.pairs,
            split.fingerprint,
            is_here=split.is_prepared,
        )
    file = in_folder(spec, folder)
    if TABLE_NAME.search(file.name) and not find_file(file, source, target):
        table_corpus = at_address("extensions.data.table_files.table_corpus")
        return table_corpus(file, source, target, data)
    return file_corpus(file, source, target)


def open_corpora(
    specs: str,
    source: str,
    target: str,
    folder: str = "",
    weights: bool = False,
    data: DataConfig | None = None,
) -> list[Corpus]:
    """Opens the parallel corpora at several specs.

    Args:
      source: The language to translate from; file names end in it.
      target: The language to translate into; file names end in it.
      others: As for `open_specs` and `open_corpus`.
    """

    def open_one(spec: str, folder: str) -> Corpus:
        return open_corpus(spec, source, target, folder, data)

    return open_specs(specs, open_one, folder, weights)


def open_specs(
    specs: str,
    open_one: Callable[[str, str], Corpus],
    folder: str = "",
    weights: bool = False,
) -> list[Corpus]:
    """Opens the corpora at specs separated by commas, in order, by `open_one`.

    `weights` is True if specs may end in a weight, as in training text.

    Raises:
      UserError: A weight that is not a number above 0, or that is not allowed here; a
        spec that is given twice, cannot be opened or, as a pattern, matches nothing.
    """
    corpora: dict[str, Corpus] = {}
    for written in split_names(specs):
        # Files may have a name such as "news@2.en"; then "@2" need not be a weight.
        exists = "@" in written and _has_files(in_folder(written, folder))
        spec, weight = _split_weight(written, weights, exists)
        names = [spec]
        if re.search(r"[*?[]", spec) and not _has_files(in_folder(spec, folder)):
            names = at_address("extensions.data.patterns.matches")(spec, folder)
        for name in names:
            corpus = open_one(name, folder)
            if corpus.spec in corpora:
                fix = f"; for twice an epoch write {spec}@2" if weights else ""
                raise UserError(f"{specs!r} names {name} twice; want it once{fix}")
            corpora[corpus.spec] = dataclasses.replace(
                corpus, weight=weight, written=name + written.removeprefix(spec)
            )
    return list(corpora.values())


def heaviest_first(corpora: Iterable[Corpus]) -> list[Corpus]:
    """Sorts a training text by weight, the largest first; equal weights stay in order.

    The first copy of a duplicate is the one that is kept. So a pair of several corpora
    has the largest of their weights, in whatever order a config names them.
    """
    return sorted(corpora, key=lambda corpus: -corpus.weight)


def check_files(corpora: Iterable[Corpus]) -> None:
    """Reads the first pair of each text file.

    So those that are missing are reported now, together, before the others are read.
    """
    errors = []
    for corpus in corpora:
        while corpus.made_of:
            corpus = corpus.made_of
        if not scheme_of(corpus.spec):
            try:
                next(corpus.pairs(), None)
            except UserError as e:
                errors.append(str(e))
    if errors:
        more = [f"... and {len(errors) - 5:,} more"] * (len(errors) > 5)
        raise UserError("\n".join([*errors[:5], *more]))


def distinct(corpora: list[Corpus]) -> list[Corpus]:
    """Returns the sets; raises UserError if two have the same name.

    A set's name is also the name of its files of scores and translations. Files of the
    same name in other folders are called FOLDER-NAME.
    """
    names = Counter(corpus.name for corpus in corpora if corpus.prefix)
    corpora = [
        dataclasses.replace(c, name=f"{c.prefix.absolute().parent.name}-{c.name}")
        if c.prefix and names[c.name] > 1
        else c
        for c in corpora
    ]
    corpus_of: dict[str, Corpus] = {}
    for corpus in corpora:
        if (namesake := corpus_of.setdefault(corpus.name, corpus)) is not corpus:
            raise UserError(
                f"the test sets {namesake.spec} and {corpus.spec} are both called "
                f"{corpus.name!r}, which also names the files of scores; rename one"
            )
    return corpora


def _has_files(prefix: Path) -> bool:
    """True if there is a file of this name, or of this name and an ending."""
    names = [file.name for file in prefix.parent.glob("*") if file.is_file()]
    return any(n == prefix.name or n.startswith(f"{prefix.name}.") for n in names)


def _split_weight(written: str, weights: bool, exists: bool) -> tuple[str, float]:
    """Splits `news@2` into ("news", 2.0); `mail@home/news` keeps its @, with weight 1.

    File names may have an @ too. If `weights` are allowed, a number after the last @ is
    a weight, and anything else is an error unless such files exist.
    """
    spec, separator, number = written.rpartition("@")
    if not separator or "/" in number or (exists and not weights):
        return written, 1.0
    # re.A: `\d` would also match the digits of other scripts.
    weight = float(number) if re.fullmatch(r"\d+\.?\d*|\.\d+", number, re.A) else 0.0
    if not weights and weight:
        raise UserError(
            f"{written}: only training text has weights; a dev or test set is read "
            f"completely and once, so want {spec}"
        )
    if spec and weight:
        return spec.rstrip(), weight
    if exists or not weights:
        return written, 1.0
    spec = spec or "news"
    raise UserError(
        f"{written} is not a corpus with a weight; want CORPUS@NUMBER, where NUMBER "
        f"> 0 says how many times an epoch reads CORPUS, such as {spec}@2 or {spec}@0.5"
    )
