"""A translator on any text: one line in, one line out, each by itself."""

import dataclasses
import logging

import jax
import pytest

from t2t_jax.config import Config, DecodeConfig, ModelConfig, TrainConfig
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.model.model import build
from t2t_jax.search import beam
from t2t_jax.training import checkpoint_folders
from t2t_jax.training.averaging import choose_checkpoints

pytestmark = pytest.mark.usefixtures("quick_compiler")

TEXT = ["the cat sees the dog", "a dog sleeps", "die Katze sieht den Hund", "ein Hund"]
CONFIG = Config(
    model=ModelConfig(layers=1, width=16, heads=2, hidden=16),
    decode=DecodeConfig(beam=3, extra_length=5, max_source=64, batch_tokens=256),
)


@pytest.fixture(scope="module")
def translator():
    vocabulary = Vocabulary(train_tokenizer(TEXT * 20, 290))
    model = build(CONFIG.model, len(vocabulary))
    parameters = jax.tree.map(lambda x: 4 * x, model.init(jax.random.key(1)))
    return Translator(CONFIG, vocabulary, model, parameters, [7])


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


def test_one_line_in_one_line_out_in_order(translator):
    translations = [str(found) for found in translator.translate(NASTY)]
    assert len(translations) == len(NASTY)
    assert not any("\n" in line for line in translations)
    assert translations[0] == translations[7]
    assert translations[1] == translations[2] == ""


def test_a_line_does_not_depend_on_the_lines_beside_it(translator):
    alone = [translator.translate([line], nbest=3)[0] for line in NASTY]
    assert translator.translate(NASTY, nbest=3) == alone
    backwards = translator.translate(NASTY[::-1] * 9, nbest=3)[: len(NASTY)]
    assert backwards[::-1] == alone


def test_hypotheses_are_ranked_and_the_best_is_the_translation(translator):
    for line, found in zip(
        TEXT, translator.translate(TEXT, beam=4, nbest=4), strict=True
    ):
        found = found.hypotheses
        assert [h.score for h in found if h.ended] == sorted(
            (h.score for h in found if h.ended), reverse=True
        )
        assert all(h.log_prob <= 0 for h in found)
        assert translator.translate([line], beam=4)[0].best == found[0]


def test_fewer_hypotheses_than_asked_for_are_fewer(translator):
    config = dataclasses.replace(
        CONFIG, decode=dataclasses.replace(CONFIG.decode, extra_length=1)
    )
    short = Translator(
        config, translator.vocabulary, translator.model, translator.parameters
    )
    found = short.translate(["a"], beam=4, nbest=4, warn=False)[0].hypotheses
    assert 1 <= len(found) <= 4
    assert all(h.score > float("-inf") for h in found)


def test_a_line_too_long_is_cut_with_a_warning_that_names_it(translator, caplog):
    lines = ["the cat", "x" * 500, "a dog"]
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        whole = translator.translate(lines, first_line=11)
    cut = [
        r.getMessage() for r in caplog.records if "only the first 63" in r.getMessage()
    ]
    assert len(cut) == 1
    assert cut[0].startswith("line 12 has 50")
    assert len(whole) == 3
    caplog.clear()
    translator.translate(lines, warn=False)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        translator.translate(lines * 7, first_line=11, batch_size=2)
    cut = [r.getMessage() for r in caplog.records if "only the first" in r.getMessage()]
    assert cut == [
        "7 of 21 lines have more than 63 tokens; only the first 63 are read "
        "(config.decode.max_source=64): lines 12, 15, 18, 21, 24, ..."
    ]


def test_an_end_that_never_comes_is_told_and_whole(translator, caplog, monkeypatch):
    ending = beam.BeamSearch.advance

    def without_end(self, step, *arguments):
        def endless(cache, token_bn, position):
            logits_bnv, cache = step(cache, token_bn, position)
            return logits_bnv.at[:, :, self.eos].set(-1e9), cache

        return ending(self, endless, *arguments)

    monkeypatch.setattr(beam.BeamSearch, "advance", without_end)
    jax.clear_caches()
    with caplog.at_level(logging.WARNING, logger="t2t_jax"):
        found = translator.translate(["the cat"])[0]
        several = translator.translate(["", "the cat", "a dog"], batch_size=1)
    jax.clear_caches()
    assert not found.ended
    assert found.text
    assert [t.ended for t in several] == [True, False, False]
    length = len(translator.vocabulary.encode(["the cat"])[0]) + 1 + 5
    told = f"line 1: its output did not end within {length} tokens"
    assert [r.getMessage() for r in caplog.records] == [
        told,
        "2 of 3 outputs reached their longest length: lines 2, 3",
    ]


def test_misuse_is_told(translator):
    with pytest.raises(UserError, match="takes a list of lines"):
        translator.translate("the cat")
    with pytest.raises(UserError, match="beam=0 is too small"):
        translator.translate(["a"], beam=0)
    with pytest.raises(UserError, match="nbest=4 with beam=3"):
        translator.translate(["a"], nbest=4)


def test_no_lines_are_no_work(translator):
    assert translator.translate([]) == []


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


def test_what_is_not_a_workdir_is_told(tmp_path):
    with pytest.raises(UserError, match="is not a workdir: it has no config.json"):
        Translator.load(tmp_path)


def test_it_says_what_it_is(translator):
    assert repr(translator) == (
        "Translator(en -> de, Vocabulary(290 pieces), "
        f"{translator.model.count():,} parameters of steps 7)"
    )
