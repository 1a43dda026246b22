"""Links of a made-up language whose words are known, and how they are symmetrized."""

import numpy as np

from t2t_jax.extensions.text import word_alignment
from t2t_jax.extensions.text.word_alignment import Aligner, align_words


def made_up(pairs=300, words=40, seed=0):
    """Sentences whose target has the words in pairs swapped, and their links.

    Word w is w + 100 in the target, and a third of the words are two there.
    """
    random = np.random.default_rng(seed)
    sentences, links = [], []
    for _ in range(pairs):
        source = random.permutation(words)[: 2 * random.integers(2, 6)]
        source = np.append(source, source[:2])  # repeated, far apart
        order = np.arange(len(source)).reshape(-1, 2)[:, ::-1].ravel()
        target, linked = [], []
        for s in order:
            for part in range(1 + (source[s] % 3 == 0)):
                linked.append((len(target), s))
                target.append(100 + source[s] + 100 * part)
        sentences.append((source, np.array(target)))
        links.append(linked)
    return sentences, links


def test_links_of_swapped_words_and_of_one_to_two_are_found():
    pairs, true_links = made_up()
    links = Aligner(pairs, words=300).links(pairs)
    true_links = {
        (p, *link) for p, pair_links in enumerate(true_links) for link in pair_links
    }
    found_links = {*map(tuple, links.tolist())}
    assert len(found_links & true_links) > 0.98 * max(len(found_links), len(true_links))
    text = [tuple([*map(str, side)] for side in pair) for pair in pairs]
    by_words = align_words(text, 9)
    assert by_words == [{(s, t) for n, t, s in found_links if n == p} for p in range(9)]
    # A word that was never seen has no links, and empty sentences do no harm.
    empty = np.zeros(0, np.int64)
    odd_pairs = [(empty, pairs[0][1]), (np.array([299]), empty), (empty, empty)]
    assert len(Aligner(pairs, words=300).links(odd_pairs)) == 0
    assert len(Aligner(odd_pairs[2:], words=300).links(pairs)) == 0


def grown(forward, backward):
    """grow-diag of one pair, as Koehn et al. 2003 describe it, on sets of links."""
    links, previous = forward & backward, None
    while links != previous:
        previous = set(links)
        for down, right in word_alignment.NEIGHBOURS:
            near = {(t - down, s - right) for t, s in links} & (forward | backward)
            linked_t, linked_s = {t for t, _ in links}, {s for _, s in links}
            links |= {(t, s) for t, s in near if not (t in linked_t and s in linked_s)}
    return links


def test_links_grow_along_the_diagonal_within_a_pair():
    random, expected, directions = np.random.default_rng(1), [], ([], [])
    for p, (sources, targets) in enumerate(random.integers(1, 7, (60, 2))):
        forward = {(t, int(random.integers(sources))) for t in range(targets)}
        backward = {(int(random.integers(targets)), s) for s in range(sources)}
        expected += [(p, *link) for link in sorted(grown(forward, backward))]
        for direction, links in zip(directions, (forward, backward), strict=True):
            direction += [(p, *link) for link in links]
    links_found = word_alignment.grow_diagonal(*map(np.array, directions))
    assert [*map(tuple, links_found.tolist())] == expected
