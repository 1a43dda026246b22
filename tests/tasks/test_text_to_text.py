"""Several tasks in one model: places, tags, scores by subtask, zero-shot directions."""

import copy
import dataclasses
import re
import shutil
import types

import pytest

from t2t_jax.commands import flags
from t2t_jax.config import Config, DataConfig, TaskConfig, TrainConfig
from t2t_jax.data import feeding
from t2t_jax.data.corpus import open_specs
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import alignment
from t2t_jax.decoding.inputs import Member
from t2t_jax.decoding.results import Alignment
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.tasks.table import TASKS, task_of
from tests.decoding import small_translator

TEXT = {
    "en": ["The dog barks.", "A cat sleeps here.", "<2fr> is a tag."],
    "de": ["Der Hund bellt.", "Hier ist eine Katze.", "<2fr> ist eine."],
    "fr": ["Le chien aboie.", "Un chat dort.", "<2fr> est une balise."],
    "zh": ["狗在叫。", "猫在这里睡觉。", "<2fr> 是标签。"],
}
TRAIN = "en-de:news@2,de-en:news,en-fr:news,copy:news.en@0.5"


@pytest.fixture
def folder(tmp_path):
    for language, lines in TEXT.items():
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / f"news.{language}").write_text(text, encoding="utf-8")
    return str(tmp_path)


def task(train=TRAIN, init_from="", **data):
    config = Config(
        task=TaskConfig("text_to_text"),
        data=DataConfig(train=train, **data),
        train=TrainConfig(init_from=init_from),
    )
    return task_of(config)


def opened(mixture, places, folder, **options):
    return open_specs(places, mixture.open, folder, **options)


# ----------------------------------------------------------------- places and tags


def test_each_source_begins_with_the_tag_of_its_subtask(folder):
    corpora = opened(task(), TRAIN, folder, weights=True)
    assert [corpus.weight for corpus in corpora] == [2, 1, 1, 0.5]
    assert [corpus.name for corpus in corpora] == [
        *("en-de.news", "de-en.news", "en-fr.news", "copy.news.en")
    ]
    assert [corpus.target for corpus in corpora] == ["de", "en", "fr", "lines"]
    assert [corpus.spec for corpus in corpora][::3] == [
        *(f"en-de:{folder}/news", f"copy:{folder}/news.en")
    ]
    en, de, fr, _ = (lines[0] for lines in TEXT.values())
    assert [next(corpus.pairs()) for corpus in corpora] == [
        *((f"<2de> {en}", de), (f"<2en> {de}", en)),
        *((f"<2fr> {en}", fr), (f"<copy> {en}", en)),
    ]


def test_the_tags_are_symbols_in_the_order_of_the_text():
    assert task().data().symbols == "<2de>,<2en>,<2fr>,<copy>"
    # A run may know tags that its own text does not use, for a run that starts from it.
    assert task("copy:x", symbols="<bt>,<2de>").data().symbols == "<bt>,<2de>,<copy>"


def test_the_same_text_of_another_subtask_is_another_text(folder):
    mixture = task("en-de:a,en-at:a,copy:a,de-en:a")
    shutil.copy(f"{folder}/news.de", f"{folder}/news.at")  # the same bytes
    places = "en-de:news,en-at:news,de-en:news,copy:news.en,copy:news.de"
    corpora = opened(mixture, places, folder)
    plain = TASKS["translation"](Config()).open("news", folder)
    assert len({c.fingerprint() for c in [*corpora, plain]}) == 6


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("news", "news names no subtask; want SUBTASK:CORPUS"),
        ("en-de:", "names no subtask"),
        ("grammar:train", "'grammar' is not a subtask.* such as en-de:grammar:train"),
        ("en_de:news", "'en_de' is not a subtask.*did you mean 'en-de'"),
        ("text_to_text:news", "'text_to_text' is not a subtask"),
        ("en-en:news", "en-en translates en into itself"),
        ("en-nl:news", "its tag <2nl>, only <2de>, <2en>, <2fr>, <copy>"),
        ("en-de:nothing", "nothing.en does not exist"),
        ("en-de:news,en-de:news", "names en-de:news twice"),
    ],
)
def test_a_wrong_place_is_refused(folder, place, message):
    with pytest.raises(UserError, match=message):
        [list(corpus.pairs()) for corpus in opened(task(), place, folder)]


