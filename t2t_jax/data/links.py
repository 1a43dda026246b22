"""Links between the words of a training text, for guided alignment.

They are learned (`text/word_alignment.py`) or read from files, and stored next to the
prepared text, with an entry for each token.

Suffixes: `p` pairs, `w` words, `l` links, `v` vocabulary; others are [tokens].
"""

import array
import contextlib
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

VERSION = 2  # of the links; increment it when others are learned
MOST = 4  # source words that a target word is linked to; further ones are dropped
NAMES = SOURCE_WORD, LINK = "source_word", "link"  # of the arrays
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

        def separates(text: str) -> bool:
            return text.isspace() or (signs and category(text or "a")[0] in "PS")

        # Does a token begin a word, end one, consist of white space (which belongs to
        # the next word), or belong to no word, such as the end of the sentence?
        begins_v = [separates(text[:1]) for text in texts]
        ends_v = [separates(text[-1:]) for text in texts]
        blank_v = [text.isspace() for text in texts]
        self._table_4v = np.array([begins_v, ends_v, blank_v, none_v])
        types = [text.strip(" \0").lower() or f"\0{i}" for i, text in enumerate(texts)]
        self._type_v = np.unique(types, return_inverse=True)[1]

    def __call__(self, sentences: Ragged) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the words of sentences.

        Returns:
          The number of each token's word, from 1 in each sentence, 0 for none; and of
          each sentence a hash of each word, below `WORDS`.
        """
        begins, ends, blank, none = self._table_4v[:, sentences.tokens]
        begins[1:] = ((begins[1:] | ends[:-1]) & ~blank[:-1]) | none[:-1]
        begins[sentences.offsets[:-1][sentences.lengths > 0]] = True
        begins &= ~none
        count = np.append(0, np.cumsum(begins))
        before = count[sentences.offsets]
        number = np.where(none, 0, count[1:] - of_sentence(sentences, before[:-1]))
        token = np.arange(len(begins))
        place = token - np.maximum.accumulate(np.where(begins, token, 0))
        token_hash = hashed(self._type_v[sentences.tokens], place) >> np.uint64(33)
        token_hash[none] = 0
        hash_w = np.add.reduceat(token_hash, np.flatnonzero(begins)).astype(np.int64)
        return number, np.split(hash_w % WORDS, before[1:-1])


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
    exist = len(paths) == len(corpora) and all(map(Path.is_file, paths))
    if paths and (vocabulary.free_spaces or not exist):
        raise UserError(
            f"config.train.options.links names {', '.join(map(str, paths))}; want a "
            f"file of links for each of the {len(corpora)} corpora of config.data.train"
            ", and a tokenizer that keeps white space, by which words are counted; "
            "without files, links are learned"
        )
    hashes = [file_hash(path) for path in paths]
    key = cache_key(links=VERSION, arrays=pairs.key, files=hashes, most=MOST)
    folder = cache_folder() / "links" / key
    build_once(folder, partial(_write, pairs, corpora, vocabulary, paths))
    word, link = (np.memmap(folder / name, np.uint16, "r") for name in NAMES)
    report = (folder / "report.txt").read_text(encoding="utf-8")
    source, target = {NAMES[0]: word}, {NAMES[1]: link.reshape(-1, MOST)}
    return TokenArrays(source, target, key, report)


def _write(pairs: Pairs, corpora, vocabulary: Vocabulary, paths, folder: Path) -> None:
    """Writes the two arrays, and a line that describes them."""
    tags = [corpus.tag for corpus in corpora]
    of_source = Words(vocabulary.source, not paths, tags)
    of_target = Words(vocabulary, not paths)

    def taken(numbers: np.ndarray):
        """The target sentences, the words of both sides, and the pairs of these."""
        target = take(pairs.target, numbers)
        source_word, sources = of_source(take(pairs.source, numbers))
        word, targets = of_target(target)
        return target, source_word, word, list(zip(sources, targets, strict=True))

    if paths:
        read = _read_links(pairs, paths)
    else:
        cells = int((pairs.source.lengths * pairs.target.lengths).sum())
        # Evenly spaced pairs, so that all corpora have a share.
        learned = np.arange(0, len(pairs), max(1, -(-cells // CELLS)))
        aligner = Aligner(taken(learned)[-1], WORDS)

    def made(first: int):
        numbers = np.arange(first, min(first + PART, len(pairs)))
        target, source_word, word, as_words = taken(numbers)
        sizes_p2 = np.array([(len(s), len(t)) for s, t in as_words])
        before_p = np.cumsum(sizes_p2[:, 1]) - sizes_p2[:, 1]
        if paths:
            within = slice(*np.searchsorted(read[:, 0], (first, numbers[-1] + 1)))
            pair_l, s_l, t_l = (read[within] - (first, 0, 0)).T
            beyond_l = (s_l >= sizes_p2[pair_l, 0]) | (t_l >= sizes_p2[pair_l, 1])
            for p, s, t in read[within][beyond_l]:
                sources, targets = sizes_p2[p - first]
                raise UserError(
                    f"line {pairs.line[p]:,} of config.train.options.links: the link "
                    f"{s}-{t} goes beyond the {sources} source and {targets} target "
                    "words of the pair; want SOURCE-TARGET, numbers from 0 of words as "
                    "white space separates them"
                )
            links = np.unique(np.stack([before_p[pair_l] + t_l, s_l], 1), axis=0)
        else:
            pair_l, t_l, s_l = aligner.links(as_words).T
            links = np.stack([before_p[pair_l] + t_l, s_l], 1)
        # The links of each word, after its first ones; the last row is of no word.
        rank_l = np.arange(len(links)) - np.searchsorted(links[:, 0], links[:, 0])
        link_w = np.zeros((sizes_p2[:, 1].sum() + 1, MOST), np.int64)
        t_l, s_l = links[rank_l < MOST].T
        link_w[t_l, rank_l[rank_l < MOST]] = s_l + 1
        place = np.where(word > 0, of_sentence(target, before_p) + word - 1, -1)
        counts = len(links), len(np.unique(t_l)), len(link_w) - 1, len(links) - len(t_l)
        return (source_word, link_w[place]), counts

    totals = np.zeros(4, np.int64)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(folder / name, "wb")) for name in NAMES]
        for arrays, counts in in_order(made, range(0, len(pairs), PART)):
            for file, values in zip(files, arrays, strict=True):
                file.write(values.astype(np.uint16).tobytes())
            totals += counts
    report = (
        "{:,} links of {:,} of {:,} target words; {:,} beyond {} of one are left out"
    )
    report = report.format(*totals, MOST)
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
