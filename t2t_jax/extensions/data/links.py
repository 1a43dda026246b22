"""Links between the words of a training text, for guided alignment.

They are learned (`extensions/text/word_alignment.py`) or read from files, and stored
next to the prepared text, with an entry for each token.

Suffixes: `p` pairs, `w` words, `l` links, `v` vocabulary; others are [tokens].
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.corpus import Corpus
from t2t_jax.data.filling import (
    LINK,
    LINKS_OF_A_WORD,
    SOURCE_WORD,
    Ragged,
    TokenArrays,
    per_token,
    take,
)
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.text_files import file_hash, read_lines
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.extensions.text.word_alignment import Aligner
from t2t_jax.io.cache import build_once, cache_folder, cache_key
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.io.threads import in_order
from t2t_jax.text.words import token_words, words

VERSION = 3  # of the links; increment it when others are learned
CELLS = 1 << 24  # a source and a target token of a pair each, to learn from: 3 GB
PART = 1024  # pairs that are aligned together
WORDS = 1 << 31  # the hashes of words are below it: two of them fit into 63 bits


class WordFinder:
    """Finds the words of sentences by their tokens.

    Args:
      mode: The definition of a word (`text/words.py`).
      tags: Symbols that are not words.
    """

    def __init__(self, vocabulary: Vocabulary, mode: str, tags: Sequence[str] = ()):
        self._mode, self._spelled = mode, vocabulary.spellings(range(len(vocabulary)))
        for tag in filter(None, tags):
            self._spelled[vocabulary.id_of(tag)] = b""
        self._none_v = np.array([not spelled for spelled in self._spelled])

    def __call__(self, sentences: Ragged) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the number of each token's word, and the words of each sentence.

        Numbers are from 1 in each sentence, 0 for none; words are hashes below `WORDS`.
        """
        spelled = [self._spelled[i] for i in sentences.tokens.tolist()]
        begin = sentences.offsets[:-1][sentences.lengths > 0]
        for token in begin.tolist():
            spelled[token] = b"\n" + spelled[token]
        text_words = token_words(spelled, self._mode)
        begin_w = [begin for begin, _ in text_words.spans]
        character = np.append(text_words.token_spans[:, 0], len(text_words.text))
        words_before = np.searchsorted(begin_w, character[sentences.offsets])
        number = text_words.of_token - per_token(sentences, words_before[:-1]) + 1
        # White space at the end of a sentence belongs to its last word.
        number = np.minimum(number, per_token(sentences, np.diff(words_before)))
        number[self._none_v[sentences.tokens]] = 0
        hashes = [crc32(word.lower().encode()) % WORDS for word in text_words.texts]
        return number, np.split(np.array(hashes, np.int64), words_before[1:-1])


def guided_arrays(config: Config, pairs, corpora, vocabulary) -> TokenArrays:
    """The links that the loss `guided` of a run reads; see `word_links`."""
    names = split_names(config.train.own_options(config.train.variant("loss")).links)
    written = split_names(config.data.train)
    if len(names) == len(written):  # corpora are in another order
        file_of = dict(zip(written, names, strict=True))
        names = [file_of[corpus.written] for corpus in corpora]
    paths = [Path(config.data.dir, name) for name in names]
    return word_links(pairs, corpora, vocabulary, paths)


def word_links(
    pairs: Pairs, corpora: Sequence[Corpus], vocabulary: Vocabulary, paths: list[Path]
) -> TokenArrays:
    """Opens the links of a prepared text, from the cache if they are there.

    Args:
      paths: Files of links in Pharaoh format (`0-0 1-2`), one for each corpus; words
        are what ASCII white space separates. Without files links are learned, of
        words, signs, and characters of scripts without spaces.

    Returns:
      `source_word` [source tokens]: the number of the word in its sentence, from 1, 0
      for none. `link` [target tokens, `LINKS_OF_A_WORD`]: those that the token's
      word is linked to.

    Raises:
      UserError: A file does not exist, or a line of it is wrong.
    """
    exist = len(paths) == len(corpora) and all(map(Path.is_file, paths))
    if paths and (vocabulary.free_spaces or not exist):
        raise UserError(
            f"config.train.options.links names {', '.join(map(str, paths))}; want an "
            f"existing file for each of the {len(corpora)} corpora of config.data.train"
            ", and a tokenizer that keeps white space; without files, links are learned"
        )
    hashes = [file_hash(path) for path in paths]
    key = cache_key(links=VERSION, arrays=pairs.key, files=hashes, most=LINKS_OF_A_WORD)
    folder = cache_folder() / "links" / key
    build_once(folder, partial(_write, pairs, corpora, vocabulary, paths))
    word, link = (np.memmap(folder / n, np.uint16, "r") for n in (SOURCE_WORD, LINK))
    report = (folder / "report.txt").read_text(encoding="utf-8")
    source, target = {SOURCE_WORD: word}, {LINK: link.reshape(-1, LINKS_OF_A_WORD)}
    return TokenArrays(source, target, key, report)


