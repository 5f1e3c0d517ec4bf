"""The tables, checked by hand: what is there is shown, what is not is a dash, and nothing is mixed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from plan import results_plan
from products import Products, run_cost
from ratios import ratio
from records import Book
from render import MARK, PAGES, main, updated, without_missing
from result_tables import rendered
from steps import Places, Plan, Row, Step, Table

from copilot4d.errors import ProtocolError, UsageError
from copilot4d.evaluation import Protocol, ScoreFile
from copilot4d.evaluation.frame_score import METRICS
from copilot4d.evaluation.scores import HorizonScore, ReferenceScore

PROTOCOL = Protocol(roi_half_m=32, every=12)


def scores(chamfer: float, *, per_drive=(1.0, 1.0), frames_hash="same", **changes) -> ScoreFile:
    """A score file whose ROI Chamfer is given; the others are 10, 20, ... times it."""
    metrics = {name: chamfer * (10 * i + 1) for i, name in enumerate(METRICS)} | {"chamfer_roi": chamfer}
    references = [
        ReferenceScore(drive=f"d{i}", reference_ns=i, frames=5, chamfer_roi=chamfer * share)
        for i, share in enumerate(per_drive)
    ]
    values = {
        "protocol": PROTOCOL.name, "protocol_hash": PROTOCOL.hash, "model": "m", "data": "d", "setting": "1s",
        "frames_scored": 10, "frames_not_scored": 0, "metrics": metrics, "seconds": 1.0, "drives": ["d0", "d1"],
        "per_horizon": [HorizonScore(horizon=2, seconds_ahead=0.4, frames_scored=4, metrics=metrics)],
        "references": 2, "by_reference": references, "frames_hash": frames_hash,
    }  # fmt: skip
    return ScoreFile(**{**values, **changes})


def plan_of(kind: str, *rows: Row, step_kind: str = "scores", **needs) -> Plan:
    """One table whose rows each have a step of their own; what a step makes is named after it."""
    steps = {}
    for row in rows:
        for name in row.all_steps:
            made = "run" if name.startswith("runs/") else step_kind
            steps[name] = Step(name=name, words=("copilot4d", "x", "--updates", "1"), kind=made, makes=name,
                               core_minutes=1, needs=needs.get(name, ()))  # fmt: skip
    for need in {n for wanted in needs.values() for n in wanted} - set(steps):
        steps[need] = Step(name=need, words=("copilot4d", "--updates", "1"), kind="run", makes=need, core_minutes=1)
    return Plan(steps, {"t": Table(name="t", title="Title", kind=kind, rows=rows, about="About.")})


def products(plan: Plan, work, *made: str) -> Products:
    """With records that say that these steps were made by the plan's commands."""
    book = Book(plan, Places(work=work))
    for name in made:
        book.begin(plan.steps[name])
        book.finish(plan.steps[name], 1.0, success=True)
    return Products(book)


def lines_with(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start} |")]


ROWS = (
    Row(label="base", step="base", group="g"),
    Row(label="gone", step="gone", group="g"),
    Row(label="**we**", step="we", group="g", ours=True),
)


def test_forecasts_by_hand(tmp_path):
    plan = plan_of("forecasts", *ROWS)
    scores(0.4).write(tmp_path / "base")
    scores(0.1).write(tmp_path / "we")
    text = rendered(plan.tables["t"], products(plan, tmp_path, "base", "we"))
    assert text.startswith("## Title\n\nAbout.\n\n| on | model | ROI Chamfer (m²) | ROI L1 median (m) |")
    base, gone, we, *rest = lines_with(text, "g")
    # chamfer, chamfer_roi, l1_mean, absrel_mean, l1_median, ... are 1, -, 21, 31, 41, 51, 61, 71, 81, 91 times 0.4
    cells = ["0.400", "32.400", "3640", "24.400", "2840", "8.400", "1240", "0.400", "2 / 10"]
    assert base == f"| g | base | {' | '.join(cells)} |"
    assert gone == "| g | gone |" + " - |" * 9
    assert we.startswith("| g | **we** | 0.100 | 8.100 |")
    assert rest[0] == "| g | base | - | 0.400 | - | - | - |"  # per horizon: only the second frame is there
    assert "| g | base | 4.00 |" not in text
    assert [line for line in rest if "0.25" in line] == ["| g | base | 0.25 | 0.25 to 0.25 |"]
    assert "| g | gone | - | - |" in rest
    assert "CSV" not in text  # no place for it in a terminal
    assert "†" not in text
    assert "‡" not in text


