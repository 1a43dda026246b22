"""One line in, one line out, in order, whatever is in it; warnings name the line."""

import pytest

from t2t_jax import Translator
from tests.small_run import copy_with

NASTY = {
    "words": "the cat " * 5_000,
    "emoji": "👩‍👩‍👧‍👦🇩🇪🏴‍☠️" * 300,
    "one word": "Donaudampfschiff" * 700,
    "spaces": " " * 5_000,
    "white space of all kinds": "\t\u00a0\u2003\u3000\ufeff",
    "control": "a\x00b\x07c\x1b[31m\x7f",
    "line separators": "one\x0btwo\x0cthree\x1cfour\x85five\u2028six\u2029seven",
    "carriage returns": "one\rtwo\r\rthree",
    "directions": "\u202eabc\u202c \u200f\u200e",
    "unpaired accents": "\u0301\u0301\u0301",
    "private use, as the tokenizer's own spelling": "\u2581\uf8fe\uf8fd\uf8fe",
    "the last plane": "\U0010ffff",
    "zero width": "\u200b\u200d\ufeff\u2060",
    "invisible controls": "\x00\x01\x7f",
    "empty": "",
    "special pieces": "</s> <s> <pad> <unk> <0x0A> <0x0D>",
}


@pytest.fixture(scope="module")
def workdir(trained, tmp_path_factory):
    """A model that never ends a sentence takes long over long ones: cut at 64."""
    folder = tmp_path_factory.mktemp("nasty") / "work"
    return copy_with(trained[0], folder, max_source=64)


@pytest.fixture(scope="module")
def translator(workdir):
    return Translator.load(workdir)


def test_the_command_gives_a_line_for_a_line(workdir, translator, commands):
    lines = [line for nasty in NASTY.values() for line in (nasty, "The cat sleeps.")]
    source = "".join(f"{line}\n" for line in lines).encode()
    code, output, warnings = commands(
        "translate", f"--workdir={workdir}", source=source
    )
    assert code == 0, warnings
    output = output.split("\n")
    assert output.pop() == ""
    assert len(output) == len(lines)
    assert {*output[1::2]} == {translator.translate(["The cat sleeps."])[0].text}
    assert all(len(line.splitlines()) <= 1 for line in output)
    (cut,) = [line for line in warnings.splitlines() if "only the first 63" in line]
    # The others need no cut; the spaces are no work.
    assert [*NASTY][:3] == ["words", "emoji", "one word"]
    assert cut.startswith(f"warning: 3 of {len(lines)} lines have ")
    assert cut.endswith(": lines 1, 3, 5")
    answers = dict(zip(NASTY, output[::2], strict=True))
    for name in ("spaces", "white space of all kinds", "zero width", "empty"):
        assert not answers[name], name
    assert not answers["invisible controls"]