def test_lines_are_of_the_subtask_of_their_tag():
    task().check_sources(["<2de> A dog.", "", "  ", "<copy> x"])
    with pytest.raises(UserError, match="line 8 begins with no tag: 'A dog.*--task=en"):
        task().check_sources(["<2de> A dog.", "A dog."], first_line=7)
    assert [task().tag(name) for name in ("de-fr", "copy")] == ["<2fr>", "<copy>"]
    with pytest.raises(UserError, match="its tag <2nl>"):
        task().tag("en-nl")
    with pytest.raises(UserError, match="several tasks.*'translation'"):
        TASKS["translation"](Config()).chosen("en-de", None)


# --------------------------------------------------------------- span corruption


def restored(source, target):
    """A line from what spans left of it and what they took."""
    parts = re.split(r"(<span_\d+>)", target)
    taken = dict(zip(parts[1::2], parts[2::2], strict=True))
    return re.sub(r"<span_\d+>", lambda match: taken.pop(match[0]), source)


def examples_of(batch, layout, vocabulary):
    """The text of the examples of a batch: {number of the pair: (source, target)}."""
    sides = []
    for side in ("source", "target"):
        tokens, segments = batch[side], batch[f"{side}_segment"]
        rows = [
            tokens[row][segments[row] == segment]
            for row, segment in zip(layout.row_p, layout.segment_p, strict=True)
        ]
        sides.append(vocabulary.decode(rows))
    return dict(zip(layout.pair_p.tolist(), zip(*sides, strict=True), strict=True))


def test_spans_are_cut_out_of_their_own_subtask_alone(folder):
    mixture = task("spans:news.en,en-de:news,spans:news.fr")
    corpora = opened(mixture, mixture.config.data.train, folder)
    lines = [[*corpus.pairs()] for corpus in corpora]
    stored = [pair for of_corpus in lines for pair in of_corpus]
    assert stored[0] == (f"<spans> {TEXT['en'][0]}", TEXT["en"][0])
    symbols = mixture.data().symbols.split(",")
    text = [line for pair in stored for line in pair]
    vocabulary = Vocabulary(train_tokenizer(text * 9, 350, symbols))
    noise = mixture.noise(vocabulary, [*zip(corpora, map(len, lines), strict=True)])
    pairs = tokenize_in_memory(stored, vocabulary, mixture.encode)
    pairs = dataclasses.replace(pairs, noise=noise)
    data = DataConfig(batch_tokens=2_048, row_length=64)
    n, found = len(TEXT["en"]), []
    for epoch in (0, 1):
        (layout,) = feeding.plan_for(pairs, data, seed=3, epoch=epoch)
        examples = examples_of(pairs.batch(layout, 3, epoch), layout, vocabulary)
        found.append([examples[i] for i in range(len(stored))])
    assert found[0] != found[1]  # other spans
    for example in found:
        assert example[n : 2 * n] == stored[n : 2 * n]  # en-de, as it is
        cut = [*zip(example, stored, strict=True)]
        for (source, target), (_, line) in cut[:n] + cut[2 * n :]:
            assert "<span_0>" in source
            # A span takes the space before it.
            whole = restored(source, target).replace(" ", "")
            assert whole == f"<spans>{line}".replace(" ", "")
    # They are trained on and not scored.
    mixture = task("spans:x,en-de:x", dev="spans:news.en,en-de:news")
    corpora = opened(mixture, mixture.config.data.dev, folder)
    assert [*mixture.dev_sets(corpora, 9)] == ["en-de.news"]
    with pytest.raises(UserError, match="spans has no answers.*config.data.dev"):
        mixture.of(corpora[0]).examples(corpora[0])


def test_the_flag_task_names_the_subtask_of_all_lines(translator):
    config = task().config
    translator = copy.copy(translator)
    translator.members = (translator.members[0]._replace(config=config),)
    given = types.SimpleNamespace(task="de-fr")
    chosen, tagged = flags.chosen_task(translator, given)
    assert tagged.tag == "<2fr>"
    chosen.check_sources(["A dog."])  # needs no tag of its own
    given.task = None
    _, untagged = flags.chosen_task(translator, given)
    assert untagged.tag == ""


# -------------------------------------------------------------------------- scores


class Echo:
    """A translator that answers every line with the reference, and notes its tag."""

    def __init__(self, references, tag=""):
        self.references, self.tag = references, tag

    def tagged(self, tag):
        return Echo(self.references, tag)

    def translate(self, lines, warn=True):
        assert self.tag
        assert not any("<2de>" in line for line in lines)
        return [self.references[line] for line in lines]