def test_single_frames_go_into_a_file_beside_the_page(tmp_path):
    plan = plan_of("forecasts", *ROWS)
    scores(0.4).write(tmp_path / "base")
    scores(0.1).write(tmp_path / "we")
    page = tmp_path / "page.md"
    page.write_text("<!-- results:t --><!-- /results:t -->")
    assert main(["--work", str(tmp_path), "--update", str(page)], plan=plan) == 0
    assert "[All columns for each frame ahead, as CSV](data/t.csv)" in page.read_text()
    head, base, we = (tmp_path / "data" / "t.csv").read_text().splitlines()
    assert head.startswith("on,model,ahead,ROI Chamfer (m²),")
    assert base.startswith("g,base †,0.4 s,0.400,")  # by which command is not recorded
    assert we.startswith("g,we †,0.4 s,0.100,")


def test_the_pages_of_the_docs_have_a_place_for_every_table_that_is_reported():
    marked = [name for page in PAGES for closes, name in MARK.findall(page.read_text()) if not closes]
    assert len(marked) == len(set(marked)), "a table has two places"
    assert {"main", "fresh", "tokens", "guidance", "sampling", "transfer", "futures", "failures", "whatif"} <= set(
        marked
    )
    assert set(marked) <= set(results_plan().tables)


def test_rows_by_other_rules_are_not_put_side_by_side(tmp_path):
    plan = plan_of("forecasts", *ROWS)
    scores(0.4).write(tmp_path / "base")
    scores(0.1, setting="3s").write(tmp_path / "we")
    with pytest.raises(ProtocolError, match="must not stand in one table"):
        rendered(plan.tables["t"], products(plan, tmp_path))


def test_other_frames_and_outdated_numbers_are_marked(tmp_path):
    rows = (*ROWS, Row(label="third", step="third", group="g"))
    plan = plan_of("forecasts", *rows)
    scores(0.4).write(tmp_path / "base")
    scores(0.5).write(tmp_path / "third")
    scores(0.1, frames_hash="other").write(tmp_path / "we")
    text = rendered(plan.tables["t"], products(plan, tmp_path, "base", "we"))
    assert "| g | **we** ‡ | 0.100 |" in text
    assert "| g | third † | 0.500 |" in text  # there, but nobody knows by which command
    assert "| g | base | 0.400 |" in text
    assert "† made by another command" in text
    assert "‡ other frames" in text


def test_more_than_one_look_is_told(tmp_path):
    plan = plan_of("forecasts", *ROWS)
    plan = Plan({**plan.steps, "we": replace(plan.steps["we"], report=True)}, plan.tables)
    scores(0.1).write(tmp_path / "we")
    once = products(plan, tmp_path, "we")
    assert "looked at" not in rendered(plan.tables["t"], once)
    twice = products(plan, tmp_path, "we")
    assert "looked at 2 times" in rendered(plan.tables["t"], twice)


def test_ratios_weigh_frames_and_match_references():
    ours, other = scores(0.2, per_drive=(1, 3)), scores(0.4, per_drive=(1, 1))
    assert ratio(ours, other).value == pytest.approx((0.2 + 0.6) / (0.4 + 0.4))
    short = replace(other, by_reference=other.by_reference[1:])
    assert ratio(ours, short).value == pytest.approx(0.6 / 0.4)  # over what both scored
    assert ratio(ours, None).cells() == ("-", "-")
    assert ratio(ours, replace(other, by_reference=[])).cells() == ("-", "-")


def test_the_interval_is_over_drives_not_over_frames():
    """Ten drives of ratio 0.5 and ten of 1.5: sure to lie well inside the two, and around the mean."""
    ours = scores(1.0, per_drive=[0.5, 1.5] * 10)
    found = ratio(ours, scores(1.0, per_drive=[1.0] * 20))
    assert found.value == pytest.approx(1.0)
    assert 0.6 < found.low < 0.85
    assert 1.15 < found.high < 1.4
    many = [replace(r, reference_ns=k) for r in ours.by_reference for k in range(50)]
    base = [replace(r, chamfer_roi=1.0) for r in many]
    again = ratio(replace(ours, by_reference=many), scores(1.0, by_reference=base))
    assert (again.low, again.high) == pytest.approx((found.low, found.high))  # more frames of them say no more


