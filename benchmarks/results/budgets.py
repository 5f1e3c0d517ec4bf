"""The figures of the results: which drives, how many updates, how often scored, and what each costs.

Everything that a person would change between a rehearsal and the real thing is here. Core-minutes are those of one core
of the reference machine (2 cores, no GPU), measured where a run was made, else estimated from the cost of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Its points are the voxels themselves, which the preset's coarse branch (cells of 1 m) has not.
VOXEL_CENTRES = "skipping: {resolution: voxel}\nlosses: {occupied_weight: 20.0}\ncodebook: {warm_up: 1100}\n"
# 4D-Occ learns larger voxels sooner (docs/train_occupancy-4d.md).
HALF_METRE = "grid: {minimum: [-32, -32, -4], cell_size: [0.5, 0.5, 0.25], shape: [128, 128, 32]}\nfold: 1\n"
MOSTLY_FUTURE = "diffusion: {future_probability: 0.65, joint_probability: 0.25}\n"
NEARLY_ALL_FUTURE = "diffusion: {future_probability: 0.8, joint_probability: 0.12}\n"
KITTI_TRAIN = ("train_0001", "train_0002", "train_0009a", "train_0009b", "train_0013")


@dataclass(frozen=True, kw_only=True)
class Data:
    """One data set of the evaluation, by the name that groups and files carry."""

    name: str
    path: str
    title: str
    references: int  # reference frames of the protocol, before --every: for estimates
    drives: tuple[str, ...] = ()  # all where none is named
    report: bool = False  # no choice may be made on it
    slower: float = 1.0  # scoring and rendering a frame, against street-v1's sensor


@dataclass(frozen=True, kw_only=True)
class Training:
    """One run: updates, the options that are its own, its cost."""

    steps: int
    core_minutes: float
    max_steps: int | None = None
    options: tuple[str, ...] = ()
    changes: str = ""  # to the preset's model, as YAML
    gathered_past: bool = False  # of a world model: on clips whose oldest frame is of all past sweeps


STREET_VAL = Data(name="val", path="street-v1/val", title="`street-v1` val", references=2320)
STREET_TEST = Data(name="test", path="street-v1/test", title="`street-v1` test", references=2320, report=True)
# Streets that nobody looked at before: test has been seen more than once, by models that were changed in between.
FRESH = Data(
    name="fresh", path="street-v1/train:1000", title="fresh streets", references=2320, report=True,
    drives=tuple(f"train_{number:06d}" for number in range(980, 1000)),
)  # fmt: skip
KITTI_CHOICE = Data(
    name="train_0011", path="KITTI", title="`train_0011`", references=116, drives=("train_0011",), slower=3.0
)
KITTI_REPORT = Data(
    name="val_0005", path="KITTI", title="`val_0005`", references=76, drives=("val_0005",), report=True, slower=3.0
)
OTHER_SENSOR = Data(
    name="val_hdl64", path="street-v1/val@hdl64", title="`street-v1` val with the sensor `hdl64`", references=580,
    drives=("val_000", "val_001", "val_002", "val_003", "val_004"), slower=4.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The whole plan's figures. `FULL` is the real thing; a rehearsal takes smaller ones."""

    preset: str = "mini"
    roi_half_m: float = 32.0
    every: int = 12  # of KITTI's drives
    test_every: int = 12  # of street-v1 test's main rows
    fresh_every: int = 48
    # How the world model samples in the main rows, chosen on val.
    top_k: int = 1
    main_steps: int = 2
    main_schedule: str = "few_first"
    ablation_every: int = 48  # of choices and ablations
    sampling_every: int = 240  # of the table that has most rows
    guidance_every: int = 120
    futures_every: int = 480  # of the table whose rows cost most
    tokenizer_every: int = 40
    sampling_steps: tuple[int, ...] = (2, 5, 10, 20)  # K
    guidances: tuple[float, ...] = (0.0, 1.0, 2.0)  # w
    futures: int = 8
    moments: int = 24  # the first of the what-if set's 60
    settings: tuple[str, ...] = ("1s", "3s")

    street_train: str = "street-v1/train:150"
    token_train: str = "street-v1/train:120"
    tokenizer_held_out: tuple[str, ...] = ("val_000", "val_001", "val_002", "val_003")
    token_held_out: tuple[str, ...] = ("val_004", "val_005", "val_006", "val_007")
    kitti_train: tuple[str, ...] = KITTI_TRAIN
    val: Data = STREET_VAL
    test: Data = STREET_TEST
    fresh: Data = FRESH
    kitti_choice: Data = KITTI_CHOICE
    kitti_report: Data = KITTI_REPORT
    other_sensor: Data = OTHER_SENSOR
    whatif: str = "street-v1-whatif"

    tokenizer_options: tuple[str, ...] = ("--augmentation.max-shift-m", "24", "--batch", "2")
    # The long run was started before the preset's depth became the median.
    streets_1: Training = Training(steps=7000, core_minutes=53, changes="rendering: {depth: sum}\n")
    streets: Training = Training(steps=600, core_minutes=6, options=("--learning-rate", "1e-4"))
    kitti: Training = Training(steps=1000, core_minutes=15, options=("--learning-rate", "7e-4"))
    street_rays: int = 1024
    kitti_rays: int = 1536
    # Equal time, half an hour each; a quarter of each run is without quantisation.
    tokenizer_modes: Mapping[str, Training] = field(
        default_factory=lambda: {
            "full": Training(steps=4000, core_minutes=33, changes="codebook: {warm_up: 1000}\n"),
            "no_skipping": Training(steps=2700, core_minutes=33, changes="codebook: {warm_up: 675}\n"),
            "voxel_centres": Training(steps=4400, core_minutes=33, changes=VOXEL_CENTRES),
        }
    )
    reference_every: int = 20
    kitti_reference_every: int = 6
    tokenize_minutes: float = 25
    world_options: tuple[str, ...] = ("--batch", "4", "--accumulation", "4")
    # One after another, each from the weights of the one before. MaskGIT is the twin of the last: it starts from the
    # same weights, and only the last run's process differs.
    world_models: tuple[Training, ...] = (
        Training(steps=4000, max_steps=866, core_minutes=52, options=("--evaluate-every", "100")),
        Training(steps=1000, core_minutes=60, changes=MOSTLY_FUTURE, options=("--evaluate-every", "100")),
        Training(
            steps=1000, core_minutes=62, changes=MOSTLY_FUTURE, gathered_past=True,
            options=("--learning-rate", "7e-4", "--evaluate-every", "50"),
        ),
        Training(
            steps=900, core_minutes=65, changes=NEARLY_ALL_FUTURE, gathered_past=True,
            options=("--learning-rate", "7e-4", "--evaluate-every", "100"),
        ),
        Training(
            steps=600, core_minutes=22, changes=NEARLY_ALL_FUTURE, gathered_past=True,
            options=("--learning-rate", "7e-4", "--evaluate-every", "100"),
        ),
    )  # fmt: skip
    kitti_world_model: Training = Training(
        steps=150, core_minutes=10, changes=MOSTLY_FUTURE,
        options=("--learning-rate", "5e-4", "--evaluate-every", "50"),
    )  # fmt: skip
    gate_train: str = "street-v1/train:270"
    gate_drives: tuple[str, ...] = tuple(f"train_{number:06d}" for number in range(150, 270))  # new to all networks
    gate_forecasts: tuple[int, ...] = (100, 300)  # of each setting
    kitti_gate_forecasts: tuple[int, ...] = (40, 40)
    gate_options: tuple[str, ...] = ("--sampling-steps", "5", "--top-k", "1", "--updates", "4000")
    own_train: str = "street-v1/train:60"
    own_intervals: tuple[int, ...] = (2, 6)  # frames of the log: tokens in their own frames name none
    token_frames: Training = Training(steps=4000, max_steps=300, core_minutes=20, options=("--evaluate-every", "100"))
    occupancy: Training = Training(
        steps=3200, core_minutes=100, options=("--ema-decay", "0.995", "--evaluate-every", "400"), changes=HALF_METRE
    )
    kitti_occupancy: Training = Training(
        steps=300, core_minutes=12, changes=HALF_METRE,
        options=("--ema-decay", "0.98", "--learning-rate", "5e-4", "--evaluate-every", "100"),
    )  # fmt: skip


FULL = Budget()

# Seconds for one reference frame of street-v1 (5 future frames, 20,000 rays each), scoring included.
SECONDS_PER_REFERENCE = {
    "copy_last": 1.1, "ray_tracing": 1.4, "ray_tracing_recent": 1.6, "occupancy_4d": 2.5, "floor": 2.5,
}  # fmt: skip
MODEL_SECONDS = 2.0  # of a forecast by the model, beside its sampling
MODEL_SECONDS_PER_STEP = 0.5  # of sampling five frames with guidance, for each of the K steps


def scoring_minutes(
    model: str, data: Data, every: int, *, steps: int = 10, guidance: float = 1.0, futures: int = 1
) -> float:
    """What it costs to score a model on every n-th reference frame of a data set."""
    passes = steps * (0.5 if guidance == 0 else 1.0)
    sampled = MODEL_SECONDS + futures * passes * MODEL_SECONDS_PER_STEP + (futures - 1) * 1.5
    seconds = SECONDS_PER_REFERENCE.get(model, sampled)
    rays = seconds if model in SECONDS_PER_REFERENCE else MODEL_SECONDS * futures  # what grows with a sweep's points
    return data.references / every * (seconds + (data.slower - 1) * rays) / 60
