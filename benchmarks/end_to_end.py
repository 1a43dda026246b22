"""Compares training on an epoch of real text with MarianMT on PyTorch.

    python -m benchmarks.end_to_end --config.data.dir=multi30k
    python -m benchmarks.end_to_end --config=configs/small.py --config.data.train=PREFIX

Reports real tokens per second: tokens of source and target sentences, never padding.
Text, tokenizer, sizes and token budget are the same. Ours runs its feeder, the config's
batches and the step. Hugging Face's MarianMT gets the usual recipe: pairs sorted by
length, as many in a batch as the budget allows when padded to the longest, batches
shuffled, padding masked.
MarianMT is post-norm whatever the config says; that costs the same except for two
LayerNorms. They take turns, one part of the epoch each. Text is tokenized and shapes
are compiled before the clock starts.
"""

import dataclasses
import itertools
import time

import numpy as np
from absl import flags

from benchmarks import measuring, peers, run
from benchmarks.trainer import Trainer
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import Config, from_config_dict
from t2t_jax.costs.step_costs import model_flops, row_flops
from t2t_jax.data.feeding import feed, plan_for
from t2t_jax.data.filling import fill
from t2t_jax.data.pairs import Pairs
from t2t_jax.data.shapes import Shape
from t2t_jax.io.messages import say
from t2t_jax.model.layers import compute_dtype

SIDES = ("source", "target")


