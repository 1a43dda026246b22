"""Measures the doctor: what it finds of a damaged text, or its memory and speed.

    python -m benchmarks.doctor --input=PREFIX --dev=PREFIX [--share=0.01]
    python -m benchmarks.doctor --pairs=4500000 [--words=25] [--fix=PREFIX]

With --input a clean text is damaged on purpose. Each damage is done to a share of the
pairs, chosen at random, each pair once. Printed for each: the pairs damaged, the share
that a rule meant for it finds, and the share that --fix would remove for any reason.
Below: the share of the undamaged pairs that each rule accuses, and before any damage.

With --pairs the doctor examines made-up pairs against a dev set of 3,000 such pairs.
They are made as they are read, so the text itself takes no memory.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.made_up import LANGUAGES, made_up
from t2t_jax.data.corpus import Corpus, Pair, open_corpus
from t2t_jax.extensions.text.damage import HOMOGLYPHS
from t2t_jax.io.errors import UserError
from t2t_jax.tools.doctor.examination import Examination
from t2t_jax.tools.doctor.findings import findings
from t2t_jax.tools.doctor.fixing import write_fix
from t2t_jax.tools.doctor.overlap import ReferenceSet
from t2t_jax.tools.doctor.rules import BIT, RULES
from t2t_jax.tools.verify.own_process import megabytes

STRETCH = 12  # lines


class Text(NamedTuple):
    """Sources of damage: the clean pairs, those of dev, and a random generator."""

    pairs: list[Pair]
    dev: list[Pair]
    rng: random.Random


# Made-up sentences: subjects, verbs, objects, places.
SENTENCES = {
    "fr": (
        "le médecin|la voisine|notre professeur|le vieux pêcheur|cette étudiante",
        "a trouvé|cherche|ne veut pas vendre|répare|a oublié|regarde",
        "les clés de la maison|un livre très ancien|sa voiture rouge|le grand panier",
        "dans la cuisine|près de la gare|avec des amis|pour la première fois|au marché",
    ),
    "es": (
        "el médico|la vecina|nuestro profesor|el viejo pescador|esta estudiante",
        "ha encontrado|busca|no quiere vender|repara|ha olvidado|mira",
        "las llaves de la casa|un libro muy antiguo|su coche rojo|la cesta más grande",
        "en la cocina|cerca de la estación|con los amigos|por primera vez|en el bosque",
    ),
    "pl": (
        "ten lekarz|nasza sąsiadka|stary rybak|ta studentka|jego nauczyciel",
        "znalazł już|szuka|nie chce sprzedać|naprawia|zapomniał|ogląda",
        "klucze od domu|bardzo starą książkę|swój czerwony samochód|duży kosz",
        "w kuchni|na dworcu|z przyjaciółmi|po raz pierwszy|na targu i w domu",
    ),
    "ru": (
        "врач|соседка|наш учитель|старый рыбак|эта студентка",
        "нашёл|ищет|не хочет продавать|чинит|забыл|смотрит на",
        "ключи от дома|очень старую книгу|красную машину|большую корзину",
        "на кухне|возле вокзала|вместе с друзьями|в первый раз|на рынке",
    ),
}


def _sentence(language: str, rng: random.Random) -> str:
    parts = [rng.choice(part.split("|")) for part in SENTENCES[language]]
    line = " ".join(parts)
    return line[0].upper() + line[1:] + "."


def _one_side(pair: Pair, rng: random.Random, change: Callable[[str], str]) -> Pair:
    side = rng.randrange(2)
    changed = change(pair[side])
    return (changed, pair[1]) if side == 0 else (pair[0], changed)


def swapped(pair: Pair, text: Text) -> Pair:
    """Source and target change places."""
    return pair[::-1]


def copied(pair: Pair, text: Text) -> Pair:
    """The source stands on both sides."""
    return pair[0], pair[0]


def rewritten(pair: Pair, text: Text) -> Pair:
    """Another source line stands in place of the target: the wrong language."""
    return pair[0], text.rng.choice(text.pairs)[0]


def other_line(pair: Pair, text: Text) -> Pair:
    """The target is that of another line, somewhere in the text."""
    return pair[0], text.rng.choice(text.pairs)[1]


def third_language(pair: Pair, text: Text) -> Pair:
    """A side is in French, Spanish or Polish."""
    line = _sentence(text.rng.choice(["fr", "es", "pl"]), text.rng)
    return _one_side(pair, text.rng, lambda _: line)


def third_script(pair: Pair, text: Text) -> Pair:
    """A side is in Russian."""
    return _one_side(pair, text.rng, lambda _: _sentence("ru", text.rng))


def truncated(pair: Pair, text: Text) -> Pair:
    """A side stops after a third to a half of its words."""

    def cut(line: str) -> str:
        words = line.split()
        return " ".join(words[: max(1, int(len(words) * text.rng.uniform(0.33, 0.5)))])

    return _one_side(pair, text.rng, cut)


def repeated(pair: Pair, text: Text) -> Pair:
    """A phrase of one to three words comes four times."""

    def stutter(line: str) -> str:
        words = line.split()
        size = text.rng.randint(1, 3)
        start = text.rng.randrange(max(1, len(words) - size + 1))
        return " ".join(
            words[:start] + words[start : start + size] * 4 + words[start + size :]
        )

    return _one_side(pair, text.rng, stutter)


def number_changed(pair: Pair, text: Text) -> Pair | None:
    """A digit of a number changes; for pairs with digits only."""
    places = [i for i, c in enumerate(pair[1]) if c.isdigit()]
    if not places or not any(c.isdigit() for c in pair[0]):
        return None
    position = text.rng.choice(places)
    digit = str((int(pair[1][position]) + text.rng.randint(1, 8)) % 10)
    return pair[0], pair[1][:position] + digit + pair[1][position + 1 :]


def mojibake(pair: Pair, text: Text) -> Pair | None:
    """UTF-8 is read as Windows-1252; for targets with letters beyond ASCII only."""
    try:
        wrong = pair[1].encode().decode("cp1252")
    except UnicodeDecodeError:
        return None
    return (pair[0], wrong) if wrong != pair[1] else None


def lost_letters(pair: Pair, text: Text) -> Pair | None:
    """Letters beyond ASCII become U+FFFD, or question marks."""
    lost = "\ufffd" if text.rng.random() < 0.5 else "?"
    wrong = "".join(c if c.isascii() else lost for c in pair[1])
    return (pair[0], wrong) if wrong != pair[1] else None


def escaped_twice(pair: Pair, text: Text) -> Pair:
    """Quotation marks around a word are escaped twice."""

    def escape(line: str) -> str:
        words = line.split() or [""]
        position = text.rng.randrange(len(words))
        words[position] = f"&amp;quot;{words[position]}&amp;quot;"
        return " ".join(words)

    return _one_side(pair, text.rng, escape)


def odd_character(pair: Pair, text: Text) -> Pair:
    """A zero-width, control or private character stands in a line."""
    odd = text.rng.choice("\u200b\ufeff\x02\x85\ue001\u202e")

    def insert(line: str) -> str:
        position = text.rng.randint(1, max(1, len(line) - 1))
        return line[:position] + odd + line[position:]

    return _one_side(pair, text.rng, insert)


def look_alikes(pair: Pair, text: Text) -> Pair | None:
    """Some letters are Cyrillic ones that look the same."""
    table = str.maketrans({letter: HOMOGLYPHS[letter] for letter in "aeopc"})
    words = pair[0].split()
    spots = [i for i, w in enumerate(words) if len(w) > 3 and w.translate(table) != w]
    spots = [i for i in spots if not all(c in "aeopc" for c in words[i])]
    if not spots:
        return None
    position = text.rng.choice(spots)
    words[position] = words[position].translate(table)
    return " ".join(words), pair[1]


def duplicate(pair: Pair, text: Text) -> Pair:
    """The pair is a copy of the first ones of the text."""
    return text.pairs[text.rng.randrange(50)]


def dev_line(pair: Pair, text: Text) -> Pair:
    """The pair is one of dev, in capitals or without its full stop."""
    pair = text.rng.choice(text.dev)
    return tuple(
        side.upper() if text.rng.random() < 0.5 else side.rstrip(".") for side in pair
    )


def nearly_dev_line(pair: Pair, text: Text) -> Pair | None:
    """The pair is one of dev with one word of each side replaced."""

    def change(line: str, donor: str) -> str:
        words = line.split()
        words[text.rng.randrange(len(words))] = text.rng.choice(donor.split() or ["x"])
        return " ".join(words)

    dev_pair = text.rng.choice(text.dev)
    if min(len(side.split()) for side in dev_pair) < 8:
        return None
    return tuple(map(change, dev_pair, pair))


# Damage -> (function, the rules that are meant for it).
DAMAGES = {
    "swapped sides": (swapped, {"swapped"}),
    "copied source": (copied, {"copied"}),
    "target in the source's language": (rewritten, {"wrong_side"}),
    "target of another line": (other_line, {"unrelated", "ratio", "truncated"}),
    "third language": (third_language, {"third_language", "unlike_side"}),
    "third language, other script": (third_script, {"foreign_script"}),
    "truncated side": (truncated, {"truncated", "ratio"}),
    "repeated words": (repeated, {"repetition"}),
    "number changed": (number_changed, {"numbers"}),
    "mojibake": (mojibake, {"mojibake"}),
    "lost letters": (lost_letters, {"lost_letters"}),
    "entities escaped twice": (escaped_twice, {"double_escapes"}),
    "odd character": (odd_character, {"odd_characters"}),
    "letters of another script": (look_alikes, {"mixed_scripts"}),
    "duplicate": (duplicate, {"duplicate"}),
    "line of dev": (dev_line, {"overlap"}),
    "nearly a line of dev": (nearly_dev_line, {"near_overlap", "overlap"}),
}
SHIFTED = "stretch shifted by 1 to 3 lines"


def damage(text: Text, share: float) -> tuple[list[Pair], dict[str, list[int]]]:
    """Damages a share of the pairs in each way.

    Returns:
      (the pairs, damaged; the places of the pairs that each damage was done to).
    """
    pairs, rng = [*text.pairs], text.rng
    count = max(1, int(share * len(pairs)))
    damaged: dict[str, list[int]] = {name: [] for name in (SHIFTED, *DAMAGES)}
    # Copies of the first pairs are damaged copies if those are damaged.
    free = set(range(50, len(pairs)))
    starts = list(range(60, len(pairs) - 2 * STRETCH, 3 * STRETCH))
    for start in rng.sample(starts, min(len(starts), max(1, count // STRETCH))):
        offset = rng.choice([1, 2, 3])
        places = range(start, start + STRETCH)
        moved = [text.pairs[place + offset][1] for place in places]
        for place, target in zip(places, moved, strict=True):
            pairs[place] = pairs[place][0], target
        damaged[SHIFTED] += places
        free -= {*places, *range(start + STRETCH, start + STRETCH + offset)}
    order = sorted(free)
    rng.shuffle(order)
    for name, (function, _) in DAMAGES.items():
        passed_over = []
        while order and len(damaged[name]) < count:
            place = order.pop()
            changed = function(text.pairs[place], text)
            if changed is None or changed == text.pairs[place]:
                passed_over.append(place)
                continue
            pairs[place] = changed
            damaged[name].append(place)
        order = passed_over + order
    return pairs, damaged


def examined(pairs: Sequence[Pair], dev: list[Pair], languages) -> Examination:
    """Examines pairs against one dev set."""
    corpus = Corpus("damaged", "damaged", *languages, lambda: iter(pairs), str)
    return Examination([corpus], [ReferenceSet("dev", dev)] if dev else [])


def rows_of(examination: Examination, damaged: dict[str, list[int]]) -> list[tuple]:
    """Returns (damage, pairs, share found, share removed) of each damage."""
    rules = {SHIFTED: {"misaligned"}} | {n: rules for n, (_, rules) in DAMAGES.items()}
    dropped = examination.dropped_p
    rows = []
    for name, places in damaged.items():
        if not places:
            continue
        bits = np.uint64(sum(BIT[rule] for rule in rules[name]))
        detected = (examination.mask_p[places] & bits > 0).mean()
        rows.append((name, len(places), detected, dropped[places].mean()))
    return rows


def false_alarms(examination: Examination, damaged: set[int]) -> dict[str, float]:
    """Returns the share of undamaged pairs that each rule accuses, and "removed"."""
    clean = np.ones(len(examination), bool)
    clean[sorted(damaged)] = False
    masks = examination.mask_p[clean]
    shares = {name: (masks & np.uint64(BIT[name]) > 0).mean() for name in RULES}
    return shares | {"removed": examination.dropped_p[clean].mean()}


def damaged_text(args) -> None:
    """Prints what is found of a text that is damaged on purpose."""
    languages = args.source, args.target
    clean, dev = (
        [*open_corpus(str(Path(place)), *languages).pairs()]
        for place in (args.input, args.dev)
    )
    clean = clean[: args.lines or None]
    alarms_before = false_alarms(examined(clean, dev, languages), set())
    pairs, damaged = damage(Text(clean, dev, random.Random(args.seed)), args.share)
    examination = examined(pairs, dev, languages)
    heads = "damage", "pairs", "found by its rule", "removed"
    rows = [dict(zip(heads, r, strict=True)) for r in rows_of(examination, damaged)]
    accused = false_alarms(
        examination, {p for places in damaged.values() for p in places}
    )
    alarms = [
        {"rule": name, "undamaged pairs accused": share, "before": alarms_before[name]}
        for name, share in accused.items()
        if share or alarms_before[name]
    ]
    print("\n".join([*measuring.markdown(alarms), ""]))
    measuring.publish(rows, args.output, undamaged=alarms)


def made_up_text(args) -> None:
    """Prints memory and time for made-up pairs."""
    memory_before, began = megabytes("VmHWM"), time.process_time()
    corpus = made_up(args.pairs, args.words)
    pair_count = sum(1 for _ in corpus.pairs())
    making = time.process_time() - began  # the text is made anew in each reading
    started, began = time.monotonic(), time.process_time()
    dev = [*made_up(3_000, args.words, seed=1).pairs()]
    examination = Examination([corpus], [ReferenceSet("dev", dev)])
    content = findings(examination, LANGUAGES)
    if args.fix:
        write_fix(examination, Path(args.fix), LANGUAGES)
    seconds, cpu = time.monotonic() - started, time.process_time() - began
    row = {
        "pairs": pair_count,
        "peak MiB": megabytes("VmHWM"),  # None without /proc
        "MiB before": memory_before,
        "seconds": seconds,
        "CPU seconds": cpu,
        "of these, to make the text once": making,
        "pairs/s": pair_count / seconds,
        "removed": content["dropped"],
    }
    measuring.publish([row], args.output)


def define_flags():
    measuring.define_flags(rounds=None)
    flags.DEFINE_string("input", None, "PREFIX of a clean text.")
    flags.DEFINE_string("dev", None, "PREFIX of a dev set.")
    flags.DEFINE_string("source", "en", "Language of the source.")
    flags.DEFINE_string("target", "de", "Language of the target.")
    flags.DEFINE_float("share", 0.01, "Share of the pairs, of each damage.")
    flags.DEFINE_integer("lines", 0, "Use only the first N lines; 0 means all.")
    flags.DEFINE_integer("seed", 0, "Seed of the damage.")
    flags.DEFINE_integer("pairs", 0, "Pairs of made-up text.")
    flags.DEFINE_integer("words", 25, "Words of a made-up source, on average.")
    flags.DEFINE_string("fix", "", "PREFIX to write the kept made-up pairs to.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if bool(args.pairs) == bool(args.input and args.dev):
        raise UserError(
            "want --input=PREFIX with --dev=PREFIX, or --pairs=N for made-up text"
        )
    (made_up_text if args.pairs else damaged_text)(args)


if __name__ == "__main__":
    run(main, define_flags)
