"""Links of a made-up language whose words are known, and how they are symmetrized."""

import numpy as np

from t2t_jax.text import word_alignment
from t2t_jax.text.word_alignment import Aligner


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
    pairs, known = made_up()
    links = Aligner(pairs, words=300).links(pairs)
    before = np.cumsum([0, *(len(target) for _, target in pairs)])
    known = {(before[p] + t, s) for p, of in enumerate(known) for t, s in of}
    found = {*map(tuple, links.tolist())}
    assert len(found & known) > 0.98 * max(len(found), len(known))
    assert links.tolist() == sorted(links.tolist())
    # A word that was never seen has no links, and empty sentences do no harm.
    nothing = np.zeros(0, np.int64)
    few = [(nothing, pairs[0][1]), (np.array([299]), nothing), (nothing, nothing)]
    assert len(Aligner(pairs, words=300).links(few)) == 0
    assert len(Aligner(few[2:], words=300).links(pairs)) == 0


def grown(one, other):
    """grow-diag of one pair, as Koehn et al. 2003 describe it, on sets of links."""
    links, before = one & other, None
    while links != before:
        before = set(links)
        for down, right in word_alignment.NEIGHBOURS:
            near = {(t - down, s - right) for t, s in links} & (one | other)
            linked_t, linked_s = {t for t, _ in links}, {s for _, s in links}
            links |= {(t, s) for t, s in near if not (t in linked_t and s in linked_s)}
    return links


def test_links_grow_along_the_diagonal_within_a_pair():
    random = np.random.default_rng(1)
    sizes = random.integers(1, 7, (60, 2))  # source and target words
    pairs = [tuple(np.zeros(n, np.int64) for n in of) for of in sizes]
    before_s, before_t = np.cumsum(sizes, axis=0).T - sizes.T
    wanted, directions = [], ([], [])
    for p, (sources, targets) in enumerate(sizes):
        one = {(t, int(random.integers(sources))) for t in range(targets)}
        other = {(int(random.integers(targets)), s) for s in range(sources)}
        wanted += [(before_t[p] + t, s) for t, s in sorted(grown(one, other))]
        for direction, links in zip(directions, (one, other), strict=True):
            direction += [(before_t[p] + t, before_s[p] + s) for t, s in links]

    class Fixed:
        def __init__(self, links):
            self.links = lambda pairs: (*np.array(links).T,)

    aligner = Aligner.__new__(Aligner)
    aligner._forward = Fixed(directions[0])
    aligner._backward = Fixed([link[::-1] for link in directions[1]])
    assert [*map(tuple, aligner.links(pairs).tolist())] == wanted
