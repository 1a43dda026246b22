"""Writes logs of made-up runs, as training writes them."""

import json
import math


def train(step, loss, norm=1.0, **fields):
    """A line of kind `train`, as for intervals of 10 steps."""
    return {
        "step": step,
        "kind": "train",
        "loss": loss,
        "perplexity": loss and math.exp(loss),
        "learning_rate": min(step, 100) / 1e5,
        "gradient_norm": norm,
        "skipped": 0.0,
        "skipped_in_a_row": 0.0,
        "tokens": 4000.0,
        "flops": 1e9,
        "tokens_per_second": 2000.0,
        "seconds": 36.0,
        "seconds_per_step": 3.6,
        **fields,
    }


def dev(step, loss, bleu):
    """A line of kind `dev`."""
    scores = {"bleu": bleu, "chrf": bleu + 20}
    return {"step": step, "kind": "dev", "loss": loss, **scores}


def write_run(folder, lines, starts=(0,), tail="", log_every=10):
    """Writes a workdir as far as plots read it; returns it as text."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + tail)
    started = "".join(
        json.dumps({"step": step, "machine": {}}) + "\n" for step in starts
    )
    (folder / "starts.jsonl").write_text(started)
    config = {"train": {"log_every": log_every}}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def eventful_run(folder):
    """A run that was continued after step 30, diverged at 60 and went back to 40."""
    lines = [train(10, 6.0, 9.0), train(20, 5.0, 2.0), dev(20, 5.1, 1.0)]
    lines += [train(30, 4.5), train(40, 4.0), dev(40, 4.2, 7.5), train(50, 3.8)]
    lines += [{"step": 57, "kind": "alarm", "gradient_norm": 80.0, "loss": 9.0}]
    lines += [{"step": 58, "kind": "alarm", "gradient_norm": None, "loss": None}]
    lines += [train(60, None, 80.0, skipped=1.0), dev(60, 8.8, 0.1)]
    lines += [{"step": 40, "kind": "rollback", "why": "the loss rose", "data": []}]
    lines += [train(50, 3.7), train(60, 3.5), dev(60, 3.6, 12.0), train(70, 3.4)]
    return write_run(folder, lines, starts=[0, 30])
