"""Whether a change of the code changed what is computed: hashes before and after.

    python -m tests.bits --write=BEFORE.json      # at the commit before the change
    python -m tests.bits --compare=BEFORE.json    # after it

It hashes initial parameters and three training steps of every kind of model, batches,
prepared arrays, tokenizers, checkpoints, logs, scores, and translations with their
log-probabilities. Clocks, paths and versions are left out. It takes some minutes of one
core. --tiny hashes the main job of configs/tiny.py instead, which takes minutes more.
--only=PART names one part (a function in `PARTS` or `LONG_PARTS`).

Bits are those of one machine, one number of cores and one version of JAX: the file
records them, and a comparison elsewhere says that it proves nothing.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t2t_jax import Translator, load_config

ROOT = Path(__file__).parent.parent


@functools.cache
def inside() -> SimpleNamespace:
    """All names that this file takes from inside the package.

    Whoever moves one changes this function, and nothing below.
    """
    from t2t_jax import config
    from t2t_jax.data import corpus, feeding, prepare
    from t2t_jax.extensions.grammar import corpus as grammar
    from t2t_jax.model import model
    from t2t_jax.parallel import mesh
    from t2t_jax.tasks import table
    from t2t_jax.training import step

    return SimpleNamespace(
        from_config_dict=config.from_config_dict,
        open_specs=corpus.open_specs,
        feed=feeding.feed,
        typical_plan=feeding.typical_plan,
        training_pairs=prepare.training_pairs,
        grammar_pairs=grammar.pairs,
        build=model.build,
        local_layout=mesh.local_layout,
        make_mesh=mesh.make_mesh,
        place_batch=mesh.place_batch,
        task_of=table.task_of,
        compile_steps=step.compile_steps,
    )


# ------------------------------------------------------------------------------ hashes

# Keys of JSON of which no two runs have the same values, or that name what was
# installed.
UNSTABLE = {
    "seconds",
    "seconds_per_step",
    "tokens_per_second",
    "mfu",
    "time",
    "when",
    "machine",
    "version",
    "versions",
    "t2t_jax",
    "jax",
    "compile_seconds",
    "workdir",
    "checksum",
    "check",
    "date",
    "mtime",
    "commit",
}


def sha256(*parts: bytes | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def array_hash(x) -> str:
    x = np.asarray(x)
    return sha256(str(x.dtype), str(x.shape), np.ascontiguousarray(x).tobytes())


def tree_hash(tree) -> str:
    """The hash of nested dicts, lists and tuples of arrays, with their names."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    parts = {jax.tree_util.keystr(path): array_hash(leaf) for path, leaf in leaves}
    return sha256(json.dumps(parts, sort_keys=True))


def json_hash(value) -> str:
    return sha256(json.dumps(stable(value), sort_keys=True, ensure_ascii=False))


def stable(value):
    """JSON without what differs from run to run."""
    if isinstance(value, list | tuple):
        return [stable(inner) for inner in value]
    if isinstance(value, dict):
        return {k: stable(v) for k, v in value.items() if k not in UNSTABLE}
    return value


def file_hashes(folder: Path, pattern: str = "*") -> dict[str, str]:
    """The hashes of a folder's files; of JSON files those of what is stable."""
    hashes = {}
    for file in sorted(p for p in folder.rglob(pattern) if p.is_file()):
        content = file.read_bytes()
        name = str(file.relative_to(folder))
        is_json = file.suffix == ".json"
        hashes[name] = json_hash(json.loads(content)) if is_json else sha256(content)
    return hashes


# ------------------------------------------------------------------------ text, configs


def write_text(folder: Path) -> None:
    """Writes text/train, text/dev and text/test, in English and German."""
    lines = inside().grammar_pairs("dev")
    short = [pair for pair in lines[300:] if max(map(len, pair)) <= 40]
    parts = {"train": lines[:300], "dev": short[:20], "test": short[20:30]}
    folder.mkdir(parents=True)
    for name, part in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


