"""Runs that differ in everything at once: any two values of two factors meet in one.

Tests hold much fixed: a small run of theirs has one device, no dropout, steps that are
multiples of `save_every`, ASCII text and the first seed. FACTORS lists what they hold
fixed, and a covering array of strength 2 combines it in few rows. For each row:

    laws        those of tests/model/laws.py, of its model
    kills       its run, disturbed at random moments and continued, against one that
                was not, to the bit
    end_to_end  what its run translates, scores and explains

    python -m tests.covering [--seed=0] [--rows=1-9] [--only=laws|kills|end_to_end]

A row takes about half a minute on one core. The end prints each failure again with the
command that repeats it.
"""

import argparse
import contextlib
import dataclasses
import functools
import gzip
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import jaxlib

os.environ["JAX_PLATFORMS"] = "cpu"
# As in conftest.py: programs are compiled in half the time.
if jaxlib.version.__version_info__ < (0, 12):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import jax
import numpy as np

from t2t_jax import Translator, load_config, train
from t2t_jax.commands import launch, runner
from t2t_jax.config import Config, from_config_dict
from t2t_jax.data.corpus import open_specs
from t2t_jax.evaluation.scores import score_set
from t2t_jax.io.errors import UserError
from t2t_jax.model import attention
from t2t_jax.model.attention import ATTENTION
from t2t_jax.model.feed_forward import FEED_FORWARD
from t2t_jax.model.model import MODELS
from t2t_jax.model.positions import POSITIONS
from t2t_jax.parallel import rendezvous
from t2t_jax.run.differences import workdir_differences
from t2t_jax.search.algorithm import never_generated
from t2t_jax.tasks.table import task_of
from t2t_jax.tools.bridges.checks import agreement
from t2t_jax.tools.explain.explain import explain
from t2t_jax.tools.verify.child_runs import TIME_LIMIT, free_port
from t2t_jax.training.optimizers import OPTIMIZERS
from tests import small_run
from tests.compiler import FAST
from tests.faults.killing import MOMENTS, kill
from tests.model import cases, laws
from tests.model.subject import Excused, Subject
from tests.test_nasty_lines import NASTY


def values_of(field: str, values: Iterable) -> dict[str, dict]:
    return {str(value): {field: value} for value in values}


def rhythm(steps: int, save: int, evaluate: int, log: int) -> dict:
    return {"train.steps": steps, "train.save_every": save} | {
        "train.eval_every": evaluate,
        "train.log_every": log,
    }


