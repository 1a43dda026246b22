"""Compares translation with CTranslate2 (float32, int8) and Hugging Face's generate.

    python -m benchmarks.decode                          # work D
    python -m benchmarks.decode --models=128x4+4,256x6+2,128x4+4:rotary --beam=5
    python -m benchmarks.decode --workdir=DIR,DIR --test=PREFIX --lines=1000

Work D: the paper's base model with 32,000 pieces and random weights, beam 4, 32 sources
of 32 tokens, exactly 64 steps. All contenders have the same weights, and before the
clock starts greedy search must find the same tokens in all of them. The end of a
sentence has a zero embedding, so that no search finds it and stops early. `--models`
takes other sizes: the width, encoder and decoder layers, and the position scheme; with
--rows=1, a single line. --config.decode.batch_tokens sets how many positions ours
searches together.

With workdirs and a test set: text in, text out, and a table of quality and size beside
the speed, such as of a teacher and its students; "times the first model" compares
speeds in one program. A post-norm model becomes a Marian, a pre-norm one a Pegasus,
which is Marian with the LayerNorms moved. All search alike: the same beam, the penalty
length^alpha, until no better result is possible. All batch sentences of similar length;
CTranslate2 divides the cores as is faster for it.
"""

import dataclasses
import re
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from absl import flags

from benchmarks import measuring, peers, run
from benchmarks.peers import (
    CTranslate2,
    HuggingFace,
    OursInt8,
    Search,
    Tokens,
    until_end,
)
from benchmarks.random_translator import random_lines, random_translator
from t2t_jax.commands import config_files
from t2t_jax.commands.flags import define_config_flag
from t2t_jax.config import ModelConfig, from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.metrics.plain import corpus_scores
from t2t_jax.model.layers import compute_dtype

