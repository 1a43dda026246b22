"""Fine-tuning (configs/finetune.py): what it chooses, and its whole path."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request

import pytest

from t2t_jax.commands.config_files import load_config, resolve, say_lines
from t2t_jax.io.atomic import checked_json, read_checked_json
from t2t_jax.tools.bridges.vocabularies.written import own_files
from t2t_jax.workdir import Workdir
from tests.bridges.exported import needs, translator
from tests.decoding.small_translator import vocabulary
from tests.small_run import ROOT, until, write_pairs


@pytest.fixture
def start(tmp_path):
    translator(layers=4).save(tmp_path / "start")
    file = tmp_path / "start" / "config.json"
    config = read_checked_json(file)
    config["data"]["dev"], config["decode"]["checkpoint"] = "dev", "best"
    file.write_bytes(checked_json(config))
    return tmp_path / "start"


def test_the_size_of_the_text_chooses_and_flags_override(start, tmp_path, capsys):
    for pairs in (1, 2_000):
        lines = [(f"a dog sees {n}", f"ein Hund sieht {n}") for n in range(pairs)]
        write_pairs(tmp_path, **{f"train{pairs}": lines})

    def config(pairs, train=None, **data):
        data = {"train": str(tmp_path / f"train{pairs}"), "dev": "dev"} | data
        return load_config(f"finetune:{start}", data=data, train=train or {})

    small, large = config(1), config(2_000)
    assert (small.train.freeze, large.train.freeze) == ("embedding", "")
    assert (small.decode.checkpoint, large.decode.checkpoint) == ("best", "best")
    assert config(2_000, dev="").decode.checkpoint == "average"
    assert small.train.init_checkpoint == "best"  # which translates for the start
    # Ten times 2,000 pairs of about 20 tokens.
    assert 150 < large.train.steps * large.data.batch_tokens / 2_000 < 300
    assert config(2_000, batch_tokens=512).train.steps > 2 * large.train.steps

    given = config(2_000, {"steps": 40, "freeze": "decoder"})
    assert (given.train.warmup, given.train.eval_every) == (4, 10)
    file = resolve(f"finetune:{start}")
    say_lines(file, "reasons", given)
    listed = capsys.readouterr().err
    assert re.search(rf"train.steps +40 +as given; {large.train.steps} would", listed)
    assert re.search(r"train.freeze +'decoder' +as given; '' would", listed)
    assert re.search(r"peak_learning_rate +0.001 +0.001 . min\(1, 128 / width", listed)
    say_lines(file, "next_commands", given, "my runs/tuned")
    printed = capsys.readouterr().err
    assert f"compare {start} 'my runs/tuned' --test=dev" in printed
    say_lines(resolve("tiny"), "reasons", given)
    assert not capsys.readouterr().err


@needs("torch", "transformers", "ctranslate2")
def test_from_save_pretrained_to_an_answer_over_http(text, commands, tmp_path):
    """The commands of docs/fine-tuning.md, the last ones as the run prints them."""
    from transformers import MarianConfig, MarianMTModel

    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    ids = {"vocab_size": 290, "pad_token_id": 0, "eos_token_id": 2}
    model = MarianConfig(**sizes, **ids, decoder_start_token_id=1, scale_embedding=True)
    published, start, tuned = (tmp_path / n for n in ("published", "start", "tuned"))
    MarianMTModel(model).save_pretrained(published)
    for file, content in own_files(vocabulary()).items():
        (published / file).write_bytes(content)
    shutil.copytree(text, tmp_path / "old")
    for end in ("en", "de"):
        shutil.copy(text / f"dev.{end}", tmp_path / "old" / f"test.{end}")

    def run(*words, source=b""):
        ended = commands(*words, source=source)
        assert not ended.returncode, ended.stderr
        return ended.stdout + ended.stderr * (not source)

    languages = "--source=en", "--target=de"
    printed = run("import", f"--model={published}", f"--workdir={start}", *languages)
    assert "100 of 100 greedy translations have equal tokens" in printed
    data = [f"--config.data.{n}={text / n}" for n in ("train", "dev", "test")]
    few = [
        f"--config.{field}" for field in ("train.steps=30", "train.freeze=encoder:1")
    ]
    printed = run(
        "main", f"--config=finetune:{start}", f"--workdir={tuned}", *data, *few
    )
    assert re.search(r"train.steps +30 +as given; \d+ would be chosen", printed)
    assert Workdir(tuned).config().train.freeze == "encoder:1"
    compare, export, serve = (
        shlex.split(words)
        for words in re.findall(r"^  python -m t2t_jax (.*)$", printed, re.MULTILINE)
    )
    printed = run(*compare[:-1], f"{compare[-1]},{tmp_path}/old/test")
    assert f"{text.name}-test (new domain)" in printed
    assert re.search(r"^forgetting: .* BLEU .* on old-test, by tuned$", printed, re.M)
    run(*export)
    exported = f"--workdir={tuned}-ct2"
    line = (text / "test.en").read_text().splitlines()[0]
    expected = run("translate", exported, source=line.encode())

    assert serve == ["serve", f"--workdir={tuned}", "--engine=auto", "--beams=1"]
    words = ["serve", exported, "--beams=1", "--port=0", "--longest=32"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "t2t_jax", *words]
        server = subprocess.Popen(command, stderr=file, cwd=ROOT)
    try:
        until(lambda: "ready\n" in log.read_text() or server.poll() is not None, 300)
        port = re.search(r"http://127.0.0.1:(\d+)/", log.read_text())[1]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/translate",
            json.dumps({"lines": [line]}).encode(),
            {"Content-Type": "application/json"},
        )
        (answer,) = json.load(urllib.request.urlopen(request))["translations"]
        assert answer["hypotheses"][0]["text"] == expected.removesuffix("\n")
    finally:
        server.terminate()
        server.wait()