WORDS = {  # of the source and the target, and what is between them
    "en-de": (
        ["cat", "dog", "sees", "the", "big"],
        ["Katze", "Hund", "sieht", "die", "große"],
        " ",
    ),
    "zho_Hans-ja": ([*"我你他书人看"], [*"私君彼本人見"], ""),
    "ar-vi": (  # from right to left; with accents apart from their letters
        ["كلب", "قطة", "يرى", "رجل", "كبير"],
        ["chó", "mèo", "thấy", "người", "lớn"],
        " ",
    ),
    "fr_CA-eng_Latn": (["l’ami", "10\xa0000", "«\u202foui\u202f»", "où", "d’été"],)
    + (["friend", "10,000", "“yes”", "where", "summer"], " "),
}
# Factor -> value -> what it changes: fields of the config, and of `run` below.
FACTORS: dict[str, dict[str, dict]] = {
    "model": values_of("model.kind", [k for k in MODELS if k not in cases.HALVES]),
    "sizes": {
        "1 layer": {"model.layers": 1, "model.width": 32, "model.heads": 2},
        "1 head": {"model.layers": 2, "model.width": 12, "model.heads": 1},
        "of each side": {
            **{"model.encoder_layers": 3, "model.decoder_layers": 1, "model.width": 24},
            **{"model.heads": 4, "model.decoder_heads": 2, "model.head_width": 6},
            **{"model.value_width": 10, "model.decoder_hidden": 16},
        },
    },
    "positions": values_of("model.positions", POSITIONS),
    "attention": values_of("model.attention", ATTENTION),
    "feed_forward": values_of("model.feed_forward", FEED_FORWARD),
    "norm": {
        "post": {},
        "pre": {"model.norm": "pre", "model.norm_kind": "rms"},
        "post_final": {"model.norm": "post_final", "model.embedding_scale": False},
    },
    "biases": {
        "none": {},
        "all": {"model.attention_bias": True, "model.output_bias": True},
    },
    "tied": values_of("model.tied", ["all", "target", "none"]),
    "vocabularies": values_of("data.joint_vocabulary", [True, False]),
    "dropout": {
        "0": {"model.dropout": 0.0},
        "0.1": {"model.dropout": 0.1},
        "everywhere": {
            **{"model.dropout": 0.3, "model.attention_dropout": 0.1},
            "model.activation_dropout": 0.1,
        },
    },
    "numbers": {
        "float32": {"model.dtype": "float32"},
        "bfloat16": {"model.dtype": "bfloat16"},
        "products": {"model.dtype": "float32", "model.products": "bfloat16"},
    },
    "remat": values_of("model.remat", ["none", "dots", "full"]),
    "devices": {
        "1": {},
        "3": {"run.devices": 3},
        "2x2x2": {"run.devices": 8, "mesh.fsdp": 2, "mesh.tensor": 2},
        "2 processes": {"run.processes": 2, "mesh.fsdp": 2},
    },
    "text": values_of("run.text", WORDS),
    "traps": values_of("run.traps", [False, True]),  # the lines of test_nasty_lines.py
    "corpora": {
        "one": {"data.train": "train"},
        "two": {"data.train": "train@0.5,more@2", "data.deduplicate": False},
        "zipped": {"data.train": "zip,more", "data.temperature": 2.0},
    },
    "noise": {
        "none": {},
        "subwords": {"data.subword_dropout": 0.1},
        "text": {"data.augment": "typos@0.3,case"},
    },
    "batches": {
        "packed": {"data.row_length": 64},
        "packed in rows of the longest": {"data.row_length": 8},
        "bucketed": {"data.batching": "bucketed", "data.buckets": 3},
        "one shape": {"data.batching": "bucketed", "data.buckets": 1},
    },
    "accumulate": values_of("train.accumulate", [1, 3]),
    "feeder": values_of("data.feeder", ["numpy", "tfdata"]),
    "dev": {
        "none": {"data.dev": ""},
        "one": {"data.dev": "dev"},
        "two, by loss": {"data.dev": "dev,more", "train.dev_lines": 0},
    },
    "test": values_of("data.test", ["test", "test,more", ""]),
    "rhythm": {
        "divides": rhythm(12, 4, 6, 3),
        "does not divide": rhythm(11, 4, 5, 3),
        "never": rhythm(7, 100, 100, 100),
        "every step": rhythm(5, 1, 1, 1),
    },
    "loss": {
        "smoothed": {},
        "plain": {"train.label_smoothing": 0.0},
        "r_drop": {"train.loss": "r_drop"},
        "guided": {"train.loss": "guided"},
    },
    "optimizer": values_of("train.optimizer", OPTIMIZERS),
    "updates": {
        "plain": {},
        "decayed": {"train.weight_decay": 0.1, "train.layer_decay": 0.5},
        "clipped": {"train.clip_norm": 0.1, "train.freeze": "embedding"},
    },
    "schedule": values_of("train.schedule", ["paper", "cosine", "warmup_stable_decay"]),
    "ema": values_of("train.ema_decay", [0.0, 0.9]),
    "seed": values_of("train.seed", [0, 1, 2**32 - 1]),
    "parameters": {
        "average of 3": {"decode.average": 3},
        "last": {"decode.average": 1, "train.keep_best": 2},
        "best": {"decode.checkpoint": "best"},
    },
    "patience": values_of("train.patience", [0, 1]),
    "search": {
        "beam 4": {"decode.beam": 4},
        "greedy": {"decode.beam": 1},
        "groups, first, by length": {
            **{"decode.beam": 4, "decode.groups": 2, "decode.stop": "first"},
            **{"decode.penalty": "length", "decode.alpha": 1.0},
        },
        "mbr, few repetitions": {
            **{"decode.choose": "mbr", "decode.beam": 2},
            **{"decode.no_repeat_ngram": 3, "decode.repetition_penalty": 1.1},
        },
    },
    "place": values_of("run.place", ["w", "a b", "x,y", "ü 中"]),
    "environment": {
        "usual": {},
        "without HOME": {"run.environment": {"HOME": ""}},
        "C": {"run.environment": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}},
        "elsewhere": {"run.environment": {"TZ": "Asia/Kathmandu", "COLUMNS": "20"}},
    },
    "end": values_of("run.end", ["killed", "stopped", "fewer steps", "minutes"]),
}
PACKING, SCORED = {"packed", "packed in rows of the longest"}, {"one"}
# Values that do not go together: what has to be refused is tested elsewhere.
EXCLUDED: list[dict[str, set[str]]] = [
    {"model": {k for k, of in MODELS.items() if not of.packs}, "batches": PACKING},
    {"tied": {"all"}, "vocabularies": {"False"}},  # one matrix of two vocabularies
    {"sizes": {"1 head"}, "devices": {"2x2x2"}},  # heads are divided
    {"parameters": {"best"}, "dev": {*FACTORS["dev"]} - SCORED},
    {"patience": {"1"}, "dev": {*FACTORS["dev"]} - SCORED},
    # A head learns words that stay the same.
    {"loss": {"guided"}, "model": {*FACTORS["model"]} - {"transformer"}},
    {"loss": {"guided"}, "noise": {*FACTORS["noise"]} - {"none"}},
    {
        "end": {"fewer steps"},
        "schedule": {*FACTORS["schedule"]} - {"paper"},
    },
]
# Factors whose values meet each other in `cases.pairs`, over which the laws run.
COMPOSED = {"model", "positions", "attention", "feed_forward", "norm", "tied"}
# Fields that all rows have alike, as other tests have.
HELD = {
    *("task.kind", "model.encoder_heads", "model.encoder_hidden", "model.hidden"),
    *("model.max_positions", "model.norm_epsilon", "model.residual", "data.source"),
    *("data.target", "data.dir", "data.vocab_size", "data.tokenizer", "data.symbols"),
    *("data.source_vocab_size", "data.source_tokenizer", "data.tokenizer_lines"),
    *("data.max_length", "data.max_ratio", "data.batch_tokens", "train.minutes"),
    *(
        "train.adapter",
        "train.init_from",
        "train.init_checkpoint",
        "train.init_parts",
        "train.warmup",
    ),
    *("train.remap_vocabulary", "train.peak_learning_rate", "train.adam_b1"),
    *("train.adam_b2", "train.adam_epsilon", "train.alarm_norm", "train.max_skipped"),
    *("train.max_rise", "train.rollbacks", "decode.diversity", "decode.extra_length"),
    *("decode.max_source", "decode.batch_tokens", "mesh.data", "train.save_minutes"),
    *("data.columns", "data.score_column", "data.min_score", "train.adapter"),
}
Row = dict[str, str]  # factor -> value


