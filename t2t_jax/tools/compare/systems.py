"""Systems as they are named on a command line: workdirs and files of translations."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_jax.data.corpus import (
    Corpus,
    Pair,
    check_files,
    distinct,
    open_corpora,
    open_specs,
)
from t2t_jax.data.text_files import read_lines
from t2t_jax.extensions.evaluation.references import with_references
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import is_local, split_names
from t2t_jax.io.messages import say, waiting
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.translation import Translation
from t2t_jax.text.languages import pair_of
from t2t_jax.tools.compare.compare import System
from t2t_jax.tools.compare.texts import Texts, Training, count_training
from t2t_jax.tools.pages.run_log import short_names

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator


class SystemSpec(NamedTuple):
    """A system that is not read yet.

    Attributes:
      name: for people.
      workdirs: a workdir, or the members of an ensemble; empty if it is files.
      checkpoint: of the workdirs; None for that of the command.
      files: translations, one file for each test set; empty if it is a workdir.
    """

    name: str
    workdirs: tuple[str, ...] = ()
    checkpoint: str | None = None
    files: tuple[Path, ...] = ()

    def load(self, checkpoint: str | None, search: dict) -> "Translator | None":
        """Loads the translator of workdirs, with options of the search."""
        if not self.workdirs:
            return None
        from t2t_jax.decoding.translator import Translator

        workdirs = [*self.workdirs]
        translator = Translator.load(workdirs, self.checkpoint or checkpoint)
        return translator.with_options(**search)


def parse_systems(written: Sequence[str]) -> list[SystemSpec]:
    """Reads how systems are named: `[NAME=]PLACE`.

    A place is a workdir, several (an ensemble), or `WORKDIR@CHECKPOINT`; or a text file
    with a line for each line of the test set, for several sets one file each. Commas
    separate workdirs and files. Those without a name get the shortest ones that tell
    them apart.
    """
    if len(written) < 2:
        raise UserError(
            f"{len(written)} system{'s' * (len(written) != 1)} given; want two or more "
            "to compare: workdirs, or text files as NAME=FILE"
        )
    places = [_parse(system) for system in written]
    names = [place.name for place in places if place.name]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two systems are called {twice!r}; give them different names")
    return _named(places)


def _parse(written: str) -> SystemSpec:
    name, equals, place = written.partition("=")
    if not equals or _exists(written):
        name, place = "", written
    parts = split_names(place)
    if not parts:
        raise UserError(f"{written!r} names no system; want NAME=FILE or a workdir")
    files = tuple(Path(part).expanduser() for part in parts)
    if all(file.is_file() for file in files):
        return SystemSpec(name, files=files)
    workdir, separator, checkpoint = parts[-1].rpartition("@")
    if separator and workdir and checkpoint and not _exists(parts[-1]):
        parts[-1] = workdir
    else:
        checkpoint = ""
    for part in parts:
        if is_local(part) and not Path(part).expanduser().is_dir():
            raise UserError(
                f"{part} is neither a folder nor a file; want the workdir of a run, or "
                "a text file with a translation of each line of the test set"
            )
    return SystemSpec(name, tuple(parts), checkpoint or None)


def _exists(place: str) -> bool:
    return is_local(place) and Path(place).expanduser().exists()


def _named(places: Sequence[SystemSpec]) -> list[SystemSpec]:
    """Names systems that have no name; numbered if the same one is there twice."""
    paths = [str((place.workdirs or place.files)[0]) for place in places]
    names = [place.name for place in places]
    for n, (place, short) in enumerate(zip(places, short_names(paths), strict=True)):
        if not place.name:
            plus = "+" * (len(place.workdirs) > 1)
            checkpoint = f"@{place.checkpoint}" if place.checkpoint else ""
            name = short = f"{short}{plus}{checkpoint}"
            number = 2
            while name in names:
                name, number = f"{short} ({number})", number + 1
            names[n] = name
    return [p._replace(name=name) for p, name in zip(places, names, strict=True)]


def read_systems(
    places: Sequence[SystemSpec],
    tests: str,
    direction: str | None = None,
    train: str | None = None,
    checkpoint: str | None = None,
    search: dict | None = None,
    new: str | None = None,
    references: str | Sequence[str | Sequence[str]] = (),
) -> list[tuple[Texts, list[System]]]:
    """Reads, or makes, each system's translations of each test set.

    Workdirs translate where `score_set` has no current scores, and store what it
    stores. Files are read first: a mistake shows before anything is translated.

    Args:
      direction: such as "en-de"; needed only if no system is a workdir.
      train: places of the training text; by default that of the first workdir.
      checkpoint: of workdirs that name none themselves.
      search: options of the search, such as `beam`.
      new: sets of the new domain; by default the test sets of fine-tuned runs.
      references: further ones of the test set, as `with_references` takes them.

    Returns:
      For each test set the texts, and its translations by each system, in order.
    """
    loaded = [place.load(checkpoint, search or {}) for place in places]
    translators = [translator for translator in loaded if translator is not None]
    corpora = _corpora(translators, tests, direction)
    if new is not None:
        new_sets = _corpora(translators, new, direction)
    else:
        new_sets = [c for rival in loaded[1:] if rival for c in _tuned_to(rival)]
    domains = _domains(corpora, new_sets, new)
    if references:
        corpora = with_references(corpora, references)
    lines = [_lines(translators, corpus) for corpus in corpora]
    files = [
        _read_files(place, corpora, lines) if place.files else None for place in places
    ]
    count = functools.cache(functools.partial(_count, translators, train))
    compared = []
    for n, corpus in enumerate(corpora):
        systems = [
            System(place.name, files[s][n], str(place.files[n]))
            if translator is None
            else _translate(place, translator, _open(translator, tests)[n], lines[n])
            for s, (place, translator) in enumerate(zip(places, loaded, strict=True))
        ]
        languages = corpus.source, corpus.target
        sides = zip(*lines[n], strict=True)
        known = *count(*languages), domains[n], corpus.further
        texts = Texts(corpus.name, *languages, *sides, *known)
        compared.append((texts, systems))
    return compared


def _corpora(
    translators: Sequence["Translator"], tests: str, direction: str | None
) -> list[Corpus]:
    """Opens the test sets as the first workdir does, or in a direction."""
    if translators:
        if direction is not None:
            raise UserError(
                f"--direction={direction}: a workdir knows its languages; leave it out"
            )
        return _open(translators[0], tests)
    name = direction or ""
    source, target = pair_of(name) or name.partition("-")[::2]
    if not (source and target):
        raise UserError(
            f"--direction={name}: no system is a workdir, which would know "
            "the languages; want --direction=en-de for files PREFIX.en and PREFIX.de"
        )
    return _distinct_sets(open_corpora(tests, source, target), tests)


def _open(translator: "Translator", tests: str) -> list[Corpus]:
    """Opens the test sets as a workdir's task reads them."""
    task = task_of(translator.config)
    corpora = _distinct_sets(open_specs(tests, task.open), tests)
    for corpus in corpora:
        if (set_task := task.of(corpus)).chosen_by != "bleu":
            raise UserError(
                f"compare: {corpus.name} is scored by {set_task.chosen_by!r}; want a "
                "set of translations, which are scored by BLEU"
            )
    return corpora


