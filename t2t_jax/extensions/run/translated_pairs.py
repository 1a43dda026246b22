"""Training pairs made by machine: back-translations and the lines they are of.

A model from German to English makes pairs for one from English to German: `PREFIX.de`
has the lines of a German text, unchanged, and `PREFIX.en` their translations (Sennrich
et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data").
Beside them are `PREFIX.hashes` (`data/text_files.py`) and `PREFIX.json`, which says
how they were made.

While a job runs there are its translations alone, `PREFIX.en.partial`. The other files
follow from these and from the input, so they are written when all lines are done.
"""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.data.corpus import Pair
from t2t_jax.data.text_files import (
    HASHES_ENDING,
    check_hashes,
    encode_line,
    pair_hasher,
    read_lines,
)
from t2t_jax.data.tokenizers.vocabulary import parse_symbols
from t2t_jax.decoding.jobs import InputLines, run_job
from t2t_jax.decoding.results import Translation
from t2t_jax.extensions.text.word_noise import BLANK, WordNoise, add_noise
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.io.output_files import OutputFile
from t2t_jax.io.parts import ANEW, check_bytes, chunks, finished_parts, read_records
from t2t_jax.text.words import visible


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


def complete_texts(translation: Translation) -> list[str]:
    """Returns the texts that translate a whole line, best first.

    There are none if the line was cut as too long, and a hypothesis that reached its
    length limit is not one: half a translation would teach to leave things out.
    """
    if translation.cut:
        return []
    return [h.text for h in translation.hypotheses if h.ended]


def write_sides(
    files: Sequence[Path], pairs: Iterable[Pair], languages: tuple[str, str]
) -> tuple[int, int]:
    """Writes pairs to the files of the sources, of the targets and of their hashes.

    Returns:
      The number of pairs, and how many of them have an empty target.
    """
    hash_pair = pair_hasher(*languages)
    count = empty = 0
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(file.open("wb")) for file in files]
        for count, pair in enumerate(pairs, 1):
            for stream, line in zip(streams, (*pair, hash_pair(pair)), strict=True):
                stream.write(encode_line(line, count))
            empty += not visible(pair[1])
    return count, empty


class PairFiles(NamedTuple):
    """The files of pairs, in the order in which they appear."""

    translations: Path
    originals: Path
    record: Path
    hashes: Path

    @classmethod
    def of(cls, prefix: Path, source: str, target: str) -> "PairFiles":
        """Names the files of a model that translates `source` into `target`."""
        endings = (target, source, "json", HASHES_ENDING)
        return cls(*(prefix.with_name(f"{prefix.name}.{e}") for e in endings))

    def existing(self) -> list[Path]:
        """Returns those that exist, plain or gzipped."""
        named = (Path(f"{file}{gz}") for file in self for gz in ("", ".gz"))
        return [file for file in named if file.exists()]


