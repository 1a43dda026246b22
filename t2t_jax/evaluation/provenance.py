"""Provenance of a score: what it depends on, and what it is comparable with.

It holds no time of day, so scoring the same translations again on the same machine
gives the same provenance. At the end the test sets with published results: a set is
identified by hashes, of its complete text where a copy was at hand when the table was
written, otherwise of its first line in each language.
"""

import dataclasses
import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import jax

from t2t_jax import __version__
from t2t_jax.data.corpus import Corpus
from t2t_jax.decoding.translator import Translator
from t2t_jax.metrics.measures import LONGEST, SAMPLES, SEED
from t2t_jax.parallel.machine import describe_machine
from t2t_jax.tasks.task import Task
from t2t_jax.text.languages import identify

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "sentencepiece",
    "sacrebleu",
    "sacremoses",
)


def score_provenance(
    translator: Translator,
    task: Task,
    corpus: Corpus,
    sources: Sequence[str],
    references: Sequence[str],
) -> dict:
    """Describes the origin of a set's scores, for `scores/SET.json`.

    Returns:
      `compare_with` (a line for people), `name` (of the set), `direction`,
      `source_sha256` and `reference_sha256` (of `text_bytes`), `bootstrap` (None if
      the set is too long for one), `config`, `code`, `versions`, `machine`.
    """
    text = ScoredText(
        corpus.name,
        corpus.source,
        corpus.target,
        lines=len(sources),
        source_sha256=hashed(sources),
        reference_sha256=hashed(references),
        source_first=hashed(sources[:1]),
        reference_first=hashed(references[:1]),
        # Also within a mixture: en-de:grammar:test.
        synthetic="grammar" in corpus.spec.split(":")[:-1],
    )
    resampled, members = len(sources) <= LONGEST, len(translator.members)
    comparable = corpus.compare_with or task.compare_with(corpus)
    comparable = comparable or compare_with(text, len(translator.steps))
    if members > 1:
        comparable += (
            f"; but this is an ensemble of {members} models: results of single models "
            "are not comparable with it"
        )
    versions = {"t2t_jax": __version__} | {p: metadata.version(p) for p in PACKAGES}
    machine = {k: v for k, v in describe_machine().items() if k not in versions}
    machine["device_kinds"] = dict(Counter(d.device_kind for d in jax.devices()))
    return {
        "compare_with": comparable,
        "name": corpus.name,
        "task": translator.config.task.kind,
        "direction": f"{corpus.source}-{corpus.target}",
        "source_sha256": text.source_sha256,
        "reference_sha256": text.reference_sha256,
        "bootstrap": {"samples": SAMPLES, "seed": SEED} if resampled else None,
        "config": dataclasses.asdict(translator.config),
        "code": code_version(),
        "versions": versions,
        "machine": machine,
    }


def text_bytes(lines: Sequence[str]) -> bytes:
    """Encodes lines as in a text file: UTF-8, every line ended by a line feed."""
    return "".join(f"{line}\n" for line in lines).encode()


def hashed(lines: Sequence[str]) -> str:
    """SHA-256 of the lines as a text file, in hex: what `sha256sum` prints for it."""
    return hashlib.sha256(text_bytes(lines)).hexdigest()


