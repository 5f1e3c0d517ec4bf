"""`copilot4d evaluate-tokenizer`: how well a tokenizer reconstructs sweeps."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

import torch
from rich.table import Table

from copilot4d.checkpoints.load_tokenizer import load_tokenizer
from copilot4d.cli.console import console, next_step, track
from copilot4d.cli.options.evaluate_tokenizer import Options
from copilot4d.config import to_mapping
from copilot4d.datasets import open_dataset
from copilot4d.errors import UsageError
from copilot4d.geometry import Drive
from copilot4d.pictures import write_png
from copilot4d.tokenizer.reconstruction import clean_sweep, reconstruct
from copilot4d.tokens.columns import CLASSES
from copilot4d.tokens.yardstick import measure_tokens
from copilot4d.training.distributed import choose_device
from copilot4d.training.malloc import keep_freed_memory
from copilot4d.training.tokenizer_scores import ReconstructionTally, reconstruction_picture

ROWS = {
    "chamfer_roi": ("Chamfer in the region (m²)", 1.0),
    "roi_l1_median": ("L1 median (m)", 1.0),
    "roi_l1_mean": ("L1 mean (m)", 1.0),
    "roi_absrel_median": ("AbsRel median (%)", 100.0),
    "roi_absrel_mean": ("AbsRel mean (%)", 100.0),
    "codebook_used": ("codes used (%)", 100.0),
    "perplexity": ("perplexity of the tokens", 1.0),
    "mask_recall": ("occupied cells that rays look at (%)", 100.0),
    "mask_precision": ("cells looked at that are occupied (%)", 100.0),
    "samples_per_ray": ("samples per ray", 1.0),
    **{
        f"kept_{question}_{name}": (f"tokens kept {words}: {name} (%)", 100.0)
        for question, words in (("standing", "while the ego stands"), ("sensors", "by another sensor"))
        for name in CLASSES
    },
    **{f"codes_{name}": (f"codes of columns: {name}", 1.0) for name in CLASSES},
}


def run(options: Options) -> int:
    """Run the verb."""
    too_few = options.every < 1 or (options.limit is not None and options.limit < 1)
    if too_few or min(options.pictures, options.pairs) < 0:
        raise UsageError("--every and --limit must be at least 1, --pictures and --pairs at least 0")
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"--out {options.out} is a file; name a folder")
    loaded = load_tokenizer(options.model)
    device = choose_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    tokenizer = loaded.tokenizer.to(device)
    dataset = open_dataset(options.data)
    if options.split is not None:
        dataset = dataset.split(options.split)
    if options.drives:
        dataset = dataset.select(options.drives)
    frames = [(name, i) for name in dataset.names for i in range(0, len(dataset[name]), options.every)]
    frames = frames[: options.limit]
    if not frames:
        raise UsageError(f"{options.data} has no sweep among those that were asked for")
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = min(options.pictures, len(frames))
    drawn = {frames[len(frames) * k // wanted] for k in range(wanted)}
    tally, sweeps = ReconstructionTally(codes=tokenizer.config.vocabulary), []
    scored = set(frames)
    if options.count_all_codes:
        frames = [(name, i) for name in dataset.names for i in range(len(dataset[name]))]
    with torch.inference_mode():
        for name, frame in track(frames, "reconstructing sweeps"):
            drive = dataset[name]
            sweep = drive[frame].without_box(drive.ego_box)
            if (name, frame) not in scored:
                tally.count(tokenizer.encode([clean_sweep(sweep)])[0].cpu().numpy())
                continue
            made = reconstruct(tokenizer, sweep, seed=options.seed)
            score = tally.add(tokenizer, made)
            sweeps.append({"drive": name, "frame": frame, "score": None if score is None else asdict(score)})
            if (name, frame) in drawn:
                title = f"{name}, sweep {frame}"
                if score is not None:
                    title += f": Chamfer {score.chamfer_roi:.3f} m², L1 median {score.roi_l1_median:.3f} m"
                image = reconstruction_picture(tokenizer, made, title=title)
                write_png(options.out / f"{name}_{frame:06d}.png", image)
        drives = [dataset[name] for name in dataset.names]
        kept = measure_tokens(tokenizer, drives, _others(options, dataset.names), pairs_per_drive=options.pairs)
    summary = {**tally.summary(), **kept}
    report = {
        "model": str(options.model),
        "checkpoint_step": loaded.step,
        "model_sha256": loaded.sha256,
        "data": f"{dataset.format}: {options.data}",
        "drives": list(dataset.names),
        "every": options.every,
        "seed": options.seed,
        "region": to_mapping(tokenizer.config.grid),
        "mode": tokenizer.config.mode,
        "sweeps_scored": len(tally.scores),
        "sweeps_not_scored": tally.not_scored,
        "sweeps_counted": tally.counted,
        "scores": {name: value if value == value else None for name, value in summary.items()},
        "sweeps": sweeps,
    }
    path = options.out / "scores.json"
    path.write_text(json.dumps(report, indent=1), encoding="utf-8")
    show(summary, tally)
    console.print(f"\nWrote {path} and {len(drawn)} pictures beside it", markup=False, highlight=False)
    data = shlex.quote(str(options.data))
    next_step(f"copilot4d evaluate --model ray_tracing --data {data} --setting 1s --out ray_tracing.json")
    return 0


def _others(options: Options, names: tuple[str, ...]) -> dict[str, Drive]:
    if options.other_scans is None:
        return {}
    dataset = open_dataset(options.other_scans)
    drives = {name: dataset[name] for name in names if name in dataset.names}
    if not drives:
        raise UsageError(f"--other-scans {options.other_scans} has none of the drives to score, such as {names[0]}")
    return drives


def show(summary: dict[str, float], tally: ReconstructionTally) -> None:
    """Print the scores."""
    table = Table(title=f"{len(tally.scores)} sweeps, each against its reconstruction", title_justify="left")
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, (words, scale) in ROWS.items():
        if name in summary:
            table.add_row(words, f"{summary[name] * scale:.3f}")
    console.print(table)
    if tally.counted != len(tally.scores):
        console.print(f"codes and their perplexity: over {tally.counted} sweeps", highlight=False)
    if tally.not_scored:
        console.print(f"not scored: {tally.not_scored} sweeps without points in the region", highlight=False)
