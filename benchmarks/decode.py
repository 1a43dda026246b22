"""Compares translation with CTranslate2 (float32, int8) and Hugging Face's generate.

    python -m benchmarks.decode                          # work D
    python -m benchmarks.decode --beam=1 --output=PATH
    python -m benchmarks.decode --workdir=DIR --test=PREFIX --lines=1000

Work D: the paper's base model with 32,000 pieces and random weights, beam 4, 32 sources
of 32 tokens, exactly 64 steps. All contenders have the same weights, and before the
clock starts greedy search must find the same tokens in all of them. The end of a
sentence has a zero embedding, so that no search finds it and stops early.

With a workdir and a test set: text in, text out. All contenders have the workdir's
weights and tokenizer, and batch sentences of similar length in their own default way. A
post-norm model becomes a Marian, a pre-norm one a Pegasus, which is Marian with the
LayerNorms moved. All use the same beam and alpha, but CTranslate2 and Hugging Face rank
by score / length^alpha, ours by the config's penalty, so lengths may differ a little:
compare sentences per second. Each ends a search by its own default rule. On a GPU
CTranslate2 is left out, since here it runs on the CPU only.
"""

import time
from collections.abc import Callable

import jax
import numpy as np
from absl import flags

from benchmarks import measuring, peers, run
from benchmarks.exported import CTranslate2, HuggingFace, Search, Tokens, until_end
from t2t_jax.commands.flags import define_config_flag, test_sets
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.layers import compute_dtype
from t2t_jax.tools.verify.random_models import random_lines, random_translator

PEERS = {
    "ctranslate2": lambda *given: CTranslate2(*given, weights="float32"),
    "ctranslate2-int8": lambda *given: CTranslate2(*given, weights="int8"),
    "huggingface": HuggingFace,
}
AGREE = 0.8  # required share of equal lines; rounding decides between near-equal tokens


