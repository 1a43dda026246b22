"""Text that a model makes for training: lines with its translations of them.

    PREFIX.SOURCE, PREFIX.TARGET   the lines, unchanged, and their translations
    PREFIX.hashes                  of the pairs (`data/text_files.py`)
    PREFIX.json                    how they were made

Back-translation (Sennrich et al. 2016, "Improving Neural Machine Translation Models
with Monolingual Data") makes pairs for a model of the opposite direction: the lines are
its targets. While it runs there are the translations alone, PREFIX.TARGET.partial; the
other files follow from these and from the input, when all lines are done.

A teacher makes text for its student: the source lines of a parallel text with its best
translations, found by beam search (Kim and Rush 2016, section 3.2), or of its N best
those nearest to the references ("sequence-level interpolation", section 3.3). While it
runs there is a file of pairs, PREFIX.pairs.partial, or PREFIX.pairs.2-of-3 for a
finished part: each source line is followed by its translation, so that nothing can
bring them out of step.

Either text may be made in parts, on several machines (`io/parts.py`).
"""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.config import DecodeConfig
from t2t_jax.data.corpus import Pair
from t2t_jax.data.text_files import (
    HASHES_ENDING,
    check_hashes,
    encode_line,
    file_hash,
    pair_hasher,
    read_lines,
)
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.jobs import InputLines, run_job
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.text.word_noise import BLANK, WordNoise, add_noise
from t2t_jax.io import atomic, parts
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import OutputFile, PrintedOutput
from t2t_jax.metrics.text_measures import UTILITIES
from t2t_jax.text.words import visible


class TextFiles(NamedTuple):
    """The files of a text."""

    originals: Path
    translations: Path
    hashes: Path
    record: Path

    @classmethod
    def named(cls, prefix: Path, source: str, target: str) -> "TextFiles":
        """The files of a model that translates `source` into `target`."""
        endings = (source, target, HASHES_ENDING, "json")
        return cls(*(prefix.with_name(f"{prefix.name}.{e}") for e in endings))

    def existing(self) -> list[Path]:
        """Returns those that exist, plain or gzipped, in order of appearance."""
        names = self.translations, self.originals, self.record, self.hashes
        zipped = (Path(f"{file}{gz}") for file in names for gz in ("", ".gz"))
        return [file for file in zipped if file.exists()]

    def refuse_existing(self) -> None:
        """Raises UserError, which names the files that exist."""
        names = ", ".join(map(str, self.existing()))
        raise UserError(
            f"--pairs: {names} would be overwritten; give another prefix, or remove "
            "the files"
        )


class Written(NamedTuple):
    """The pairs that `write_sides` has written."""

    lines: int
    empty: int  # of them, those without a translation, which training drops
    input_sha256: str  # of the originals, as `OutputFile` hashes its input


def write_sides(
    files: Sequence[Path], pairs: Iterable[Pair], languages: tuple[str, str]
) -> Written:
    """Writes pairs to the files of the originals, the translations and the hashes."""
    hash_pair, input_hash = pair_hasher(*languages), hashlib.sha256()
    count = empty = 0
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(file.open("wb")) for file in files]
        for count, pair in enumerate(pairs, 1):
            for stream, line in zip(streams, (*pair, hash_pair(pair)), strict=True):
                stream.write(encode_line(line, count))
            input_hash.update(pair[0].encode() + b"\n")
            empty += not visible(pair[1])
    return Written(count, empty, input_hash.hexdigest())


def complete_texts(translation: Translation) -> list[str]:
    """Returns the texts that translate a whole line, best first.

    There are none if the line was cut as too long, and a hypothesis that reached its
    length limit is not one: half a translation would teach to leave things out.
    """
    if translation.cut:
        return []
    return [h.text for h in translation.hypotheses if h.ended]


def run_text_job(
    translate: Callable[[list[str], int], Iterable[Translation]],
    rows: Callable[[str, Translation, int], Sequence[str]],
    text: InputLines | None,
    *job,
) -> OutputFile | PrintedOutput:
    """Runs a job whose output has the same number of rows for each line.

    Args:
      translate: (lines, number of the first, from 1) -> their translations.
      rows: (line, its translation, its number) -> the rows to write.
      text: the input, of process 0 only.
      job: the further arguments of `run_job`.
    """
    skipped = text.first if text else 0  # lines of the input before this part

    def translate_lines(lines: list[str], number: int) -> str:
        translations = zip(lines, translate(lines, number), strict=True)
        written = [rows(*pair, n) for n, pair in enumerate(translations, number)]
        # The first row of a file may need a byte order mark.
        first = len(written[0]) * (number - 1 - skipped) + 1
        encoded = map(encode_line, itertools.chain(*written), itertools.count(first))
        return b"".join(encoded).decode()

    return run_job(translate_lines, text, *job)


# --------------------------------------------------------------------- back-translation


