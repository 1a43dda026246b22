"""Decides whether another system computes the same as ours, by its answers.

Rounding differs between libraries, so where two tokens are nearly as probable, greedy
search may take another one. Such a line agrees if our two log-probabilities differ by
at most `TIE`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t2t_jax.config import changed
from t2t_jax.decoding.batches import pad_rows
from t2t_jax.decoding.translator import Translator
from t2t_jax.model.architecture import logits as model_logits
from t2t_jax.model.model import build
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tools.bridges.checks import peer_process

TOLERANCE = 1e-4  # of logits in float32
TIE = 1e-3  # nats
RANDOM = 100  # pairs of random tokens that are compared
SHORTEST, LONGEST = 3, 16  # tokens of the random sources
SILENT = 50.0  # nats below the best logit of a position: a probability of 0

Sentences = Sequence[Sequence[int]]


class LogitsAgreement(NamedTuple):
    """Logits of both systems, compared.

    Tokens that both silence, `SILENT` below the best of their position, do not count.
    """

    difference: float  # the largest absolute one
    largest: float  # absolute logit; rounding errors grow with it

    @property
    def agrees(self) -> bool:
        # Not `>`: NaN does not agree.
        return self.difference <= TOLERANCE * max(1.0, self.largest)

    def __str__(self) -> str:
        return (
            f"logits differ by at most {self.difference:.1e} in float32 (the largest "
            f"is {self.largest:.1f})"
        )


@dataclasses.dataclass(frozen=True)
class GreedyAgreement:
    """Greedy translations of both systems, compared."""

    lines: int  # compared
    equal: int  # with the same tokens
    ties: int  # that differ first between two tokens of nearly the same probability
    # Of the others: line from 0, position, our token, theirs, difference of our
    # log-probabilities.
    different: list[tuple[int, int, int, int, float]]

    @property
    def agrees(self) -> bool:
        return not self.different

    def __str__(self) -> str:
        text = f"{self.equal:,} of {self.lines:,} greedy translations have equal tokens"
        if self.ties:
            text += f", {self.ties:,} differ first in a tie (at most {TIE} nats)"
        if self.different:
            text += f", {len(self.different):,} differ"
        return text


class TextAgreement(NamedTuple):
    """Beam-search translations of both systems, compared."""

    lines: int  # compared
    # Whose texts differ: line from 0, our text, theirs, our scores of both.
    different: list[tuple[int, str, str, float, float]]

    def __str__(self) -> str:
        equal = self.lines - len(self.different)
        return f"{equal:,} of {self.lines:,} beam-search translations are equal texts"


def float32(translator: Translator) -> Translator:
    """The same translator, all of whose numbers are float32, as comparisons need it."""
    config = changed(translator.config, "model", dtype="float32", products="float32")
    return Translator(
        config,
        translator.vocabulary,
        build(config.model, *translator.vocabulary.sizes),
        translator.parameters,
        translator.steps,
    )


def random_pairs(translator: Translator) -> tuple[list[list[int]], list[list[int]]]:
    """Draws `RANDOM` sources with EOS, and inputs of the decoder for them."""
    rng = np.random.default_rng(0)
    vocabulary = translator.vocabulary

    def ordinary(side) -> np.ndarray:
        special = {side.pad, side.bos, side.eos, *side.never}
        return np.array([i for i in range(len(side)) if i not in special])

    def drawn(side) -> list[int]:
        length = rng.integers(SHORTEST, LONGEST)
        return rng.choice(ordinary(side), length).tolist()

    source = vocabulary.source
    source_prefix = source.encode([""])[0]
    sources = [[*source_prefix, *drawn(source), source.eos] for _ in range(RANDOM)]
    target_prefix = [vocabulary.bos, *vocabulary.encode([""])[0]]
    return sources, [[*target_prefix, *drawn(vocabulary)] for _ in range(RANDOM)]


def check_logits(translator: Translator, script: str, **job: Any) -> LogitsAgreement:
    """Compares our logits of random pairs with those of a script of `peers/`."""
    sources, targets = (tokens[:8] for tokens in random_pairs(translator))
    peer_logits = peer_process.run(
        script, "logits", sources=sources, targets=targets, **job
    )
    return compare_logits(translator, logits(translator, sources, targets), peer_logits)


def check_greedy(
    translator: Translator,
    script: str,
    sources: Sentences,
    limits: list[int],
    **job: Any,
) -> GreedyAgreement:
    """Compares our greedy translations of ids with EOS with those of a peer script."""
    answer = peer_process.run(script, "greedy", sources=sources, limits=limits, **job)
    tokens = [h.tokens for h in translator.translate_ids(sources, beam=1)]
    return compare_greedy(translator, sources, tokens, answer["tokens"], limits)


def logits(translator: Translator, sources: Sentences, targets: Sentences) -> list:
    """Computes our logits for sources with EOS and decoder inputs, float32 [t, v].

    On a GPU or TPU, call it with `jax.default_matmul_precision("highest")`.
    """
    source, source_segment = pad_rows(sources, len(sources), max(map(len, sources)))
    target, target_segment = pad_rows(targets, len(targets), max(map(len, targets)))
    batch = {
        "source": source,
        "source_segment": source_segment,
        "source_position": np.broadcast_to(np.arange(source.shape[1]), source.shape),
        "target_input": target,
        "target_segment": target_segment,
        "target_position": np.broadcast_to(np.arange(target.shape[1]), target.shape),
    }
    definition = translator.model.definition

    @jax.jit
    def compute(parameters, batch):
        return model_logits(nnx.merge(definition, parameters), batch)

    logits_btv = compute(translator.parameters, jax.tree.map(jnp.asarray, batch))
    logits_btv = np.asarray(logits_btv, np.float32)
    return [logits_btv[row, : len(target)] for row, target in enumerate(targets)]


def compare_logits(
    translator: Translator, our_logits: Sequence, peer_logits: dict[str, np.ndarray]
) -> LogitsAgreement:
    """Compares `logits` with those of a peer, of tokens that translations may have."""
    vocabulary = translator.vocabulary
    kept_v = np.ones(len(vocabulary), bool)
    kept_v[[*never_generated(vocabulary)]] = False
    difference = largest = 0.0
    for row, our_tv in enumerate(our_logits):
        our_tv, peer_tv = (
            our_tv[:, kept_v],
            peer_logits[f"logits_{row}"][:, : len(kept_v)][:, kept_v],
        )
        silent = [x <= x.max(-1, keepdims=True) - SILENT for x in (our_tv, peer_tv)]
        heard = ~(silent[0] & silent[1])  # NaN is heard
        gaps = np.abs(our_tv - peer_tv)[heard]
        difference = float(np.maximum(difference, gaps.max()))
        largest = max(largest, float(np.abs(our_tv)[~silent[0]].max()))
    return LogitsAgreement(difference, largest)


def compare_greedy(
    translator: Translator,
    sources: Sentences,
    rows: Sentences,
    peer_rows: Sentences,
    limits,
) -> GreedyAgreement:
    """Compares greedy translations token by token; they have EOS if they ended.

    At the limit, which is not compared, some systems force EOS.
    """
    equal, suspects = 0, []
    for line, (ids, peer_ids, limit) in enumerate(
        zip(rows, peer_rows, limits, strict=True)
    ):
        ids, peer_ids = list(ids)[: limit - 1], list(peer_ids)[: limit - 1]
        if ids == peer_ids:
            equal += 1
            continue
        place = next(
            (i for i, (a, b) in enumerate(zip(ids, peer_ids, strict=False)) if a != b),
            min(len(ids), len(peer_ids)),
        )
        # One of the two may have ended without EOS; nothing comes after it.
        tokens = [x[place] if place < len(x) else None for x in (ids, peer_ids)]
        suspects.append((line, place, tokens))
    gaps = _gaps(translator, sources, rows, suspects)
    different = [
        (line, place, *tokens, gap)
        for (line, place, tokens), gap in zip(suspects, gaps, strict=True)
        if not abs(gap) <= TIE
    ]
    return GreedyAgreement(len(rows), equal, len(suspects) - len(different), different)


def _gaps(translator, sources, rows, suspects) -> list[float]:
    """Our log-probability of our token less that of theirs; NaN if one has none."""
    pairs, scored = [], []
    for number, (line, place, tokens) in enumerate(suspects):
        if None in tokens:
            continue
        prefix = [*rows[line][:place]]
        pairs += [([*sources[line]], [*prefix, token]) for token in tokens]
        scored.append(number)
    gaps = [float("nan")] * len(suspects)
    if pairs:
        log_probs = [log_prob_t[-1] for log_prob_t in translator.token_log_probs(pairs)]
        for number, a, b in zip(scored, log_probs[::2], log_probs[1::2], strict=True):
            gaps[number] = a - b
    return gaps


def compare_texts(
    translator: Translator, lines: Sequence[str], outputs: list, texts: Sequence[str]
) -> TextAgreement:
    """Compares our `Translation`s of lines with the texts of a peer."""
    rows = [
        row
        for row, (output, text) in enumerate(zip(outputs, texts, strict=True))
        if output.text != text
    ]
    scores = translator.score([(lines[row], texts[row]) for row in rows], warn=False)
    return TextAgreement(
        len(lines),
        [
            (row, outputs[row].text, texts[row], outputs[row].score, score.score)
            for row, score in zip(rows, scores, strict=True)
        ],
    )