def unread(model: str, factor: str, value: str) -> bool:
    """True if a model reads nothing of what a value changes."""
    names = [name.removeprefix("model.") for name in FACTORS[factor][value]]
    return bool(names) and {*names} <= cases.unused(model)


def allowed(row: Row) -> bool:
    """True if the values of a row, or of a part of one, go together."""
    if any(
        all(row.get(factor) in values for factor, values in condition.items())
        for condition in EXCLUDED
    ):
        return False
    return "model" not in row or not any(
        value != next(iter(FACTORS[factor])) and unread(row["model"], factor, value)
        for factor, value in row.items()
    )


def value_pairs() -> set:
    """The pairs of values that have to meet: those that go together."""
    values = [(name, value) for name, of in FACTORS.items() for value in of]
    pairs = itertools.combinations(values, 2)
    return {
        (a, b)
        for a, b in pairs
        if a[0] != b[0] and not {a[0], b[0]} <= COMPOSED and allowed(dict((a, b)))
    }


def rows(seed: int) -> list[Row]:
    """A covering array of FACTORS; other seeds combine the values in other ways."""
    values, chance = {name: [*of] for name, of in FACTORS.items()}, random.Random(seed)
    return [*cases.covering(values, value_pairs(), allowed, chance)]


def config_of(row: Row, folder: Path) -> tuple[Config, SimpleNamespace]:
    """The config of a row, and what else it says of its run."""
    changes = {
        k: v for name, value in row.items() for k, v in FACTORS[name][value].items()
    }
    place = Path(changes["run.place"])
    fields = {name: dict(values) for name, values in small_run.FIELDS.items()}
    source, target = changes["run.text"].split("-")
    fields["model"] |= {"max_positions": 128}
    fields["data"] |= {"source": source, "target": target, "vocab_size": 320}
    if not changes["data.joint_vocabulary"]:
        fields["data"]["source_vocab_size"] = 360 if changes["run.traps"] else 280
    fields["data"] |= {"dir": str(folder / place / "text"), "batch_tokens": 512}
    fields["data"] |= {"max_length": 40}
    fields["decode"] |= {"extra_length": 4, "max_source": 16}
    unused = cases.unused(row["model"])
    run = SimpleNamespace(
        devices=1, processes=1, environment={}, work=place / "work", folder=folder
    )
    for full, value in changes.items():
        section, name = full.split(".")
        if section == "run":
            setattr(run, name, value)
        elif section != "model" or name not in unused:
            fields.setdefault(section, {})[name] = value
    if changes.get("train.schedule") == "warmup_stable_decay":
        fields["train"]["warmup"] = 2
    loaded = load_config(small_run.ROOT / "configs/tiny.py", **fields)
    return from_config_dict(loaded), run


