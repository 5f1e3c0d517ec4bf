"""The steps that train and tokenise: tokenizers, their ablations, world models, 4D-Occ; on streets, then on KITTI."""

from __future__ import annotations

from budgets import Budget, Training
from steps import Step

from copilot4d.presets import preset


def training_steps(budget: Budget) -> list[Step]:
    """All of them, those that others need first."""
    return [
        *_tokenizers(budget), *_tokenizer_modes(budget), *_world_models(budget), *_gates(budget), *_occupancy(budget),
    ]  # fmt: skip


def stages(name: str, budget: Budget) -> list[str]:
    """The runs of a world model that is trained in several, the last of which has its name."""
    return [*(f"{name}_{n}" for n in range(1, len(budget.world_models))), name]


def _run(name: str, verb: str, training: Training, *words: str, needs: tuple[str, ...] = ()) -> Step:
    stop = () if training.max_steps is None else ("--max-updates", str(training.max_steps))
    file = f"settings/{name}.yaml"
    changes = ("--config", f"WORK/{file}") if training.changes else ()
    schedule = (*changes, "--updates", str(training.steps), *stop, *training.options)
    return Step(
        name=f"runs/{name}", words=("copilot4d", "train", verb, *words, *schedule, "--run", f"WORK/runs/{name}"),
        kind="run", makes=f"runs/{name}", core_minutes=training.core_minutes, needs=needs,
        files={file: training.changes} if training.changes else {},
    )  # fmt: skip


def _streets(budget: Budget) -> tuple[str, ...]:
    """Street drives to learn from, and drives of val on which checkpoints are chosen."""
    data = ("--data", budget.street_train, budget.val.path, "--split", "train")
    return ("--preset", budget.preset, *data, "--held-out", *budget.tokenizer_held_out)


def _kitti(budget: Budget) -> tuple[str, ...]:
    drives = ("--drives", *budget.kitti_train, "--held-out", *budget.kitti_choice.drives)
    return ("--preset", budget.preset, "--data", budget.kitti_choice.path, *drives)


def _tokenizers(budget: Budget) -> list[Step]:
    options = budget.tokenizer_options
    streets = (*_streets(budget), *options, "--rays-per-sweep", str(budget.street_rays))
    kitti = (*_kitti(budget), *options, "--rays-per-sweep", str(budget.kitti_rays))
    return [
        _run(
            "streets_1", "tokenizer", budget.streets_1, *streets, "--evaluate-every", "500",
        ),
        _run(
            "streets", "tokenizer", budget.streets, *streets, "--init-from", "WORK/runs/streets_1",
            "--evaluate-every", "300", needs=("runs/streets_1",),
        ),
        _run(
            "kitti", "tokenizer", budget.kitti, *kitti, "--init-from", "WORK/runs/streets",
            "--evaluate-every", "200", needs=("runs/streets",),
        ),
    ]  # fmt: skip


def _tokenizer_modes(budget: Budget) -> list[Step]:
    """Never scored while they train: time is what they have in common. The last weights are used."""
    words = (*_streets(budget), *budget.tokenizer_options, "--rays-per-sweep", str(budget.street_rays))
    return [
        _run(f"tokenizer_{mode}", "tokenizer", training, *words, "--mode", mode, "--evaluate-every", "10000")
        for mode, training in budget.tokenizer_modes.items()
    ]


def _tokens(name: str, tokenizer: str, *words: str, minutes: float) -> Step:
    place = ("--out", f"WORK/tokens/{name}")
    return Step(
        name=f"tokens/{name}", words=("copilot4d", "tokenize", "--tokenizer", f"WORK/runs/{tokenizer}", *words, *place),
        kind="tokens", makes=f"tokens/{name}", core_minutes=minutes, needs=(f"runs/{tokenizer}",),
    )  # fmt: skip


