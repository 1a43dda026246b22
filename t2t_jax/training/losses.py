"""Training losses: `LOSSES`. What the model's outputs and a batch cost."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.config import Config
from t2t_jax.data.filling import LINK, LINKS_OF_A_WORD, SOURCE_WORD, TokenArrays
from t2t_jax.io.errors import UserError
from t2t_jax.io.locations import split_names
from t2t_jax.model.attention import LayerTrace, alignment_layer
from t2t_jax.model.layers import dropout_rngs
from t2t_jax.model.transformer import teacher_forcing
from t2t_jax.sections import field
from t2t_jax.training.cross_entropy import cross_entropy, projected, real_first, summed

Batch = dict[str, Array]
Sums = tuple[Array, dict[str, tuple[Array, Array]]]


class Loss(NamedTuple):
    """A training loss: a mean over a batch.

    Attributes:
      count: batch -> the number that the mean is over. Of the whole batch, which is
        then split into microbatches.
      sums: (module, batch, rng, config, bos) -> the sum, and by name (sum, count) of
        metrics. The step divides the first by `count`, and reports the means of the
        others; `nll`, -log p of the target, is also reported as perplexity. `rng` is a
        `DropoutRng`.
      arrays: arrays of the batch that only this loss needs: by name, the side whose
        tokens they have an entry for, and the shape of an entry.
      further: (config, pairs, corpora, vocabulary) -> the `TokenArrays` of a training
        text that has these arrays; or the address of that function in the package, so
        that a training step does not import what prepares text.
      check: (config, model) -> None; raises UserError before any text is prepared if
        the loss does not go with the model or another field.
      Options: a dataclass of hyperparameters, `config.train.options`.
      frozen: config -> the workdirs of models that this loss reads and does not train,
        at least one. `sums` then gets their modules as one more argument, a list.
        Raises UserError if the config names none. None: it reads no such models.
    """

    count: Callable[[Batch], Array]
    sums: Callable[..., Sums]
    arrays: Mapping[str, tuple[str, tuple[int, ...]]] = MappingProxyType({})
    Options: type | None = None
    frozen: Callable[[Config], Sequence[str]] | None = None
    further: Callable[..., TokenArrays] | str | None = None
    check: Callable[[Config, Any], None] | None = None

    def sums_of(self, module, frozen, batch: Batch, rng, config: Config, bos) -> Sums:
        """Calls `sums`, with the modules of frozen models if the loss reads any."""
        if self.frozen is None:
            return self.sums(module, batch, rng, config, bos)
        if not frozen:
            raise ValueError("this loss reads frozen models, and none is given")
        return self.sums(module, batch, rng, config, bos, frozen)


def real_tokens(batch: Batch) -> Array:
    """The number of target tokens, without padding."""
    return jnp.sum(batch["target_segment"] > 0)


def loss_sums(module, batch: Batch, smoothing: float, bos: int, rng=None, **trace):
    """Sums over the real target tokens: (smoothed loss, -log p, number of tokens)."""
    x_btd = module.outputs(teacher_forcing(batch, bos), rng, **trace)
    table_vd, bias_v = module.output_layer()
    (x_btd,), target_bt, real_bt, sparse = _predicted(module, [x_btd], batch)
    sums = projected(x_btd, table_vd, target_bt, real_bt, smoothing, bias_v, sparse)
    return *sums, real_tokens(batch)


def _predicted(module, outputs: Sequence[Array], batch: Batch):
    """The arrays by which tokens are predicted, as `summed` and `projected` take them.

    Args:
      outputs: of several passes or models, [b, t, d].

    Returns:
      The outputs, the targets, which of them are real, and whether most are not: a
      masked language model predicts few of the tokens that it reads. In this case the
      real ones are the first of each row.
    """
    target_bt, real_bt = batch["target"], batch["target_segment"] > 0
    if module.predicts != "source":
        return outputs, target_bt, real_bt, False
    # Real tokens keep their order, so the order is the same for all outputs.
    moved = [real_first(x_btd, target_bt, real_bt) for x_btd in outputs]
    return [x_btd for x_btd, _, _ in moved], *moved[0][1:], True


# ------------------------------------------------------------------------- the entries


def cross_entropy_sums(module, batch, rng, config: Config, bos: int) -> Sums:
    """Label-smoothed cross-entropy (section 5.4)."""
    loss, nll, tokens = loss_sums(module, batch, config.train.label_smoothing, bos, rng)
    return loss, {"nll": (nll, tokens)}


@dataclasses.dataclass(frozen=True)
class RDrop:
    """Options of `r_drop`."""

    # alpha: the weight of the divergence; the model needs dropout, or it is 0.
    r_drop_alpha: float = field(5.0, low=0)


def r_drop_sums(module, batch, rng, config: Config, bos: int) -> Sums:
    """R-Drop (Liang et al. 2021, equation 4): two passes that have to agree.

    They differ in dropout. With cross-entropies L1, L2 and distributions p, q, a token
    costs

        (L1 + L2) / 2 + alpha / 4 (KL(p|q) + KL(q|p)),

    half of the paper's, so that the loss is on the scale of one cross-entropy, and
    alpha has the paper's meaning.

    Returns:
      The sum, and the metrics `nll`, the mean of the two passes, and `kl`, that of the
      two divergences, per token in nats.
    """
    alpha = config.train.own_options(LOSSES["r_drop"]).r_drop_alpha
    smoothing = config.train.label_smoothing
    forced = teacher_forcing(batch, bos)
    # One pass of a doubled batch is not faster on a CPU.
    outputs = [module.outputs(forced, pass_rng) for pass_rng in dropout_rngs(rng, 2)]

    def token_losses(first_btv, second_btv, target_bt):
        first_loss, first_nll = cross_entropy(first_btv, target_bt, smoothing)
        second_loss, second_nll = cross_entropy(second_btv, target_bt, smoothing)
        log_p, log_q = map(jax.nn.log_softmax, (first_btv, second_btv))
        # KL(p|q) + KL(q|p) = sum of (p - q) (log p - log q)
        both_btv = (jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q)
        kl_bt = both_btv.sum(-1) / 2
        loss_bt = (first_loss + second_loss) / 2 + alpha / 2 * kl_bt
        return loss_bt, (first_nll + second_nll) / 2, kl_bt

    outputs, target_bt, real_bt, sparse = _predicted(module, outputs, batch)
    layer = module.output_layer()
    loss, nll, kl = summed(
        token_losses, outputs, *layer, real_bt, target_bt, sparse=sparse
    )
    tokens = real_tokens(batch)
    return loss, {"nll": (nll, tokens), "kl": (kl, tokens)}


@dataclasses.dataclass(frozen=True)
class Distillation:
    """Options of `distillation`."""

    # The workdir of the teacher. Several, separated by commas, teach the mean of their
    # probabilities. A workdir may move while the run is stopped; its parameters may not
    # change.
    teacher: str = field("", safe=True)
    # alpha: the weight of the teacher's cross-entropy; the label-smoothed loss of the
    # text has 1 - alpha.
    teacher_weight: float = field(0.5, low=0, high=1)
    # T: logits of both are divided by it; more than 1 shows more of what the teacher
    # thinks of unlikely tokens.
    teacher_temperature: float = field(1.0, above=0)


def teachers(config: Config) -> list[str]:
    """The workdirs of the teachers of `distillation`; raises UserError without one."""
    teacher = config.train.own_options(LOSSES["distillation"]).teacher
    names = split_names(teacher)
    if not names:
        raise UserError(
            f"config.train.loss='distillation' needs a teacher, but config.train."
            f"options.teacher={teacher!r}; name the workdir of a trained model, or "
            "several, separated by commas"
        )
    return names


def distillation_sums(
    module, batch, rng, config: Config, bos: int, frozen: Sequence[Any]
) -> Sums:
    """Word-level knowledge distillation (Kim and Rush 2016, section 3.1).

    With the label-smoothed cross-entropy L of the text, the teachers' mean distribution
    q and the model's p, both at temperature T (Hinton et al. 2015, section 2), a token
    costs

        (1 - alpha) L + alpha T^2 (-sum q log p).

    T^2 keeps the size of the second gradient, which shrinks as 1 / T^2. The teachers
    read the same batch, without dropout.

    Returns:
      The sum, and the metrics `nll` and `kl`, KL(q|p) at temperature T, per token in
      nats.
    """
    options = config.train.own_options(LOSSES["distillation"])
    alpha, temperature = options.teacher_weight, options.teacher_temperature
    forced = teacher_forcing(batch, bos)
    x_btd = module.outputs(forced, rng)
    teacher_outputs = [teacher.outputs(forced) for teacher in frozen]

    def token_losses(logits_btv, *others):
        *taught, target_bt = others
        loss_bt, nll_bt = cross_entropy(
            logits_btv, target_bt, config.train.label_smoothing
        )
        log_p = jax.nn.log_softmax(logits_btv / temperature)
        logs = [jax.nn.log_softmax(taught_btv / temperature) for taught_btv in taught]
        log_q = reduce(jnp.logaddexp, logs) - math.log(len(logs))
        q = jnp.exp(log_q)
        kl_bt = (q * (log_q - log_p)).sum(-1)
        entropy_bt = -(q * log_q).sum(-1)  # of the teacher: has no gradient
        taught_bt = temperature**2 * (kl_bt + entropy_bt)
        return (1 - alpha) * loss_bt + alpha * taught_bt, nll_bt, kl_bt

    outputs, target_bt, real_bt, sparse = _predicted(
        module, [x_btd, *teacher_outputs], batch
    )
    layers = [teacher.output_layer() for teacher in frozen]
    loss, nll, kl = summed(
        token_losses,
        outputs[:1],
        *module.output_layer(),
        real_bt,
        target_bt,
        frozen=[(x, *layer) for x, layer in zip(outputs[1:], layers, strict=True)],
        sparse=sparse,
    )
    tokens = real_tokens(batch)
    return loss, {"nll": (nll, tokens), "kl": (kl, tokens)}


@dataclasses.dataclass(frozen=True)
class Guided:
    """Options of `guided`."""

    # lambda: the weight of the alignment's part of the loss.
    guided_weight: float = field(0.05, low=0)
    # Files of links in Pharaoh format, in `data.dir`, one for each corpus of
    # `data.train`, separated by commas; empty: links are learned from that text.
    links: str = field("", safe=True)


def check_guided(config: Config, model: Any) -> None:
    """Raises UserError unless the model has the head, and text keeps its words."""
    side, data = config.model.side("decoder"), config.data
    varies = data.augment or data.subword_dropout or "spans:" in data.train
    if varies or not (model.cross_layers and side.reads("heads")):
        raise UserError(
            "config.train.loss='guided' teaches the links of words to a head: want "
            f"config.model.kind='transformer' (got {side.kind!r}), and words that stay "
            "the same: no config.data.augment, subword_dropout and corpora of spans"
        )


def guided_sums(module, batch, rng, config: Config, bos: int) -> Sums:
    """Cross-entropy, and alignment of words by a head (Garg et al. 2019, equation 5).

    With the label-smoothed cross-entropy L and the weights a of the first head of
    `alignment_layer`, a token costs

        L - lambda log (sum of a on the tokens of the linked source words),

    and one without links costs L. The weights are those by which the token is
    predicted: it is not read yet, unlike in section 4.3.

    Returns:
      The sum, and the metrics `nll`, and `alignment`: that logarithm, negative, per
      linked token.
    """
    layer = alignment_layer(module.cross_layers)
    trace = LayerTrace(None, None, [], layer=layer, heads=1)
    smoothing = config.train.label_smoothing
    loss, nll, tokens = loss_sums(module, batch, smoothing, bos, rng, trace=trace)
    (weights_b1ts,) = trace.cross
    link_btk = jnp.where(batch[LINK] > 0, batch[LINK], -1)
    word_bs = batch[SOURCE_WORD]
    linked_bts = (link_btk[..., None] == word_bs[:, None, None]).any(2)
    # Words are numbered in each sentence; weights on other sentences of a row are 0.
    sum_bt = jnp.sum(weights_b1ts[:, 0], axis=-1, where=linked_bts)
    real_bt = link_btk[:, :, 0] > 0
    alignment = jnp.sum(-jnp.log(sum_bt + LEAST_WEIGHT), where=real_bt)
    weight = config.train.own_options(LOSSES["guided"]).guided_weight
    reported = {"nll": (nll, tokens), "alignment": (alignment, jnp.sum(real_bt))}
    return loss + weight * alignment, reported


LEAST_WEIGHT = 1e-9  # bounds the logarithm of a weight that float32 rounds to 0

# A loss is a function of a model and a batch, and a line here.
LOSSES = {
    "cross_entropy": Loss(real_tokens, cross_entropy_sums),
    "r_drop": Loss(real_tokens, r_drop_sums, Options=RDrop),
    "distillation": Loss(
        real_tokens, distillation_sums, Options=Distillation, frozen=teachers
    ),
    "guided": Loss(
        real_tokens,
        guided_sums,
        arrays={SOURCE_WORD: ("source", ()), LINK: ("target", (LINKS_OF_A_WORD,))},
        Options=Guided,
        further="extensions.data.links.guided_arrays",
        check=check_guided,
    ),
}
