"""Made-up systems on made-up lines, with something of every aspect and sign."""

import random

from t2t_jax.tools.compare.compare import System
from t2t_jax.tools.compare.texts import Texts, count_training
from tests.doctor.made_up import corpus_of

SOURCE = ["the", "a", "dog", "cat", "house", "Anna", "sees", "red", "in", "7", "2.50"]
TARGET = ["der", "ein", "Hund", "Katze", "Haus", "Anna", "sieht", "rot", "in", "7"]


def line(draw, words, longest=14):
    return " ".join(draw.choices(words, k=draw.randint(1, longest))) + "."


def damaged(draw, reference, rate):
    words = []
    for word in reference.removesuffix(".").split():
        if draw.random() > rate:
            words.append(word)
        elif draw.random() > 0.3:
            replacements = [*TARGET, "the", "Unsinn", "3,5"]
            words += draw.choices(replacements, k=draw.choice([1, 1, 2]))
    return " ".join(words) + "." * (draw.random() > 0.1)


def made_up(lines=40, seed=1, training=True, systems=3):
    """Texts, and systems of which each is worse than the one before."""
    draw = random.Random(seed)
    sources = [line(draw, SOURCE) for _ in range(lines)]
    references = [line(draw, [*TARGET, "2.50"]) for _ in range(lines)]
    learned = None
    if training:
        pairs = [(line(draw, SOURCE), line(draw, TARGET[:8])) for _ in range(60)]
        learned = count_training([corpus_of(pairs)], "en", "de")
    texts = Texts("made-up", "en", "de", sources, references, learned)
    made_systems = []
    for n in range(systems):
        translated = [damaged(draw, r, 0.2 + 0.2 * n) for r in references]
        if n == 2:
            translated[0] = ""
        made_systems.append(System(f"system {n}", translated, f"file {n}"))
    return texts, made_systems
