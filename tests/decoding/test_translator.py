"""A translator on any text: one line in, one line out, each by itself."""

import dataclasses
import logging

import jax
import pytest

from t2t_jax.config import Config, DecodeConfig, TrainConfig
from t2t_jax.decoding.inputs import InputReader
from t2t_jax.io.errors import UserError
from t2t_jax.search import beam
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.averaging import choose_checkpoints
from tests.decoding.small_translator import translator
from tests.text.test_words import vocabulary

NASTY = [
    "the cat",
    "",
    "   ",
    "a dog sleeps the cat sees",
    "\u2028\u2029\x85",
    "😀" * 5,
    "\x00\x01\r",
    "the cat",
    "a b c d e f g h i j k l m n o p q r s t",
]


def test_one_line_in_one_line_out_in_order(tiny):
    translations = [str(results) for results in tiny.translate(NASTY)]
    assert len(translations) == len(NASTY)
    assert not any("\n" in line for line in translations)
    assert translations[0] == translations[7]
    assert translations[1] == translations[2] == ""
    assert tiny.translate([]) == []
    with pytest.raises(UserError, match="takes a list of lines"):
        tiny.translate("the cat")


def test_a_line_too_long_is_cut_with_a_warning_that_names_it(tiny, caplog):
    lines = ["the cat", "x" * 500, "a dog"]
    tiny.translate(lines, warn=False)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        tiny.translate(lines * 7, first_line=11, batch_size=2)
    assert [r for r in caplog.messages if "only the first" in r] == [
        "7 of 21 lines have more than 63 tokens; only the first 63 are read "
        "(config.decode.max_source=64): lines 12, 15, 18, 21, 24, ..."
    ]


def test_what_the_model_never_learned_is_reported_with_an_example(caplog):
    (member,) = translator(1).members
    data = dataclasses.replace(member.config.data, train="mine", max_length=9)
    config = dataclasses.replace(member.config, data=data)
    trained = member._replace(config=config)
    lines = [
        "the cat",
        "x" * 30,
        "a \u263a \u263b\u263b dog",
        "gru\u0308n " * 2,
        "y" * 90,
    ]
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        InputReader(vocabulary("marian"), [member]).sources(["the cat", lines[2]])
        InputReader(translator(1).vocabulary, [trained]).sources(lines)
        InputReader(vocabulary("marian"), [member]).pairs([("the cat", "\u263a")])
        InputReader(translator(1).vocabulary, [member]).sources(["\u263a"])
    unknown, cut, longer, decomposed, target_warning = caplog.messages
    assert unknown.startswith("line 2 has unknown tokens (2): ")
    assert unknown.endswith("cannot spell '\u263a', '\u263b\u263b'")
    assert cut.startswith("line 5 has 91 tokens")
    assert longer.startswith("3 of 5 lines have more tokens than any training sentence")
    assert longer.endswith("lines 2, 3, 4")
    assert decomposed.startswith("line 4 has decomposed letters")
    assert "unknown tokens (1)" in target_warning


def test_an_end_that_never_comes_is_told_and_whole(tiny, caplog, monkeypatch):
    ending = beam.BeamSearch.advance

    def without_end(self, step, *arguments):
        def endless(cache, token_bn, position):
            logits_bnv, cache = step(cache, token_bn, position)
            return logits_bnv.at[:, :, self.eos].set(-1e9), cache

        return ending(self, endless, *arguments)

    monkeypatch.setattr(beam.BeamSearch, "advance", without_end)
    jax.clear_caches()
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        results = tiny.translate(["", "the cat", "a dog"], batch_size=1)
    jax.clear_caches()
    assert [t.ended for t in results] == [True, False, False]
    assert all(t.text for t in results[1:])
    assert caplog.messages == [
        "2 of 3 outputs reached their longest length (extra_length=5, in a command "
        "--extra_length=5; more allows longer ones): lines 2, 3"
    ]


def test_the_limit_of_outputs_is_that_of_the_call(tiny):
    source, lines = tiny.vocabulary.source, ["the cat", "", "a dog"]
    for extra in (2, 12):
        longer = tiny.with_options(extra_length=extra)
        for ask, choice, options in (
            ("translate", "probability", {"nbest": 2}),
            ("translate", "probability", {"markup": "html"}),
            ("translate", "mbr:samples=3", {}),
            ("sample", "probability", {"samples": 2}),
        ):
            short_model, long_model = (
                model.with_choice(choice) for model in (tiny, longer)
            )
            results = getattr(short_model, ask)(
                lines, extra_length=extra, warn=False, **options
            )
            assert results == getattr(long_model, ask)(lines, warn=False, **options)
            inputs = source.encode(lines, end=True)
            beyond = {
                len(h.tokens) - len(ids)
                for ids, model in zip(inputs, results, strict=True)
                for h in model.hypotheses
            }
            assert max(beyond) == extra
    assert tiny.config.decode.extra_length == 5
    learned = translator(positions="learned", max_positions=48)
    learned.translate(["a"], extra_length=16, warn=False)
    for wrong, message in ((17, "48 positions .* at most 16$"), (0, "=0 is too small")):
        with pytest.raises(UserError, match=f"^extra_length.*{message}"):
            learned.translate(["a"], extra_length=wrong)


def test_which_checkpoints_a_choice_means(tmp_path):
    def chosen(checkpoint, average=5, every=100):
        decode = DecodeConfig(average=average)
        config = Config(train=TrainConfig(save_every=every), decode=decode)
        return choose_checkpoints(tmp_path, config, checkpoint).steps

    folder = tmp_path / "checkpoints" / "parameters"
    with pytest.raises(UserError, match="no checkpoint yet"):
        chosen("average")
    for step in (100, 200, 300):
        (folder / str(step)).mkdir(parents=True)
        checkpoint_folders.seal(folder / str(step))
    (folder / "350").mkdir()  # not sealed: it does not count
    (folder / "400.orbax-checkpoint-tmp").mkdir()
    assert chosen("average", 2) == chosen(None, 2) == [200, 300]
    assert chosen("average", 5) == [100, 200, 300]
    assert chosen("average", every=200) == [200]  # the others are of stops
    assert chosen("average:3", 1) == [100, 200, 300]
    assert chosen("last") == [300]
    assert chosen("200") == chosen(200) == [200]
    with pytest.raises(UserError, match=r"of step 150; it has steps \[100, 200, 300\]"):
        chosen("150")
    for wrong in ("average:4", "average:0", "bets", "best:0", "last:2", -1):
        with pytest.raises(UserError, match="checkpoint="):
            chosen(wrong)
    with pytest.raises(UserError, match="dev BLEU was never measured"):
        chosen("best")
    best = tmp_path / "checkpoints" / "best"
    for step, bleu in ((150, 20.0), (200, 30.0), (250, 10.0), (300, 20.0)):
        (best / str(step)).mkdir(parents=True)
        checkpoint_folders.seal(best / str(step), bleu=bleu)
    assert chosen(150) == [150]
    assert chosen("best") == [200]
    assert chosen("best:3") == [150, 200, 300]
    with pytest.raises(UserError, match=r"keeps only 4: \[150, 200, 250, 300\]"):
        chosen("best:5")
