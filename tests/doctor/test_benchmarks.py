"""The benchmarks of the doctor: what they damage, and that they run."""

import random

from benchmarks import doctor
from benchmarks.made_up import MadeUp
from t2t_jax.tools.doctor.rules import RULES


def test_each_damage_changes_its_share_and_nothing_else(text):
    dev = text[700:760]
    pairs, done = doctor.damage(doctor.Text(text, dev, random.Random(0)), 0.02)
    changed = {p for p, pair in enumerate(pairs) if pair != text[p]}
    places = [p for of in done.values() for p in of]
    assert len(places) == len({*places})
    assert changed <= {*places}
    assert len(changed) >= 0.98 * len(places)  # neighbours may be equal
    for name, (_, rules) in doctor.DAMAGES.items():
        assert rules <= {*RULES}
        if name != "number changed":  # this text has no digits
            assert len(done[name]) == 16, name
    assert pairs[done["swapped sides"][0]] == text[done["swapped sides"][0]][::-1]


def test_made_up_pairs_are_the_same_in_each_reading():
    corpus = MadeUp(1_500, 6)
    pairs = [*corpus.pairs()]
    assert pairs == [*corpus.pairs()]
    assert len({*pairs}) == 1_500
    lengths = [len(s.split()) == len(t.split()) for s, t in pairs]
    assert lengths.count(False) in range(10, 16)  # every hundredth is damaged