def code_version(folder: Path = Path(__file__).parent) -> dict[str, str | bool | None]:
    """Finds the git commit of a folder of code, and whether tracked files are changed.

    Both are None if the code is not in a checkout or git is not installed.
    """
    unknown = {"commit": None, "uncommitted_changes": None}
    # A package in site-packages may sit inside another project's checkout, which does
    # not track it. That project's commit would be wrong.
    if _git(folder, "ls-files", "--", ".") in (None, ""):
        return unknown
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return unknown
    return {"commit": commit, "uncommitted_changes": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Runs git read-only and returns its output; None if it fails."""
    # Inside a git hook, the GIT_ variables point to the hook's repository.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    # Take no lock that another git may want, and start no file-system monitor.
    options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    try:
        completed = subprocess.run(
            ["git", *options, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return completed.stdout.strip()


# ------------------------------------------------------- sets with published results


@dataclasses.dataclass(frozen=True)
class ScoredText:
    """A test set as it was scored."""

    name: str  # for people
    source: str  # languages
    target: str
    lines: int
    source_sha256: str  # of each side as a text file
    reference_sha256: str
    source_first: str  # SHA-256 of each side's first line and its line feed
    reference_first: str
    synthetic: bool = False  # True for a split of the built-in corpus


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """A published test set."""

    name: str  # its usual one, which people also use in the names of its files
    label: str  # sacreBLEU's name for it; empty if sacreBLEU does not have it
    lines: int
    first: dict[str, str]  # SHA-256 of the first line and its line feed, by language
    direction: str  # of the published results
    results: str  # says with which results scores in this direction compare
    if_averaged: str = ""  # the same for averaged checkpoints, if it differs
    # SHA-256 of the complete text, by language; empty if unknown.
    whole: dict[str, str] = dataclasses.field(default_factory=dict)

    def starts_like(self, text: ScoredText) -> bool:
        """True if the text has this set's length and its first lines."""
        expected = self.lines, self.first[text.source], self.first[text.target]
        return expected == (text.lines, text.source_first, text.reference_first)

    def matches(self, text: ScoredText) -> bool:
        """True if the text is this set byte for byte, or its hashes are unknown."""
        if not self.whole:
            return True
        expected = self.whole[text.source], self.whole[text.target]
        return expected == (text.source_sha256, text.reference_sha256)


# The full newstest2014 has 3,003 lines; the "cleaned" release has 2,737. Papers and
# sacreBLEU mean one or the other by the same name, so both are listed.
PUBLISHED = (
    PublishedSet(
        name="newstest2014",
        label="wmt14/full",
        lines=3_003,
        first={
            "en": "d7a7045ebf5afcb4634eed95659c436665c1d3b2650cb65a8fac9d7be8e3c5f8",
            "de": "ef6e155ecbdd7d94e6cf143e5ba1d7335cc4eac490932ca7a8c66a6430077f18",
        },
        direction="en-de",
        results=(
            "bleu_paper is comparable with {paper}, Table 2 (base 27.3, big 28.4: "
            "tokenized, compounds split); bleu is not, as it is usually 0.7 to 1.5 "
            "lower for the same output; {sacre}"
        ),
    ),
    PublishedSet(
        name="newstest2014",
        label="wmt14/full",
        lines=3_003,
        first={
            "en": "261d9dfdc73326352f52633c89fe1f4ce7e57e65c02059603a57ab7db251dae8",
            "fr": "6692679e8422e9d1064916f29558cd9ec810a75a807d15ac67ddc9f2566e7116",
        },
        direction="en-fr",
        results=(
            "bleu_paper is comparable with {paper}, Table 2 (base 38.1, big 41.8: "
            "tokenized, nothing split); bleu is not, as it is tokenized differently; "
            "{sacre}"
        ),
    ),
    PublishedSet(
        name="newstest2014",
        label="wmt14",
        lines=2_737,
        first={
            "en": "63595b85179c84e9d8c1e08044ca124645fff7bf0b176bf1beed5771b0b2a56f",
            "de": "23af2792daadd97683e49b97e0263bd9cd039dd95da03f344782e1c268ad6a16",
        },
        direction="en-de",
        results=(
            "the cleaned set: not comparable with {paper}, Table 2, which scores all "
            "3,003 lines; {sacre}"
        ),
    ),
    PublishedSet(
        name="newstest2013",
        label="wmt13",
        lines=3_000,
        first={
            "en": "89823c5d510203c3f5f9d90c911393d7478fdb18152271cd9e1eaa7925037744",
            "de": "ae435753efccc6465c0ee5b8edd41e011d608cb6588ae76bf12e597e01138c87",
            "fr": "826ccb90580beadedf8392062f46f5f1d9e9e2332e1b2d9da37b04052e494643",
        },
        direction="en-de",
        results=(
            "bleu_paper is comparable with {paper}, Table 3 (base 25.8, big 26.4: one "
            "checkpoint, presumably tokenized as in Table 2); bleu is not; {sacre}; "
            "{subwords}"
        ),
        if_averaged=(
            "not comparable with {paper}, Table 3 (base 25.8), which averages no "
            "checkpoints: here {averaged} are averaged; {sacre}; {subwords}"
        ),
        whole={
            "en": "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e",
            "de": "d7ea35ab91ff3709e03ad9cb6bf5b4f2cc775cd2d72efd5254c4aec5e69663ca",
            "fr": "909b63be5df3eb8c13e1d5967bf3f0adfdb9f6ed5e638c5bffff563ee2ff7f41",
        },
    ),
    PublishedSet(
        name="test_2016_flickr",
        label="",
        lines=1_000,
        first={
            "en": "c34245b441e11f10f3f555429515ed023dc94b1d8eec069296e36a5c5f998c00",
            "de": "2ea650f17278633fe8a132ad8601229822b5308062f37538a6e8ddfcc1307045",
        },
        direction="en-de",
        results=(
            "bleu_lc_tok is comparable with the published 41.02 (lower-cased, "
            "tokenized BLEU; its reference file equals our tokenization of this text, "
            "line for line, with sacremoses 0.2.0); bleu and bleu_paper are not; "
            "{sacre}"
        ),
        whole={
            "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
            "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        },
    ),
)


def compare_with(text: ScoredText, averaged: int) -> str:
    """Explains in one line which results these scores are comparable with, and why.

    `averaged` is the number of checkpoints whose parameters were averaged.
    """
    among = (
        f"compare only with systems scored on these {text.lines:,} lines (reference "
        f"sha256 {text.reference_sha256[:12]}), same signature"
    )
    if text.synthetic:
        return (
            "synthetic text of the built-in grammar, without published numbers; "
            "compare only with runs on the same split and version, same signature"
        )
    codes = {side: identify(getattr(text, side)).code for side in ("source", "target")}
    text = dataclasses.replace(text, **codes)
    languages = {*codes.values()}
    sets = [test_set for test_set in PUBLISHED if languages <= test_set.first.keys()]
    alike = [test_set for test_set in sets if test_set.starts_like(text)]
    for test_set in alike:
        if test_set.matches(text):
            identified = "text" if test_set.whole else "number of lines and first lines"
            results = _published(test_set, text, averaged)
            return f"{results} [set identified by its {identified}]"
    if alike:  # but a later line differs
        return f"starts like {alike[0].name}, but the text differs; {among}"
    named = [test_set for test_set in sets if test_set.name in text.name]
    if not named:
        return f"no published number is known for this text; {among}"
    counts = [test_set.lines for test_set in named]
    wrong = (
        "the text differs"
        if text.lines in counts
        else f"{text.lines:,} lines instead of {' or '.join(f'{n:,}' for n in counts)}"
    )
    return f"not {named[0].name} despite its name: {wrong}; {among}"


def _published(test_set: PublishedSet, text: ScoredText, averaged: int) -> str:
    """Names the results published for a set, in the direction of the text."""
    direction = f"{text.source}-{text.target}"
    results = "no published number is known for this direction; {sacre}"
    if direction == test_set.direction:
        results = (averaged > 1 and test_set.if_averaged) or test_set.results
    comparison = results.format(
        paper="Vaswani et al. 2017",
        averaged=averaged,
        sacre="compare bleu only with sacreBLEU scores on "
        f"{test_set.label or 'these lines'}, same signature",
        subwords="perplexity is per subword: compare it only for the same tokenizer",
    )
    return f"{test_set.name} {direction}, {text.lines:,} lines: {comparison}"