def grouped_by_length(
    source_p: np.ndarray, target_p: np.ndarray, batch_tokens: int, seed: int
) -> list[np.ndarray]:
    """Groups pairs of similar length into padded batches, the usual recipe.

    Pairs are sorted by the target's length, then the source's, with ties in random
    order. A batch takes the next pair while rows x longest stays within the budget on
    both sides.

    Returns:
      The pairs' numbers of each batch; the batches in random order.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(source_p))
    order = order[np.lexsort((source_p[order], target_p[order]))]
    batches, batch, longest = [], [], 0
    for pair in order:
        new_longest = max(longest, source_p[pair], target_p[pair])
        if batch and (len(batch) + 1) * new_longest > batch_tokens:
            batches.append(np.array(batch))
            batch, new_longest = [], max(source_p[pair], target_p[pair])
        batch.append(pair)
        longest = new_longest
    batches.append(np.array(batch))
    return [batches[i] for i in random.permutation(len(batches))]


def padded(sentences, pairs: np.ndarray) -> np.ndarray:
    """Pads some sentences into one array, int64 [rows, longest]; padding is 0."""
    rows = [sentences[int(pair)] for pair in pairs]
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, sentence in zip(tokens, rows, strict=True):
        row[: len(sentence)] = sentence
    return tokens


class OurEpoch:
    """Trains ours on parts of an epoch, fed as in real training."""

    def __init__(self, config: Config, pairs: Pairs, vocab_size: int):
        self.config, self.pairs = config, pairs
        self.trainer = Trainer(config, vocab_size)
        self.plan = plan_for(pairs, config.data, config.train.seed, epoch=0)
        batch_of_shape = {int(shape): i for i, shape in enumerate(self.plan.shape_b)}
        self.trainer.rate(
            fill(self.plan[i], pairs.source, pairs.target)
            for i in batch_of_shape.values()
        )
        stream = feed(pairs, config.data, config.train.seed)
        self.stream = (batch for _, batch in stream)

    def part(self, number: int, parts: int) -> float:
        """Trains on one part of `parts`, in order; returns real tokens per second."""
        begin, end = _range(len(self.plan), number, parts)
        return self.trainer.rate(itertools.islice(self.stream, end - begin))

    def flops_of_a_token(self) -> float:
        """Average FLOPs of a real token of the epoch, without the work on padding.

        From a sample of pairs, each counted as a batch of its own; the logits belong to
        the target tokens.
        """
        model = self.trainer.model
        lengths = zip(self.pairs.source.lengths, self.pairs.target.lengths, strict=True)
        row = row_flops(model, self.config)
        # Without a polynomial, each pair is traced.
        size = 1000 if row else 20
        sample = [(int(s), int(t)) for s, t in lengths][
            :: max(1, len(self.pairs) // size)
        ]
        flops = sum(
            sum(value * s**i * t**j for (i, j), value in row.items())
            if row
            else model_flops(model, self.config, Shape(1, s, t))
            for s, t in sample
        )
        return flops / sum(s + t for s, t in sample)


class MarianEpoch:
    """Trains Marian on parts of an epoch."""

    def __init__(self, config: Config, pairs: Pairs, vocab_size: int):
        self.pairs = pairs
        bfloat16 = compute_dtype(config.model) == "bfloat16"
        lengths = pairs.source.lengths, pairs.target.lengths
        longest = max(512, int(max(side.max() for side in lengths)))
        self.trainer = peers.MarianTraining(config, vocab_size, bfloat16, longest)
        budget, seed = config.data.batch_tokens, config.train.seed
        self.batches = grouped_by_length(*lengths, budget, seed)
        self._train(self.batches[:3])

    @property
    def efficiency(self) -> float:
        """Real tokens / computed tokens."""
        lengths = self.pairs.source.lengths, self.pairs.target.lengths
        real = sum(int(side.sum()) for side in lengths)
        computed = sum(
            len(b) * int(side[b].max()) for b in self.batches for side in lengths
        )
        return real / computed

    def part(self, number: int, parts: int) -> float:
        """Trains on one part of `parts`; returns real tokens per second."""
        begin, end = _range(len(self.batches), number, parts)
        return self._train(self.batches[begin:end])

    def _train(self, batches: list[np.ndarray]) -> float:
        began, real = time.perf_counter(), 0
        for batch in batches:
            sides = [padded(getattr(self.pairs, side), batch) for side in SIDES]
            real += sum(np.count_nonzero(side) for side in sides)
            self.trainer.step(*sides, padded=True)
        self.trainer.finish()
        return real / (time.perf_counter() - began)


def _range(count: int, number: int, parts: int) -> tuple[int, int]:
    """Begin and end of one of `parts` equal parts; sizes differ by at most one."""
    return count * number // parts, count * (number + 1) // parts


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=None)
    flags.DEFINE_integer(
        "parts", 10, "Parts of the epoch, trained in turns.", lower_bound=1
    )
    flags.DEFINE_integer(
        "measured_parts",
        0,
        "Measure only the first N parts; 0 means all.",
        lower_bound=0,
    )
    flags.DEFINE_list("peers", list(peers.TRAINING), "Peers; empty: ours alone.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    names = measuring.chosen(args.peers, peers.TRAINING, "peers")
    torch = peers.need("torch", "transformers")[0] if names else None
    config = from_config_dict(args.config)
    data = dataclasses.replace(config.data, feeder="numpy")
    config = dataclasses.replace(config, data=data)
    vocabulary, pairs = measuring.training_text(data)
    ours = OurEpoch(config, pairs, len(vocabulary))
    epochs = {"ours": ours}
    print(
        f"{len(pairs):,} pairs, budget {data.batch_tokens:,} tokens a side; ours "
        f"{len(ours.plan):,} {data.batching} batches, {ours.plan.efficiency:.3f} real"
    )
    if "marianmt" in names:
        epochs["marianmt"] = marian = MarianEpoch(config, pairs, len(vocabulary))
        print(f"marianmt {len(marian.batches):,} batches, {marian.efficiency:.3f} real")
    dtype = compute_dtype(config.model).name
    rates = {name: [] for name in epochs}

    def next_part(name: str):
        """A function that trains the next part and returns its rate."""

        def train() -> float:
            rate = epochs[name].part(len(rates[name]), args.parts)
            rates[name].append(rate)
            say(f"part {len(rates[name])}: {name} {rate:,.0f} real tokens/s")
            return rate

        return train

    medians, peaks = measuring.alternate_with_peak(
        {name: next_part(name) for name in epochs},
        min(args.measured_parts or args.parts, args.parts),
        dtype,
        torch,
        args.peak_sizes,
    )
    share = measuring.share_of_limit(medians["ours"], ours.flops_of_a_token(), peaks)
    name = f"{config_files.config_name(args['config'].config_filename)} epoch"
    rows = measuring.rows_of(name, "real tokens/s", medians, share_of_limit=share)
    measuring.publish(rows, args.output, matrix_peak=peaks)


if __name__ == "__main__":
    run(main, define_flags, config="multi30k")