def _world_models(budget: Budget) -> list[Step]:
    reference = ("--token-frame", "reference", "--reference-every", str(budget.reference_every))
    own = ("--token-frame", "own")
    model = preset(budget.preset).world_model  # a gathered past cannot be cut to fewer frames later
    clip = ("--past-frames", str(model.past_frames), "--future-frames", str(model.frames - model.past_frames))
    gathering = ("--gathered-past", *clip)
    train = ("--data", budget.token_train)
    val = ("--data", budget.val.path, "--drives", *budget.token_held_out)
    kitti = (
        "--data", budget.kitti_choice.path, "--drives", *budget.kitti_train, "--held-out", *budget.kitti_choice.drives,
        "--token-frame", "reference", "--reference-every", str(budget.kitti_reference_every),
        *(gathering if budget.world_models[-1].gathered_past else ()),
    )  # fmt: skip
    minutes = budget.tokenize_minutes
    gathered = (*reference, *gathering)
    steps = [
        _tokens("train", "streets", *train, *reference, minutes=minutes),
        _tokens("val", "streets", *val, *reference, minutes=minutes / 30),
        _tokens("gathered_train", "streets", *train, *gathered, minutes=minutes),
        _tokens("gathered_val", "streets", *val, *gathered, minutes=minutes / 30),
        _tokens("own_train", "streets", "--data", budget.own_train, *own, minutes=minutes),
        _tokens("own_val", "streets", *val, *own, minutes=minutes / 30),
        _tokens("kitti", "kitti", *kitti, minutes=minutes),
    ]

    def world(name: str, training: Training, kind: str, *words: str, start: str | None = None) -> Step:
        cached = ("--tokens", f"WORK/tokens/{kind}train", "--held-out-tokens", f"WORK/tokens/{kind}val")
        tokens = (*cached, "--tokenizer", "WORK/runs/streets")
        needs = (f"tokens/{kind}train", f"tokens/{kind}val", "runs/streets", *((f"runs/{start}",) if start else ()))
        start_from = ("--init-from", f"WORK/runs/{start}") if start else ()
        options = ("--preset", budget.preset, *tokens, *budget.world_options, *words, *start_from)
        return _run(name, "world-model", training, *options, needs=needs)

    def chain(name: str) -> list[Step]:
        names = stages(name, budget)
        before = [None, *names[:-1]]
        kinds = ["gathered_" if training.gathered_past else "" for training in budget.world_models]
        return [
            world(its_name, training, kind, start=start)
            for its_name, training, kind, start in zip(names, budget.world_models, kinds, before, strict=True)
        ]

    def fine_tuned(name: str, start: str) -> Step:
        tokens = ("--tokens", "WORK/tokens/kitti", "--tokenizer", "WORK/runs/kitti")
        options = ("--preset", budget.preset, *tokens, *budget.world_options)
        needs = ("tokens/kitti", "runs/kitti", f"runs/{start}")
        start_from = ("--init-from", f"WORK/runs/{start}")
        return _run(name, "world-model", budget.kitti_world_model, *options, *start_from, needs=needs)

    def twin(name: str, *words: str) -> Step:
        """The last run of the world model again, with other options: from the same weights, on the same clips."""
        _, *before = reversed(stages("world_model", budget))
        training = budget.world_models[-1]
        kind = "gathered_" if training.gathered_past else ""
        return world(name, training, kind, *words, start=before[0] if before else None)

    own_intervals = ("--intervals", *map(str, budget.own_intervals))
    return [
        *steps,
        *chain("world_model"),
        twin("maskgit", "--process", "maskgit"),
        world("frame_reference", budget.token_frames, ""),
        world("frame_own", budget.token_frames, "own_", *own_intervals),
        fine_tuned("kitti_world_model", "world_model"),
    ]


def _gates(budget: Budget) -> list[Step]:
    """The depth selectors of the models in the main rows, each learned from its own model's forecasts, with 4D-Occ of
    the same drives as the occupancy network.
    """

    def selector(model: str, occupancy: str, data: tuple[str, ...], forecasts: tuple[int, ...], seconds: float) -> Step:
        words = ("copilot4d", "train", "depth-selector", "--model", f"WORK/runs/{model}", *data)
        depths = ("--occupancy", f"WORK/runs/{occupancy}", "--forecasts", *map(str, forecasts))
        return Step(
            name=f"gates/{model}", words=(*words, *depths, *rest), kind="gate", makes=f"runs/{model}/depth_selector",
            core_minutes=sum(forecasts) * seconds / 60 + 6, needs=(f"runs/{model}", f"runs/{occupancy}"),
        )  # fmt: skip

    rest = ("--settings", *budget.settings, *budget.gate_options)
    streets = ("--data", budget.gate_train, "--drives", *budget.gate_drives)
    kitti = ("--data", budget.kitti_choice.path, "--drives", *budget.kitti_train)
    return [
        selector("world_model", "occupancy_4d", streets, budget.gate_forecasts, 4),
        selector("kitti_world_model", "kitti_occupancy_4d", kitti, budget.kitti_gate_forecasts, 20),
    ]


def _occupancy(budget: Budget) -> list[Step]:
    kitti = (*_kitti(budget), "--init-from", "WORK/runs/occupancy_4d")
    return [
        _run("occupancy_4d", "occupancy-4d", budget.occupancy, *_streets(budget)),
        _run("kitti_occupancy_4d", "occupancy-4d", budget.kitti_occupancy, *kitti, needs=("runs/occupancy_4d",)),
    ]