class PairsOutput(OutputFile):
    """The output of a job that writes pairs; the files appear when all lines are done.

    Args:
      note: what the record says besides `made_from`.
      job: the further arguments of an `OutputFile`.
    """

    def __init__(
        self,
        files: PairFiles,
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
        done = self._earlier["lines"] if self._earlier else None
        if self._files.existing() and done != text.count:
            self._stream.close()
            self._refuse_existing()

    def _check(self, resume: bool) -> None:
        if self._files.existing() and not (resume and self._record.exists()):
            self._refuse_existing()

    def _refuse_existing(self) -> None:
        names = ", ".join(map(str, self._files.existing()))
        raise UserError(
            f"--pairs: {names} would be overwritten; give another prefix, or remove "
            "the files"
        )

    def _publish(self) -> None:
        """Writes the files, and gives all of them their names, hashes last."""
        if not self._partial.exists():
            raise UserError(
                f"{self._partial} was removed while it was being written; run the "
                "command again"
            )
        # Also of no lines: a kill while files appear is then continued.
        self._write_record(self._record)
        try:
            with atomic.together(self._files) as drafts:
                new = PairFiles(*drafts)
                sides = new.originals, new.translations, new.hashes
                _, self.empty = write_sides(sides, self._pairs(), self._languages)
                content = self._note | {
                    "source": self._languages[0],
                    "target": self._languages[1],
                    "lines": self.lines,
                    "empty": self.empty,
                    "input_sha256": self._input_hash.hexdigest(),
                    "translations_sha256": self._output_hash.hexdigest(),
                    "made_from": self._made_from,
                    **self._place,
                }
                new.record.write_bytes(atomic.checked_json(content))
        except FileExistsError as e:
            raise UserError(
                f"{e.filename} was created by another process meanwhile; remove it, "
                "and the same command with --resume ends the job"
            ) from None

    def _pairs(self) -> Iterator[Pair]:
        """Yields the lines of the input, checked, with their translations."""
        digest, count = hashlib.sha256(), 0
        translations = read_lines(self._partial)
        for pair in zip(self._text.lines(), translations, strict=False):
            digest.update(pair[0].encode() + b"\n")
            count += 1
            yield pair
        if (count, digest.digest()) != (self.lines, self._input_hash.digest()):
            raise UserError(
                f"the input has changed while it was being translated; {self._partial} "
                "has the translations of what it was: bring that back, and the same "
                "command with --resume ends the job"
            )


def merge_pairs(prefix: Path) -> None:
    """Joins the finished parts of pairs, which stay, to the files of one process.

    Raises UserError as `io.parts.finished_parts`, `read_records` and `check_bytes` do.
    """
    parts = finished_parts(prefix, f".{HASHES_ENDING}")
    records = read_records(parts)
    note = records[0]
    made_from, whole = note["made_from"], note.pop("whole_input")
    del note["part"]
    languages = note["source"], note["target"]
    files = PairFiles.of(prefix, *languages)
    sides = [PairFiles.of(part, *languages) for part in parts]
    if missing := [str(file) for side in sides for file in side if not file.exists()]:
        raise UserError(f"missing: {', '.join(missing[:8])}; {ANEW}")
    for side, record in zip(sides, records, strict=True):
        check_bytes(side.translations, record["translations_sha256"])
        both = side.originals, side.translations
        pairs = zip(*map(read_lines, both), strict=False)
        for _ in check_hashes(pairs, pair_hasher(*languages), both, side.hashes):
            pass

    def joined(name: str) -> Iterator[str]:
        for side in sides:
            yield from read_lines(getattr(side, name))

    text = InputLines(lambda: joined("originals"), keep=True)
    if text.sha256 != whole["sha256"]:
        raise UserError(
            f"{prefix}.*-of-{len(parts)}.{languages[0]} are together not the text that "
            f"they were made from; {ANEW}"
        )
    with PairsOutput(files, languages, text, note, made_from, True) as output:
        rest = output.rest_of(text.lines())
        done = itertools.islice(joined("translations"), output.lines, None)
        for chunk in chunks(zip(rest, done, strict=True), 1 << 16):
            lines, translated = zip(*chunk, strict=True)
            encoded = map(encode_line, translated, itertools.count(output.lines + 1))
            output.add(lines, b"".join(encoded).decode())
    say(f"{len(parts)} parts are merged to {prefix}, and can be removed")


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
      note: what the record `PREFIX.json` says besides; `--resume` does not compare it.
      made_from, resume, batch_size: as for `run_job`.
    """
    source, target = languages
    if source == target:  # in all processes, so that none waits for another
        raise UserError(
            f"--pairs: the model translates {source} into {target}, and both sides "
            f"would be one file, PREFIX.{target}; want a model of two languages"
        )
    before = text.first if text else 0  # lines of the input before this part

    def translate_lines(lines: list[str], number: int) -> str:
        translations = translate(lines, number)
        return "".join(
            encode_line(options.line_of(translation, n), n - before).decode()
            for n, translation in enumerate(translations, number)
        )

    noise = ",".join(map(str, options.noises))
    pairs = {"noise": noise, "noise_seed": options.noise_seed, "tag": options.tag}
    made_from = made_from | {"pairs": pairs}
    note = note | {"symbols": options.symbols}  # `corpus.symbols_of` reads it
    files = PairFiles.of(prefix, source, target) if prefix else None

    def open_output(_: Path, *job) -> PairsOutput:
        return PairsOutput(files, languages, text, note, *job)

    path = files.translations if files else None
    output = run_job(
        translate_lines, text, path, made_from, resume, batch_size, open_output
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