def _write(pairs: Pairs, corpora, vocabulary: Vocabulary, paths, folder: Path) -> None:
    """Writes the two arrays, and a line that describes them."""
    mode = "spaces" if paths else "units"
    source_finder = WordFinder(
        vocabulary.source, mode, [corpus.tag for corpus in corpora]
    )
    target_finder = WordFinder(vocabulary, mode)

    def words_of(numbers: np.ndarray):
        """Pairs as words, the word of each source token, and of each target token."""
        target = take(pairs.target, numbers)
        source_word, sources = source_finder(take(pairs.source, numbers))
        target_word, targets = target_finder(target)
        place = per_token(target, np.arange(len(numbers))), target_word  # pair, word
        return list(zip(sources, targets, strict=True)), source_word, place

    if paths:
        _check_words(pairs, corpora, vocabulary)
        links_of = partial(_parsed, pairs, paths, _lines(pairs, paths))
    else:
        cells = int((pairs.source.lengths * pairs.target.lengths).sum())
        # Evenly spaced pairs, so that all corpora have a share.
        learned = np.arange(0, len(pairs), max(1, -(-cells // CELLS)))
        aligner = Aligner(words_of(learned)[0], WORDS)

        def links_of(numbers: np.ndarray, as_words: list) -> np.ndarray:
            return aligner.links(as_words)

    def part_arrays(begin: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.arange(begin, min(begin + PART, len(pairs)))
        as_words, source_word, place = words_of(numbers)
        p_l, t_l, s_l = links_of(numbers, as_words).T
        # The links of each word, after its first ones; word 0 is none.
        link_pw = np.zeros(
            (len(numbers), place[1].max() + 1, LINKS_OF_A_WORD), np.uint16
        )
        word_l = p_l * link_pw.shape[1] + t_l
        rank_l = np.arange(len(word_l)) - np.searchsorted(word_l, word_l)
        stored_l = rank_l < LINKS_OF_A_WORD
        link_pw[p_l[stored_l], t_l[stored_l] + 1, rank_l[stored_l]] = s_l[stored_l] + 1
        return source_word.astype(np.uint16), link_pw[place]

    linked = 0
    with open(folder / SOURCE_WORD, "wb") as source, open(folder / LINK, "wb") as links:
        for source_word, link in in_order(part_arrays, range(0, len(pairs), PART)):
            source.write(source_word.tobytes())
            links.write(link.tobytes())
            linked += np.count_nonzero(link[:, 0])
    report = f"{linked:,} of {len(pairs.target.tokens):,} target tokens are linked"
    (folder / "report.txt").write_text(report, encoding="utf-8")


def _check_words(pairs: Pairs, corpora: Sequence[Corpus], vocabulary) -> None:
    """Raises UserError if the tokenizer normalizes a line to other words."""
    sides = vocabulary.source, vocabulary
    lines_by_corpus = np.split(pairs.line, np.cumsum(pairs.sizes)[:-1])
    for corpus, corpus_lines in zip(corpora, lines_by_corpus, strict=True):
        lines = {*corpus_lines.tolist()}
        for number, pair in enumerate(corpus.pairs(), 1):
            for side, line in zip(sides, pair, strict=True):
                counts = [len(words(text)) for text in (line, side.spelled(line))]
                if number in lines and counts[0] != counts[1]:
                    raise UserError(
                        f"{corpus.spec}, line {number:,}: {line[:80]!r} has "
                        f"{counts[0]} words, as spaces separate them, and {counts[1]} "
                        "for the tokenizer, which normalizes text; write spaces "
                        "instead of other white space (U+00A0) and align again, or "
                        "leave out config.train.options.links, so that links are "
                        "learned"
                    )


def _lines(pairs: Pairs, paths: Sequence[Path]) -> list[str]:
    """The line of each pair in files of links; cleaning has dropped other pairs."""
    lines, counts = [], []
    for path, end in zip(paths, np.cumsum(pairs.sizes), strict=True):
        by_number = dict(enumerate(read_lines(path), 1))
        counts.append(len(by_number))
        lines += map(by_number.get, pairs.line[len(lines) : end].tolist())
    if None in lines or sum(counts) != pairs.read:
        raise UserError(
            f"{', '.join(map(str, paths))}: {' + '.join(map(str, counts))} lines, but "
            f"config.data.train has {pairs.read:,} pairs; want a line of links for "
            "each pair, empty if it has none"
        )
    return lines


def _parsed(pairs: Pairs, paths, lines, numbers, as_words) -> np.ndarray:
    """Reads the links of some pairs: int64 [links, 3], (pair, target, source)."""
    links = set()
    for p, (n, (sources, targets)) in enumerate(zip(numbers, as_words, strict=True)):
        for link in lines[n].split():
            match = re.fullmatch(r"(\d+)-(\d+)", link)
            s, t = map(int, match.groups()) if match else (len(sources), 0)
            if s >= len(sources) or t >= len(targets):
                file = np.searchsorted(np.cumsum(pairs.sizes), n, side="right")
                raise UserError(
                    f"{paths[file]}, line {pairs.line[n]:,}: {link!r} is not a link of "
                    f"{len(sources)} source and {len(targets)} target words; want "
                    "SOURCE-TARGET, numbers from 0 of words as spaces and tabs "
                    "separate them (a no-break space does not), such as 0-0 1-2"
                )
            links.add((p, t, s))
    return np.array(sorted(links), np.int64).reshape(-1, 3)