def _tuned_to(translator: "Translator") -> list[Corpus]:
    """The test sets of a run that started from another one's parameters, if here."""
    config = translator.config
    if not config.train.init_from:
        return []
    try:
        sets = open_specs(config.data.test, task_of(config).open, config.data.dir)
        check_files(sets)
    except UserError:
        return []
    return [corpus for corpus in sets if corpus.is_here()]


def _domains(
    corpora: Sequence[Corpus], new_sets: Sequence[Corpus], new: str | None
) -> list[str]:
    """For each set "new" or "old", by its text; all "" if none of them is new."""
    texts = {corpus.fingerprint() for corpus in new_sets}
    is_new = [corpus.fingerprint() in texts for corpus in corpora] if texts else []
    if any(is_new):
        return ["new" if new_ else "old" for new_ in is_new]
    if new is not None:
        raise UserError(f"--new={new} is none of the sets of --test; want one of them")
    return [""] * len(corpora)


def _distinct_sets(corpora: list[Corpus], tests: str) -> list[Corpus]:
    if not corpora:
        raise UserError(f"--test={tests!r} names no test set; want a PREFIX")
    return distinct(corpora)


def _lines(translators: Sequence["Translator"], corpus: Corpus) -> list[Pair]:
    """The pairs of a test set, without a tag before the source."""
    if not translators:
        return list(corpus.pairs())
    pairs = task_of(translators[0].config).of(corpus).examples(corpus)
    tag = f"{corpus.tag} " if corpus.tag else ""
    return [(source.removeprefix(tag), target) for source, target in pairs]


def _read_files(
    place: SystemSpec, corpora: Sequence[Corpus], lines: Sequence[Sequence]
) -> list[list[str]]:
    if len(place.files) != len(corpora):
        sets = ", ".join(corpus.name for corpus in corpora)
        raise UserError(
            f"{place.name} has {len(place.files)} files for {len(corpora)} test sets "
            f"({sets}); want NAME=FILE,FILE: one for each, in this order"
        )
    read = []
    for file, corpus, pairs in zip(place.files, corpora, lines, strict=True):
        translations = list(read_lines(file))
        if len(translations) != len(pairs):
            raise UserError(
                f"{file} has {len(translations):,} lines, but {corpus.spec} has "
                f"{len(pairs):,}; want a translation of each line, in the same order"
            )
        read.append(translations)
    return read


def _translate(
    place: SystemSpec, translator: "Translator", corpus: Corpus, lines: Sequence[Pair]
) -> System:
    """Reads a workdir's translations of a test set, or makes them."""
    if _lines([translator], corpus) != list(lines):
        raise UserError(
            f"{place.name} reads other lines of {corpus.spec} than the first workdir: "
            "want runs of the same direction"
        )
    from t2t_jax.evaluation.scores import scores_and_answers

    _, answers = scores_and_answers(translator, corpus, place.workdirs)
    steps = ", ".join(f"{step:,}" for step in translator.steps)
    checkpoint = "step" if len(translator.steps) == 1 else "average of"
    origin = f"{', '.join(place.workdirs)}; {checkpoint} {steps}"
    return System(place.name, answers, origin)


def _count(
    translators: Sequence["Translator"], train: str | None, source: str, target: str
) -> tuple[Training | None, str]:
    """Counts the training text of a direction; or says why there is none."""
    if train is not None:
        corpora = open_corpora(train, source, target, weights=True)
    elif not translators:
        return None, "no training text is given; want --train=PREFIX"
    else:
        data = translators[0].config.data
        if not isinstance(task_of(translators[0].config), Translation):
            return None, "the first workdir has several tasks; want --train=PREFIX"
        try:
            corpora = open_corpora(data.train, source, target, data.dir, True, data)
            # The first pair: a text that is not there any more is noticed here.
            for corpus in corpora:
                next(itertools.islice(corpus.pairs(), 1), None)
        except UserError as e:
            say(f"warning: without the training text of the first workdir: {e}")
            return None, f"the training text of the first workdir is not there: {e}"
    with waiting("counting the words of the training text"):
        training = count_training(corpora, source, target)
    # An imported model's workdir names none.
    missing = "" if training.pairs else "there is no training text; want --train=PREFIX"
    return (None if missing else training), missing
