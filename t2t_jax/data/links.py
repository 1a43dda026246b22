"""Links between the words of a training text, for guided alignment.

They are learned (`text/word_alignment.py`) or read from files, and stored next to the
prepared text, with an entry for each token.

Suffixes: `p` pairs, `w` words, `l` links, `v` vocabulary; others are [tokens].
"""

import array
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unicodedata import category

import numpy as np

from t2t_jax.data.corpus import Corpus
from t2t_jax.data.filling import Ragged, TokenArrays, of_sentence, take
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.text_files import file_hash, read_lines
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.cache import build_once, cache_folder, cache_key
from t2t_jax.io.errors import UserError
from t2t_jax.io.threads import in_order
from t2t_jax.text.counter_random import hashed
from t2t_jax.text.word_alignment import Aligner

VERSION = 1  # of the links; increment it when others are learned
MOST = 4  # source words that a target word is linked to; further ones are dropped
SOURCE_WORD, LINK = "source_word", "link"
CELLS = 1 << 24  # a source and a target token of a pair each, to learn from: 3 GB
PART = 1024  # pairs that are aligned together
WORDS = 1 << 31  # the hashes of words are below it: two of them fit into 63 bits


class Words:
    """Finds the words of sentences by their tokens.

    Args:
      signs: Signs, such as a comma, are words. If not, only white space separates.
      tags: Symbols that are not words.
    """

    def __init__(self, vocabulary: Vocabulary, signs: bool, tags: Sequence[str] = ()):
        spelled = [vocabulary.spelling(i) for i in range(len(vocabulary))]
        # A byte of a character continues a word.
        texts = [text if isinstance(text, str) else "\0" for text in spelled]
        none_v = np.array([not text for text in texts])
        none_v[[vocabulary.id_of(tag) for tag in tags if tag]] = True
        if vocabulary.unknown >= 0:
            none_v[vocabulary.unknown] = False

        def separates(character: str) -> bool:
            sign = signs and character and category(character)[0] in "PS"
            return bool(sign or character.isspace())

        # Does a token begin a word, end one, consist of white space (which belongs to
        # the next word), or belong to no word, such as the end of the sentence?
        begins_v = [separates(text[:1]) for text in texts]
        ends_v = [separates(text[-1:]) for text in texts]
        self._table_4v = np.array(
            [begins_v, ends_v, [text.isspace() for text in texts], none_v]
        )
        visible = [
            text.strip(" \0").lower() or f"\0{i}" for i, text in enumerate(texts)
        ]
        self._type_v = np.unique(visible, return_inverse=True)[1]

    def __call__(self, sentences: Ragged) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the words of sentences.

        Returns:
          The number of each token's word, from 1 in each sentence, 0 for none; and of
          each sentence a hash of each word, below `WORDS`.
        """
        begins, ends, blank, none = self._table_4v[:, sentences.tokens]
        begins[1:] |= ends[:-1]
        begins[1:] &= ~blank[:-1]
        begins[1:] |= none[:-1]
        begins[sentences.offsets[:-1][sentences.lengths > 0]] = True
        begins &= ~none
        before = np.append(0, np.cumsum(begins))[sentences.offsets]
        number = np.where(
            none, 0, np.cumsum(begins) - of_sentence(sentences, before[:-1])
        )
        first_w, token = np.flatnonzero(begins), np.arange(len(begins))
        place = token - np.maximum.accumulate(np.where(begins, token, 0))
        token_hash = hashed(self._type_v[sentences.tokens], place) >> np.uint64(33)
        token_hash[none] = 0
        hash_w = (
            np.add.reduceat(token_hash, first_w) if len(first_w) else token_hash[:0]
        )
        return number, np.split((hash_w % WORDS).astype(np.int64), before[1:-1])


def word_links(
    pairs: Pairs, corpora: Sequence[Corpus], vocabulary: Vocabulary, paths: list[Path]
) -> TokenArrays:
    """Opens the links of a prepared text, from the cache if they are there.

    Args:
      paths: Files of links in Pharaoh format (`0-0 1-2`), one for each corpus; words
        are what white space separates. Without files links are learned, of words and
        signs.

    Returns:
      `source_word` [source tokens]: the number of the word in its sentence, from 1, 0
      for none. `link` [target tokens, MOST]: those that the token's word is linked to.

    Raises:
      UserError: A file does not exist, or a line of it is wrong.
    """
    if paths and (vocabulary.free_spaces or len(paths) != len(corpora)):
        raise UserError(
            f"config.train.options.links names {', '.join(map(str, paths))}; want a "
            f"file for each of the {len(corpora)} corpora of config.data.train, "
            "separated by commas, and a tokenizer that keeps white space, by which "
            "words are counted; leave it empty, and links are learned"
        )
    for path in paths:
        if not path.is_file():
            raise UserError(
                f"config.train.options.links: {path} does not exist; want links in "
                "Pharaoh format, such as fast_align writes"
            )
    hashes = [file_hash(path) for path in paths]
    key = cache_key(links=VERSION, arrays=pairs.key, files=hashes, most=MOST)
    folder = cache_folder() / "links" / key
    build_once(folder, partial(_write, pairs, corpora, vocabulary, paths))
    word, link = (np.load(folder / f"{n}.npy", "r") for n in (SOURCE_WORD, LINK))
    report = (folder / "report.txt").read_text(encoding="utf-8")
    return TokenArrays({SOURCE_WORD: word}, {LINK: link}, key, report)


def _write(pairs: Pairs, corpora, vocabulary: Vocabulary, paths, folder: Path) -> None:
    """Writes the two arrays, and a line that describes them."""
    stored, tags = (pairs.source, pairs.target), [corpus.tag for corpus in corpora]
    of_side = [Words(v, not paths, tags) for v in (vocabulary.source, vocabulary)]

    def taken(numbers: np.ndarray):
        """The target sentences, the words of both sides, and the pairs of these."""
        sides = [take(side, numbers) for side in stored]
        source, target = (of(side) for of, side in zip(of_side, sides, strict=True))
        words, hashes = zip(source, target, strict=True)
        return sides[1], words, list(zip(*hashes, strict=True))

    if paths:
        read = _read_links(pairs, paths)
    else:
        cells = int((pairs.source.lengths * pairs.target.lengths).sum())
        # Evenly spaced pairs, so that all corpora have a share.
        learned = np.arange(0, len(pairs), max(1, -(-cells // CELLS)))
        aligner = Aligner(taken(learned)[2], WORDS)

    def made(first: int):
        numbers = np.arange(first, min(first + PART, len(pairs)))
        target, words, as_words = taken(numbers)
        counts_p2 = np.array([(len(s), len(t)) for s, t in as_words])
        before_p = np.cumsum(counts_p2[:, 1]) - counts_p2[:, 1]
        if paths:
            within = slice(*np.searchsorted(read[:, 0], (first, numbers[-1] + 1)))
            pair_l, s_l, t_l = (read[within] - (first, 0, 0)).T
            _check_links(pair_l, s_l, t_l, counts_p2, pairs.line[numbers])
            links = np.unique(np.stack([before_p[pair_l] + t_l, s_l], 1), axis=0)
        else:
            links = aligner.links(as_words)
        # The links of each word, after its first ones; the last row is of no word.
        rank_l = np.arange(len(links)) - np.searchsorted(links[:, 0], links[:, 0])
        link_w = np.zeros((counts_p2[:, 1].sum() + 1, MOST), np.int64)
        t_l, s_l = links[rank_l < MOST].T
        link_w[t_l, rank_l[rank_l < MOST]] = s_l + 1
        place = of_sentence(target, before_p) + words[1] - 1
        link = link_w[np.where(words[1] > 0, place, -1)]
        linked = (link_w[:, 0] > 0).sum()
        return numbers, words[0], link, (len(link_w) - 1, linked, len(links), len(t_l))

    # A word's number is at most that of the tokens before it.
    small = max(int(side.lengths.max()) for side in stored) < 256
    source_size, target_size = (int(side.offsets[-1]) for side in stored)
    shapes = (source_size,), (target_size, MOST)
    arrays = [
        np.lib.format.open_memmap(
            folder / f"{name}.npy", "w+", np.uint8 if small else np.uint16, shape
        )
        for name, shape in zip((SOURCE_WORD, LINK), shapes, strict=True)
    ]
    totals = np.zeros(4, np.int64)
    for numbers, *values, counts in in_order(made, range(0, len(pairs), PART)):
        for written, side, value in zip(arrays, stored, values, strict=True):
            written[side.offsets[numbers[0]] : side.offsets[numbers[-1] + 1]] = value
        totals += counts
    for written in arrays:
        written.flush()
    words, linked, links, kept = totals.tolist()
    report = f"{links:,} links of {linked:,} of {words:,} target words"
    if links > kept:
        report += f"; {links - kept:,} are left out, beyond {MOST} of a word"
    (folder / "report.txt").write_text(report, encoding="utf-8")


def _read_links(pairs: Pairs, paths: Sequence[Path]) -> np.ndarray:
    """Reads the links of prepared pairs: int64 [links, 3], (pair, source, target)."""
    links, pair, total = array.array("q"), 0, 0
    for path, size in zip(paths, pairs.sizes, strict=True):
        end, number = pair + size, 0
        for number, line in enumerate(read_lines(path), 1):
            if pair == end or pairs.line[pair] != number:
                continue  # cleaning has dropped this pair
            for link in line.split():
                if not (match := re.fullmatch(r"(\d+)-(\d+)", link)):
                    raise UserError(
                        f"{path}, line {number:,}: {link!r} is not a link; want "
                        "SOURCE-TARGET, numbers of words from 0, such as 0-0 1-2"
                    )
                links.extend((pair, int(match[1]), int(match[2])))
            pair += 1
        total += number
        if pair < end or (end == len(pairs) and total != pairs.read):
            raise UserError(
                f"{path} has {number:,} lines, {total:,} with the files before it; "
                f"config.data.train has {pairs.read:,} pairs. Want a line for each "
                "pair, empty if it has no links"
            )
    return np.array(links, np.int64).reshape(-1, 3)


def _check_links(pair_l, s_l, t_l, counts_p2: np.ndarray, line_p: np.ndarray) -> None:
    """Raises UserError at a link beyond the words of its pair."""
    beyond_l = (s_l >= counts_p2[pair_l, 0]) | (t_l >= counts_p2[pair_l, 1])
    for i in np.flatnonzero(beyond_l):
        sources, targets = counts_p2[pair_l[i]]
        raise UserError(
            f"line {line_p[pair_l[i]]:,} of config.train.options.links: the link "
            f"{s_l[i]}-{t_l[i]} goes beyond the {sources} source and {targets} target "
            "words of the pair; want SOURCE-TARGET, numbers from 0 of words as white "
            "space separates them"
        )