SMALL = {
    "model": {"layers": 1, "width": 16, "heads": 2, "hidden": 24, "dropout": 0.1},
    "data": {
        "dir": "text",
        "train": "train",
        "dev": "dev",
        "test": "test",
        "vocab_size": 400,
        "batch_tokens": 1_024,
        "row_length": 64,
        "feeder": "numpy",
    },
    "train": {"warmup": 4},
}


def config_of(preset: str = "tiny", **sections):
    """A preset on the small text at a small size, with other fields of sections."""
    fields = {name: dict(values) for name, values in SMALL.items()}
    for name, values in sections.items():
        fields.setdefault(name, {}).update(values)
    return load_config(ROOT / f"configs/{preset}.py", **fields)


# ------------------------------------------------------------------- the parts: models

FOLDED = {"layers": 1, "width": 16, "dropout": 0.1, "heads": 8, "hidden": 2048}
ONE_SIDED = {"train": "train.de", "dev": "dev.de", "test": "test.de"}
BUCKETS = {"batching": "bucketed", "buckets": 3}
# Fields of config.model of encoder-decoder Transformers.
VARIANTS = {
    "paper": {},
    "learned, pre, dense": {
        "positions": "learned",
        "norm": "pre",
        "attention": "dense",
        "max_positions": 128,
        "feed_forward": "gelu",
        "attention_bias": True,
    },
    "rotary, rms, swiglu": {
        "positions": "rotary",
        "norm_kind": "rms",
        "feed_forward": "swiglu",
        "norm": "pre",
        "head_width": 6,
        "tied": "none",
        "output_bias": True,
    },
    "relative, geglu, attention dropout": {
        "positions": "relative",
        "feed_forward": "geglu",
        "layers": 2,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    },
    "t5, unscaled": {
        "positions": "t5",
        "attention": "unscaled",
        "norm_kind": "rms",
        "feed_forward": "silu",
        "embedding_scale": False,
        "norm": "pre",
    },
    "alibi, chunked": {"positions": "alibi", "attention": "chunked"},
    "none, restricted, remat": {
        "positions": "none",
        "attention": "restricted",
        "norm_kind": "none",
        "remat": "full",
        "residual": False,
    },
    "uneven, bfloat16": {
        "encoder_layers": 2,
        "decoder_heads": 4,
        "value_width": 4,
        "dtype": "bfloat16",
    },
}
# Fields of config.train.
TRAININGS = {
    "accumulated, clipped, averaged": {
        "accumulate": 2,
        "clip_norm": 0.1,
        "ema_decay": 0.9,
        "weight_decay": 0.01,
    },
    "adafactor, linear": {
        "optimizer": "adafactor",
        "schedule": "linear",
        "steps": 10,
        "peak_learning_rate": 0.01,
    },
    "lion, cosine, frozen": {
        "optimizer": "lion",
        "schedule": "cosine",
        "steps": 10,
        "peak_learning_rate": 0.001,
        "freeze": "embedding",
    },
}


def kinds() -> dict:
    """A config of every kind of model, of variants and of ways to train."""
    configs = {
        f"transformer: {name}": config_of(model=fields)
        for name, fields in VARIANTS.items()
    }
    for name, fields in TRAININGS.items():
        configs[f"transformer: {name}"] = config_of(train=fields)
    configs["transformer: bucketed, two vocabularies"] = config_of(
        data={**BUCKETS, "joint_vocabulary": False, "vocab_size": 360},
        model={"tied": "target"},
    )
    configs["decoder_only"] = config_of("lm_tiny", data=ONE_SIDED)
    configs["encoder_only"] = config_of("mlm_tiny", data=ONE_SIDED)
    configs["classifier"] = config_of(
        "classify_tiny",
        data={"dir": "", "train": "grammar:train", "dev": "", "test": ""},
    )
    for form in ("gnmt", "luong"):
        configs[f"lstm: {form}"] = config_of(
            "lstm", model={**FOLDED, "layers": 2, "options": {"lstm_form": form}}
        )
    conv = {**FOLDED, "max_positions": 128}
    configs["conv"] = config_of("conv", model=conv)
    for kind in ("bytenet", "neural_gpu"):
        configs[kind] = config_of(kind, model=FOLDED, data=BUCKETS)
    return configs


