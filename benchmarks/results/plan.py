"""The plan: every table of docs/results.md, its rows, and the steps that make their numbers.

A score is named by what was scored, so that two tables that want the same number share one step. Choices and ablations
look at val (and train_0011); the tables to report at test, val_0005 and the what-if moments, whose steps are marked.
"""

from __future__ import annotations

from budgets import FULL, Budget, Data
from scorings import GEOMETRY, Scorings, data_words
from steps import Plan, Row, Step, Table
from trainings import stages, training_steps

LABELS = {
    "occupancy_4d": "4D-Occ (ours)", "maskgit": "MaskGIT", "world_model": "**Copilot4D**", "frame_own": "own",
    "frame_reference": "reference", "floor": "tokenizer alone (floor)", "alone": "Copilot4D, tokens alone",
}  # fmt: skip
FAILURES = "BENCHMARKS/results/failures.py"
COUNTERFACTUAL = "BENCHMARKS/counterfactual.py"


def results_plan(budget: Budget = FULL) -> Plan:
    """The whole plan for these figures."""
    return _Planner(budget, training_steps(budget)).plan()


class _Planner(Scorings):
    """Builds the tables, and collects the steps that they ask for."""

    def plan(self) -> Plan:
        budget = self.budget
        report, choice = (budget.test, budget.kitti_report), (budget.val, budget.kitti_choice)
        tables = [
            self._main("main", "Forecasts on held-out drives", report),
            self._main("choices", "Forecasts on the drives for choices", choice),
            self._fresh(),
            self._tokens(),
            self._baselines(),
            self._tokenizers(),
            self._guidance(),
            self._sampling(),
            self._tokenizer_modes(),
            self._transfer(),
            self._several(),
            self._failures(),
            self._whatif(),
            self._token_frames(),
        ]
        return Plan(self.steps, {table.name: table for table in tables})

    def _main(self, name: str, title: str, sets: tuple[Data, ...]) -> Table:
        rows = []
        for data in sets:
            on_kitti = data.path == self.budget.kitti_report.path
            for setting in self.budget.settings:
                group = f"{data.title}, {setting}"
                for model in (*GEOMETRY, "occupancy_4d", "maskgit", "world_model"):
                    tuned = on_kitti and model in ("occupancy_4d", "world_model")
                    run = f"kitti_{model}" if tuned else model
                    step = self.best_score(run, data, setting)
                    label = LABELS.get(model, f"`{model}`")
                    if model == "maskgit" and on_kitti:
                        label += ", streets only"
                    rows.append(Row(label=label, step=step, group=group, ours=model == "world_model"))
                    if model == "occupancy_4d":
                        step = self.score(run, data, setting, depth="median")
                        rows.append(Row(label=f"{label}, medians", step=step, group=group))
                floor = self.floor("kitti" if on_kitti else "streets", data, setting)
                rows.append(Row(label=LABELS["floor"], step=floor, group=group))
        frames = ", ".join(f"every {self.every(data)}th reference frame of {data.title}" for data in sets)
        about = (
            f"Within ±{self.budget.roi_half_m:g} m, {frames}. The floor decodes the true tokens "
            "of the future frames, in the reference frame: what a perfect forecast of tokens would reach. 4D-Occ "
            "(ours) answers expected depths, as is published, or the medians of where rays are stopped; the depth "
            "selection of Copilot4D may take its depths, too. On KITTI, "
            "learned models were trained on streets first and then on the `train_*` drives, but for MaskGIT, which has "
            "no depth selection either."
        )
        return Table(name=name, title=title, kind="forecasts", rows=tuple(rows), about=about)

    def _fresh(self) -> Table:
        """The rows that matter most, on streets that were never looked at."""
        data, every = self.budget.fresh, self.budget.fresh_every
        rows = []
        for setting in self.budget.settings:
            group = f"{data.title}, {setting}"
            for model, depth in (("ray_tracing", None), ("occupancy_4d", None), ("occupancy_4d", "median")):
                label = LABELS.get(model, f"`{model}`") + (f", {depth}s" if depth else "")
                rows.append(Row(label=label, step=self.score(model, data, setting, every, depth=depth), group=group))
            step = self.best_score("world_model", data, setting, every)
            rows.append(Row(label=LABELS["world_model"], step=step, group=group, ours=True))
        about = (
            f"{', '.join(data.drives[:1] + data.drives[-1:])} and those between: nothing was trained or chosen on "
            f"these drives of `street-v1` train, and they had not been scored before. Every {every}th reference frame."
        )
        return Table(name="fresh", title="Fresh streets", kind="forecasts", rows=tuple(rows),
                     about=about)  # fmt: skip

    def _tokens(self) -> Table:
        """What a forecast of tokens alone reaches where the main rows are reported, ours and MaskGIT's."""
        rows = []
        for data in (self.budget.test, self.budget.kitti_report):
            on_kitti = data.path == self.budget.kitti_report.path
            every = self.budget.every if on_kitti else self.budget.ablation_every
            for setting in self.budget.settings:
                group = f"{data.title}, {setting}, every {every}th"
                label = LABELS["maskgit"] + (", streets only" if on_kitti else "")
                rows.append(Row(label=label, step=self.score("maskgit", data, setting, every), group=group))
                ours = self.score("kitti_world_model" if on_kitti else "world_model", data, setting, every, alone=True)
                rows.append(Row(label=LABELS["alone"], step=ours, group=group, ours=True))
        about = (
            "Without depth selection, top-3 sampling. MaskGIT has had as many updates as the world model, the last of "
            "them by its own process, and none on KITTI."
        )
        return Table(name="tokens", title="Tokens alone", kind="forecasts", rows=tuple(rows), about=about)

    def _baselines(self) -> Table:
        """Real streets, both regions: what docs/results.md tells of geometry alone."""
        rows = []
        for data in (self.budget.kitti_report, self.budget.kitti_choice):
            for setting in self.budget.settings:
                for half_m in (70.0, self.budget.roi_half_m):
                    for model in GEOMETRY:
                        step = self.score(model, data, setting, 4, roi_half_m=half_m)
                        group = f"{data.title}, {setting}, ±{half_m:g} m"
                        rows.append(Row(label=f"`{model}`", step=step, group=group))
        return Table(name="baselines", title="Baselines on real streets", kind="forecasts", rows=tuple(rows))

    def _tokenizers(self) -> Table:
        budget = self.budget
        rows = [
            Row(label=label, step=self.reconstruct(run, data, every), group=data.title)
            for label, run, data, every in (
                ("streets", "streets", budget.val, budget.tokenizer_every),
                ("streets, then KITTI", "kitti", budget.kitti_report, 4),
                ("streets alone", "streets", budget.kitti_report, 4),
            )
        ]
        return Table(name="tokenizers", title="Tokenizers", kind="tokenizers", rows=tuple(rows))

    def _tokenizer_modes(self) -> Table:
        labels = {"full": "full", "no_skipping": "no coarse branch, no skipping", "voxel_centres": "voxel centres only"}
        val, every = self.budget.val, self.budget.tokenizer_every
        rows = [
            Row(label=labels[mode], step=self.reconstruct(f"tokenizer_{mode}", val, every), group=val.title)
            for mode in self.budget.tokenizer_modes
        ]
        about = "The same data and the same training time for each, not the same number of updates."
        return Table(
            name="tokenizer_ablation", title="Tokenizer ablation", kind="tokenizers", rows=tuple(rows), about=about
        )

    def _guidance(self) -> Table:
        rows = [
            Row(
                label=f"w = {w:g}", step=self.score(
                    "world_model", self.budget.val, setting, self.budget.guidance_every, guidance=w, alone=True
                ),
                group=f"{self.budget.val.title}, {setting}",
            )
            for setting in self.budget.settings
            for w in self.budget.guidances
        ]  # fmt: skip
        about = "Tokens alone, without the depth selection."
        return Table(name="guidance", title="Guidance", kind="forecasts", rows=tuple(rows), about=about)

    def _sampling(self) -> Table:
        """Ours without its depth selection, and its twin whose last run was MaskGIT's."""
        every = self.budget.sampling_every
        rows = [
            Row(
                label=LABELS[model], group=f"{self.budget.val.title}, {setting}", ours=model == "world_model",
                step=self.score(
                    model, self.budget.val, setting, every, steps=k, schedule=schedule, alone=model == "world_model"
                ),
                columns={"schedule": schedule, "K": str(k)},
            )
            for setting in self.budget.settings
            for model in ("world_model", "maskgit")
            for schedule in ("paper", "few_first")
            for k in self.budget.sampling_steps
        ]  # fmt: skip
        updates = [self.steps[f"runs/{run}"].updates or 0 for run in stages("world_model", self.budget)]
        about = (
            f"The same network, clips and {sum(updates)} updates, and the same weights before the last {updates[-1]}; "
            f"only the process of those and the sampling differ. Every {every}th reference frame, without the copy "
            "path, top-3 sampling."
        )
        title = "Discrete diffusion against MaskGIT, two schedules, K steps per frame"
        return Table(name="sampling", title=title, kind="sampling", rows=tuple(rows), about=about)

    def _transfer(self) -> Table:
        """Weights trained on the streets' own sensor, looked at with another one and on real streets."""
        rows = []
        for data in (self.budget.other_sensor, self.budget.kitti_choice, self.budget.kitti_report):
            on_kitti = data.path == self.budget.kitti_report.path
            for setting in self.budget.settings:
                group = f"{data.title}, {setting}"
                for model in ("ray_tracing", "occupancy_4d", "world_model"):
                    label = LABELS.get(model, f"`{model}`") + (", streets only" if model not in GEOMETRY else "")
                    step = self.best_score(model, data, setting)
                    rows.append(Row(label=label, step=step, group=group, ours=model == "world_model"))
                floor = self.floor("streets", data, setting)
                rows.append(Row(label=f"{LABELS['floor']}, streets only", step=floor, group=group))
                if on_kitti:
                    tuned = self.best_score("kitti_world_model", data, setting)
                    rows.append(Row(label=LABELS["world_model"] + ", then KITTI", step=tuned, group=group))
        return Table(
            name="transfer", title="Zero-shot transfer: another sensor, real streets", kind="forecasts",
            rows=tuple(rows), about="Weights trained on `street-v1` train (sensor `mini32`), used without fine-tuning.",
        )  # fmt: skip

    def _several(self) -> Table:
        rows = [
            Row(
                label=LABELS["world_model"], group=f"{self.budget.val.title}, {setting}",
                step=self.score(
                    "world_model", self.budget.val, setting, self.budget.futures_every, futures=self.budget.futures
                ),
            )
            for setting in self.budget.settings
        ]  # fmt: skip
        title = f"Several futures: best of {self.budget.futures}, and their spread"
        return Table(name="futures", title=title, kind="several", rows=tuple(rows))

    def _failures(self) -> Table:
        """The worst references of the main rows, drawn."""
        rows = []
        for data, model in ((self.budget.test, "world_model"), (self.budget.kitti_report, "kitti_world_model")):
            for setting in self.budget.settings:
                scored = self.best_score(model, data, setting)
                base = self.score("ray_tracing", data, setting)
                made = f"failures/{data.name}_{setting}"
                words = (
                    FAILURES, "--model", f"WORK/runs/{model}", "--scores", f"WORK/{scored}.json",
                    "--baseline-scores", f"WORK/{base}.json", *data_words(data), "--out", f"WORK/{made}",
                )  # fmt: skip
                self.add(
                    Step(
                        name=made, words=words, kind="pictures", makes=made, core_minutes=2.0,
                        needs=(*self.weights(model), scored, base), report=data.report,
                    )
                )  # fmt: skip
                rows.append(Row(label=f"{data.title}, {setting}", step=made))
        return Table(
            name="failures", title="Where it fails", kind="pictures", rows=tuple(rows),
            about="The references whose ROI Chamfer is worst against that of `ray_tracing`.",
        )  # fmt: skip

    def _whatif(self) -> Table:
        rows = []
        for model in ("truth", *GEOMETRY, "occupancy_4d", "world_model"):
            trained = model in ("occupancy_4d", "world_model")
            made = f"whatif/{model}"
            words = (
                COUNTERFACTUAL, "--model", f"WORK/runs/{model}" if trained else model, "--data", self.budget.whatif,
                "--moments", str(self.budget.moments), "--roi-half", f"{self.budget.roi_half_m:g}",
                "--out", f"WORK/{made}.jsonl",
            )  # fmt: skip
            minutes = self.budget.moments * (30 if trained else 10) / 60
            self.add(
                Step(
                    name=made, words=words, kind="whatif", makes=f"{made}.jsonl", core_minutes=minutes,
                    needs=self.weights(model) if trained else (), report=True,
                )
            )  # fmt: skip
            rows.append(Row(label=LABELS.get(model, f"`{model}`"), step=made, ours=model == "world_model"))
        return Table(name="whatif", title="Counterfactuals", kind="whatif", rows=tuple(rows))

    def _token_frames(self) -> Table:
        rows = [
            Row(
                label=LABELS[model], step=f"runs/{model}",
                also={setting: self.score(model, self.budget.val, setting) for setting in self.budget.settings},
            )
            for model in ("frame_own", "frame_reference")
        ]  # fmt: skip
        about = "The same network, updates and time. Tokens of the two frames differ, and so do their yardsticks."
        title = "Tokens in each sweep's own frame, or in the reference frame"
        return Table(name="token_frames", title=title, kind="token_frames", rows=tuple(rows), about=about)
