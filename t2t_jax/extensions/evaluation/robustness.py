"""Robustness: scores of damaged copies of a test set, and those of the set itself.

Damage (`extensions/text/damage.py`) is a pure function of the line and its number, so
that everybody who damages a set gets the same one.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypedDict

from t2t_jax.data.corpus import Corpus, Pair, derived
from t2t_jax.decoding.translator import Translator
from t2t_jax.evaluation.scores import Workdirs, scores_and_answers
from t2t_jax.extensions.data.one_sided_text import tagged
from t2t_jax.extensions.text.damage import DAMAGES, EVERY, MOST_NEIGHBOURS
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.io.tables import text_table
from t2t_jax.parallel import processes
from t2t_jax.tasks.table import task_of
from t2t_jax.tasks.task import Task
from t2t_jax.text.counter_random import Stream, hashed

UNDAMAGED = "undamaged"
HEADER = "damage", "BLEU", "difference", "codes copied", "lines changed"


def damaged(corpus: Corpus, damage: str) -> Corpus:
    """Returns a copy of a test set: damaged sources, and references that go with them.

    The tag of a subtask is not damaged, and a pair with a blank side stays as it is.
    The name is `NAME+DAMAGE`, so that files of scores are not those of the set.
    """
    if corpus.subtask:
        return tagged(damaged(corpus.made_of, damage), corpus.subtask, corpus.tag)

    def changed(pairs: Iterator[Pair]) -> Iterator[Pair]:
        pairs = list(pairs)
        key, change = zlib.crc32(damage.encode()), DAMAGES[damage].change
        for number, pair in enumerate(pairs):
            if not all(side.strip() for side in pair):
                yield pair
                continue
            following = pairs[number + 1 : number + 1 + MOST_NEIGHBOURS]
            yield change(pair, Stream(int(hashed(key, number))), following)

    return derived(
        corpus,
        damage,
        changed,
        spec=f"{corpus.spec}+{damage}",
        name=f"{corpus.name}+{damage}",
        compare_with=(
            "damaged text, without published numbers; compare only with systems scored "
            "on the same damage of the same lines, same signature"
        ),
    )


def damages_named(names: str) -> list[str]:
    """Reads --damage: names of `DAMAGES` separated by commas, or "all"."""
    named = [name for name in map(str.strip, names.split(",")) if name]
    if named == [EVERY]:
        return [*DAMAGES]
    for name in named:
        if name not in DAMAGES:
            hint = did_you_mean(name, [*DAMAGES, EVERY])
            raise UserError(f"--damage={names!r}: no damage {name!r}{hint}")
    if not named:
        raise UserError(
            f"--damage={names!r} names no damage; want {EVERY!r}, or some of "
            + ", ".join(DAMAGES)
        )
    return [*dict.fromkeys(named)]


class Row(TypedDict):
    """The result of one damage."""

    bleu: float  # of the damaged set, 0 to 100
    difference: float  # to the BLEU of the undamaged set
    copied: float | None  # `copied_share` of codes
    changed: int  # the number of sources that the damage changed


def check_damageable(translator: Translator, corpora: Sequence[Corpus]) -> None:
    """Raises UserError unless all sets are scored by BLEU, as damage is."""
    task = task_of(translator.config)
    for corpus in corpora:
        if (set_task := task.of(corpus)).chosen_by != "bleu":
            raise UserError(
                f"--damage: {corpus.name} is scored by {set_task.chosen_by!r}; want a "
                "set of translations, since damage is measured as a loss of BLEU"
            )


def score_damaged(
    translator: Translator,
    corpus: Corpus,
    workdir: Workdirs,
    damages: Sequence[str],
) -> tuple[dict[str, Row], list[dict]]:
    """Scores a set and its damaged copies, each stored under a name of its own.

    All processes call it.

    Args:
      workdir: that of the translator; of an ensemble those of its members, in order.
      damages: names of `DAMAGES`.

    Returns:
      A row for each damage, the first one for "undamaged"; and the scores of the
      damaged copies as `score_set` returns them. A damage that changes no line, such as
      `no_diacritics` of English, is not translated: its row is that of the set.
    """
    task = task_of(translator.config)
    rows: dict[str, Row] = {}
    stored = []
    for name in (UNDAMAGED, *damages):
        copy = corpus if name == UNDAMAGED else damaged(corpus, name)
        # Process 0 reads the set, as for `score_set`.
        changed = processes.from_first(
            copy.name, lambda c=copy: _changed(task, corpus, c)
        )
        if rows and not any(changed):
            rows[name] = rows[UNDAMAGED]
            continue
        scores, answers = scores_and_answers(translator, copy, workdir)
        copied = None
        if processes.is_first():
            copied = copied_share(answers, task.of(copy).examples(copy))
        bleu = scores["bleu"]
        difference = bleu - (rows[UNDAMAGED]["bleu"] if rows else bleu)
        if rows:
            stored.append(scores | {"damage": name, "codes_copied": copied})
        rows[name] = Row(
            bleu=bleu, difference=difference, copied=copied, changed=changed[0]
        )
    return rows, stored


def _changed(task: Task, corpus: Corpus, copy: Corpus) -> list[int]:
    """Counts the sources and the references that differ in a copy of a set."""
    sides = [zip(*task.of(c).examples(c), strict=True) for c in (corpus, copy)]
    return [
        sum(a != b for a, b in zip(*lines, strict=True))
        for lines in zip(*sides, strict=True)
    ]


def copied_share(answers: Sequence[str], pairs: Sequence[Pair]) -> float | None:
    """Computes the share of codes that the answers have, 0 to 1; None without codes.

    A code is a word with a digit, or an address, that is in the source and, unchanged,
    in the reference: something that a translation copies.
    """
    expected_count = copied = 0
    for answer, pair in zip(answers, pairs, strict=True):
        source, reference = map(_codes, pair)
        expected = source & reference
        expected_count += expected.total()
        copied += (expected & _codes(answer)).total()
    return copied / expected_count if expected_count else None


def _codes(line: str) -> Counter[str]:
    words = (word.strip(".,;:!?()[]\"'“”„«»–") for word in line.split())
    return Counter(word for word in words if re.search(r"\d|@|://|www\.", word))


def table(rows: dict[str, Row]) -> list[str]:
    """Formats the rows as lines of a table."""
    cells = [HEADER]
    for name, row in rows.items():
        difference = "" if name == UNDAMAGED else f"{row['difference']:+.2f}"
        copied = "" if row["copied"] is None else f"{row['copied']:.1%}"
        changed = "" if name == UNDAMAGED else f"{row['changed']:,}"
        cells.append((name, f"{row['bleu']:.2f}", difference, copied, changed))
    return text_table(cells)
