"""Makes the old workdirs: `python -m tests.workdirs.make FOLDER`.

The three workdirs beside this file are what version 0.2.0 wrote, before its modules
moved. tests/test_old_workdirs.py holds that every later version opens them, continues
them and computes what stands in expected.json. They are never made again: this file
tells how they were made, and would make others of a later version in another folder.

`translation` is an encoder-decoder Transformer on packed rows of the built-in corpus,
with two checkpoints (and one of its two states: they are large). `language_model` reads
one side of files, and has rotary positions. `lstm` has buckets, two vocabularies, a
moving average, accumulation and the scores of a test set. text/ has their lines. Their
folders of text are relative, so everything runs in the root of the repository.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

from t2t_jax import Translator, load_config, train

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SEEN, MORE = 200, 4  # steps in a stored workdir, and those that a test adds

COMMON = {
    "model": {"layers": 1, "width": 8, "heads": 2, "hidden": 8, "dropout": 0.1},
    "data": {
        **{"dir": "tests/workdirs/text", "train": "train", "dev": "dev", "test": ""},
        **{"vocab_size": 340, "batch_tokens": 1_024, "row_length": 64},
        "feeder": "numpy",
    },
    "train": {
        **{"warmup": 20, "peak_learning_rate": 0.03, "log_every": 4, "dev_lines": 4},
        **{"eval_every": 100, "save_every": 200},
    },
    "decode": {"beam": 2, "average": 2, "extra_length": 4},
}
ONE_SIDED = {"train": "train.de", "dev": ""}
# Workdir -> the preset that it was made of, and the fields it has besides `COMMON`.
MADE = {
    "translation": (
        "tiny",
        {"data": {"train": "grammar:dev"}, "train": {"save_every": 100}},
    ),
    "language_model": (
        "lm_tiny",
        {"data": ONE_SIDED, "model": {"positions": "rotary"}},
    ),
    "lstm": (
        "lstm",
        {
            "model": {"heads": 8, "hidden": 2_048, "tied": "target"},
            "data": {
                **{"batching": "bucketed", "buckets": 2, "test": "test"},
                **{"joint_vocabulary": False, "vocab_size": 330},
            },
            "train": {"ema_decay": 0.9, "accumulate": 2},
        },
    ),
}


def config_of(name: str, steps: int = SEEN):
    """The config of a workdir, with another number of steps."""
    preset, sections = MADE[name]
    fields = {section: dict(values) for section, values in COMMON.items()}
    for section, values in sections.items():
        fields[section].update(values)
    fields["train"]["steps"] = steps
    return load_config(ROOT / f"configs/{preset}.py", **fields)


def lines(name: str) -> list[tuple[str, str]]:
    """The pairs of text that are translated and scored."""
    sides = [
        (HERE / f"text/{name}.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    ]
    return [*zip(*sides, strict=True)]


def answers(name: str, workdir: Path) -> dict:
    """Translations and log-probabilities of the test lines."""
    translator = Translator.load(workdir)
    pairs = lines("test")
    if name == "language_model":
        pairs = [("", target) for _, target in pairs]
        sources = [target[: len(target) // 2] for _, target in pairs]
    else:
        sources = [source for source, _ in pairs]
    found = translator.translate(sources, beam=1)
    beams = translator.translate(sources, beam=2)
    return {
        "steps": [*translator.steps],
        "greedy": [translation.text for translation in found],
        "log_probs": [translation.log_prob for translation in found],
        "beam scores": [translation.score for translation in beams],
        "scores": [score.log_prob for score in translator.score(pairs)],
    }


def logged(workdir: Path) -> list[dict]:
    """The losses and dev scores in the log, by step."""
    entries = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    kept = ("kind", "step", "loss", "gradient_norm", "learning_rate", "tokens")
    return [{k: v for k, v in entry.items() if k in kept} for entry in entries]


def main() -> None:
    folder = Path(sys.argv[1])
    expected = {}
    for name in MADE:
        work, copy = folder / name, folder / f"{name}.continued"
        train(config_of(name), work)
        shutil.rmtree(work / "tensorboard")
        for state in (work / "checkpoints/state").iterdir():
            if state.name != str(SEEN):  # they are large, and one is enough
                shutil.rmtree(state)
        expected[name] = {"before": answers(name, work)}
        shutil.copytree(work, copy)
        train(config_of(name, SEEN + MORE), copy)
        expected[name] |= {"log": logged(copy), "after": answers(name, copy)}
        shutil.rmtree(copy)
    content = json.dumps(expected, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(f"{content}\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    with contextlib.chdir(ROOT):
        main()
