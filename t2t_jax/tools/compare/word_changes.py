"""Words that one system gets and another does not, and marks of words in lines."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from t2t_jax.tools.compare.texts import Words, is_word

EXAMPLES = 5  # lines that are named for each word


def word_changes(
    references: Sequence[Words],
    baseline: Sequence[Words],
    system: Sequence[Words],
    most: int = 50,
) -> dict[str, list[dict]]:
    """Counts the reference's words that only one of two systems gets.

    A system gets a word of a reference as often as both have it, as in BLEU.
    Punctuation is left out.

    Args:
      most: how many words are returned, the most frequent first.

    Returns:
      `right` (the system gets them, the baseline does not) and `wrong` (the reverse).
      Each word has `word`, `count`, `reverse` (its count in the other list),
      `in_references` (how often references have it) and `lines` (numbers, from 0, of
      the first lines).
    """
    changed = {"right": Counter(), "wrong": Counter()}
    lines = {name: defaultdict(list) for name in changed}
    in_references: Counter[str] = Counter()
    for line, sides in enumerate(zip(references, baseline, system, strict=True)):
        reference, ours, theirs = map(Counter, sides)
        in_references.update(reference)
        got = [reference & side for side in (ours, theirs)]
        for name, gained in (("right", got[1] - got[0]), ("wrong", got[0] - got[1])):
            for word, count in gained.items():
                if is_word(word):
                    changed[name][word] += count
                    lines[name][word].append(line)
    other = {"right": "wrong", "wrong": "right"}
    return {
        name: [
            {
                "word": word,
                "count": count,
                "reverse": changed[other[name]][word],
                "in_references": in_references[word],
                "lines": lines[name][word][:EXAMPLES],
            }
            # Words of the same count in the order of the alphabet: a sorted list does
            # not depend on the order of the lines.
            for word, count in sorted(counts.items(), key=lambda c: (-c[1], c[0]))[
                :most
            ]
        ]
        for name, counts in changed.items()
    }


def marks(
    reference: Words, outputs: Sequence[Words]
) -> tuple[list[int], list[list[int]]]:
    """Marks each word by the systems that have it right.

    Bit s of a mark is set if system s has this word of the reference: its k-th
    occurrence, if the system's line has the word k times.

    Returns:
      The marks of the reference's words, and of each system's. In the latter, the
      system's own bit is 0 where its word is not in the reference.
    """
    counts = [Counter(words) for words in outputs]
    wanted = Counter(reference)

    def marked(words: Words) -> list[int]:
        seen: Counter[str] = Counter()
        found = []
        for word in words:
            seen[word] += 1
            number = seen[word]
            found.append(
                sum(
                    1 << s
                    for s, count in enumerate(counts)
                    if number <= min(count[word], wanted[word])
                )
            )
        return found

    return marked(reference), [marked(words) for words in outputs]


def parts(text: str, words: Words) -> list[str]:
    """Cuts a text into its words, each with the white space before it.

    BLEU's tokenizer also unescapes entities; a text with such is shown as its words.
    """
    found, end = [], 0
    for word in words:
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(word, start):
            return [f" {w}" if n else w for n, w in enumerate(words)]
        found.append(text[end : start + len(word)])
        end = start + len(word)
    return found
