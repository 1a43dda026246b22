"""Scores given translations: `python -m t2t_jax score --workdir=DIR --test=PREFIX`.

Prints LOG_PROB, PIECES and PERPLEXITY of every pair, separated by tabs. With --tokens
it prints a JSON object for every pair, with the log-probability of every token.
"""

import functools
import json
import math
import sys

from absl import flags

from t2t_jax.commands.flags import (
    ENSEMBLE,
    define_test_flag,
    define_weights_flag,
    define_workdir_flags,
    load_translator,
    read_config,
    test_sets,
)
from t2t_jax.decoding.results import Score
from t2t_jax.io.messages import Progress, say
from t2t_jax.io.parts import chunks
from t2t_jax.metrics.likelihoods import perplexity
from t2t_jax.parallel import processes

DISTRIBUTED = True
CHUNK = 4_096  # pairs sorted and scored together


def define_flags():
    define_workdir_flags(ENSEMBLE)
    define_weights_flag()
    define_test_flag()
    flags.DEFINE_boolean(
        "tokens", False, "Print JSON with each token and its log-probability."
    )


def main(_):
    args = flags.FLAGS
    config = read_config(args)
    with processes.fail_together("opening the test sets"):
        corpora = test_sets(args, config)
    translator = load_translator(args)
    ends = translator.vocabulary.eos >= 0  # a label has no end
    for corpus in corpora:
        pairs = pieces = 0
        log_prob = 0.0
        with Progress(f"scoring {corpus.name}", "pairs") as progress:
            # Process 0 reads the pairs and sends them to the others chunk by chunk.
            parts = functools.partial(chunks, corpus.pairs(), CHUNK)
            for chunk in processes.stream_from_first("pairs", parts):
                scores = translator.score(chunk, first_line=pairs + 1)
                if processes.is_first():
                    for number, score in enumerate(scores, pairs + 1):
                        print(_json(number, score) if args.tokens else _row(score))
                    sys.stdout.flush()
                pairs += len(chunk)
                pieces += sum(len(score.pieces) for score in scores)
                log_prob += math.fsum(score.log_prob for score in scores)
                progress.add(len(chunk))
        say(
            f"{corpus.name}: {pairs:,} pairs, {pieces:,} tokens, log_prob "
            f"{log_prob:.2f}, perplexity {perplexity(-log_prob / pieces):.3f} per token"
            + (", ends of sentences included" if ends else "")
        )


def _row(score: Score) -> str:
    return f"{score.log_prob:.6f}\t{len(score.pieces)}\t{score.perplexity:.4f}"


def _json(number: int, score: Score) -> str:
    row = {
        "line": number,
        "log_prob": score.log_prob,
        "pieces": score.pieces,
        "log_probs": score.log_probs,
    }
    return json.dumps(row, ensure_ascii=False)