def write_text(folder: Path, run: SimpleNamespace) -> None:
    """Writes the corpora that rows name."""
    chance = random.Random(0)
    *sides, space = WORDS[run.text]
    traps = [line for line in NASTY.values() if len(line) < 200] * run.traps
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in {"train": 60, "zip": 50, "more": 8, "dev": 6, "test": 6}.items():
        lines = [
            [space.join(side[i] for i in index) for side in sides]
            for index in (chance.choices(range(5), k=i % 8 + 1) for i in range(size))
        ]
        lines += [[trap, trap] for trap in traps]
        for side, language in enumerate(run.text.split("-")):
            text = "".join(f"{line[side]}\n" for line in lines).encode()
            file = f"{name}.{language}"
            if name == "zip":
                text, file = gzip.compress(text, mtime=0), f"{file}.gz"
            (folder / file).write_bytes(text)


# --------------------------------------------------------------------------- processes


def start(work: Callable, run: SimpleNamespace, log: str, devices: int = 1) -> int:
    """Starts `work()` in a fork of this process, whose JAX has not started yet."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    status = 1
    try:
        printed = os.open(run.folder / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.chdir(run.folder)
        os.environ.update(run.environment, T2T_JAX_CACHE=str(run.folder / "cache"))
        for name, value in {
            "jax_num_cpu_devices": devices,
            "jax_compilation_cache_dir": str(run.folder.parent / "xla"),
            "jax_persistent_cache_min_compile_time_secs": 0,
            FAST: True,
        }.items():
            jax.config.update(name, value)
        work()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except KeyboardInterrupt as end:
        print("interrupted:", end)
        status = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the end of an interpreter takes long


def finish(child: int, run: SimpleNamespace, log: str) -> None:
    """Waits for the end of a process, which has to be a good one."""
    if os.waitpid(child, 0)[1]:
        content = (run.folder / log).read_text(errors="replace")
        raise AssertionError(content[-3_000:])


class Runs:
    """The runs of a row; `kill` of tests/faults/killing.py disturbs them."""

    def __init__(self, config: Config, run: SimpleNamespace):
        self.config, self.run, self.folder = config, run, run.folder
        self.fields = {"train": {"steps": config.train.steps}}

    signal = signal.SIGKILL

    def life(self, name: str, reached: Callable[[], object], **changes) -> int:
        """Trains, until a signal after something is reached; as `ChildRuns.life`."""
        for _ in range(3):
            status, log = self._life(name, reached, **changes)
            if TIME_LIMIT not in log:  # on a busy machine two may wait in vain
                break
        return status

    def _life(self, name, reached, **changes) -> tuple[int, str]:
        config = dataclasses.replace(
            self.config, train=dataclasses.replace(self.config.train, **changes)
        )
        port, count = free_port(), self.run.processes

        def work(number: int):
            if count > 1:
                rendezvous.initialize(f"127.0.0.1:{port}", count, number)
            train(config, name)
            if count > 1:  # the others, too, before process 0 takes the service away
                jax.distributed.shutdown()

        children = [
            start(functools.partial(work, i), self.run, f"{i}.log", self.run.devices)
            for i in range(count)
        ]
        sent, statuses = False, {}
        while len(statuses) < count:
            for child in {*children} - {*statuses}:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    statuses[child] = os.waitstatus_to_exitcode(status)
            if not sent and not statuses and (sent := bool(reached())):
                for child in children:
                    os.kill(child, self.signal)
            time.sleep(0.02 if reached is bool else 0.001)
        if sent and any(statuses.values()):
            return -signal.SIGKILL, ""
        log = (self.folder / "0.log").read_text(errors="replace")[-9_000:]
        status = max(map(abs, statuses.values()))
        return status, log if status else ""

    def finished(self, name: str, **changes) -> Path:
        if status := self.life(name, bool, **changes):
            log = (self.folder / "0.log").read_text(errors="replace")
            raise AssertionError(f"training ended with {status}:\n{log[-3_000:]}")
        return self.folder / name


# ----------------------------------------------------------------------------- of a row


def check_laws(config: Config) -> None:
    attention.SMALLEST_BLOCK = 4  # rows of the laws then have several
    exact = dataclasses.replace(config.model, products="float32")
    subject, broken = Subject(exact), []
    for law, bound in laws.LAWS.items():
        try:
            figure = law(subject)
        except Excused:
            continue
        except UserError as e:
            if "is not divisible by" in str(e):
                continue
            raise
        if not figure <= bound:
            broken.append(f"{law.__name__}: {figure:.2g}, want at most {bound:g}")
    assert not broken, "; ".join(broken)


def check_kills(runs: Runs, chance: random.Random) -> None:
    """A run that was disturbed and continued is the one that was not."""
    undisturbed, end = runs.folder / runs.run.work, runs.run.end
    name = str(runs.run.work.with_name("other"))
    excluded, ignored = set(), ()
    if end == "fewer steps":
        runs.finished(name, steps=chance.randrange(1, runs.config.train.steps))
        excluded = {"metrics", "best", "scores", "translations", "names", "config"}
    elif end == "minutes":
        runs.finished(name, minutes=1e-6)
        excluded = {"metrics", "best", "scores", "translations", "names", "config"}
    else:
        for moment in chance.sample([*MOMENTS], 2):
            if end == "stopped":
                runs.signal = chance.choice([signal.SIGINT, signal.SIGTERM])
            kill(runs, name, moment, chance)
    disturbed = runs.finished(name)
    if end != "killed":  # the last states may be of other steps
        excluded, ignored = excluded | {"names"}, (" is missing", " is too much")

    def compare():
        for kind, lines in workdir_differences(undisturbed, disturbed).items():
            if kind == "state":
                lines = [line for line in lines if not line.endswith(ignored)]
            assert kind in excluded or not lines, (kind, lines[:5])

    finish(start(compare, runs.run, "kills.log"), runs.run, "kills.log")


def check_translations(config: Config, run: SimpleNamespace, lines: list[str]) -> None:
    """What the API finds; the lines of the translations go to a file."""
    workdir = run.folder / run.work
    translator = Translator.load(run.work)
    answers = translator.translate(lines, warn=False)
    texts = [translation.text for translation in answers]
    assert len(texts) == len(lines)
    assert not any("\n" in text for text in texts)
    reversed_answers = translator.translate(lines[::-1], batch_size=3, warn=False)
    assert [translation.text for translation in reversed_answers[::-1]] == texts
    (run.folder / "texts").write_text("".join(f"{t}\n" for t in texts), "utf-8")
    for corpus in open_specs(config.data.test, task_of(config).open, config.data.dir):
        stored = small_run.read_checked_json(workdir / f"scores/{corpus.name}.json")
        assert score_set(translator, corpus, run.work) == stored
    plain = translator.with_choice("probability").with_options(groups=1)
    searched = plain.translate(lines, warn=False)
    pairs = [(line, best.best) for line, best in zip(lines, searched, strict=True)]
    pairs = [pair for pair in pairs if pair[1].tokens]
    scores = np.array([score.log_prob for score in plain.score(pairs, warn=False)])
    assert np.isfinite(scores).all()
    near = 0.1 if config.model.dtype == "bfloat16" else 2e-3
    want = [best.log_prob for _, best in pairs]
    np.testing.assert_allclose(scores, want, near, near, err_msg="cached is forced")
    exact = agreement.float32(plain)
    sources = [ids for ids in exact.vocabulary.source.encode(lines) if len(ids) > 1]
    sources = [[*ids[:-1][:20], ids[-1]] for ids in sources]
    greedy = [
        list(translation.tokens) for translation in exact.translate_ids(sources, beam=1)
    ]
    read = [[exact.vocabulary.bos, *tokens[:-1]] for tokens in greedy]
    forced = agreement.logits(exact, sources, read)
    never_v = np.zeros(len(exact.vocabulary))
    never_v[[*never_generated(exact.vocabulary)]] = -np.inf
    argmax = [(logits_tv + never_v).argmax(-1).tolist() for logits_tv in forced]
    limits = [len(ids) + config.decode.extra_length for ids in sources]
    result = agreement.compare_greedy(exact, sources, greedy, argmax, limits)
    assert result.agrees, result
    explain(plain, next(line for line, _ in pairs), warn=False)


def check_command(run: SimpleNamespace, lines: list[str]) -> None:
    """The command prints what the API has found."""
    (run.folder / "lines").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    flags = [f"--workdir={run.work}", "--input=lines", "--output=out"]
    if "LC_ALL" in run.environment:  # only a new interpreter asks for it
        command = [sys.executable, "-m", "t2t_jax", "translate", *flags]
        environment = os.environ | run.environment | {"PYTHONPATH": str(small_run.ROOT)}
        ended = subprocess.run(
            command, cwd=run.folder, env=environment, capture_output=True
        )
        assert not ended.returncode, ended.stderr[-2_000:].decode(errors="replace")
    else:

        def work():
            sys.argv = ["translate", *flags]
            runner.run("translate", launch.module_of("translate"))

        finish(start(work, run, "translate.log"), run, "translate.log")
    out = (run.folder / "out").read_bytes()
    assert out == (run.folder / "texts").read_bytes(), "the command prints other lines"


def check(
    row: Row, folder: Path, only: list[str], chance: random.Random
) -> Iterator[str]:
    """Yields the failures of a row."""
    config, run = config_of(row, folder)
    write_text(folder / run.place / "text", run)
    runs = Runs(config, run)
    languages = WORDS[run.text][0], WORDS[run.text][2]
    lines = [languages[1].join(languages[0][:n]) for n in (5, 1, 3)] + [*NASTY.values()]

    def end_to_end():
        work = functools.partial(check_translations, config, run, lines)
        finish(start(work, run, "api.log", run.devices), run, "api.log")
        check_command(run, lines)

    def obey():
        work = functools.partial(check_laws, config)
        finish(start(work, run, "laws.log", 8), run, "laws.log")

    parts = {
        "laws": obey,
        "run": lambda: runs.finished(str(run.work)),
        "kills": lambda: check_kills(runs, chance),
        "end_to_end": end_to_end,
    }
    for name, part in parts.items():
        if name in only or (name == "run" and only != ["laws"]):
            began = time.monotonic()
            try:
                part()
            except (AssertionError, UserError, RuntimeError) as e:
                yield f"{name}: {type(e).__name__}: {e}"
                if name == "run":
                    return
            print(f"  {name} {time.monotonic() - began:.0f} s", end="", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the array")
    parser.add_argument("--rows", default="", help="such as 1-9; all by default")
    parts = ["laws", "kills", "end_to_end"]
    parser.add_argument("--only", action="append", choices=parts, help="all by default")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the runs, which continue"
    )
    args = parser.parse_args()
    array = rows(args.seed)
    begin, _, end = (args.rows or f"1-{len(array)}").partition("-")
    numbers = range(int(begin), int(end or begin) + 1)
    print(f"seed {args.seed}, rows {numbers[0]} to {numbers[-1]} of {len(array)}")
    failures = []
    # JAX has no thread yet.
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
    if any(array[number - 1]["feeder"] == "tfdata" for number in numbers):
        import tensorflow  # noqa: F401  (once, and not in each fork)
    with contextlib.ExitStack() as stack:
        root = args.keep or stack.enter_context(tempfile.TemporaryDirectory())
        for number in numbers:
            row, began = array[number - 1], time.monotonic()
            print(f"{number}: " + ", ".join(f"{k}={v}" for k, v in row.items()))
            folder = Path(root).absolute() / str(number)
            chance = random.Random(f"{args.seed} {number}")
            failed = [*check(row, folder, args.only or parts, chance)]
            print(
                f"  row {number}: {time.monotonic() - began:.0f} s", *failed, sep="\n"
            )
            failures += [(number, failure) for failure in failed]
            if not (failed or args.keep):
                shutil.rmtree(folder)
    for number, failure in failures:
        print(
            f"\npython -m tests.covering --seed={args.seed} --rows={number}\n{failure}"
        )
    print(f"{len(numbers)} rows, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
