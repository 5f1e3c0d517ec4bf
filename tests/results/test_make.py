"""The runner: what is done is skipped, what changed is made again, and drives for reporting are looked at once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import make
import pytest
from records import Book, fingerprint
from steps import Places, Plan, Row, Step, Table

from copilot4d.errors import UsageError


def step(name: str, **changes) -> Step:
    values = {"name": name, "words": ("copilot4d", name, "--out", f"WORK/{name}"), "kind": "scores", "makes": name,
              "core_minutes": 1.0}  # fmt: skip
    return Step(**{**values, **changes})


def small_plan() -> Plan:
    """model <- score, model <- test; a is by itself."""
    words = ("copilot4d", "train", "--updates", "20", "--max-updates", "10", "--run", "WORK/runs/model")
    steps = [
        step("a", files={"settings/a.yaml": "x: 1\n"}),
        step("runs/model", kind="run", words=words, makes="runs/model"),
        step("score", needs=("runs/model",)),
        step("test", needs=("runs/model",), report=True),
    ]
    rows = tuple(Row(label=name, step=name) for name in ("a", "score", "test"))
    table = Table(name="all", title="All", kind="forecasts", rows=rows)
    return Plan({s.name: s for s in steps}, {"all": table})


class Machine:
    """Stands for the commands: writes what they would, remembers their order, fails where it is told to."""

    def __init__(self, work):
        self.work, self.ran, self.codes, self.updates = work, [], {}, 10

    def __call__(self, command):
        assert command[:3] == [sys.executable, "-m", "copilot4d.cli.main"]
        name = "runs/model" if command[3] == "train" else command[3]
        self.ran.append(name)
        if self.codes.get(name, 0) == 0:
            if name == "runs/model":
                save(self.work / name, self.updates)
            else:
                (self.work / name).write_text(name)
        return self.codes.get(name, 0)


def save(run, updates, score=None, weights="w"):
    folder = run / "checkpoints" / f"step_{updates:09d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"step": updates, "score": score}))
    (folder / "manifest.json").write_text(f"{weights}{updates}")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def run(machine, *words, plan=None) -> int:
    return make.main(["--work", str(machine.work), *words], plan=plan or small_plan(), execute=machine)


def book(machine, plan=None) -> Book:
    return Book(plan or small_plan(), Places(work=machine.work))


def test_needs_first_and_nothing_twice(machine):
    assert run(machine, "--only", "score", "a") == 0
    assert machine.ran == ["runs/model", "score", "a"]
    assert (machine.work / "settings/a.yaml").read_text() == "x: 1\n"
    assert run(machine, "--only", "score", "a") == 0
    assert len(machine.ran) == 3
    (machine.work / "score").unlink()
    assert run(machine, "--only", "score", "a") == 0
    assert machine.ran[3:] == ["score"]


def test_drives_for_reporting_are_not_looked_at_by_accident(machine, capsys):
    assert run(machine) == 1
    assert "test" not in machine.ran
    assert {"a", "score"} <= set(machine.ran)  # everything else is made
    assert "left: test looks at drives that are for reporting only: give --report" in capsys.readouterr().err
    assert run(machine, "--report") == 0
    assert machine.ran[-1] == "test"


def test_a_second_look_must_be_asked_for_and_is_counted(machine, capsys):
    assert run(machine, "--report") == 0
    save(machine.work / "runs/model", 10, weights="other")  # trained on: the scores are of other weights now
    assert book(machine).state(small_plan().steps["test"]) == "outdated"
    before = len(machine.ran)
    assert run(machine, "--report", "--only", "test", "score") == 1
    assert machine.ran[before:] == ["score"]
    assert "a second look" in capsys.readouterr().err
    assert run(machine, "--report-again", "--only", "test") == 0
    record = book(machine).record(small_plan().steps["test"])
    assert len(record.looks) == 2
    assert record.looks[0] != record.looks[1]


def test_another_command_makes_a_score_again(machine):
    run(machine, "--only", "a")
    plan = small_plan()
    changed = Plan({**plan.steps, "a": replace(plan.steps["a"], words=("copilot4d", "a", "--every", "2"))}, plan.tables)
    assert book(machine, changed).state(changed.steps["a"]) == "outdated"
    assert run(machine, "--only", "a", plan=changed) == 0
    assert machine.ran == ["a", "a"]


def test_other_settings_make_a_score_again_though_the_command_is_the_same(machine):
    run(machine, "--only", "a")
    plan = small_plan()
    changed = Plan({**plan.steps, "a": replace(plan.steps["a"], files={"settings/a.yaml": "x: 2\n"})}, plan.tables)
    assert run(machine, "--only", "a", plan=changed) == 0
    assert machine.ran == ["a", "a"]
    assert (machine.work / "settings/a.yaml").read_text() == "x: 2\n"


def test_where_the_folder_stands_does_not_matter(machine, tmp_path):
    run(machine, "--only", "a")
    moved = tmp_path / "moved"
    moved.mkdir()
    for part in ("records", "a"):
        (machine.work / part).rename(moved / part)
    assert Book(small_plan(), Places(work=moved)).state(small_plan().steps["a"]) == "done"


def test_a_training_is_done_when_its_last_update_is(machine):
    training = small_plan().steps["runs/model"]
    machine.updates = 9
    assert run(machine, "--only", "runs/model") == 1
    assert book(machine).state(training) == "to do"
    machine.updates = 10
    assert run(machine, "--only", "runs/model") == 0
    assert book(machine).state(training) == "done"


def test_a_stopped_training_goes_on_but_not_from_other_weights(machine, capsys):
    plan = small_plan()
    late = replace(plan.steps["runs/model"], needs=("a",))
    plan = Plan({**plan.steps, "runs/model": late}, plan.tables)
    machine.codes["runs/model"] = 130
    assert run(machine, "--only", "runs/model", plan=plan) == 130
    assert book(machine, plan).state(late) == "begun"
    (machine.work / "a").write_text("other")  # what it started from is not what it was
    machine.codes.clear()
    assert run(machine, "--only", "runs/model", plan=plan) == 1
    assert "move" in capsys.readouterr().err
    (machine.work / "a").write_text("a")
    assert run(machine, "--only", "runs/model", plan=plan) == 0
    assert machine.ran == ["a", "runs/model", "runs/model"]


def test_after_a_failure_nothing_that_needs_it_is_tried(machine, capsys):
    machine.codes["runs/model"] = 1
    assert run(machine, "--only", "score", "a") == 1
    assert machine.ran == ["runs/model"]
    assert run(machine, "--only", "score", "a", "--keep-going") == 1
    assert machine.ran == ["runs/model", "runs/model", "a"]
    assert "left: score needs runs/model" in capsys.readouterr().err


def test_a_dry_run_runs_nothing(machine, capsys):
    assert run(machine, "--dry-run") == 0
    out = capsys.readouterr().out
    assert machine.ran == []
    assert list(machine.work.iterdir()) == []
    assert f"copilot4d score --out {machine.work}/score" in out
    assert "test  [to do, about 1 min, report]" in out
    assert "4 steps, 0 done; about 4 min of one core are left" in out
    run(machine, "--only", "a")
    run(machine, "--dry-run")
    assert "4 steps, 1 done; about 3 min" in capsys.readouterr().out


def test_what_was_made_elsewhere_is_taken_as_it_is(machine, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    save(elsewhere, 3, weights="theirs")  # fewer updates than the plan's: taken all the same
    assert run(machine, "--use", f"runs/model={elsewhere}", "--only", "score") == 0
    assert machine.ran == ["score"]
    assert book(machine).state(small_plan().steps["runs/model"]) == "given"
    save(elsewhere, 4)  # it trained on
    assert book(machine).state(small_plan().steps["score"]) == "outdated"
    with pytest.raises(UsageError, match="nothing there"):
        book(machine).give(small_plan().steps["runs/model"], tmp_path / "nowhere")


def test_use_never_replaces_what_is_there(machine, tmp_path, capsys):
    run(machine, "--only", "a")
    (tmp_path / "other").write_text("other")
    assert run(machine, "--use", f"a={tmp_path / 'other'}", "--only", "a") == 2
    assert "already there" in capsys.readouterr().err
    assert (machine.work / "a").read_text() == "a"


def test_wrong_names_are_told(machine, capsys):
    assert run(machine, "--only", "nothing") == 2
    assert "no such table or step. Tables: all" in capsys.readouterr().err
    assert run(machine, "--use", "nothing=here") == 2


def test_a_step_that_another_process_made_meanwhile_is_not_made_again(machine, monkeypatch):
    plan = small_plan()
    held = Book.held

    def slow(self, a_step):
        self.begin(a_step)
        (machine.work / "a").write_text("theirs")
        self.finish(a_step, 1.0, success=True)
        return Waited(held(self, a_step))

    monkeypatch.setattr(Book, "held", slow)
    assert make.carry_out(plan.steps["a"], book(machine), machine) is True
    assert machine.ran == []


class Waited:
    """A held step that was not free at once."""

    def __init__(self, context):
        self.context = context

    def __enter__(self):
        self.context.__enter__()
        return False

    def __exit__(self, *error):
        return self.context.__exit__(*error)


def test_the_fingerprint_of_a_run_is_that_of_the_weights_in_use(tmp_path):
    run_folder = tmp_path / "run"
    assert fingerprint(run_folder) == ""
    (run_folder / "checkpoints").mkdir(parents=True)
    assert fingerprint(run_folder) == ""
    save(run_folder, 5)
    newest = fingerprint(run_folder)
    save(run_folder, 6)
    assert fingerprint(run_folder) != newest  # unscored: the newest
    save(run_folder, 5, score=0.5)
    assert fingerprint(run_folder) == newest  # scored: the best
    save(run_folder, 7, score=0.9)
    assert fingerprint(run_folder) == newest
    save(run_folder, 8, score=0.1)
    assert fingerprint(run_folder) != newest


def test_a_real_command_is_executed_and_its_code_returned():
    assert make.wait_for([sys.executable, "-c", "raise SystemExit(7)"]) == 7