def prepared(config) -> SimpleNamespace:
    """The vocabulary and the pairs of a config, as training reads them."""
    package = inside()
    task = package.task_of(config)
    data = task.data()
    training = package.open_specs(config.data.train, task.open, data.dir, weights=True)
    vocabulary = task.vocabulary(training)
    pairs = package.training_pairs(training, vocabulary, data, task)
    return SimpleNamespace(vocabulary=vocabulary, pairs=pairs)


def batches(config, text: SimpleNamespace, mesh, count: int) -> list[dict]:
    """The first batches of a run."""
    package = inside()

    def local(layout):
        return package.local_layout(mesh, layout, config.train.accumulate)

    fed = package.feed(text.pairs, config.data, config.train.seed, share=local)
    with contextlib.closing(fed):
        return [next(fed)[1] for _ in range(count)]


def models(folder: Path) -> dict:
    """Initial parameters, and the state and metrics of three steps, of every kind."""
    package, hashes = inside(), {}
    mesh = package.make_mesh(devices=jax.devices()[:1])
    # It takes minutes to compile so many programs well. The other parts do.
    jax.config.update("jax_disable_most_optimizations", True)
    for name, config in kinds().items():
        config = package.from_config_dict(config)
        text = prepared(config)
        model = package.build(config.model, *text.vocabulary.sizes)
        steps = package.compile_steps(model, config, mesh, text.vocabulary.bos)
        state = steps.init()
        hashes[f"{name}: tokenizer"] = sha256(
            *(side.model for side in text.vocabulary.sides)
        )
        hashes[f"{name}: initial parameters"] = tree_hash(state.parameters)
        logged = []
        for batch in batches(config, text, mesh, 3):
            state, metrics = steps.train(state, package.place_batch(mesh, batch))
            logged.append(jax.device_get(metrics))
        hashes[f"{name}: metrics of three steps"] = tree_hash(logged)
        hashes[f"{name}: parameters after three steps"] = tree_hash(state.parameters)
        hashes[f"{name}: state after three steps"] = tree_hash([*state])
        placed = package.place_batch(mesh, batch)
        evaluated = steps.evaluate(state.best_parameters(), placed)
        hashes[f"{name}: dev loss"] = tree_hash(evaluated)
        jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    return hashes


# --------------------------------------------------------------------- the parts: data


def texts() -> dict:
    """Configs whose prepared arrays, plans and batches are hashed."""
    builtin = {"dir": "", "train": "grammar:train", "dev": "", "test": ""}
    trees = {**builtin, "train": "grammar:trees/dev"}
    spoiled = {"subword_dropout": 0.1, "augment": "typos@0.2,case@0.1,copy"}
    return {
        "packed": config_of(data={**builtin, "batch_tokens": 2_048}),
        "bucketed": config_of(data={**builtin, **BUCKETS, "batch_tokens": 2_048}),
        "varied": config_of(data=spoiled),
        "language model": config_of("lm_tiny", data=ONE_SIDED),
        "masked": config_of("mlm_tiny", data=ONE_SIDED),
        "parsing": config_of("parse_tiny", data=trees),
        "mixed": config_of(data={"train": "train@2,dev", "temperature": 2.0}),
    }


