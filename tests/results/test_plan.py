"""The plan of the results: every command is one that its program takes, and no choice looks at what is reported."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import failures
import floor
import pytest
import tyro
from budgets import FULL, Budget
from plan import results_plan
from steps import BENCHMARKS, Places, Plan, Step

import counterfactual
from copilot4d.cli.main import VERBS, split_verb
from copilot4d.errors import UsageError
from tests.support.real_data import REPOSITORY

PLAN = results_plan()
PLACES = Places(work=Path("results"), kitti=Path("kitti"))
REPORTING = ("street-v1/test", "val_0005", "street-v1-whatif", "street-v1/train:1000")
REPORT_TABLES = {"main", "fresh", "tokens", "failures", "whatif"}
MIXED_TABLES = {"baselines", "tokenizers", "transfer"}  # they name the drives for reporting beside those for choices


def parsed(words: list[str]) -> object:
    """A command through the parser of its own program."""
    if words[0] == "copilot4d":
        verb, rest = split_verb(words[1:])
        module = importlib.import_module(f"copilot4d.cli.{VERBS[verb].module}")
        return tyro.cli(module.Options, args=rest)
    script = {floor: "results/floor.py", failures: "results/failures.py", counterfactual: "counterfactual.py"}
    module = next(m for m, place in script.items() if Path(words[0]) == BENCHMARKS / place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        return module.parse() if module is counterfactual else module.parse(None)


def shape(step: Step) -> tuple[str, ...]:
    """What makes two commands the same to a parser: the program and its options."""
    return tuple(word for i, word in enumerate(step.words) if i < 3 or word.startswith("--"))


ONE_OF_EACH = {shape(step): step for step in PLAN.steps.values()}


@pytest.mark.parametrize("step", ONE_OF_EACH.values(), ids=lambda step: step.name)
def test_every_command_is_one_that_its_program_takes(step):
    options = parsed([PLACES.resolve(word) for word in step.words])
    made = PLACES.work / step.makes
    written = {str(Path(str(value))) for value in vars(options).values()}
    assert {str(made), str(made.parent)} & written, "the command does not write what the step promises"


def test_the_cost_of_a_training_is_in_its_command():
    assert PLAN.steps["runs/world_model_1"].updates == 866  # --max-updates, below --updates 4000
    assert PLAN.steps["runs/streets_1"].updates == 7000
    assert PLAN.steps["tokens/train"].updates is None


def test_what_looks_at_drives_for_reporting_is_marked_and_nothing_else_is():
    for step in PLAN.steps.values():
        looks = any(word.startswith(REPORTING) for word in step.words)
        assert step.report == looks, step.name
    assert not any(step.report for step in PLAN.steps.values() if step.kind in ("run", "tokens"))


def test_choices_and_ablations_are_made_on_other_drives():
    for table in PLAN.tables.values():
        report = {PLAN.steps[name].report for row in table.rows for name in row.all_steps}
        expected = {True} if table.name in REPORT_TABLES else {True, False} if table.name in MIXED_TABLES else {False}
        assert report == expected, table.name


def test_no_training_reads_what_is_scored():
    """KITTI's val_0005 and train_0011, and the streets of val and test, are trained on by nobody."""
    for step in PLAN.steps.values():
        if step.kind != "run" or "world-model" in step.words:
            continue
        options = vars(parsed([PLACES.resolve(word) for word in step.words]))
        assert options["split"] == "train" or set(options["drives"]) == set(FULL.kitti_train), step.name
        assert set(options["held_out"]) & {"val_000", "train_0011"}, step.name


def test_maskgit_differs_by_its_process_alone_from_the_last_run():
    """Both start from the weights of the run before."""
    ours, other = (PLAN.steps[f"runs/{name}"] for name in ("world_model", "maskgit"))
    without = [w for w in other.words if w not in ("--process", "maskgit")]
    assert [w.replace("/maskgit", "/world_model") for w in without] == list(ours.words)
    assert set(other.needs) == set(ours.needs)
    assert other.files.keys() == {"settings/maskgit.yaml"}
    assert set(other.files.values()) == set(ours.files.values())


