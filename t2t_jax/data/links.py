"""Links between the words of a training text, for guided alignment.

They are learned (`text/word_alignment.py`) or read from files, and stored next to the
prepared text, with an entry for each token.

Suffixes: `p` pairs, `w` words, `l` links, `v` vocabulary; others are [tokens].
"""

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
SOURCE_WORD, LINK = "source_word", "link"  # the arrays
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
        texts = [vocabulary.spelling(i) for i in range(len(vocabulary))]
        none_v = np.array([not text for text in texts])
        none_v[[vocabulary.id_of(tag) for tag in tags if tag]] = True
        if vocabulary.unknown >= 0:
            none_v[vocabulary.unknown] = False
        # A byte of a character continues a word.
        texts = [text if isinstance(text, str) else "\0" for text in texts]

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
        """Returns the number of each token's word, and the words of each sentence.

        Numbers are from 1 in each sentence, 0 for none; words are hashes below `WORDS`.
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
            f"config.train.options.links names {', '.join(map(str, paths))}; want an "
            f"existing file for each of the {len(corpora)} corpora of config.data.train"
            ", and a tokenizer that keeps white space; without files, links are learned"
        )
    hashes = [file_hash(path) for path in paths]
    key = cache_key(links=VERSION, arrays=pairs.key, files=hashes, most=MOST)
    folder = cache_folder() / "links" / key
    build_once(folder, partial(_write, pairs, corpora, vocabulary, paths))
    word, link = (np.memmap(folder / n, np.uint16, "r") for n in (SOURCE_WORD, LINK))
    report = (folder / "report.txt").read_text(encoding="utf-8")
    source, target = {SOURCE_WORD: word}, {LINK: link.reshape(-1, MOST)}
    return TokenArrays(source, target, key, report)


def _write(pairs: Pairs, corpora, vocabulary: Vocabulary, paths, folder: Path) -> None:
    """Writes the two arrays, and a line that describes them."""
    of_source = Words(vocabulary.source, not paths, [corpus.tag for corpus in corpora])
    of_target = Words(vocabulary, not paths)

    def words_of(numbers: np.ndarray):
        """Pairs as words, the word of each source token, and of each target token."""
        target = take(pairs.target, numbers)
        source_word, sources = of_source(take(pairs.source, numbers))
        target_word, targets = of_target(target)
        place = of_sentence(target, np.arange(len(numbers))), target_word  # pair, word
        return list(zip(sources, targets, strict=True)), source_word, place

    if paths:
        links_of = partial(_parsed, pairs, paths, _lines(pairs, paths))
    else:
        cells = int((pairs.source.lengths * pairs.target.lengths).sum())
        # Evenly spaced pairs, so that all corpora have a share.
        learned = np.arange(0, len(pairs), max(1, -(-cells // CELLS)))
        aligner = Aligner(words_of(learned)[0], WORDS)

        def links_of(numbers: np.ndarray, as_words: list) -> np.ndarray:
            return aligner.links(as_words)

    def made(first: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.arange(first, min(first + PART, len(pairs)))
        as_words, source_word, place = words_of(numbers)
        p_l, t_l, s_l = links_of(numbers, as_words).T
        # The links of each word, after its first ones; word 0 is none.
        link_pw = np.zeros((len(numbers), place[1].max() + 1, MOST), np.uint16)
        word_l = p_l * link_pw.shape[1] + t_l
        rank_l = np.arange(len(word_l)) - np.searchsorted(word_l, word_l)
        kept = rank_l < MOST
        link_pw[p_l[kept], t_l[kept] + 1, rank_l[kept]] = s_l[kept] + 1
        return source_word.astype(np.uint16), link_pw[place]

    linked = 0
    with open(folder / SOURCE_WORD, "wb") as words, open(folder / LINK, "wb") as links:
        for source_word, link in in_order(made, range(0, len(pairs), PART)):
            words.write(source_word.tobytes())
            links.write(link.tobytes())
            linked += np.count_nonzero(link[:, 0])
    report = f"{linked:,} of {len(pairs.target.tokens):,} target tokens are linked"
    (folder / "report.txt").write_text(report, encoding="utf-8")


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
                    "SOURCE-TARGET, numbers from 0 of words as white space separates "
                    "them, such as 0-0 1-2"
                )
            links.add((p, t, s))
    return np.array(sorted(links), np.int64).reshape(-1, 3)