def test_sampling_by_hand(tmp_path):
    rows = [
        Row(label=m, step=f"{m}_{schedule}_{k}", group="g", ours=m == "we", columns={"schedule": schedule, "K": k})
        for m in ("we", "maskgit")
        for schedule in ("paper", "few_first")
        for k in ("2", "10")
    ]
    plan = plan_of("sampling", *rows)
    for step, value in (("we_paper_2", 0.3), ("we_paper_10", 0.2), ("maskgit_few_first_10", 0.4)):
        scores(value).write(tmp_path / step)
    made = [name for name in plan.steps if name != "maskgit_few_first_10"]
    assert "| g | maskgit † | few_first | - | 0.400 |" in rendered(plan.tables["t"], products(plan, tmp_path, *made))
    text = rendered(plan.tables["t"], products(plan, tmp_path, *plan.steps))
    assert "| ROI Chamfer (m²) on | model | schedule | K = 2 | K = 10 |" in text
    assert "| g | we | paper | 0.300 | 0.200 |" in text
    assert "| g | we | few_first | - | - |" in text
    assert "| g | maskgit | few_first | - | 0.400 |" in text
    assert "| g | ratio | each its own | - | 0.50 |" in text


def test_several_by_hand(tmp_path):
    plan = plan_of("several", Row(label="we", step="we", group="g"))
    several = {"mean": {"chamfer_roi": 0.5}, "best": {"chamfer_roi": 0.3}, "spread_chamfer_roi": 0.2}
    scores(0.4, several=several).write(tmp_path / "we")
    text = rendered(plan.tables["t"], products(plan, tmp_path, "we"))
    assert "| g | we | 0.400 | 0.500 | 0.300 | 0.200 |" in text


