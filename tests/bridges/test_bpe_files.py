"""Dictionaries and codes of fairseq and FSMT: ids, texts and damaged files."""

import io
import re

import pytest
import sentencepiece
from sacremoses import MosesDetokenizer, MosesTokenizer

from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.io.errors import UserError
from t2t_jax.tools.bridges.vocabularies.fairseq import (
    fairseq_vocabulary,
    fsmt_vocabulary,
)
from tests.bridges.bpe_folders import fairseq, fsmt, learned
from tests.bridges.exported import needs
from tests.bridges.published_tokenizers import nasty_lines, original, pieces, spm

FULL = [
    *("</w>", "a@@", "@@ a", "@@", "x@-@y", "a-b", "&amp;", "&lt;a&#124;", "<a b>"),
    *("don't 'tis", '"A" "b', "„a“", "1.5, 2,3", "Mr. a. b.", "...a ....", "MULTI"),
    *("DOTMULTI", "http://a.b/c?d=e&f", "me@x.org", "\x1c\x1d", "a\x0bb\x0c", "l'eau"),
    *("…", "«\xa0a\xa0»", "１，２", "a\ufeffb", "a\xadb", "x' - li"),
]


def lines(count: int) -> list[str]:
    return [
        *FULL,
        *map(" ".join, zip(FULL, FULL[::-1], strict=True)),
        *nasty_lines(count),
    ]


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fairseq")
    return fairseq_vocabulary(folder, fairseq(folder))[0]


def names(vocabulary, line):
    return " ".join(vocabulary.pieces(line))