def data(folder: Path) -> dict:
    """Tokenizers, prepared arrays, the plan of an epoch and the first batches."""
    package, hashes = inside(), {}
    mesh = package.make_mesh(devices=jax.devices()[:1])
    for name, config in texts().items():
        config = package.from_config_dict(config)
        text = prepared(config)
        pairs = text.pairs
        hashes[f"{name}: tokenizer"] = sha256(text.vocabulary.model)
        for side in ("source", "target"):
            ragged = getattr(pairs, side)
            arrays = {k: getattr(ragged, k) for k in ("tokens", "offsets")}
            hashes[f"{name}: tokens of the {side}"] = tree_hash(arrays)
        counts = [pairs.dropped, pairs.read, pairs.sizes, pairs.weights, pairs.key]
        hashes[f"{name}: counts and key"] = json_hash(counts)
        plan = package.typical_plan(pairs, config.data, config.train.seed)
        hashes[f"{name}: plan"] = plan_hash(plan)
        hashes[f"{name}: batches"] = tree_hash(batches(config, text, mesh, 8))
    return hashes


def plan_hash(plan) -> str:
    """The shape and the arrays of every batch of a plan."""
    layouts = [plan[i] for i in range(len(plan))]
    return sha256(
        *(
            sha256(repr(layout.shape), tree_hash(fields_of(layout, excluded="shape")))
            for layout in layouts
        )
    )


def fields_of(value, excluded: str) -> dict:
    return {name: v for name, v in vars(value).items() if name != excluded}


# ---------------------------------------------------------------- the parts: whole runs


def command(folder: Path, *arguments, source: str = "") -> str:
    """Runs a command of the package in a folder; returns what it prints.

    `main` is started as users were told to start it for ever.
    """
    name, *flags = map(str, arguments)
    module = ["t2t_jax.main"] if name == "main" else ["t2t_jax", name]
    ended = subprocess.run(
        [sys.executable, "-m", *module, *flags],
        cwd=folder,
        input=source,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join([name, *flags])}:\n{ended.stderr[-3_000:]}")
    return ended.stdout


RUN = {
    "data.dir": "text",
    "data.train": "train",
    "data.dev": "dev",
    "data.test": "test",
    "data.vocab_size": "400",
    "data.row_length": "64",
    "data.batch_tokens": "1024",
    "model.width": "32",
    "model.heads": "2",
    "model.hidden": "64",
    "model.layers": "1",
    "model.dropout": "0.1",
    "train.steps": "150",
    "train.warmup": "40",
    "train.peak_learning_rate": "0.01",
    "train.log_every": "10",
    "train.eval_every": "50",
    "train.save_every": "50",
    "train.dev_lines": "10",
    "decode.average": "2",
    "decode.extra_length": "8",
    "decode.max_source": "64",
}


def trained(folder: Path) -> Path:
    """The workdir that the parts of this file share."""
    if not (folder / "run").exists():
        fields = [f"--config.{name}={value}" for name, value in RUN.items()]
        preset = f"--config={ROOT}/configs/tiny.py"
        command(folder, "main", preset, *fields, "--workdir=run")
    return folder / "run"


def workdir(folder: Path) -> dict:
    """All that a run writes: checkpoints, log, scores, translations, config."""
    return workdir_hashes(trained(folder))


def workdir_hashes(run: Path) -> dict:
    hashes = {}
    for item in sorted(run.glob("checkpoints/*/*/*/_METADATA")):
        name = str(item.parent.relative_to(run / "checkpoints"))
        hashes[name] = tree_hash(arrays_of(item.parent))
    log = (run / "metrics.jsonl").read_text().splitlines()
    hashes["metrics.jsonl"] = json_hash([json.loads(line) for line in log])
    for part in ("scores", "translations"):
        for name, value in file_hashes(run / part).items():
            hashes[f"{part}/{name}"] = value
    for name in ("config.json", "training_text.json"):
        hashes[name] = json_hash(json.loads((run / name).read_text()))
    hashes["tokenizer.model"] = sha256((run / "tokenizer.model").read_bytes())
    names = {p.name for p in run.iterdir()} - {"tensorboard"}
    hashes["names"] = json_hash(sorted(names))
    return hashes