def write_run(folder, *, init_from=None, steps=((10, 2.0), (30, 4.0)), evaluations=()):
    """A log with (step, samples per second), batch 6."""
    folder.mkdir(parents=True)
    entries = [{"kind": "train", "step": s, "samples_per_s": rate} for s, rate in steps]
    entries += [{"kind": "evaluation", "step": s, "scores": scores} for s, scores in evaluations]
    (folder / "log.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries))
    (folder / "config.yaml").write_text(yaml.safe_dump({"recipe": {"batch": 6}, "init_from": init_from}))


def test_the_cost_of_a_run_is_that_of_its_updates_and_of_where_it_started(tmp_path):
    write_run(tmp_path / "first")
    write_run(tmp_path / "second", init_from=str(tmp_path / "first"), steps=((5, 1.0),))
    cost = run_cost(tmp_path / "first")
    assert (cost.updates, cost.minutes) == (30, pytest.approx((10 * 6 / 2 + 20 * 6 / 4) / 60))
    both = run_cost(tmp_path / "second")
    assert (both.updates, both.minutes) == (35, pytest.approx((30 + 30 + 30) / 60))
    assert run_cost(tmp_path / "nowhere") is None


def test_tokenizers_by_hand(tmp_path):
    rows = (Row(label="full", step="full", group="val"), Row(label="gone", step="gone", group="val"))
    plan = plan_of("tokenizers", *rows, step_kind="tokenizer_scores", full=("runs/full",), gone=("runs/gone",))
    write_run(tmp_path / "runs" / "full")
    report = {"sweeps_scored": 60, "scores": {"chamfer_roi": 0.1, "roi_l1_median": 0.2, "codebook_used": 0.97}}
    (tmp_path / "full").write_text(json.dumps(report))
    text = rendered(plan.tables["t"], products(plan, tmp_path, "full"))
    assert "| full | val | 0.100 | 0.200 | - | 97% | 60 | 30 | 1 min |" in text
    assert "| gone | val | - | - | - | - | - | - | - |" in text


def test_token_frames_by_hand(tmp_path):
    row = Row(label="own", step="runs/own", also={"1s": "own_1s", "3s": "own_3s"})
    plan = plan_of("token_frames", row)
    late = {"accuracy": 0.5, "copy_accuracy": 0.4, "accuracy_changed": 0.25, "warped_accuracy": 0.45,
            "warped_accuracy_changed": 0.125}  # fmt: skip
    write_run(tmp_path / "runs" / "own", evaluations=((10, {"accuracy": 0.1}), (30, late)))
    scores(0.6).write(tmp_path / "own_3s")
    text = rendered(plan.tables["t"], products(plan, tmp_path))
    assert "| own † | 0.500 | 0.400 | 0.450 | 0.250 | 0.125 | - | 0.600 | 30 | 1 min |" in text


def test_whatif_by_hand(tmp_path):
    def entry(plan, obeys, own):
        return {"obeys": obeys, "told_apart": ["x"], "chamfer": {plan: own, "x": 1.0}}

    kinds = {"keep": entry("keep", True, 0.5), "brake": entry("brake", False, 2.0)}
    reaction = {"true_m": -3.0, "seen_m": -3.0, "imagined_m": -2.0, "reacts": True}
    lines = [{"moment": i, "all": kinds, "moving": kinds, "reaction": reaction if i else None} for i in range(2)]
    plan = plan_of("whatif", Row(label="we", step="we"), Row(label="gone", step="gone"), step_kind="whatif")
    (tmp_path / "we").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = rendered(plan.tables["t"], products(plan, tmp_path, "we"))
    half = "50% (2/4)"
    assert f"| we | 2 | {half} | {half} | {half} | {half} | 100% (1/1) | -3.00 / -2.00 |" in text
    assert "| we | 0.50 | 2.00 | - | - | 0.50 | 2.00 | - | - |" in text
    assert "| gone | - | - | - | - | - | - | - |" in text


def test_pictures_are_linked_with_their_captions(tmp_path):
    plan = plan_of("pictures", Row(label="street", step="f/test"), Row(label="gone", step="gone"), step_kind="pictures")
    (tmp_path / "work" / "f" / "test").mkdir(parents=True)
    (tmp_path / "work" / "f" / "test" / "1.png").write_bytes(b"png")
    entries = {"pictures": [{"file": "1.png", "caption": "where: why"}]}
    (tmp_path / "work" / "f" / "test" / "failures.json").write_text(json.dumps(entries))
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results:t -->\nold\n<!-- /results:t -->\nb\n")
    assert main(["--work", str(tmp_path / "work"), "--update", str(page)], plan=plan) == 0
    text = page.read_text()
    assert "![where](images/f_test_1.png)\n\nwhere: why" in text
    assert (tmp_path / "images" / "f_test_1.png").read_bytes() == b"png"
    assert "**gone**: -" in text
    assert "old" not in text


def test_only_what_is_between_the_comments_changes():
    plan = plan_of("forecasts", *ROWS)
    plan = Plan(plan.steps, {"one": plan.tables["t"], "two": plan.tables["t"]})
    page = "x\n<!-- results:one -->\nold 1\n<!-- /results:one -->\ny\n<!-- results:two --><!-- /results:two -->z"
    new = updated(page, {"one": lambda: "new 1"}, plan)
    assert new == page.replace("old 1", "new 1")
    assert updated(new, {"one": lambda: "new 1"}, plan) == new  # the same again changes nothing
    assert updated(page, {"two": lambda: "new 2"}, plan).endswith("<!-- results:two -->\nnew 2\n<!-- /results:two -->z")
    assert updated("no comments", {"one": lambda: "new"}, plan) == "no comments"


@pytest.mark.parametrize(
    "page",
    [
        "<!-- results:one -->", "<!-- /results:one -->", "<!-- results:one --><!-- /results:two -->",
        "<!-- results:one --><!-- results:two -->", "<!-- results:three --><!-- /results:three -->",
    ],
)  # fmt: skip
def test_comments_that_do_not_fit_are_refused(page):
    plan = plan_of("forecasts", *ROWS)
    plan = Plan(plan.steps, {"one": plan.tables["t"], "two": plan.tables["t"]})
    with pytest.raises(UsageError):
        updated(page, {"one": lambda: "", "two": lambda: ""}, plan)


def test_rows_that_are_not_there_are_left_out_if_asked(tmp_path):
    plan = plan_of("forecasts", Row(label="we", step="we", group="g"), Row(label="nobody", step="nobody", group="g"))
    scores(0.3).write(tmp_path / "we")
    there = products(plan, tmp_path, "we")
    assert "nobody" in rendered(plan.tables["t"], there)
    text = rendered(without_missing(plan, there).tables["t"], there)
    assert "| g | we |" in text
    assert "nobody" not in text
    nothing = products(plan, tmp_path / "elsewhere")
    assert rendered(without_missing(plan, nothing).tables["t"], nothing) == "## Title\n\nNot made yet."
