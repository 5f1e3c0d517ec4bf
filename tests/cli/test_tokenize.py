"""`copilot4d tokenize`: from a tokenizer and drives to clips, resumable, over ranks, with weights of known identity."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from copilot4d.checkpoints.checkpoint import CheckpointStore, RunIdentity
from copilot4d.checkpoints.load_tokenizer import load_tokenizer, tokenizer_sha256
from copilot4d.checkpoints.pretrained import KIND, VERSION, ModelCard, save_pretrained
from copilot4d.checkpoints.sealed_folder import seal
from copilot4d.cli.main import main
from copilot4d.config import to_mapping
from copilot4d.datasets import open_dataset
from copilot4d.datasets.folder_writer import write_folder
from copilot4d.errors import DataError
from copilot4d.geometry import se3
from copilot4d.presets import tiny
from copilot4d.tokenizer.reconstruction import clean_sweep
from copilot4d.tokenizer.tokenizer import Tokenizer
from copilot4d.tokens.token_cache import open_token_cache
from copilot4d.tokens.token_clips import TokenClips
from tests.support.scenes import make_drive
from tests.training.processes import run_ranks

CARD = ModelCard(
    title="tiny", summary="Random weights.", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="none"
)
CLIPS = ["--intervals", "0.1s", "--past-frames", "2", "--future-frames", "1", "--reference-every", "2"]


def random_tokenizer(seed: int = 0) -> Tokenizer:
    torch.manual_seed(seed)
    return Tokenizer(tiny().tokenizer).eval()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A data set of three drives, and a shared tokenizer."""
    folder = tmp_path_factory.mktemp("tokenize")
    for name, frames in (("a", 6), ("b", 5), ("c", 4)):
        write_folder(make_drive(frames, rings=12, azimuths=60, name=name), folder / "data" / name)
    config = to_mapping(tiny().tokenizer)
    save_pretrained(folder / "tokenizer", random_tokenizer(), kind="tokenizer", config=config, card=CARD)
    return folder


def tokenize(place: Path, out: Path, *more: str) -> int:
    words = ["tokenize", "--tokenizer", place / "tokenizer", "--data", place / "data", "--out", out, *more]
    return main([str(word) for word in words])


def agreement(tokens: torch.Tensor, others: torch.Tensor) -> float:
    """The share of equal tokens: sums differ in the last bit with the batch, which may turn a tie."""
    return float((tokens == others).float().mean())


def test_clips_are_what_the_tokenizer_says_of_the_moved_sweeps(place, tmp_path, capsys):
    assert tokenize(place, tmp_path / "t", *CLIPS, "--held-out", "b") == 0
    said = capsys.readouterr().out
    assert "4 clips of 2 + 1 frames, of 3 drives (1 held out)" in said
    assert f"Next: copilot4d train world-model --tokens {tmp_path / 't'}" in said
    clips = TokenClips.open([tmp_path / "t"], past_frames=2, future_frames=1)
    assert (clips.drives, clips.held_out) == (("a", "c"), ("b",))
    assert (clips.token_frame, clips.vocabulary, clips.token_shape) == ("reference", 32, (16, 16))
    tokenizer = random_tokenizer()
    assert clips.tokenizer_sha256 == tokenizer_sha256(tokenizer)
    assert [(clip.drive, clip.reference) for clip in map(clips.clip, range(3), [0] * 3)] == [
        ("a", 2), ("a", 4), ("c", 2)
    ]  # fmt: skip
    drive = open_dataset(place / "data")["a"]
    clip = clips.clip(0, 0)
    for t, frame in enumerate((1, 2, 3)):
        sweep = clean_sweep(drive[frame])
        reference_from_lidar = np.linalg.inv(drive.world_from_lidar[2]) @ drive.world_from_lidar[frame]
        moved = se3.transform_points(reference_from_lidar, sweep.points)
        alone = tokenizer.encode([type(sweep)(points=moved, world_from_lidar=np.eye(4), timestamp_ns=0)])[0]
        assert agreement(clip.tokens[t], alone) > 0.99
        assert np.allclose(clip.world_from_lidar[t], drive.world_from_lidar[frame])


def test_own_frames_and_variants(place, tmp_path, capsys):
    assert tokenize(place, tmp_path / "t", "--token-frame", "own", "--drives", "a", "--variants", "2") == 0
    assert "6 sweeps in 2 variants, of 1 drives" in capsys.readouterr().out
    cache = open_token_cache(tmp_path / "t")
    drive = open_dataset(place / "data")["a"]
    for variant in (0, 1):
        augmented = cache.config.variant("a", variant).drive(drive)
        expected = random_tokenizer().encode([clean_sweep(sweep) for sweep in augmented])
        assert agreement(cache.read("a", variant, "tokens"), expected) > 0.99
    assert agreement(cache.read("a", 0, "tokens"), cache.read("a", 1, "tokens")) < 0.99


