"""Several tasks in one model: places, tags, scores by subtask, zero-shot directions."""

import copy
import dataclasses
import re
import types

import pytest

from t2t_jax.commands import flags
from t2t_jax.config import Config, DataConfig, TaskConfig
from t2t_jax.data import feeding
from t2t_jax.data.corpus import open_specs
from t2t_jax.data.pairs import tokenize_in_memory
from t2t_jax.data.tokenizers.training import train_tokenizer
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
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


def task(train=TRAIN, **data):
    data = DataConfig(train=train, **data)
    return task_of(Config(task=TaskConfig("text_to_text"), data=data))


def opened(mixture, places, folder, **options):
    return open_specs(places, mixture.open, folder, **options)


# ----------------------------------------------------------------- places and tags


def test_each_source_begins_with_the_tag_of_its_subtask(folder):
    corpora = opened(task(), TRAIN, folder, weights=True)
    assert [corpus.weight for corpus in corpora] == [2, 1, 1, 0.5]
    names = ["en-de.news", "de-en.news", "en-fr.news", "copy.news.en"]
    assert [corpus.name for corpus in corpora] == names
    assert len({corpus.fingerprint() for corpus in corpora}) == 4
    en, de, fr, _ = (lines[0] for lines in TEXT.values())
    first_pairs = [(f"<2de> {en}", de), (f"<2en> {de}", en), (f"<2fr> {en}", fr)]
    assert [next(c.pairs()) for c in corpora] == [*first_pairs, (f"<copy> {en}", en)]
    # A run may know tags that its own text does not use, for a run that starts from it.
    assert task().data().symbols == "<2de>,<2en>,<2fr>,<copy>"
    assert task("copy:x", symbols="<bt>,<2de>").data().symbols == "<bt>,<2de>,<copy>"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("news", "news names no subtask; want SUBTASK:CORPUS"),
        ("grammar:train", "'grammar' is not a subtask.* such as en-de:grammar:train"),
        ("en_de:news", "'en_de' is not a subtask.*did you mean 'en-de'"),
        ("en-en:news", "en-en translates en into itself"),
        ("en-nl:news", "its tag <2nl>, only <2de>, <2en>, <2fr>, <copy>"),
        ("en-de:news,en-de:news", "names en-de:news twice"),
    ],
)
def test_a_wrong_place_is_refused(folder, place, message):
    with pytest.raises(UserError, match=message):
        [list(corpus.pairs()) for corpus in opened(task(), place, folder)]


def test_columns_are_not_read_in_both_directions(tmp_path):
    (tmp_path / "news.tsv").write_text("a dog\tein Hund\n")
    (tmp_path / "news.jsonl").write_text('{"en": "a dog", "de": "ein Hund"}\n')
    keys = "en-de:news.jsonl,de-en:news.jsonl"
    first_pairs = [next(c.pairs()) for c in opened(task(keys), keys, str(tmp_path))]
    assert first_pairs == [("<2de> a dog", "ein Hund"), ("<2en> ein Hund", "a dog")]
    columns = "en-de:news.tsv@2,de-en:*.tsv"
    with pytest.raises(UserError, match="a table is of one direction; want a .jsonl"):
        opened(task(columns), columns, str(tmp_path), weights=True)


def test_lines_are_of_the_subtask_of_their_tag():
    task().check_sources(["<2de> A dog.", "", "  ", "<copy> x"])
    with pytest.raises(UserError, match="line 8 begins with no tag: 'A dog.*--task=en"):
        task().check_sources(["<2de> A dog.", "A dog."], first_line=7)
    assert [task().tag(name) for name in ("de-fr", "copy")] == ["<2fr>", "<copy>"]
    with pytest.raises(UserError, match="several tasks.*'translation'"):
        TASKS["translation"](Config()).chosen("en-de", None)


# --------------------------------------------------------------- span corruption


def restored(source, target):
    """A line from what spans left of it and what they took."""
    parts = re.split(r"(<span_\d+>)", target)
    spans = dict(zip(parts[1::2], parts[2::2], strict=True))
    return re.sub(r"<span_\d+>", lambda match: spans.pop(match[0]), source)


