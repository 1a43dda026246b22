"""Guesses the language of a text, for requests with `source: "auto"`.

Only a source language that is served can be the answer; with one, it is the answer. The
evidence is the script, known words, letters beyond a to z, and pairs of letters, whose
frequencies are those in the lists of words. Measured: docs/results/serving.md.
"""

import collections
import itertools
import math
import re
import unicodedata
from collections.abc import Mapping

from t2t_jax.text.characters import FIRST_SCRIPT, SCRIPTS
from t2t_jax.text.languages import FUNCTION_WORDS
from t2t_jax.text.view import Side
from t2t_jax.tools.serve.engine import Direction

# Words that speech has more often than the text `FUNCTION_WORDS` is meant for. A word
# counts for each language that has it.
SPOKEN = {
    "en": "i he she it we my your his her our me him us a an at by on or if but do "
    "does did can will would should be been has had i'm it's there their them who "
    "what how why when where no yes all very much more than in so as up out about",
    "de": "ich er es wir ihr mir mich dich dir uns ihm ihn ihnen mein dein sein meine "
    "deine seine ihre hat habe haben hast war waren bin bist sind werden kann muss "
    "was wer wie wo wann warum wenn dass aber oder als bei im am an in zu so um aus "
    "nach einen einem einer kein keine sehr mehr noch nur schon hier da über für will",
    "fr": "je tu il elle nous vous ils elles on me te se mon ton son ma ta sa mes ses "
    "leur un à en et ou où ce cet cette ces ne y été est suis ai as ont avez sommes "
    "avoir être fait plus mais si tout très bien comme aux c'est n'est j'ai qu'il par",
    "es": "yo tú él ella nosotros mi me te nos le lo la un y o a de es son fue era ser "
    "he ha hay estar este qué quién cómo cuándo dónde cuando si no sí muy todo también",
    "it": "io tu lui lei noi voi mi ti ci si lo un e o a da in ho hai ha è siamo era "
    "essere fatto come quando dove perché se ma no sì molto tutto",
    "pt": "eu tu ele ela nós você me te se meu minha seu sua um e ou a de é foi era "
    "ser está estou tem isso como quando onde se mas sim muito tudo também",
    "nl": "ik jij je hij zij we wij mij mijn jouw zijn haar ons en of de in is was heb "
    "heeft had kan wil moet wat wie hoe waar wanneer als maar geen ja zo nog",
}
# Letters beyond a to z, or those that others of the same script lack. Kana, for one.
LETTERS = dict(
    entry.split(":")
    for entry in (
        "de:äöüß fr:àâæçèéêëîïôùûüÿœ es:áéíñóúü it:àèéìíòóù pt:àáâãçéêíóôõú nl:áéëïóöü "
        "sv:åäöé da:æøåé pl:ąćęłńóśźż cs:áčďéěíňóřšťúůýž ro:ăâîșțşţ hu:áéíóöőúüű "
        "fi:äöå tr:çğıöşüâ vi:ăâđêôơư ru:ёъыэ uk:ґєії be:ёіўыэ bg:ъ sr:ђјљњћџ "
        f"ar:ةى fa:پچژگ ja:{''.join(map(chr, range(0x3041, 0x3100)))}"
    ).split()
)
SCRIPTS_OF = {  # of `text.characters`; Latin for languages without an entry
    **dict.fromkeys(("ru", "uk", "be", "bg", "mk", "sr"), "Cyrillic"),
    **{"ar": "Arabic", "fa": "Arabic", "ur": "Arabic", "he": "Hebrew", "el": "Greek"},
    **{"ja": "Han and kana", "zh": "Han and kana", "ko": "Hangul", "th": "Thai"},
    **{"hi": "Devanagari", "mr": "Devanagari", "hy": "Armenian", "ka": "Georgian"},
}
# Probabilities of a known word and of a letter beyond a to z, in a language that has it
# and in others. Names bring foreign letters.
WORD, FOREIGN_WORD = 0.5, 0.01
LETTER, FOREIGN_LETTER = 0.5, 0.02
# The weight of pairs of letters: the lists are short, and the pairs of a word are not
# independent. With 0, "Tom ging." is a tie; with 0.6, more lines are guessed wrong.
SPELLING = 0.15


class Guesser:
    """Guesses which of the served source languages a text is written in.

    Args:
      directions: by name, as `Engine.directions`.
    """

    def __init__(self, directions: Mapping[str, Direction]):
        self.codes = [*dict.fromkeys(each.source for each in directions.values())]
        names = [code.lower().replace("_", "-").split("-")[0] for code in self.codes]
        self._scripts = [SCRIPTS.index(SCRIPTS_OF.get(n, "Latin")) for n in names]
        self._letters = [{*LETTERS.get(name, "")} for name in names]
        self._words = [
            {*FUNCTION_WORDS.get(n, "").split(), *SPOKEN.get(n, "").split()}
            for n in names
        ]
        counts = [
            collections.Counter(pair for word in words for pair in _pairs(word))
            for words in self._words
        ]
        every = set().union(*counts)
        self._spelling = [
            {p: math.log((c[p] + 0.5) / (c.total() + 0.5 * len(every))) for p in every}
            for c in counts
        ]

    def guess(self, text: str) -> tuple[str, float]:
        """Returns the most probable language's code, and its probability, 0 to 1."""
        if len(self.codes) == 1:
            return self.codes[0], 1.0
        text = unicodedata.normalize("NFC", text[:1_000]).lower().replace("\u2019", "'")
        line = Side([text])
        counts_s = line.counts_pk[0, FIRST_SCRIPT:]
        words = {*line.words[0], *re.findall(r"\w+'\w+", text)}  # also "don't" as one
        known = words & set().union(*self._words)
        letters = {*text} & set().union(*self._letters)
        pairs = [pair for word in words - known for pair in _pairs(word)]
        logs = []
        for n, spelling in enumerate(self._spelling):
            log = 10 * counts_s[self._scripts[n]] / max(counts_s.sum(), 1)
            own = len(known & self._words[n])
            log += own * math.log(WORD) + (len(known) - own) * math.log(FOREIGN_WORD)
            own = len(letters & self._letters[n])
            foreign = len(letters) - own
            log += own * math.log(LETTER) + foreign * math.log(FOREIGN_LETTER)
            log += SPELLING * sum(spelling.get(pair, 0.0) for pair in pairs)
            logs.append(log)
        best = max(range(len(logs)), key=logs.__getitem__)
        return self.codes[best], 1 / sum(math.exp(log - logs[best]) for log in logs)


def _pairs(word: str) -> list[str]:
    """Pairs of neighbouring characters, with a space at both ends."""
    return [first + second for first, second in itertools.pairwise(f" {word} ")]