def arrays_of(item: Path):
    """A tree that Orbax wrote, as NumPy arrays, read without t2t_jax."""
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as reader:
        place = epath.Path(item)
        restore = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
            reader.metadata(place).tree,
        )
        return reader.restore(place, args=ocp.args.PyTreeRestore(restore_args=restore))


def as_json(translations) -> list:
    """Translations or scores as JSON, with floats to the last bit."""
    return [
        [
            [h.text, float(h.score).hex(), float(h.log_prob).hex(), h.ended]
            + [*h.tokens]
            for h in translation.hypotheses
        ]
        for translation in translations
    ]


def searches(folder: Path) -> dict:
    """Translations, scores and log-probabilities by the Python interface."""
    translator = Translator.load(trained(folder))
    english, german = (
        (folder / f"text/test.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    )
    translate, sample = translator.translate, translator.sample
    calls = {
        "greedy": lambda: translate(english, beam=1),
        "beam 4, 4 best": lambda: translate(english, beam=4, nbest=4),
        "first, length": lambda: translate(english, stop="first", penalty="length"),
        "diverse": lambda: translate(english, beam=4, groups=2, diversity=0.7, nbest=4),
        "prefix": lambda: translate(english, prefix="Der"),
        "phrases": lambda: translate(english, must="und", must_not="der"),
        "batches of 3": lambda: translate(english, batch_size=3),
        "sampled": lambda: sample(english, samples=2, seed=7, temperature=0.8),
        "sampled, cut": lambda: sample(english, seed=7, top_k=20, top_p=0.9),
    }
    hashes = {name: json_hash(as_json(call())) for name, call in calls.items()}
    scores = translator.score([*zip(english, german, strict=True)])
    hashes["scores of references"] = sha256(*map(repr, scores))
    hashes["scores of hypotheses"] = sha256(
        *map(repr, translator.score([*zip(english, translate(english), strict=True)]))
    )
    confidence = translator.confidence([*zip(english, german, strict=True)])
    hashes["confidence"] = sha256(*map(repr, confidence))
    align = translator.align([*zip(english, german, strict=True)])
    hashes["alignments"] = sha256(*map(repr, align))
    hashes["averaged parameters"] = tree_hash(translator.parameters)
    best = Translator.load(trained(folder), checkpoint="best")
    hashes["best parameters"] = tree_hash(best.parameters)
    rounded = Translator.load(trained(folder), dtype="bfloat16")
    hashes["bfloat16"] = json_hash(as_json(rounded.translate(english)))
    ensemble = Translator.load([trained(folder)] * 2)
    hashes["ensemble"] = json_hash(as_json(ensemble.translate(english)))
    return hashes


def commands(folder: Path) -> dict:
    """What commands print: translate, score, whatwas, evaluate."""
    run, source = f"--workdir={trained(folder).name}", "--input=text/test.en"
    noise = ["--noise=drop@0.1,blank@0.1,swap@3", "--noise_seed=3"]
    command_lines = {
        "translate": ("translate", run, source, "--nbest=3", "--beam=3"),
        "translate by mbr": (
            "translate",
            run,
            source,
            "--choose=mbr:samples=4,utility=chrf",
        ),
        "translate, pairs": ("translate", run, source, "--pairs=pairs", *noise),
        "score": ("score", run, "--test=text/test"),
        "score pieces": ("score", run, "--test=text/test", "--tokens"),
        "whatwas": ("whatwas", run, "--step=3"),
    }
    hashes = {
        name: sha256(command(folder, *words)) for name, words in command_lines.items()
    }
    for side in ("en", "de"):
        hashes[f"pairs.{side}"] = sha256((folder / f"pairs.{side}").read_bytes())
    damaged = command(folder, "evaluate", run, "--test=text/dev", "--damage=key_typos")
    hashes["evaluate"] = json_hash(objects(damaged))
    return hashes


def objects(printed: str) -> list:
    """The JSON objects that were printed, one after the other."""
    decoder, values = json.JSONDecoder(), []
    while printed := printed.strip():
        value, end = decoder.raw_decode(printed)
        values.append(value)
        printed = printed[end:]
    return values


# ---------------------------------------------------------------------- the long parts


def tiny(folder: Path) -> dict:
    """The main job: parameters, log, scores and translations."""
    command(folder, "main", f"--config={ROOT}/configs/tiny.py", "--workdir=tiny")
    return workdir_hashes(folder / "tiny")


PARTS = {part.__name__: part for part in (data, models, workdir, searches, commands)}
LONG_PARTS = {"tiny": tiny}


# ------------------------------------------------------------------- write and compare


def machine() -> dict:
    """What bits depend on."""
    packages = ("jax", "jaxlib", "flax", "optax", "numpy", "sentencepiece")
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    return {
        "processor": next((x for x in lines if x.startswith("model name")), ""),
        "flags": sha256(next((x for x in lines if x.startswith("flags")), "")),
        "cores": len(os.sched_getaffinity(0)),
        "device": jax.devices()[0].device_kind,
        "python": sys.version.split()[0],
    } | {name: importlib.metadata.version(name) for name in packages}


def compute(parts: dict) -> dict:
    """The hashes of parts, computed in a new folder, with a cache of their own."""
    result: dict = {"machine": machine(), "seconds": {}, "hashes": {}}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name).resolve()
        os.environ["T2T_JAX_CACHE"] = str(folder / "cache")
        os.environ["PYTHONPATH"] = str(ROOT)
        write_text(folder / "text")
        for part, run in parts.items():
            start = time.monotonic()
            hashes = run(folder)
            result["hashes"] |= {f"{part}: {k}": v for k, v in hashes.items()}
            result["seconds"][part] = round(time.monotonic() - start, 1)
            print(
                f"{part}: {len(hashes)} hashes, {result['seconds'][part]} s", flush=True
            )
    return result


def differences(before: dict, after: dict) -> list[str]:
    """A line for each hash of `before` that is another, and those that are new."""
    lines = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            lines.append(f"{name}: is gone")
        elif name not in before:
            lines.append(f"{name}: is new")
        elif before[name] != after[name]:
            lines.append(f"{name}: {before[name]} -> {after[name]}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="file to write the hashes to")
    parser.add_argument("--compare", type=Path, help="file to compare with")
    parser.add_argument("--tiny", action="store_true", help="the long parts instead")
    names = [*PARTS, *LONG_PARTS]
    parser.add_argument("--only", action="append", choices=names, default=[])
    arguments = parser.parse_args()
    if not (arguments.write or arguments.compare):
        parser.error("give --write=FILE or --compare=FILE")
    jax.config.update("jax_platforms", "cpu")
    os.environ["JAX_PLATFORMS"] = "cpu"
    parts = LONG_PARTS if arguments.tiny else PARTS
    if arguments.only:
        all_parts = PARTS | LONG_PARTS
        parts = {name: all_parts[name] for name in names if name in arguments.only}
    expected = json.loads(arguments.compare.read_text()) if arguments.compare else None
    write = arguments.write and arguments.write.absolute()
    actual = compute(parts)
    if write:
        write.write_text(json.dumps(actual, indent=1) + "\n")
    if expected is None:
        return 0
    if elsewhere := differences(expected["machine"], actual["machine"]):
        print("another machine or other versions, where bits are not promised:")
        print(*(f"  {line}" for line in elsewhere), sep="\n")
    compared = {
        name: value
        for name, value in expected["hashes"].items()
        if name.partition(":")[0] in parts
    }
    changed = differences(compared, actual["hashes"])
    print(*changed, sep="\n")
    print(f"{len(changed)} of {len(compared)} hashes differ")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