def test_a_world_model_s_runs_follow_each_other_and_the_last_have_the_gathered_past():
    first, *later = (PLAN.steps[f"runs/world_model{stage}"] for stage in ("_1", "_2", "_3", "_4", ""))
    assert "--init-from" not in first.words
    for step, before in zip(later, (1, 2, 3, 4), strict=True):
        assert step.words[step.words.index("--init-from") + 1] == f"WORK/runs/world_model_{before}"
        assert f"runs/world_model_{before}" in step.needs
    for step in later[1:]:
        assert {"WORK/tokens/gathered_train", "WORK/tokens/gathered_val"} <= set(step.words)
    for name in ("gathered_train", "gathered_val", "kitti"):
        assert "--gathered-past" in PLAN.steps[f"tokens/{name}"].words
    assert {"WORK/tokens/train", "WORK/tokens/val"} <= set(later[0].words) & set(first.words)


def test_the_two_token_frames_get_the_same_training():
    own, reference = PLAN.steps["runs/frame_own"].words, PLAN.steps["runs/frame_reference"].words
    without = [w.replace("own_", "").replace("frame_own", "frame_reference") for w in own]
    at = without.index("--intervals")
    assert without[:at] + without[at + 3 :] == list(reference)
    assert PLAN.steps["tokens/own_train"].words[6:8] == ("--token-frame", "own")


def test_tables_that_want_the_same_number_share_its_step():
    by_table = {t.name: {row.step for row in t.rows} for t in PLAN.tables.values()}
    step = "scores/train_0011_3s_every12/kitti_world_model_k2_top1_maskgit_schedule"
    assert step in by_table["transfer"] & by_table["choices"]
    # MaskGIT's own schedule beside our tokens; both in the ablation
    assert "scores/test_3s_every48/maskgit_maskgit_schedule" in by_table["tokens"]
    assert {
        f"scores/val_3s_every240/{name}"
        for name in ("world_model_alone", "world_model_maskgit_schedule_alone", "maskgit", "maskgit_maskgit_schedule")
    } <= by_table["sampling"]


def test_the_issue_s_rows_are_all_there():
    rows = {name: len(table.rows) for name, table in PLAN.tables.items()}
    assert rows["main"] == 2 * (8 + 8)  # settings; models, 4D-Occ's twice, and the floor
    assert rows["fresh"] == 2 * 4  # settings; ray tracing, 4D-Occ twice, ours
    assert rows["tokens"] == 2 * (2 + 2)  # settings; ours alone and MaskGIT, on both
    assert (rows["guidance"], rows["sampling"], rows["tokenizer_ablation"]) == (2 * 3, 2 * 2 * 2 * 4, 3)
    assert {row.columns["K"] for row in PLAN.tables["sampling"].rows} == {"2", "5", "10", "20"}
    for row in PLAN.tables["main"].rows:
        words = PLAN.steps[row.step].words
        assert words[(i := words.index("--roi-half")) : i + 4] == ("--roi-half", "32", "--every", "12")