@dataclasses.dataclass(frozen=True)
class PairOptions:
    """Changes to translations before they are written."""

    # Noise on the words (Edunov et al. 2018).
    noises: Sequence[WordNoise] = ()
    # Its random numbers depend on this and on the number of the line.
    noise_seed: int = 0
    # A symbol put before each translation, after the noise; it tells the model that a
    # source is synthetic (Caswell et al. 2019, "Tagged Back-Translation").
    tag: str = ""

    def __post_init__(self):
        try:
            if len(parse_symbols(self.tag)) > 1:
                raise UserError("it has a comma, which separates symbols there")
        except UserError as e:
            raise UserError(
                f"--tag={self.tag!r} cannot be a symbol of config.data.symbols: {e}; "
                "want one word such as <bt>"
            ) from None

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that training keeps as one token (`config.data.symbols`)."""
        blanks = any(noise.name == "blank" for noise in self.noises)
        return tuple(filter(None, (self.tag, BLANK if blanks else "")))

    def line_of(self, translation: Translation, number: int) -> str:
        """Returns the line to write for the translation of a line of the input.

        It is empty if not all of the line was translated. Cleaning drops such pairs.
        """
        text = next(iter(complete_texts(translation)), "")
        if not visible(text):
            return ""
        noised = add_noise(text, self.noises, self.noise_seed, number)
        return f"{self.tag} {noised}" if self.tag else noised


class PairsOutput(OutputFile):
    """The output of a job that writes pairs; the files appear when all lines are done.

    Args:
      note: further fields of the record.
      job: the further arguments of an `OutputFile`.
    """

    def __init__(
        self,
        files: TextFiles,
        languages: tuple[str, str],
        text: InputLines,
        note: dict,
        *job,
    ):
        self._files, self._languages, self._text = files, languages, text
        self._note = note
        self.empty = 0  # the number of pairs with an empty side, when all are written
        super().__init__(files.translations, *job)
        # Some files may have appeared before a kill; then all lines were done.
        recorded_lines = self._earlier["lines"] if self._earlier else None
        if self._files.existing() and recorded_lines != text.count:
            self._stream.close()
            self._files.refuse_existing()

    def _check(self, resume: bool) -> None:
        if self._files.existing() and not (resume and self._record.exists()):
            self._files.refuse_existing()

    def _publish(self) -> None:
        """Writes the files, and gives all of them their names, hashes last."""
        if not self._partial.exists():
            raise UserError(
                f"{self._partial} was removed while it was being written; run the "
                "command again"
            )
        # Also of no lines: a kill while files appear is then continued.
        self._write_record(self._record)
        # The input may have changed, and then have more lines or fewer.
        pairs = zip(self._text.lines(), read_lines(self._partial), strict=False)
        expected = self.lines, self._input_hash.hexdigest()
        files, languages = self._files, self._languages
        names = files.translations, files.originals, files.record, files.hashes
        try:
            with atomic.together(names) as drafts:
                translations, originals, record, hashes = drafts
                sides = originals, translations, hashes
                written = write_sides(sides, pairs, languages)
                if (written.lines, written.input_sha256) != expected:
                    raise UserError(
                        "the input has changed while it was being translated; "
                        f"{self._partial} has the translations of what it was: bring "
                        "that back, and the same command with --resume ends the job"
                    )
                content = self._note | {
                    "source": languages[0],
                    "target": languages[1],
                    "lines": written.lines,
                    "empty": written.empty,
                    "input_sha256": written.input_sha256,
                    "translations_sha256": file_hash(translations),
                    "made_from": self._made_from,
                    **self._place,
                }
                record.write_bytes(atomic.checked_json(content))
        except FileExistsError as e:
            raise UserError(
                f"{e.filename} was created by another process meanwhile; remove it, "
                "and the same command with --resume ends the job"
            ) from None
        self.empty = written.empty


def merge_pairs(prefix: Path) -> None:
    """Joins the finished parts of pairs, which stay, to the files of one process.

    Raises UserError as `io.parts.finished_parts`, `read_records` and `check_bytes` do.
    """
    finished = parts.finished_parts(prefix, f".{HASHES_ENDING}")
    records = parts.read_records(finished)
    note = {k: v for k, v in records[0].items() if k not in ("part", "whole_input")}
    whole, languages = records[0]["whole_input"], (note["source"], note["target"])
    files = TextFiles.named(prefix, *languages)
    sides = [TextFiles.named(part, *languages) for part in finished]
    if missing := [str(file) for side in sides for file in side if not file.exists()]:
        raise UserError(f"missing: {', '.join(missing[:8])}; {parts.REMAKE}")
    for side, record in zip(sides, records, strict=True):
        parts.check_bytes(side.translations, record["translations_sha256"])
        names = side.originals, side.translations
        pairs = zip(*map(read_lines, names), strict=False)
        for _ in check_hashes(pairs, pair_hasher(*languages), names, side.hashes):
            pass

    def joined(name: str) -> Iterator[str]:
        for side in sides:
            yield from read_lines(getattr(side, name))

    text = InputLines(lambda: joined("originals"), keep=True)
    if text.sha256 != whole["sha256"]:
        raise UserError(
            f"{prefix}.*-of-{len(finished)}.{languages[0]} are together not the text "
            f"that they were made from; {parts.REMAKE}"
        )
    with PairsOutput(files, languages, text, note, note["made_from"], True) as output:
        remaining = output.rest_of(text.lines())
        translations = itertools.islice(joined("translations"), output.lines, None)
        pairs = zip(remaining, translations, strict=True)
        for chunk in parts.chunks(pairs, 1 << 16):
            lines, translated = zip(*chunk, strict=True)
            encoded = map(encode_line, translated, itertools.count(output.lines + 1))
            output.add(lines, b"".join(encoded).decode())
    say(f"{len(finished)} parts are merged to {prefix}, and can be removed")


def write_pairs(
    translate: Callable[[list[str], int], Iterable[Translation]],
    text: InputLines | None,
    prefix: Path | None,
    languages: tuple[str, str],
    options: PairOptions,
    note: dict,
    made_from: dict,
    resume: bool,
    batch_size: int,
) -> None:
    """Translates all lines of an input, and writes the pairs of training text.

    Args:
      translate: (lines, number of the first, from 1) -> their translations.
      text: the input, of process 0 only.
      prefix: of the files, of process 0 only.
      note: further fields of `PREFIX.json`; `--resume` does not compare them.
      made_from, resume, batch_size: as for `run_job`.
    """
    source, target = languages
    if source == target:  # in all processes, so that none waits for another
        raise UserError(
            f"--pairs: the model translates {source} into {target}, and both sides "
            f"would be one file, PREFIX.{target}; want a model of two languages"
        )
    noise = ",".join(map(str, options.noises))
    pairs = {"noise": noise, "noise_seed": options.noise_seed, "tag": options.tag}
    made_from = made_from | {"pairs": pairs}
    note = note | {"symbols": options.symbols}  # `corpus.symbols_of` reads it
    files = TextFiles.named(prefix, source, target) if prefix else None
    output = run_text_job(
        translate,
        lambda _, translation, number: [options.line_of(translation, number)],
        text,
        files and files.translations,
        made_from,
        resume,
        batch_size,
        lambda _, *job: PairsOutput(files, languages, text, note, *job),
    )
    if not files:
        return
    flags = f"--config.data.train=TRAIN,{prefix}"
    if options.symbols:
        # Without it the tokenizer would split a tag into tokens of its letters.
        flags += f" --config.data.symbols='{','.join(options.symbols)}'"
    say(
        f"{output.empty:,} of {output.lines:,} pairs are empty, and will be dropped in "
        f"training; train with {flags}"
    )


# ------------------------------------------------------------------ text of a teacher

PROBABILITY = "probability"
CRITERIA = (PROBABILITY, *UTILITIES)
CHUNK = 4_096  # lines sorted and translated together


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of a teacher's text: everything but the teacher and the lines."""

    nbest: int = 1  # the number of translations that one is chosen of
    # `probability`, the teacher's own score; or the metric of sentences by which the
    # nearest to the reference is chosen. "" is `chrf` if there are several.
    by: str = ""
    # Some of `SearchOptions`; the others are the teacher's, but with a beam of at least
    # `nbest`.
    search: Mapping = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.nbest < 1:
            raise UserError(f"--nbest={self.nbest}; want at least 1")
        if not self.by:
            by = PROBABILITY if self.nbest == 1 else "chrf"
            object.__setattr__(self, "by", by)
        if self.by not in CRITERIA:
            raise UserError(f"--by={self.by!r}{did_you_mean(self.by, CRITERIA)}")
        if self.by != PROBABILITY and self.nbest == 1:
            raise UserError(
                f"--by={self.by} chooses among several translations; add --nbest=8 or "
                "so, or leave --by out"
            )

    def options(self, decode: DecodeConfig) -> dict:
        """The options of the search; those of `decode`, the teacher's, if not given."""
        search = {name: x for name, x in self.search.items() if x is not None}
        beam = max(decode.beam, self.nbest)
        options = decode.override(**{"beam": beam} | search)
        nbest = self.nbest if self.by != PROBABILITY else 1
        # The teacher's own is part of its provenance.
        explicit = {name: x for name, x in search.items() if name == "extra_length"}
        return {"nbest": nbest, **options.recorded(), **explicit}

    def chooser(self, language: str) -> Callable[[Translation, str], str]:
        """Returns a function (translation, reference) -> the text that is kept.

        It is empty if no translation is complete. Training drops such pairs.
        """
        nearness = UTILITIES.get(self.by)  # None: by probability

        def choose(translation: Translation, reference: str) -> str:
            texts = complete_texts(translation)
            if not texts:
                return ""
            if not nearness:
                return texts[0]
            # Of equally near ones `argmax` takes the first, which is the most probable;
            # the last decimals are rounding, which must not decide.
            near_h1 = nearness(texts, [reference], language).round(9)
            return texts[near_h1.argmax()]

        return choose