def search_flops(
    model: ModelConfig, vocab_size: int, beam: int, lengths: list[tuple[int, int]]
) -> float:
    """FLOPs of the matrix products of a search.

    Each step computes one position of each hypothesis, which attends to the positions
    before it and to the source.

    Args:
      model: sizes.
      vocab_size: pieces.
      beam: hypotheses of each sentence.
      lengths: (tokens of the source, steps) of each sentence.
    """
    d, f = model.width, model.hidden
    inner = (model.head_width or d // model.heads) * model.heads
    total = 0  # multiply-adds
    for source, steps in lengths:
        encoder = source * (4 * d * inner + 2 * d * f) + 2 * inner * source**2
        source_keys_values = 2 * d * inner * source
        # Self-attention has 4 projections, cross-attention 2: query and output.
        step = 6 * d * inner + 2 * d * f + 2 * inner * source
        # Step n attends to n positions.
        self_attention = 2 * inner * steps * (steps + 1) // 2
        decoder = beam * (steps * step + self_attention)
        total += model.layers * (encoder + source_keys_values + decoder)
        total += beam * steps * d * vocab_size
    return 2.0 * total


class Contest:
    """Ours and the peers, with the same weights and sentences."""

    def __init__(
        self, translator: Translator, lines: list[str], search: Search, names: list[str]
    ):
        self.translator, self.lines, self.search = translator, lines, search
        self.peers = {name: PEERS[name](translator, search) for name in names}
        self.made: dict[str, Tokens] = {}

    def ours(self, beam: int) -> Tokens:
        """Translates all lines with our translator."""
        results = self.translator.translate(self.lines, beam=beam, warn=False)
        eos = self.translator.vocabulary.eos
        return [until_end(each.best.tokens, eos) for each in results]

    def theirs(self, name: str, beam: int) -> Tokens:
        """Translates all lines with a peer."""
        peer, vocabulary = self.peers[name], self.translator.vocabulary
        peer.search = self.search._replace(beam=beam)
        tokens = peer(vocabulary.encode(self.lines, end=True))
        vocabulary.decode(tokens)  # from text to text, as ours
        return tokens

    def contenders(self) -> dict[str, Callable[[], float]]:
        """Functions that translate all lines and return sentences per second."""
        makers = {"ours": self.ours}
        for name in self.peers:
            makers[name] = lambda beam, name=name: self.theirs(name, beam)

        def rate(name: str) -> float:
            began = time.perf_counter()
            self.made[name] = makers[name](self.search.beam)
            return len(self.lines) / (time.perf_counter() - began)

        return {name: lambda name=name: rate(name) for name in makers}

    def check(self) -> None:
        """Prints for how many lines each peer's greedy search finds our tokens.

        Our limit on the output's length depends on the line, theirs on the batch, so
        peers' tokens beyond our limit are not compared.
        """
        if not self.peers:
            return
        ours = self.ours(1)
        sources = self.translator.vocabulary.encode(self.lines, end=True)
        limits = [len(source) + self.search.extra for source in sources]
        for name in self.peers:
            results = self.theirs(name, 1)
            theirs = [tokens[:n] for tokens, n in zip(results, limits, strict=True)]
            same = sum(a == b for a, b in zip(ours, theirs, strict=True))
            print(
                f"greedy: {name} finds our tokens for {same:,} of {len(ours):,} lines"
            )
            exact = compute_dtype(self.translator.config.model) == "float32"
            if exact and "int8" not in name and same < AGREE * len(ours):
                raise RuntimeError(f"{name} does not compute the same model")


def contest_d(given, names: list[str]) -> tuple[str, Contest]:
    """Work D, or the same with other sizes."""
    model = from_config_dict(given.config).model
    if not 1 <= given.source <= given.steps - 1:
        raise UserError(
            f"--steps={given.steps} with --source={given.source}; want more steps than "
            "source tokens, as an output may always be longer than its source"
        )
    sizes = given.rows, given.source, given.steps
    translator = random_translator(model, given.vocab, *sizes)
    lines = random_lines(given.rows, given.source, given.vocab)
    beam, alpha = given.beam or 4, translator.config.decode.alpha
    extra = given.steps - given.source
    search = Search(beam, alpha, extra, given.steps, given.rows)
    return f"beam {beam} with base (D)", Contest(translator, lines, search, names)


def contest_text(given, names: list[str]) -> tuple[str, Contest]:
    """The lines of a test set, with a trained model."""
    if not given.test:
        raise UserError("--workdir needs --test=PREFIX, the text to translate")
    translator = Translator.load(given.workdir)
    config = translator.config
    corpus = test_sets(given, config.data)[0]
    lines = [source for source, _ in corpus.pairs() if source.strip()]
    lines = lines[: given.lines or None]
    beam = given.beam or config.decode.beam
    search = Search(
        beam, config.decode.alpha, config.decode.extra_length, None, given.rows
    )
    contest = Contest(translator, lines, search, names)
    return f"{len(lines):,} lines, beam {beam}", contest


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_integer(
        "beam", None, "Beam width, 1 is greedy search; default: 4, or the workdir's."
    )
    flags.DEFINE_integer("vocab", 32_000, "Pieces of the random model.")
    flags.DEFINE_integer("rows", 32, "Sentences in a batch of the peers.")
    flags.DEFINE_integer("source", 32, "Tokens of a source, with its end; D has 32.")
    flags.DEFINE_integer("steps", 64, "Steps of the search; D has 64.")
    flags.DEFINE_string("workdir", None, "Workdir of a trained run, for real text.")
    flags.DEFINE_string("test", None, "PREFIX of the real text.")
    flags.DEFINE_integer("lines", 1000, "Use only the first N lines; 0 means all.")
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; empty: none.")


def main(_):
    given = flags.FLAGS
    measuring.begin(given)
    names = measuring.chosen(given.peers, PEERS, "peers")
    if jax.default_backend() != "cpu":
        names = [name for name in names if not name.startswith("ctranslate2")]
    torch = peers.need("torch")[0] if "huggingface" in names else None
    work, contest = (contest_text if given.workdir else contest_d)(given, names)
    contest.check()
    contenders = contest.contenders()
    for rate in contenders.values():
        rate()  # compiles
    model = contest.translator.config.model
    dtype = compute_dtype(model).name
    medians, peaks = measuring.alternate_with_peak(
        contenders, given.rounds, dtype, torch, given.peak_sizes
    )
    rows = build_rows(work, contest, medians, peaks)
    measuring.publish(rows, given.output, matrix_peak=peaks)


def build_rows(
    work: str, contest: Contest, medians: dict[str, float], peaks: dict[str, float]
) -> list[measuring.Row]:
    """Builds rows in sentences per second, and in tokens of each one's own outputs."""
    vocabulary, search = contest.translator.vocabulary, contest.search
    sources = vocabulary.encode(contest.lines, end=True)
    tokens = {n: sum(map(len, outputs)) for n, outputs in contest.made.items()}
    if search.exactly:
        wrong = {n: c for n, c in tokens.items() if c != len(sources) * search.exactly}
        if wrong:
            raise RuntimeError(f"not {search.exactly} tokens a line: {wrong}")
        ends = [search.exactly] * len(sources)
    else:
        ends = [len(line) + 1 for line in contest.made["ours"]]
    steps = [(len(s), n) for s, n in zip(sources, ends, strict=True)]
    model = contest.translator.config.model
    flops = search_flops(model, len(vocabulary), search.beam, steps)
    share = measuring.share_of_limit(medians["ours"], flops / len(sources), peaks)
    limit = medians["ours"] / share * np.mean(ends)
    print(f"{work}: {flops / 1e9:,.1f} GFLOP, limit {limit:,.0f} tokens/s")
    by_token = {n: rate * tokens[n] / len(sources) for n, rate in medians.items()}
    return [
        *measuring.rows_of(work, "sentences/s", medians, share_of_limit=share),
        *measuring.rows_of(work, "tokens/s", by_token, share_of_limit=share),
    ]


if __name__ == "__main__":
    run(main, define_flags, config="base")
