"""RULES: all that the doctor accuses pairs of. A rule is a check and a line here."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence

from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.text.view import View
from t2t_jax.tools.doctor import checks


@dataclasses.dataclass(frozen=True)
class Rule:
    """One thing that may be wrong with a pair.

    Attributes:
      group: the heading under which it is reported.
      description: what is wrong with a pair that breaks it, after "pairs ...".
      drops: True if --fix removes such pairs by default.
      check: as `checks.py` describes them; None if it needs the whole text: then
        `Examination` applies it when all pairs were read.
      limits: its thresholds, by name; by default the arguments of the check.
    """

    group: str
    description: str
    drops: bool
    check: Callable | None
    limits: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        arguments = inspect.signature(self.check).parameters if self.check else {}
        for name in [*arguments][2:]:  # after the view and the knowledge
            self.limits[name] = arguments[name].default

    def accuse(self, view: View, knowledge, limits) -> dict[int, tuple[float, str]]:
        """Applies the check; returns the most severe (severity, note) of each place."""
        worst: dict[int, tuple[float, str]] = {}
        for place, severity, note in self.check(view, knowledge, **limits):
            if place not in worst or worst[place][0] < severity:
                worst[place] = severity, note
        return worst


RULES = {
    "low_score": Rule("sides", "whose score is too low", True, checks.low_score),
    "empty": Rule("sides", "with nothing on a side", True, checks.empty),
    "copied": Rule("sides", "whose sides are the same", True, checks.copied),
    "swapped": Rule("sides", "whose sides are swapped", True, checks.swapped),
    "wrong_side": Rule("sides", "of one language", True, checks.wrong_side),
    "foreign_script": Rule(
        "language",
        "in a script that is rare on their side",
        True,
        checks.foreign_script,
    ),
    "third_language": Rule(
        "language",
        "in a third language",
        True,
        checks.third_language,
    ),
    "unlike_side": Rule(
        "language",
        "with letters that are improbable on their side",
        False,
        checks.unlike_side,
    ),
    "misaligned": Rule(
        "alignment", "in a stretch that fits at another offset", True, None
    ),
    "loose_stretch": Rule(
        "alignment", "in a stretch that fits at no offset nearby", False, None
    ),
    "unrelated": Rule(
        "alignment",
        "whose sides share nothing that translations share",
        False,
        checks.unrelated,
    ),
    "truncated": Rule(
        "alignment", "of which a side stops early", True, checks.truncated
    ),
    "ratio": Rule("alignment", "of unusual length ratio", True, checks.ratio),
    "length": Rule("alignment", "with an unusually long side", False, checks.length),
    "numbers": Rule("content", "with different numbers", False, checks.numbers),
    "markup": Rule(
        "content",
        "with different placeholders, tags or addresses",
        False,
        checks.markup,
    ),
    "punctuation": Rule(
        "content", "with different final signs or brackets", False, checks.punctuation
    ),
    "repetition": Rule(
        "content", "with a phrase that follows itself", True, checks.repetition
    ),
    "mojibake": Rule(
        "encoding", "of UTF-8 read in another encoding", True, checks.mojibake
    ),
    "lost_letters": Rule(
        "encoding", "with letters lost in a conversion", True, checks.lost_letters
    ),
    "double_escapes": Rule(
        "encoding", "with entities escaped twice", True, checks.double_escapes
    ),
    "entities": Rule("encoding", "with HTML entities", False, checks.entities),
    "odd_characters": Rule(
        "encoding",
        "with control, private or zero-width characters",
        True,
        checks.odd_characters,
    ),
    "decomposed": Rule("encoding", "with decomposed letters", False, checks.decomposed),
    "mixed_scripts": Rule(
        "encoding", "with words of two scripts", True, checks.mixed_scripts
    ),
    "many_pieces": Rule(
        "encoding", "of very many or unknown tokens", False, checks.many_pieces
    ),
    "duplicate": Rule("repeated", "that came before", True, checks.duplicate),
    "near_duplicate": Rule(
        "repeated", "of words that came before", False, checks.near_duplicate
    ),
    "other_target": Rule(
        "repeated",
        "whose source came before with another target",
        False,
        checks.other_target,
    ),
    "overlap": Rule(
        "dev and test", "with a line of a dev or test set", True, checks.overlap
    ),
    "near_overlap": Rule(
        "dev and test", "nearly equal to a dev or test pair", True, checks.near_overlap
    ),
    # Of the models of --workdir, --reverse and --contrast; limits in robust deviations.
    "cross_entropy": Rule(
        "by a model", "that the model finds improbable", False, None, {"z": 4.0}
    ),
    "dual": Rule(
        "by a model",
        "on which two directions disagree, or improbable in both",
        False,
        None,
        {"z": 4.0},
    ),
    "contrast": Rule(
        "by a model",
        "more probable by the model of --contrast",
        False,
        None,
        {"z": 4.0},
    ),
}
NAMES = tuple(RULES)
# Its bit in the mask of a pair.
BIT = {name: 1 << number for number, name in enumerate(NAMES)}


def with_limits(changes: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns the limits of all rules, some of them changed, such as "ratio.z=8"."""
    limits = {name: dict(rule.limits) for name, rule in RULES.items()}
    names = [f"{name}.{limit}" for name in limits for limit in limits[name]]
    for change in changes:
        name, _, value = change.partition("=")
        if name not in names:
            hint = did_you_mean(name, names)
            raise UserError(f"--limit={change}: no such limit{hint}")
        rule, _, limit = name.partition(".")
        try:
            limits[rule][limit] = float(value)
        except ValueError:
            raise UserError(
                f"--limit={change}: want a number, such as {name}="
                f"{limits[rule][limit]:g}"
            ) from None
    return limits


def dropping(changes: str) -> set[str]:
    """Returns the rules whose pairs --fix removes.

    Changes to the default are separated by commas: "numbers" adds a rule, "-duplicate"
    takes one away, "none" takes all away.
    """
    dropped = {name for name, rule in RULES.items() if rule.drops}
    for change in filter(None, map(str.strip, changes.split(","))):
        name = change.lstrip("+-")
        if name == "none":
            dropped = set()
        elif name not in RULES:
            hint = did_you_mean(name, NAMES)
            raise UserError(f"--drop={changes}: no such rule{hint}")
        elif change[0] == "-":
            dropped.discard(name)
        else:
            dropped.add(name)
    return dropped