def test_ids_are_those_of_the_dictionary(read):
    assert (read.pad, read.bos, read.eos, read.unknown) == (1, 2, 2, 3)
    assert read.sizes == (len(learned()[1]) + 5,) * 2
    assert read.piece(len(read) - 1) == "madeupword0000"
    assert [read.source.piece(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert not read.joint
    assert read.source.encode(["the"], end=True)[0][-1] == 2
    assert read.encode(["a", "b"]) != read.source.encode(["a", "b"])


def test_words_are_those_of_moses_and_pieces_those_of_the_merges(read):
    assert names(read.source, "don't (a-b)") == "don &apos;t ( a @-@ b )"
    assert names(read.source, "zzz") == "z@@ z@@ z"
    assert names(read.source, "a 日 b") == "a <unk> b"
    assert read.source.decode(read.source.encode(["a-b (2)"])) == ["a-b (2)"]
    assert read.decode([[0, 3, *read.encode(["a"])[0], 2]]) == ["<unk> a"]
    # The last piece of an unfinished word.
    inside = read._tokenizer.id_of("z@@")
    assert read.decode([[inside]]) == ["z"]


def test_languages_may_share_a_table(tmp_path):
    options = fairseq(tmp_path) | {"share_all_embeddings": True}
    with pytest.raises(UserError, match="one table .* but their dictionaries differ"):
        fairseq_vocabulary(tmp_path, options)
    text = (tmp_path / "dict.en.txt").read_text()
    (tmp_path / "dict.de.txt").write_text(text)
    shared, notes = fairseq_vocabulary(tmp_path, options)
    assert (shared.joint, notes) == (True, ())
    # English has rules of its own for apostrophes.
    assert shared.source.pieces("don't") != shared.pieces("don't")


def test_a_stored_tokenizer_is_the_same(read):
    again = Vocabulary(read.model, "again", Vocabulary(read.source.model))
    for old, new in ((read, again), (read.source, again.source)):
        assert old.encode(FULL) == new.encode(FULL)
        assert old.decode(old.encode(FULL)) == new.decode(old.encode(FULL))


def test_codes_of_other_programs_split_alike(tmp_path, read):
    options = fairseq(tmp_path, "", " 12")
    fast = fairseq_vocabulary(tmp_path, options | {"bpe": "fastbpe"})[0]
    assert fast.source.encode(FULL) == read.source.encode(FULL)
    # Version 0.1 has the end of a word as a symbol of its own.
    for header, parts in (("", ["the"]), ("#version: 0.2\n", ["th", "e"])):
        (tmp_path / "bpecodes").write_text(f"{header}t h\nth e\nthe </w>\n")
        made = fairseq_vocabulary(tmp_path, options)[0]
        assert made._tokenizer._parts("the") == parts
        assert made._tokenizer._parts("then") == ["the", "n"]


def test_what_the_model_does_not_say_is_assumed_and_told(tmp_path):
    options = fairseq(tmp_path)
    del options["tokenizer"], options["bpe"]
    made, notes = fairseq_vocabulary(tmp_path, options)
    assert "assumed Moses" in notes[0]
    assert made.pieces("a-b") == ["a", "@-@", "b"]
    (tmp_path / "bpecodes").unlink()
    with pytest.raises(UserError, match="parts of words .* want byte-pair codes"):
        fairseq_vocabulary(tmp_path, options)
    for language in ("en", "de"):
        (tmp_path / f"dict.{language}.txt").write_text("the 3\ncat 2\n")
    made, notes = fairseq_vocabulary(tmp_path, options)
    assert "each word is one piece" in notes[0]
    assert made.pieces(" the cats  cat ") == ["the", "<unk>", "cat"]
    assert made.decode([[4, 5]]) == ["the cat"]


def test_fsmt_is_the_same_with_other_names(tmp_path, read):
    made = fsmt_vocabulary(tmp_path, fsmt(tmp_path))
    assert not made.joint
    assert made.sizes == (len(read) - 1, len(read) - 1)
    assert names(made.source, "zzz don't") == "z z z</w> don</w> &apos;t</w>"
    # It normalizes text, and finds special pieces in it.
    assert made.pieces("“a”") == made.pieces('"a"')
    assert made.pieces("a</s>b") == ["a</w>", "</s>", "b</w>"]
    assert made.decode([[3, 2, *made.encode(["a b"])[0], 2]]) == ["a b"]
    fsmt(tmp_path, do_lower_case=True)
    lower = fsmt_vocabulary(tmp_path, {})
    assert lower.pieces("THE") == lower.pieces("the")


@pytest.mark.parametrize("language", ["de", "fr"])
def test_one_line_stays_one_line(tmp_path, language):
    options = fairseq(tmp_path) | {"moses_target_lang": language}
    made = fairseq_vocabulary(tmp_path, options)[0]
    texts = made.decode(made.encode(FULL + nasty_lines(100)[13:]))
    assert not any(re.search(r"[\n\r]", text) for text in texts)
    assert made.decode(made.encode(["a' - li"])) != [""]  # sacremoses 0.2 fails


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("dict.en.txt", "a 1\nb\n", r"dict\.en\.txt, line 2: got 'b'; want a piece"),
        ("dict.en.txt", "a 1\nb 1\na 3\n", "line 3: 'a' .* twice; first in line 1"),
        ("dict.en.txt", "a 1\na 2 #fairseq:overwrite\n", "line 2: #fairseq:overwrite"),
        ("dict.de.txt", None, r"dict\.de\.txt does not exist"),
        ("bpecodes", "#version: 0.2\na b\na b 3\n", "line 3: .*want two symbols"),
        ("bpecodes", "a b\n\nc d\n", "line 2: got ''"),
        ("bpecodes", b"a b\n\xff\n", "bpecodes is not UTF-8"),
        ("bpecodes", None, "no file for bpe=subword_nmt; want .* bpecodes or"),
        ("merges.txt", "a b 1\nc\n", r"merges\.txt, line 2: got 'c'; want 2 symbols"),
        ("vocab-tgt.json", '{"<s>": 0, "a": 0}', "'a' and '<s>' have the same id 0"),
        ("vocab-tgt.json", '{"<s>": 0, "a": 1}', "lacks <pad>, </s>, <unk>"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, wanted):
    of_fsmt = name in ("merges.txt", "vocab-tgt.json")
    write, read = (fsmt, fsmt_vocabulary) if of_fsmt else (fairseq, fairseq_vocabulary)
    options = write(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        content = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=wanted):
        read(tmp_path, options)


# Against the originals


@needs("subword_nmt")
@pytest.mark.parametrize(
    ("header", "changed"),
    [
        ("#version: 0.2\n", {}),
        ("", {"moses_no_escape": True, "moses_no_dash_splits": True}),
        ("", {"tokenizer": "space"}),
    ],
)
def test_ids_and_texts_are_those_of_fairseq_s_parts(tmp_path, header, changed):
    from subword_nmt import apply_bpe

    options = fairseq(tmp_path, header) | changed
    made, _ = fairseq_vocabulary(tmp_path, options)
    split = apply_bpe.BPE(io.StringIO((tmp_path / "bpecodes").read_text()))
    words, join = MosesTokenizer("en"), MosesDetokenizer("de")
    moses = options["tokenizer"] == "moses"

    def split_line(line):
        if moses:
            line = words.tokenize(
                line,
                aggressive_dash_splits=not changed.get("moses_no_dash_splits"),
                escape=not changed.get("moses_no_escape"),
                return_str=True,
            )
        return split.process_line(line).split()

    def text(names):
        line = (" ".join(names) + " ").replace("@@ ", "").rstrip()
        return join.detokenize(line.split()) if moses else line

    some = lines(500)
    for line, ids in zip(some, made.source.encode(some), strict=True):
        known = [made.source.piece(i) for i in ids]
        wanted = split_line(line)
        ids_of = made.source._tokenizer.id_of
        assert known == [p if ids_of(p) != 3 else "<unk>" for p in wanted]
    rows = [ids for ids in made.encode(some) if not {1, 2} & {*ids}]
    for ids, line in zip(rows, made.decode(rows), strict=True):
        assert line == text([made.piece(i) for i in ids])


@pytest.mark.parametrize("joint", [False, True])
def test_sentencepiece_s_pieces_have_ids_of_the_dictionary(tmp_path, joint):
    model = spm(None, "bpe", normalization_rule_name="nmt_nfkc")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    found = pieces(model)[3:-9]  # the others are unknown
    for language, own in (("en", found), ("de", found if joint else found[::-1])):
        text = "".join(f"{piece} 3\n" for piece in own)
        (tmp_path / f"dict.{language}.txt").write_text(text)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    options = {"source_lang": "en", "target_lang": "de", "bpe": "sentencepiece"}
    options["share_all_embeddings"] = joint
    made, notes = fairseq_vocabulary(tmp_path, options)
    assert notes == ()
    assert made.joint == joint
    assert (made.pad, made.bos, made.eos, made.unknown) == (1, 2, 2, 3)
    some = lines(100)
    for line, ids in zip(some, made.source.encode(some), strict=True):
        names = " ".join(processor.encode(line, out_type=str)).split()
        wanted = [name if name in found else "<unk>" for name in names]
        assert [made.source.piece(i) for i in ids] == wanted
    rows = made.encode(some)
    for row, text in zip(rows, made.decode(rows), strict=True):
        joined = " ".join(made.piece(i) for i in row)
        assert text == joined.replace(" ", "").replace("\u2581", " ").strip()
    with pytest.raises(UserError, match="moses before SentencePiece"):
        fairseq_vocabulary(tmp_path, options | {"tokenizer": "moses"})
    with pytest.raises(UserError, match="bpe=gpt2 is not supported"):
        fairseq_vocabulary(tmp_path, options | {"bpe": "gpt2"})


@needs("transformers")
@pytest.mark.parametrize("lower", [False, True])
def test_ids_and_texts_are_those_of_the_library(tmp_path, lower):
    fsmt(tmp_path, do_lower_case=lower)
    made = fsmt_vocabulary(tmp_path, {})
    some = lines(500)
    rows = made.encode(some, end=True)
    job = {"kind": "fsmt", "source": "", "target": "", "lines": some, "rows": rows}
    theirs = original(tmp_path, **job)
    assert made.source.encode(some, end=True) == theirs["source"]
    assert made.decode(rows) == theirs["texts"]