PEERS = {
    "ctranslate2": partial(CTranslate2, weights="float32"),
    "ctranslate2-int8": partial(CTranslate2, weights="int8"),
    "ours-int8": OursInt8,
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
        total += (model.encoder_layers or model.layers) * encoder
        total += (model.decoder_layers or model.layers) * (source_keys_values + decoder)
        total += beam * steps * d * vocab_size
    return 2.0 * total


class Contest:
    """Ours and the peers, with the same weights and sentences."""

    def __init__(
        self, translator: Translator, lines: list[str], search: Search, names: list[str]
    ):
        self.translator, self.lines, self.search = translator, lines, search
        self.sources = translator.vocabulary.source.encode(lines, end=True)
        self.peers = {}
        for name in names:
            try:
                peer = PEERS[name](translator, search)
                if isinstance(peer, CTranslate2):
                    peer.choose_threads(self.sources)
            except (RuntimeError, ValueError) as e:  # such as a CUDA that it lacks
                say(f"warning: {name} cannot start here and is left out: {e}")
            else:
                self.peers[name] = peer
        self.made: dict[str, Tokens] = {}
        self.texts: dict[str, list[str]] = {}

    def ours(self, beam: int) -> tuple[Tokens, list[str]]:
        """Translates all lines with our translator."""
        results = self.translator.translate(self.lines, beam=beam, warn=False)
        eos = self.translator.vocabulary.eos
        tokens = [until_end(result.best.tokens, eos) for result in results]
        return tokens, [result.text for result in results]

    def theirs(self, name: str, beam: int) -> tuple[Tokens, list[str]]:
        """Translates all lines with a peer, from text to text."""
        peer, vocabulary = self.peers[name], self.translator.vocabulary
        peer.search = self.search._replace(beam=beam)
        tokens = peer(vocabulary.source.encode(self.lines, end=True))
        return tokens, vocabulary.decode(tokens)

    def contenders(self) -> dict[str, Callable[[], float]]:
        """Functions that translate all lines and return sentences per second."""
        makers = {"ours": self.ours}
        for name in self.peers:
            makers[name] = partial(self.theirs, name)

        def rate(name: str) -> float:
            began = time.perf_counter()
            self.made[name], self.texts[name] = makers[name](self.search.beam)
            return len(self.lines) / (time.perf_counter() - began)

        return {name: partial(rate, name) for name in makers}

    def check(self) -> None:
        """Prints for how many lines each peer's greedy search finds our tokens.

        Our limit on the output's length depends on the line, theirs on the batch, so
        peers' tokens beyond our limit are not compared.
        """
        if not self.peers:
            return
        our_tokens, _ = self.ours(1)
        limits = [len(source) + self.search.extra for source in self.sources]
        for name in self.peers:
            results, _ = self.theirs(name, 1)
            peer_tokens = [
                tokens[:n] for tokens, n in zip(results, limits, strict=True)
            ]
            alike = sum(a == b for a, b in zip(our_tokens, peer_tokens, strict=True))
            print(
                f"greedy: {name} finds our tokens for {alike:,} of "
                f"{len(our_tokens):,} lines"
            )
            exact = compute_dtype(self.translator.config.model) == "float32"
            if exact and "int8" not in name and alike < AGREE * len(our_tokens):
                raise RuntimeError(f"{name} does not compute the same model")

    def megabytes(self, name: str) -> float:
        """Megabytes of the weights of ours, or of a peer's model."""
        if name == "ours":
            return self.translator.model.count() * 4 / 1e6
        return self.peers[name].megabytes

    def rows(
        self, work: str, medians: dict[str, float], peaks: dict[str, float]
    ) -> list[measuring.Row]:
        """Rows in sentences per second, and in tokens of each one's own outputs."""
        vocabulary, search = self.translator.vocabulary, self.search
        count = len(self.lines)
        tokens = {name: sum(map(len, outputs)) for name, outputs in self.made.items()}
        if search.exactly:
            wrong = {n: c for n, c in tokens.items() if c != count * search.exactly}
            if wrong:
                raise RuntimeError(f"not {search.exactly} tokens a line: {wrong}")
            ends = [search.exactly] * count
        else:
            ends = [len(line) + 1 for line in self.made["ours"]]
        steps = [(len(s), n) for s, n in zip(self.sources, ends, strict=True)]
        model = self.translator.config.model
        flops = search_flops(model, len(vocabulary), search.beam, steps)
        share = measuring.share_of_limit(medians["ours"], flops / count, peaks)
        limit = medians["ours"] / share * np.mean(ends)
        print(f"{work}: {flops / 1e9:,.1f} GFLOP, limit {limit:,.0f} tokens/s")
        by_token = {n: rate * tokens[n] / count for n, rate in medians.items()}
        return [
            *measuring.rows_of(work, "sentences/s", medians, share_of_limit=share),
            *measuring.rows_of(work, "tokens/s", by_token, share_of_limit=share),
        ]


def sized(model: ModelConfig, sizes: str) -> ModelConfig:
    """The model with sizes such as 128x4+4, or 128x4+4:rotary."""
    match = re.fullmatch(r"(\d+)x(\d+)\+(\d+)(?::(\w+))?", sizes)
    if not match:
        raise UserError(
            f"--models={sizes!r}; want the width, encoder and decoder layers, and if "
            "you like a position scheme: 128x4+4 or 128x4+4:rotary"
        )
    width, encoder, decoder = map(int, match.groups()[:3])
    return dataclasses.replace(
        model,
        width=width,
        heads=max(1, width // (32 if width < 512 else 64)),
        hidden=width * (2 if width < 256 else 4),
        encoder_layers=encoder,
        decoder_layers=decoder,
        positions=match[4] or model.positions,
    )


def work_d(model: ModelConfig, batch_tokens: int, args, names: list[str]) -> Contest:
    """Work D, or the same with other sizes; `batch_tokens` is our search's."""
    if not 1 <= args.source <= args.steps - 1:
        raise UserError(
            f"--steps={args.steps} with --source={args.source}; want more steps than "
            "source tokens, as an output may always be longer than its source"
        )
    sizes = args.rows, args.source, args.steps
    translator = random_translator(model, args.vocab, *sizes, batch_tokens)
    lines = random_lines(args.rows, args.source, args.vocab)
    beam, alpha = args.beam or 4, translator.config.decode.alpha
    extra = args.steps - args.source
    search = Search(beam, alpha, extra, args.steps, args.rows)
    return Contest(translator, lines, search, names)


def work_text(workdir: str, pairs, args, names: list[str]) -> Contest:
    """The lines of a test set, with a trained model."""
    translator = Translator.load(workdir)
    decode = translator.config.decode
    beam, alpha = args.beam or decode.beam, decode.alpha
    translator = translator.with_options(
        beam=beam, alpha=alpha, penalty="length", stop="best"
    )
    search = Search(beam, alpha, decode.extra_length, None, args.rows)
    return Contest(translator, [source for source, _ in pairs], search, names)


def quality(
    contests: dict[str, Contest], rates: dict, references: list[str], language: str
) -> list[dict]:
    """Rows of quality, size and speed, of each model in each program."""
    rows = []
    first_model = next(iter(contests))
    for name, contest in contests.items():
        for program, texts in contest.texts.items():
            scores = corpus_scores(texts, references, language)
            rate = rates[name, program]
            rows.append(
                {
                    "model": name,
                    "program": measuring.NAMES.get(program, "t2t_jax"),
                    "MB": contest.megabytes(program),
                    "BLEU": scores["bleu"],
                    "chrF": scores["chrf"],
                    "sentences/s": rate,
                    "times the first model": rate / rates[first_model, program],
                }
            )
    return rows


def define_flags():
    define_config_flag()
    measuring.define_flags(rounds=3)
    flags.DEFINE_integer(
        "beam", None, "Beam width, 1 is greedy search; default: 4, or the workdir's."
    )
    flags.DEFINE_list("models", [], "Sizes of random models, such as 128x4+4:rotary.")
    flags.DEFINE_integer("vocab", 32_000, "Pieces of the random model.")
    flags.DEFINE_integer("rows", 32, "Sentences in a batch of the peers.")
    flags.DEFINE_integer("source", 32, "Tokens of a source, with its end; D has 32.")
    flags.DEFINE_integer("steps", 64, "Steps of the search; D has 64.")
    flags.DEFINE_list("workdir", [], "Workdirs of trained runs, for real text.")
    flags.DEFINE_string("test", None, "PREFIX of the real text.")
    flags.DEFINE_integer("lines", 1000, "Use only the first N lines; 0 means all.")
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; empty: none.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    names = measuring.chosen(args.peers, PEERS, "peers")
    torch = peers.need("torch")[0] if "huggingface" in names else None
    if args.workdir:
        if not args.test:
            raise UserError("--workdir needs --test=PREFIX, the text to translate")
        config = Translator.load(args.workdir[0]).config
        corpus, pairs = measuring.test_pairs(args, config)
        pairs = [pair for pair in pairs if pair[0].strip()]
        contests = {w: work_text(w, pairs, args, names) for w in args.workdir}
        works = {w: f"{w}, beam {c.search.beam}" for w, c in contests.items()}
        print(f"{len(pairs):,} lines of {corpus.spec}")
    else:
        config = from_config_dict(args.config)
        base, batch_tokens = config.model, config.decode.batch_tokens
        name = config_files.config_name(args["config"].config_filename)
        models = {s: sized(base, s) for s in args.models} or {f"{name} (D)": base}
        contests = {
            name: work_d(m, batch_tokens, args, names) for name, m in models.items()
        }
        works = {name: f"{name}, beam {c.search.beam}" for name, c in contests.items()}
    contenders = {}
    for name, contest in contests.items():
        contest.check()
        for program, rate in contest.contenders().items():
            rate()  # compiles
            contenders[name, program] = rate
    model = next(iter(contests.values())).translator.config.model
    rates, peaks = measuring.alternate_with_peak(
        contenders, args.rounds, compute_dtype(model).name, torch, args.peak_sizes
    )
    rows, conditions = [], {"matrix_peak": peaks}
    for name, contest in contests.items():
        medians = {program: r for (n, program), r in rates.items() if n == name}
        rows += contest.rows(works[name], medians, peaks)
    if args.workdir:
        references = [target for _, target in pairs]
        conditions["quality"] = quality(contests, rates, references, corpus.target)
        print("\n".join(["", *measuring.markdown(conditions["quality"]), ""]))
    measuring.publish(rows, args.output, **conditions)


if __name__ == "__main__":
    run(main, define_flags, config="base")