def test_spans_are_cut_out_of_their_own_subtask_alone(folder):
    mixture = task("spans:news.en,en-de:news,spans:news.fr")
    corpora = opened(mixture, mixture.config.data.train, folder)
    lines = [[*corpus.pairs()] for corpus in corpora]
    stored = [pair for corpus_lines in lines for pair in corpus_lines]
    assert stored[0] == (f"<spans> {TEXT['en'][0]}", TEXT["en"][0])
    symbols = mixture.data().symbols.split(",")
    text = [line for pair in stored for line in pair]
    vocabulary = Vocabulary(train_tokenizer(text * 9, 350, symbols))
    noise = mixture.noise(vocabulary, [*zip(corpora, map(len, lines), strict=True)])
    pairs = tokenize_in_memory(stored, vocabulary, mixture.encode)
    pairs = dataclasses.replace(pairs, noise=noise)
    data = DataConfig(batch_tokens=2_048, row_length=64)
    (layout,) = feeding.plan_for(pairs, data, seed=3, epoch=0)
    batch = pairs.batch(layout, 3, 0)
    n = len(TEXT["en"])
    for pair, row, segment in zip(
        layout.pair_p.tolist(), layout.row_p, layout.segment_p, strict=True
    ):
        source, target = vocabulary.decode(
            [
                batch[side][row][batch[f"{side}_segment"][row] == segment]
                for side in ("source", "target")
            ]
        )
        if n <= pair < 2 * n:  # en-de, as it is
            assert (source, target) == stored[pair]
            continue
        assert "<span_0>" in source
        # A span takes the space before it.
        line = restored(source, target).replace(" ", "")
        assert line == f"<spans>{stored[pair][1]}".replace(" ", "")
    # They are trained on and not scored.
    mixture = task("spans:x,en-de:x", dev="spans:news.en,en-de:news")
    corpora = opened(mixture, mixture.config.data.dev, folder)
    assert [*mixture.dev_sets(corpora, 9)] == ["en-de.news"]
    with pytest.raises(UserError, match="spans has no answers.*config.data.dev"):
        mixture.of(corpora[0]).examples(corpora[0])


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
    (corpus,) = opened(mixture, "copy:news.en", folder)
    scorer = mixture.of(corpus)
    answers = [*TEXT["en"][:2], "he eats."]
    scores = scorer.scores(answers, scorer.examples(corpus), corpus)
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert "bleu" not in scores
    (corpus,) = opened(task(), "de-fr:news", folder)  # was not trained
    scorer = task().of(corpus)
    scores = scorer.scores(TEXT["fr"], scorer.examples(corpus), corpus)
    assert scores["zero_shot"] is True
    assert scorer.row(scores | {"perplexity": 1.0}, corpus).endswith("zero-shot")


def test_the_mean_over_dev_sets_chooses_checkpoints(folder):
    mixture = task()
    corpora = opened(mixture, "en-de:news,en-fr:news,copy:news.en", folder)
    sets = mixture.dev_sets(corpora, 2)
    assert [len(pairs) for _, pairs in sets.values()] == [2, 2, 2]
    dev_scores = {
        name: scorer.quick_scores([t for _, t in pairs], pairs)
        for name, (scorer, pairs) in sets.items()
    }
    dev_scores["copy.news.en"]["accuracy"] = 50
    scores = mixture.joined_scores(dev_scores)
    assert scores["copy.news.en.accuracy"] == 50
    assert scores[mixture.chosen_by] == pytest.approx((100 + 100 + 50) / 3)


# ---------------------------------------------------------------------- translator


def test_a_tagged_translator_reads_the_tag_before_each_line():
    translator = copy.copy(small_translator.translator())
    model = train_tokenizer(small_translator.TEXT * 20, 291, ["<2de>"])
    translator.vocabulary = Vocabulary(model)  # is read with, not answered with
    lines = ["the cat", "", "a <2de> dog"]
    tagged = ["<2de> the cat", "", "<2de> a <2de> dog"]
    read = translator.tagged("<2de>").reader(1, True)
    assert read.sources(lines) == translator.reader(1, True).sources(tagged)
    assert read.sources(lines)[1].ids == []  # a line of nothing stays so
    pairs = [[(line, "ein Hund") for line in sources] for sources in (lines, tagged)]
    assert read.pairs(pairs[0]) == translator.reader(1, True).pairs(pairs[1])
    assert translator.tagged("<2de>").provenance()["tag"] == "<2de>"
    assert "tag" not in translator.provenance()
    # The flag --task names the subtask of all lines.
    member = translator.members[0]._replace(config=task().config)
    translator.members = (member,)
    _, tagged_translator = flags.chosen_task(
        translator, types.SimpleNamespace(task="de-fr")
    )
    assert tagged_translator.tag == "<2fr>"