def test_a_second_run_adds_what_is_missing_and_refusals_tell_the_way_out(place, tmp_path, capsys):
    out = tmp_path / "t"
    assert tokenize(place, out, *CLIPS, "--max-drives", "1") == 0
    first = {file.name: file.read_bytes() for file in out.glob("*.safetensors")}
    assert len(first) == 1
    assert tokenize(place, out, *CLIPS) == 0
    assert "2 drives; 1 were there already" in capsys.readouterr().out
    assert all((out / name).read_bytes() == data for name, data in first.items())
    assert tokenize(place, out, "--token-frame", "own", "--drives", "a") == 1
    said = capsys.readouterr().err
    assert "token_frame own" in said
    assert "token_frame reference" in said
    command = shlex.split(said.rpartition("To fix it: ")[2].strip().rstrip("."))
    command = command[command.index("copilot4d") + 1 :]
    assert command[-1] == "--overwrite"
    assert open_token_cache(out).config.token_frame == "reference"
    assert main(command) == 0
    assert open_token_cache(out).config.token_frame == "own"
    assert tuple(open_token_cache(out).drives) == ("a",)


def test_two_ranks_of_the_verb_make_the_same_cache(place, tmp_path):
    assert tokenize(place, tmp_path / "one", *CLIPS) == 0

    def work(rank):
        torch.set_num_threads(1)
        hours, inner = [], torch.distributed.init_process_group

        def noted(*words, **options):  # this process is the rank's own
            hours.append(options["timeout"].total_seconds() / 3600)
            inner(*words, **options)

        torch.distributed.init_process_group = noted
        return [tokenize(place, tmp_path / "two", *CLIPS), hours]

    # One rank may be done hours before another: PyTorch's half hour would end it.
    assert run_ranks(2, work) == [[0, [168.0]], [0, [168.0]]]
    one, two = (open_token_cache(tmp_path / name) for name in ("one", "two"))
    two.verify()
    assert one.sha256 == two.sha256
    assert one.drives == two.drives


def test_the_identity_is_that_of_the_weights_in_use(place, tmp_path):
    model, averaged = random_tokenizer(), random_tokenizer(1)
    identity = RunIdentity(
        task="tokenizer", config={"task": {"tokenizer": to_mapping(model.config)}}, data_fingerprint="", conventions={}
    )
    store = CheckpointStore(folder=tmp_path / "run" / "checkpoints")
    plain = store.save(identity, {"step": 1, "score": None}, {"model": model.state_dict()})
    tensors = {"model": model.state_dict(), "ema": dict(averaged.named_parameters())}
    smooth = store.save(identity, {"step": 2, "score": None}, tensors)
    shared = load_tokenizer(place / "tokenizer")
    assert load_tokenizer(plain).sha256 == shared.sha256 == tokenizer_sha256(model)
    assert load_tokenizer(smooth).sha256 == tokenizer_sha256(averaged) != shared.sha256
    assert load_tokenizer(tmp_path / "run").step == 2
    assert shared.step is None
    state = shared.tokenizer.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_shared_folders_of_other_models_and_damaged_ones_are_refused(place, tmp_path):
    import shutil

    shutil.copytree(place / "tokenizer", tmp_path / "t")
    path = tmp_path / "t" / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DataError, match="sha256"):
        load_tokenizer(tmp_path / "t")
    path.write_bytes(data)
    (tmp_path / "t" / "manifest.json").unlink()
    stated = json.loads((tmp_path / "t" / "config.json").read_text())
    (tmp_path / "t" / "config.json").write_text(json.dumps({**stated, "kind": "world_model"}))
    seal(tmp_path / "t", kind=KIND, version=VERSION, content={"kind": "world_model"})
    with pytest.raises(DataError, match="expected 'tokenizer', found 'world_model'"):
        load_tokenizer(tmp_path / "t")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--drives", "z"], "--drives z: no such drive"),
        (["--intervals", "0.2"], "(--intervals) takes"),
        (["--intervals", "0.25s"], "no whole number"),
        (["--max-drives", "0"], "--max-drives"),
        (["--reference-every", "0"], "--reference-every"),
    ],
)
def test_wrong_usage_is_told_and_writes_nothing(more, words, place, tmp_path, capsys):
    assert tokenize(place, tmp_path / "t", *more) == 2
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "t").glob("*"))


def test_drives_too_short_for_any_clip_are_told(place, tmp_path, capsys):
    assert tokenize(place, tmp_path / "t") == 1
    assert "none of the 3 drives is long enough" in capsys.readouterr().err
