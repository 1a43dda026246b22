"""Parts of an output are merged to the bytes of one process, or named."""

import pytest

from t2t_jax.decoding.jobs import InputFile, run_job
from t2t_jax.io import atomic
from t2t_jax.io.errors import UserError
from t2t_jax.io.parts import merge, parse_part, part_of

LINES = ["\ufeffone\r", "", "\ufeffthree", "vier ü", "\u2028", "six", "7"]
MADE_FROM = {"beam": 4, "must": ()}


def job(folder, part=(1, 1), lines=LINES, **made_from):
    """Writes OUT, or a part of it: NUMBER ||| LINE, two of each, as --nbest=2 does."""
    (folder / "in").write_text("\n".join(["\ufeff", *lines]))

    def translate_lines(chunk, number):
        return "".join(f"{number + i} ||| {x}\n" * 2 for i, x in enumerate(chunk))

    text = InputFile(folder / "in", part)
    path = part_of(folder / "out", part)
    run_job(translate_lines, text, path, MADE_FROM | made_from, False, 2)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "in"}


@pytest.mark.parametrize("count", [2, 3, 7, 11])
def test_merged_parts_are_the_output_of_one_process(tmp_path, capsys, count):
    job(tmp_path)
    assert {*contents(tmp_path)} == {"out"}
    output = (tmp_path / "out").read_bytes()
    (tmp_path / "out").unlink()
    for number in range(count, 0, -1):
        job(tmp_path, (number, count))
    parts = contents(tmp_path)
    sizes = [InputFile(tmp_path / "in", (n + 1, count)).count for n in range(count)]
    assert max(sizes) - min(sizes) <= 1
    merge(tmp_path / "out")
    assert contents(tmp_path) == parts | {"out": output}
    assert f"{count} parts are merged" in capsys.readouterr().err
    with pytest.raises(UserError, match="out already exists and is not overwritten"):
        merge(tmp_path / "out")


def test_parts_that_are_not_there_are_named(tmp_path):
    def refused(message):
        with pytest.raises(UserError, match=message):
            merge(tmp_path / "out")
        assert not (tmp_path / "out").exists()

    refused("out: no part is there. Want all parts of one N")
    job(tmp_path, (2, 5))
    job(tmp_path, (3, 5))
    (tmp_path / "out.4-of-5.partial").touch()
    (tmp_path / "out.9-of-5").touch()  # of nobody
    (tmp_path / "out.1-of-7.json").touch()  # no part
    five_parts = (
        r"2 of 5 parts are finished, out.1-of-5 is missing, "
        r"out.4-of-5 is unfinished \(.partial\), out.5-of-5 is missing\."
    )
    refused(f"out: {five_parts}")
    job(tmp_path, (1, 2))
    refused(f"out: 1 of 2 parts are finished, out.2-of-2 is missing, {five_parts}")
    job(tmp_path, (2, 2))
    merge(tmp_path / "out")  # of the two N, the one that has all
    (tmp_path / "out").unlink()
    (tmp_path / "out.4-of-5.partial").unlink()
    for number in (1, 4, 5):
        job(tmp_path, (number, 5))
    refused("out: 2 of 2 parts are finished, 5 of 5 parts are finished. Want all parts")


def test_a_part_of_another_job_is_named(tmp_path):
    changed = [
        ({"beam": 5}, r"beam: 4 wanted, 5 there\n"),
        (
            {"lines": [*LINES[:-1], "8"]},
            r"whole_input: .*sha256.* wanted, .*sha256.* there",
        ),
        (
            {"lines": [*LINES, "9"]},
            r"whole_input: .*'lines': 8, .* wanted, .*'lines': 9,",
        ),
    ]
    for number in (1, 3):
        job(tmp_path, (number, 3))
    second, record = tmp_path / "out.2-of-3", tmp_path / "out.2-of-3.json"
    for options, message in changed:
        job(tmp_path, (2, 3), **options)
        with pytest.raises(
            UserError, match=f"(?s)2-of-3 does not go with out.1.*{message}"
        ):
            merge(tmp_path / "out")
        second.unlink()  # its record is written again with it
    job(tmp_path, (2, 3))
    record_bytes = record.read_bytes()
    third = tmp_path / "out.3-of-3.json"
    for content, message in [
        (third.read_bytes(), "part: '2/3' wanted, '3/3' there"),
        (record_bytes.replace(b"2/3", b"3/3"), "2-of-3.json is missing or damaged"),
        (atomic.checked_json({"lines": 3}), "it is not the record of a part"),
    ]:
        record.write_bytes(content)
        with pytest.raises(UserError, match=message):
            merge(tmp_path / "out")
    short = atomic.read_checked_json(third) | {"part": "2/3", "lines": 1}
    record.write_bytes(atomic.checked_json(short))
    with pytest.raises(UserError, match="lines: 3 wanted, 1 there"):
        merge(tmp_path / "out")
    record.unlink()
    with pytest.raises(UserError, match="2-of-3.json is missing"):
        merge(tmp_path / "out")
    record.write_bytes(record_bytes)
    second.write_bytes(second.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match="2-of-3 was changed .* remove the part"):
        merge(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_how_parts_are_written(tmp_path):
    assert parse_part("2/4") == (2, 4)
    for wrong in ("2", "0/4", "5/4", "1/4/4", "array/4"):
        with pytest.raises(UserError, match="want I/N, the I-th of N parts"):
            parse_part(wrong)
    assert part_of(tmp_path / "o.de", (1, 1)).name == "o.de"
    assert part_of(tmp_path / "o.de", (2, 12)).name == "o.de.02-of-12"
