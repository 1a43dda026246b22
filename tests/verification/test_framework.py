"""What `verify` makes of checks: results, exit status, table, JSON, page."""

import json
import types

import pytest

from t2t_jax import UserError
from t2t_jax.parallel import machine
from t2t_jax.tools.verify import command as verify
from t2t_jax.tools.verify import table
from t2t_jax.tools.verify.check import (
    Check,
    Context,
    Measured,
    Unavailable,
    all_equal,
    at_most,
    left_out,
    run_check,
    selected_checks,
    worst,
)


def raises(error):
    def run(context):
        raise error

    return run


MACHINE = {"device": "cpu", "devices": 1, "XLA_FLAGS": "a|b"}
CHECKS = {
    "good": Check("first", "one is small", lambda context: at_most(1.0, 2.0)),
    "told": Check("first", "a rate", lambda context: Measured("7/s", "", None)),
    "bad": Check("first", "three is small", lambda context: at_most(3.0, 2.0)),
    "raises": Check("second", "no error", raises(ValueError("odd\nand long"))),
    "leaves": Check("second", "does not leave", raises(SystemExit(0))),
    "absent": Check("second", "needs a GPU", raises(Unavailable("there is no GPU"))),
    "dear": Check("second", "takes hours", lambda context: at_most(1, 2), quick=False),
}
GOOD = {name: CHECKS[name] for name in ("good", "told", "absent")}


@pytest.fixture
def results(tmp_path):
    context = Context(tmp_path)
    return [run_check(n, c, context) for n, c in CHECKS.items() if n != "dear"]


@pytest.fixture
def command(monkeypatch):
    """Runs the command's `main` with some checks; returns its exit status."""
    monkeypatch.setattr(machine, "describe_machine", lambda: MACHINE)

    def run(checks=CHECKS, **changes):
        defaults = {"list": False, "quick": False, "full": False, "json": False}
        defaults |= {"only": [], "output": None, "workdir": None}
        flags = types.SimpleNamespace(**defaults | changes)
        monkeypatch.setattr(table, "CHECKS", checks)
        monkeypatch.setattr(verify.flags, "FLAGS", flags)
        try:
            verify.main([])
        except SystemExit as end:
            return end.code
        return 0

    return run


def test_checks_that_fail_do_not_keep_others_from_running(results):
    held = {result.name: result.held for result in results}
    assert held == {
        **{"good": True, "told": None, "bad": False},
        **{"raises": False, "leaves": False, "absent": None},
    }
    assert [r.name for r in results if r.measured is None] == ["absent"]
    assert "ValueError: odd" in results[3].error
    assert results[3].measured.figure == "ValueError: odd"


def test_an_error_that_is_not_a_number_is_not_held():
    assert not at_most(float("nan"), 1.0).held
    assert not at_most(float("inf"), 1.0).held
    assert at_most(1.0, 1.0).held
    assert not at_most(worst([0.5, float("nan"), 0.5]), 1.0).held
    assert not all_equal(0, 0, "lines").held
    assert all_equal(0, 5, "lines").held
    assert not all_equal(1, 5, "lines").held


def test_names_and_groups_choose_checks():
    assert "dear" not in selected_checks(CHECKS)
    assert selected_checks(CHECKS, full=True) == [*CHECKS]
    assert selected_checks(CHECKS, ["bad", "good"]) == ["good", "bad"]
    assert selected_checks(CHECKS, ["second"]) == ["raises", "leaves", "absent"]
    assert selected_checks(CHECKS, ["dear"]) == ["dear"]
    with pytest.raises(UserError, match=r"--only=absnt: no such check; did you mean"):
        selected_checks(CHECKS, ["absnt"])


def test_the_table_says_what_held_and_what_was_not_checked(results):
    lines = verify.table([*results, *left_out(CHECKS, [r.name for r in results])])
    text = "\n".join(lines)
    (good,) = [line for line in lines if line.startswith("held")]
    assert good.split()[:2] == ["held", "good"]
    assert "  absent  there is no GPU" in text
    assert "  dear    only --full runs it, or --only=dear" in text
    assert "1 held, 3 not held, 1 reported, 2 not checked" in lines[-1]
    assert lines[-1].endswith("not held: bad, raises, leaves")


def test_json_holds_every_number_and_is_all_on_standard_output(command, capsys):
    assert command({n: c for n, c in CHECKS.items() if n != "dear"}, json=True) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["machine"] == MACHINE
    assert not content["held"]
    assert content["checks"]["good"]["numbers"] == {"measured": 1.0, "bound": 2.0}
    assert content["checks"]["absent"] == {
        **{"group": "second", "promise": "needs a GPU"},
        **{"checked": False, "reason": "there is no GPU"},
    }
    assert (
        content["checks"]["raises"]["numbers"]["error"] == "ValueError: odd\nand long"
    )


def test_the_exit_status_says_all_or_not(command, capsys):
    assert command(GOOD) == 0
    assert command(GOOD, only=["absent"]) == 1
    assert command(only=["bad"]) == 1
    assert command(only=["raises"]) == 1
    assert command(only=["dear"]) == 0
    assert command(full=True) == 1
    assert "takes hours" in capsys.readouterr().out


def test_a_listing_names_all_and_runs_nothing(command, capsys):
    assert command(table.CHECKS, list=True) == 0
    out = capsys.readouterr().out
    for name, check in table.CHECKS.items():
        assert f"  {name} " in out
        assert check.promise in out


def test_a_page_is_written_and_never_over_another(command, tmp_path, capsys):
    file = tmp_path / "page.md"
    assert command(output=str(file)) == 1  # also if a promise is broken
    text = file.read_text(encoding="utf-8")
    assert text.startswith("## Verified on 1 x cpu, 20")
    assert "| XLA_FLAGS | a\\|b |" in text  # a bar would end the cell
    assert "| bad | three is small | 3 | <= 2 | NOT HELD | 0.0 |" in text
    with pytest.raises(UserError, match="exists"):
        command(output=str(file))


@pytest.mark.slow
def test_every_quick_promise_is_held_here(commands):
    command = commands("verify", "--quick", "--json")
    checks = json.loads(command.stdout)["checks"]
    broken = {name: row for name, row in checks.items() if row.get("held") is False}
    assert not broken, command.stderr
    assert command.returncode == 0
    assert {name for name, row in checks.items() if not row["checked"]} >= {"fused"}
