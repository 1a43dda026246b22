"""Checks of the two sides of a pair against each other, and of pairs against others.

A check is a function as in `line_checks.py`.
"""

import collections
import re

import numpy as np

from t2t_jax.data.cleaning import hashes
from t2t_jax.text.view import View
from t2t_jax.tools.doctor.knowledge import Knowledge
from t2t_jax.tools.doctor.line_checks import NAMES, Accused, Limits

# Placeholders of printf and of templates, tags, addresses.
_MARKUP = re.compile(
    r"%(?:\d+\$)?[-+#0]*[\d*]*(?:\.[\d*]+)?(?:hh|ll|[hlLzjt])?[diouxXeEfgGcsSpqm]\b"
    r"|\{\w*\}|</?[a-zA-Z][^<>]*>|https?://[^\s<>\"“”„»«’']+|\$\{\w+\}"
)
_ENDING = re.compile(r"[.!?:;。！？：；…](?=[\"'»«”“’)\]\s]*$)")
_SAME_ENDING = str.maketrans("。！？：；…", ".!?:;.")
_BRACKETS = str.maketrans("（）", "()")


def duplicate(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs that came before, character by character."""
    view.repeated_p = ~known.seen_pairs.add(hashes(view.pairs))
    return _accused(view, view.repeated_p, "the same pair came before")


def near_duplicate(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs that came before but for case, punctuation and spacing."""
    keys = list(zip(view.source.keys, view.target.keys, strict=True))
    new_p = known.seen_keys.add(hashes(keys))
    worded = np.array([bool(s or t) for s, t in keys])  # lines of signs have no words
    found = ~new_p & worded & ~view.repeated_p
    view.repeated_p |= found
    return _accused(view, found, "a pair of the same words came before")


def other_target(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds new pairs whose source came before, so with another target."""
    new_p = known.seen_sources.add(hashes([(s, "") for s in view.source.keys]))
    found = ~new_p & ~view.repeated_p & (view.source.word_counts_p >= limits["words"])
    return _accused(view, found, "this source came before, with another target")


def _accused(view: View, flags: np.ndarray, note: str) -> Accused:
    """Accuses pairs that a mask selects, the more severely the longer they are."""
    return {p: (float(len(view.pairs[p][0])), note) for p in np.flatnonzero(flags)}


def overlap(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines of the dev and test sets, without case, punctuation and spacing."""
    if not known.overlap:
        return {}
    known.overlap.mark_seen(view)
    return known.overlap.equal(view, int(limits["words"]))


def near_overlap(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs that share most words and word pairs with a dev or test pair."""
    if not known.overlap:
        return {}
    return known.overlap.near(view, limits["jaccard"])


def swapped(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs of which each side is in the language of the other one."""
    s, s_count = known.languages.place_p(view.source)
    t, t_count = known.languages.place_p(view.target)
    least, margin = limits["trigrams"], limits["margin"]
    flags = (s < -margin) & (t > margin) & (np.minimum(s_count, t_count) >= least)
    note = "each side is in the other's language"
    return {p: (float(t[p] - s[p]), note) for p in np.flatnonzero(flags).tolist()}


def wrong_side(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs of which both sides are in one of the two languages."""
    places = [known.languages.place_p(side) for side in view.sides]
    (s, s_count), (t, t_count) = places
    margin = limits["margin"]
    enough = np.minimum(s_count, t_count) >= limits["trigrams"]
    accused: Accused = {}
    for number, flags in ((0, (s < -margin) & (t < 0)), (1, (t > margin) & (s > 0))):
        for p in np.flatnonzero(flags & enough).tolist():
            words = view.sides[number].words[p]
            # Names and commands look like English on either side: ask for words that
            # only the other side has, and none of its own.
            if known.languages.markers(words, number):
                continue
            if known.languages.markers(words, 1 - number) < limits["markers"]:
                continue
            if view.source.keys[p] == view.target.keys[p]:
                continue  # copied, and accused of that
            note = f"the {NAMES[number]} is in the other side's language"
            accused[p] = float(abs(places[number][0][p])), note
    return accused


def copied(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs whose sides are the same words, or nearly.

    Names, commands and formulas are the same in every language. So a copy is accused if
    it has words that mark one of the two languages.
    """
    accused: Accused = {}
    lines = zip(view.source.words, view.target.words, strict=True)
    for p, (source, target) in enumerate(lines):
        if min(len(source), len(target)) < limits["words"]:
            continue
        shared, share = set(source), 1.0
        if source != target:
            shared &= {*target}
            if 2 * len(shared) < len(target) or len(source) < limits["many"]:
                continue
            same = collections.Counter(source) & collections.Counter(target)
            share = same.total() / max(len(source), len(target))
            if share < limits["share"]:
                continue
        marks = max(known.languages.markers(shared, n) for n in (0, 1))
        if marks >= limits["markers"] + (share < 1) or not known.languages.differ:
            accused[p] = share + marks / 100, f"{share:.0%} of the words are the same"
    return accused


def unrelated(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs that look like a source beside the translation of another line."""
    odds = view.log_odds_p
    enough = np.minimum(*(side.word_counts_p for side in view.sides))
    flags = (odds < -limits["nats"]) & (enough >= limits["words"])
    return {
        p: (float(-odds[p]), f"{-odds[p]:.1f} nats against belonging together")
        for p in np.flatnonzero(flags).tolist()
    }


def ratio(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds pairs of which one side is far longer than usual for the other."""
    z = known.lengths.z_p(view)
    s, t = (np.maximum(side.lengths_p, 1) for side in view.sides)
    factor = np.abs(np.log(t / s / known.lengths.ratio))
    flags = (np.abs(z) > limits["z"]) & (factor > np.log(limits["factor"]))
    accused: Accused = {}
    for p in np.flatnonzero(flags).tolist():
        note = f"the target has {t[p] / s[p]:.2f} characters for one of the source"
        accused[p] = float(abs(z[p])), note
    return accused


def truncated(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds sides that are too short and translate only the beginning of the other."""
    z = known.lengths.z_p(view)
    accused: Accused = {}
    for p in np.flatnonzero(np.abs(z) > limits["z"]).tolist():
        short = 0 if z[p] > 0 else 1
        lost_ending = _ending(view.pairs[p][1 - short]) and not _ending(
            view.pairs[p][short]
        )
        if not lost_ending and abs(z[p]) < limits["z_alone"]:
            continue  # a free translation may leave out as much
        words = view.sides[1 - short].words[p]
        opposite = view.sides[short].words[p]
        half = len(words) // 2
        begun, _ = known.lexicon.found(words[:half], opposite, 1 - short)
        ended, missing = known.lexicon.found(words[half:], opposite, 1 - short)
        if begun and not ended and missing >= limits["words"]:
            note = f"the {NAMES[short]} lacks the second half of the other side"
            accused[p] = float(abs(z[p])), note
    return accused


def length(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds lines that are far longer than the lines of this text."""
    accused: Accused = {}
    for number, (side, usual) in enumerate(
        zip(view.sides, known.log_length, strict=True)
    ):
        z = (np.log(np.maximum(side.lengths_p, 1)) - usual.middle) / usual.deviation
        for p in np.flatnonzero(z > limits["z"]).tolist():
            note = f"the {NAMES[number]} has {side.lengths_p[p]:,} characters"
            accused[p] = float(z[p]), note
    return accused


def numbers(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds numbers that the other side has not; small ones may be written in words."""
    accused: Accused = {}
    for p, (s, t) in enumerate(
        zip(*(side.numbers for side in view.sides), strict=True)
    ):
        if s == t:
            continue
        only = missing_numbers(s, t, int(limits["small"]))
        if only:
            accused[p] = float(len(only)), f"only on one side: {', '.join(only[:4])}"
    return accused


def missing_numbers(source: list[str], target: list[str], small: int) -> list[str]:
    """Returns the numbers that stand on one side only.

    Args:
      source, target: the numbers of the sides, sorted.
      small: numbers up to this one may be written in words on the other side, and
        count only if the sides have equally many numbers.
    """
    # 10,000 may be split or joined otherwise: then the digits are the same ones.
    if sorted("".join(source)) == sorted("".join(target)):
        return []
    s, t = (
        collections.Counter(number.lstrip("0") or "0" for number in side)
        for side in (source, target)
    )
    only = [*(s - t).elements(), *(t - s).elements()]
    if len(source) == len(target):
        return only
    return [number for number in only if len(number) > 6 or int(number) > small]


def markup(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds placeholders, tags and addresses that the other side has not."""
    accused: Accused = {}
    for p, pair in enumerate(view.pairs):
        if not any(
            "%" in line or "<" in line or "{" in line or "://" in line for line in pair
        ):
            continue
        s, t = map(_markup, pair)
        only = [*(s - t).elements(), *(t - s).elements()]
        if only:
            accused[p] = float(len(only)), f"only on one side: {', '.join(only[:3])}"
    return accused


def _markup(line: str) -> collections.Counter:
    found = collections.Counter()
    for item in _MARKUP.findall(line):
        if item[0] == "%":
            item = "%" + item[-1]  # %1$s and %-5s: positions and widths may differ
        elif item[0] == "<":
            item = re.match(r"</?\w+", item)[0].lower() + ">"  # attributes may, too
        found[item.rstrip(".,;:)")] += 1
    return found


def punctuation(view: View, known: Knowledge, limits: Limits) -> Accused:
    """Finds sides that end in another sign, or have other numbers of brackets."""
    accused: Accused = {}
    enough = np.minimum(*(side.word_counts_p for side in view.sides)) >= limits["words"]
    for p in np.flatnonzero(enough).tolist():
        s, t = view.pairs[p]
        if (ends := (_ending(s), _ending(t))) and ends[0] != ends[1]:
            s_end, t_end = (end or "nothing" for end in ends)
            accused[p] = 1.0, f"the source ends in {s_end}, the target in {t_end}"
        for bracket in "([":
            counts = [_count(line, bracket) for line in (s, t)]
            if counts[0] != counts[1]:
                severity = 1.0 + abs(counts[0] - counts[1])
                accused[p] = severity, f"{counts[0]} and {counts[1]} of {bracket}"
    return accused


def _count(line: str, bracket: str) -> int:
    return (line if line.isascii() else line.translate(_BRACKETS)).count(bracket)


def _ending(line: str) -> str:
    found = _ENDING.search(line[-8:])
    return found[0].translate(_SAME_ENDING) if found else ""