def test_a_model_that_copies_needs_its_gate_and_one_that_is_scored_alone_does_not():
    copying, alone = (
        PLAN.steps[f"scores/val_0005_3s_every12/kitti_world_model{x}"] for x in ("_k2_top1_maskgit_schedule", "_alone")
    )
    assert copying.needs == ("runs/kitti_world_model", "gates/kitti_world_model")
    assert alone.needs == ("runs/kitti_world_model",)
    for option, value in (
        ("--top-k", FULL.top_k),
        ("--sampling-steps", FULL.main_steps),
        ("--schedule", FULL.main_schedule),
    ):
        assert copying.words[copying.words.index(option) + 1] == str(value)
        assert option not in alone.words  # the paper's ten steps, its schedule, its top 3
    assert set(alone.words) - set(copying.words) == {
        "--no-depth-selection",
        "WORK/scores/val_0005_3s_every12/kitti_world_model_alone.json",
    }
    selector = PLAN.steps["gates/world_model"]
    assert selector.makes == "runs/world_model/depth_selector"
    trained_on = PLAN.steps["tokens/train"].words  # the first 120 drives, which the selector must not learn from
    assert "street-v1/train:120" in trained_on
    assert not {f"train_{i:06d}" for i in range(120)} & set(selector.words)
    assert set(FULL.kitti_report.drives).isdisjoint(PLAN.steps["gates/kitti_world_model"].words)


def documented_commands() -> dict[str, list[str]]:
    """run -> words, of the training commands in docs/results/tokenizer.md, with their shell variables filled in."""
    page = (REPOSITORY / "docs" / "results" / "tokenizer.md").read_text()
    found = {}
    for block in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        variables = dict(re.findall(r'^(\w+)="(.*)"$', block, re.MULTILINE))
        for line in re.findall(r"^copilot4d train tokenizer .*$", block, re.MULTILINE):
            for name, value in variables.items():
                line = line.replace(f"${name} ", f"{value} ")
            words = shlex.split(line)
            found[words[words.index("--run") + 1]] = words
    return found


@pytest.mark.parametrize("run", ["streets_1", "streets", "kitti"])
def test_tokenizers_are_trained_by_the_commands_of_the_results_page(run):
    words = documented_commands()[f"runs/{run}"]
    step = PLAN.steps[f"runs/{run}"]
    ours = parsed([re.sub(r"^WORK/", "", re.sub(r"^KITTI", "kitti", word)) for word in step.words])
    theirs = parsed(words)
    assert (ours.config is None) == (theirs.config is None)
    assert replace(ours, config=None) == replace(theirs, config=None)


def test_needs_come_first_and_only_once():
    order = [step.name for step in PLAN.in_order(["runs/kitti_world_model"])]
    assert len(order) == len(set(order))
    for name in order:
        assert all(order.index(need) < order.index(name) for need in PLAN.steps[name].needs)
    assert order[-1] == "runs/kitti_world_model"
    assert {"runs/streets_1", "runs/streets", "runs/kitti", "tokens/kitti", "runs/world_model"} <= set(order)
    there = PLAN.in_order(["runs/kitti_world_model"], there=["runs/world_model", "tokens/kitti", "runs/kitti"])
    assert [step.name for step in there][-1] == "runs/kitti_world_model"
    assert "runs/streets_1" not in [step.name for step in there]


def test_a_plan_that_needs_what_it_does_not_have_is_refused():
    step = Step(name="a", words=("copilot4d",), kind="scores", makes="a", core_minutes=1, needs=("b",))
    with pytest.raises(UsageError, match="step a needs b"):
        Plan({"a": step}, {})


def test_kitti_must_be_named_for_steps_that_read_it():
    step = PLAN.steps["runs/kitti"]
    with pytest.raises(UsageError, match="give --kitti"):
        Places(work=Path("w")).command(step)
    assert "--data KITTI --drives" in Places(work=Path("w")).shown(step)  # to look at, it stays a placeholder


def test_more_references_and_more_sampling_cost_more():
    small = results_plan(Budget(ablation_every=96))
    costs = [
        small.steps["scores/val_3s_every96/world_model_k2_top1_maskgit_schedule"].core_minutes,
        PLAN.steps["scores/val_3s_every48/world_model_k2_top1_maskgit_schedule"].core_minutes,
    ]
    assert costs == sorted(costs)
    fast, slow = (PLAN.steps[f"scores/val_3s_every240/maskgit{k}"].core_minutes for k in ("_k5", "_k20"))
    assert fast < slow
    assert costs[1] == pytest.approx(2 * costs[0])