def test_a_set_is_scored_by_its_own_subtask_and_language(folder):
    mixture = task("en-zh:news,en-de:news,copy:news.en", source="xx", target="yy")
    for place, signature in (("en-zh:news", "zh"), ("en-de:news", "13a")):
        (corpus,) = opened(mixture, place, folder)
        scorer = mixture.of(corpus)
        pairs = scorer.examples(corpus)
        assert pairs[0][0] == "The dog barks."  # published sets are found by their text
        answers = scorer.answers(Echo(dict(pairs)), pairs)
        scores = scorer.scores(answers, pairs, corpus)
        assert scores["bleu"] == pytest.approx(100)
        assert f"tok:{signature}" in scores["signature"]
        assert (scores["subtask"], scores["zero_shot"]) == (place[:5], False)
        assert "zero-shot" not in scorer.row(scores | {"perplexity": 1.0}, corpus)
    (corpus,) = opened(mixture, "copy:news.en", folder)
    scorer = mixture.of(corpus)
    answers = [*TEXT["en"][:2], "he eats."]
    scores = scorer.scores(answers, scorer.examples(corpus), corpus)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert "bleu" not in scores
    # A direction that was not trained.
    (corpus,) = opened(task(), "de-fr:news", folder)
    for start, untrained in (("", True), ("runs/other", False)):
        scorer = task(init_from=start).of(corpus)  # what others learned is not known
        scores = scorer.scores(TEXT["fr"], scorer.examples(corpus), corpus)
        assert scores["zero_shot"] is untrained
        row = scorer.row(scores | {"perplexity": 1.0}, corpus)
        assert row.endswith("zero-shot") == untrained


def test_the_mean_over_dev_sets_chooses_checkpoints(folder):
    mixture = task()
    corpora = opened(mixture, "en-de:news,en-fr:news,copy:news.en", folder)
    sets = mixture.dev_sets(corpora, 2)
    assert [len(pairs) for _, pairs in sets.values()] == [2, 2, 2]
    found = {
        name: scorer.quick_scores([t for _, t in pairs], pairs)
        for name, (scorer, pairs) in sets.items()
    }
    found["copy.news.en"]["accuracy"] = 50
    scores = mixture.joined_scores(found)
    assert list(scores)[:3] == ["mean", "en-de.news.bleu", "en-de.news.chrf"]
    assert scores["copy.news.en.accuracy"] == 50
    assert scores[mixture.chosen_by] == pytest.approx((100 + 100 + 50) / 3)
    assert mixture.higher_is_better


# ---------------------------------------------------------------------- translator


@pytest.fixture(scope="module")
def translator():
    """A translator that can read lines, and has no parameters to answer them."""
    model = train_tokenizer(small_translator.TEXT * 20, 291, ["<2de>"])
    made = Translator.__new__(Translator)
    made.vocabulary = Vocabulary(model)
    no_limit = types.SimpleNamespace(longest=None, cross_layers=1)
    made.members = (Member(small_translator.CONFIG, no_limit, {}, (7,)),)
    return made


def test_a_tagged_translator_reads_the_tag_before_each_line(translator):
    lines = ["the cat", "", "a <2de> dog"]
    tagged = ["<2de> the cat", "", "<2de> a <2de> dog"]
    read = translator.tagged("<2de>").reader(1, True)
    assert read.sources(lines) == translator.reader(1, True).sources(tagged)
    assert read.sources(lines)[1].ids == []  # a line of nothing stays so
    pairs = [[(line, "ein Hund") for line in some] for some in (lines, tagged)]
    assert read.pairs(pairs[0]) == translator.reader(1, True).pairs(pairs[1])
    assert translator.tagged("<2de>").provenance()["tag"] == "<2de>"
    assert "tag" not in translator.provenance()


def test_the_tag_is_not_a_word_of_an_alignment(translator, monkeypatch):
    whole = Alignment(((0, 0), (2, 1), (1, 2)))
    monkeypatch.setattr(alignment, "align", lambda *_: [whole])
    pairs = [("the cat", "die Katze da")]
    assert translator.align(pairs) == [whole]
    assert translator.tagged("<2de>").align(pairs) == [Alignment(((1, 1), (0, 2)))]
