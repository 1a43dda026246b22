"""Describes attention heads, and measures the loss of each (Michel et al. 2019)."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.corpus import Pair, open_corpora
from t2t_jax.decoding import alignment
from t2t_jax.decoding.inputs import InputReader
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.metrics.measures import compared
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.metrics.text_measures import text_measures
from t2t_jax.model.layers import Parameters
from t2t_jax.tools.experiment.attention_patterns import kind_of, patterns, sentences_of
from t2t_jax.tools.experiment.context import Context

# Where the parameters of each attention are: stack, module of a layer.
ATTENTIONS = {
    "encoder": ("encoder", "attention"),
    "decoder": ("decoder", "attention"),
    "cross": ("decoder", "cross"),
}
SIGNIFICANT = 0.05  # p-values below it; two standard errors of a loss
PRUNED = np.arange(1, 8) / 8  # shares of all heads that are removed together
ALIGNER_LINES = 5_000  # of the training text, from which the word aligner learns


class Head(NamedTuple):
    """A head: its attention, a key of `ATTENTIONS`; layer and number, from 0."""

    attention: str
    layer: int
    head: int


def heads_of(parameters: Parameters) -> list[Head]:
    """All heads of a Transformer; none of other models."""
    return [
        Head(attention, layer, head)
        for attention, (stack, module) in ATTENTIONS.items()
        for layer, modules in sorted(parameters.get(stack, {}).items())
        if isinstance(modules, dict) and "out" in modules.get(module, {})
        for head in range(len(modules[module]["out"]))
    ]


def without_heads(parameters: Parameters, heads: Iterable[Head]) -> Parameters:
    """Returns parameters with which some heads add nothing to their layer's output.

    The rows of the output projection (W^O of section 3.2.2) that read them are 0. That
    is the same as masking the heads, and any program for the model computes it.

    Raises:
      UserError: there is no such head.
    """
    existing = {*heads_of(parameters)}
    parameters = jax.tree.map(lambda x: x, parameters)  # the dicts, not the arrays
    for head in map(Head._make, heads):
        if head not in existing:
            raise UserError(
                f"{tuple(head)} is not a head of this model; it has {len(existing)}: "
                "want (encoder, decoder or cross, layer, head), both numbers from 0"
            )
        stack, module = ATTENTIONS[head.attention]
        weights = parameters[stack][head.layer][module]
        weights["out"] = weights["out"].at[head.head].set(0.0)
    return parameters


class Lines(NamedTuple):
    """The lines that heads are removed on.

    Attributes:
      dev: (source, reference) pairs, of which the loss is computed, which decides
        which heads are kept.
      test: pairs that are translated.
      language: of the references.
    """

    dev: Sequence[Pair]
    test: Sequence[Pair]
    language: str


class Evaluation(NamedTuple):
    """A model on `Lines`.

    Attributes:
      translations: of the test lines, by greedy search.
      loss_n: -log p of each dev line, summed over its pieces.
      pieces_n: their numbers.
    """

    translations: list[str]
    loss_n: np.ndarray
    pieces_n: np.ndarray

    @property
    def loss(self) -> float:
        """Nats per piece."""
        return float(self.loss_n.sum() / self.pieces_n.sum())


class Ablation:
    """Evaluates a translator without some of its heads.

    The programs take parameters as arguments, so they are compiled once for all heads.
    """

    def __init__(self, translator: Translator, lines: Lines):
        self._translator = translator
        self._lines = lines
        self.heads = heads_of(translator.parameters)
        if not self.heads:
            raise UserError(
                f"config.model.kind={translator.config.model.kind!r} has no attention "
                "heads to remove; want 'transformer'"
            )
        self.baseline = Evaluation(self._translations(()), *self._losses(()))
        _, references = zip(*lines.test, strict=True)
        scores = corpus_scores(self.baseline.translations, references, lines.language)
        self.bleu = scores["bleu"]

    def loss(self, heads: Sequence[Head]) -> float:
        """The dev loss without some heads, in nats per piece."""
        loss_n, pieces_n = self._losses(heads)
        return float(loss_n.sum() / pieces_n.sum())

    def lost(self, heads: Sequence[Head]) -> dict[str, Any]:
        """Measures the BLEU and loss without some heads.

        Returns:
          `bleu`; `bleu_lost`, positive if it falls; `p_value` of that difference, by
          a paired bootstrap; `loss_lost`, nats per piece of dev, positive if the loss
          rises; `loss_error`, its standard error over lines; `distinguishable`: BLEU
          falls, with a p-value below `SIGNIFICANT`; `loss_distinguishable`: the loss
          rises by more than two standard errors.
        """
        bleu = compared(
            {"bleu": text_measures(self._lines.language)["bleu"]},
            self._translations(heads),
            self.baseline.translations,
            self._lines.test,
        )["bleu"]
        loss_n, pieces_n = self._losses(heads)
        more_n = loss_n - self.baseline.loss_n
        lost = more_n.sum() / pieces_n.sum()
        # Of a ratio of sums over lines: the residuals of each line.
        error = np.sqrt(((more_n - lost * pieces_n) ** 2).sum()) / pieces_n.sum()
        fallen = bleu["difference"] < 0 and bleu["p_value"] < SIGNIFICANT
        return {
            "bleu": bleu["score"],
            "bleu_lost": -bleu["difference"],
            "p_value": bleu["p_value"],
            "loss_lost": float(lost),
            "loss_error": float(error),
            "distinguishable": bool(fallen),
            "loss_distinguishable": bool(lost > 2 * error),
        }

    def _without(self, heads: Sequence[Head]) -> Translator:
        whole = self._translator
        return Translator(
            whole.config,
            whole.vocabulary,
            whole.model,
            without_heads(whole.parameters, heads),
            whole.steps,
        )

    def _translations(self, heads: Sequence[Head]) -> list[str]:
        sources = [source for source, _ in self._lines.test]
        found = self._without(heads).translate(sources, beam=1, warn=False)
        return [translation.text for translation in found]

    def _losses(self, heads: Sequence[Head]) -> tuple[np.ndarray, np.ndarray]:
        scores = self._without(heads).score(self._lines.dev, warn=False)
        return (
            np.array([-score.log_prob for score in scores]),
            np.array([len(score.pieces) for score in scores]),
        )


def measure_heads(
    context: Context, lines: int = 200, test_set: str = ""
) -> dict[str, Any]:
    """Measures all heads of a trained Transformer.

    Args:
      lines: that many of the dev and of the test text, from the first.
      test_set: its place; by default the first of `config.data.test`.

    Returns:
      `bleu` and `loss` of the whole model; `count`, its heads; `needless`, those
      without which BLEU does not fall distinguishably, one at a time, and
      `loss_needless` likewise; `prunable`, the most that were removed together before
      BLEU fell distinguishably. `heads`, `layers` and `pruned` hold the values of
      `Ablation.lost` for each head, for each layer of which only the best head is
      kept, and for growing numbers of heads that are removed together.
    """
    context.check_translates("heads")
    translator = Translator.load(context.workdir)
    text = _lines(context.config, lines, test_set)
    ablation = Ablation(translator, text)
    described = _described(translator, text.dev, _training_lines(context.config))
    heads = [
        {**head._asdict(), **described[head], **ablation.lost([head])}
        for head in ablation.heads
    ]
    pruned = list(_pruned(ablation, [head["loss_lost"] for head in heads]))
    fine = itertools.takewhile(lambda each: not each["distinguishable"], pruned)
    return {
        "dev_lines": len(text.dev),
        "test_lines": len(text.test),
        "bleu": ablation.bleu,
        "loss": ablation.baseline.loss,
        "count": len(heads),
        "needless": sum(not head["distinguishable"] for head in heads),
        "loss_needless": sum(not head["loss_distinguishable"] for head in heads),
        "prunable": max((each["removed"] for each in fine), default=0),
        "heads": heads,
        "layers": list(_one_head_layers(ablation)),
        "pruned": pruned,
    }


def _lines(config: Config, lines: int, test_set: str) -> Lines:
    """The first lines of the dev set and of a test set."""
    data = config.data
    languages = data.source, data.target, data.dir
    sets = {
        "dev": open_corpora(data.dev, *languages),
        "test": open_corpora(test_set or data.test, *languages),
    }
    for name, found in sets.items():
        if not found:
            raise UserError(
                f"config.data.{name} is empty; heads are removed on a dev and a test "
                "set: name both"
            )
    dev, test = (
        list(itertools.islice(found[0].pairs(), lines)) for found in sets.values()
    )
    return Lines(dev, test, data.target)


def _training_lines(config: Config) -> Iterator[Pair]:
    data = config.data
    languages = data.source, data.target, data.dir
    corpora = open_corpora(data.train, *languages, weights=True)
    pairs = itertools.chain.from_iterable(corpus.pairs() for corpus in corpora)
    return itertools.islice(pairs, ALIGNER_LINES)


def _described(
    translator: Translator, pairs: Sequence[Pair], training: Iterable[Pair]
) -> dict[Head, dict[str, Any]]:
    """The `patterns` of each head, those of a kind in dicts, and its own `kind`."""
    vocabulary, members = translator.vocabulary, translator.members
    ids = InputReader(vocabulary, members, warn=False).pairs(pairs)
    maps = list(alignment.attention(vocabulary, members[0], ids))
    pieces = (
        (vocabulary.source.pieces(source), vocabulary.pieces(target))
        for source, target in training
    )
    described = {}
    for attention, sentences in sentences_of(maps, pieces).items():
        found = patterns(sentences)
        for layer, head in np.ndindex(found["entropy"].shape):
            values: dict[str, Any] = {}
            for name, of in found.items():
                key, _, kind = name.partition(".")
                into = values.setdefault(key, {}) if kind else values
                into[kind or key] = float(of[layer, head])
            values["kind"] = kind_of(values["share"], values["relative_entropy"])
            described[Head(attention, layer, head)] = values
    return described


def _one_head_layers(ablation: Ablation) -> Iterator[dict[str, Any]]:
    """Measures each layer with only its best head, by the dev loss."""
    for (attention, layer), group in itertools.groupby(
        ablation.heads, lambda head: head[:2]
    ):
        heads = list(group)
        others = {kept: [h for h in heads if h != kept] for kept in heads}
        best = min(heads, key=lambda kept: ablation.loss(others[kept]))
        kept = {"attention": attention, "layer": layer, "kept": best.head}
        yield {**kept, **ablation.lost(others[best])}


def _pruned(ablation: Ablation, loss_lost: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Removes several heads: first those that cost the least alone.

    Args:
      loss_lost: by the dev loss, for each head.
    """
    order = [ablation.heads[i] for i in np.argsort(loss_lost, kind="stable")]
    for removed in sorted({round(share * len(order)) for share in PRUNED} - {0}):
        yield {"removed": removed, **ablation.lost(order[:removed])}
