"""Fine-tuning from a model that was shared: what only training needs was left out, and is not missed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from copilot4d import presets
from copilot4d.checkpoints.pretrained import ModelCard, save_pretrained
from copilot4d.config import to_mapping
from copilot4d.errors import DataError
from copilot4d.tokenizer import Tokenizer
from copilot4d.training import Recipe, TrainingConfig, train
from copilot4d.training.tasks.tokenizer import TokenizerTask, TokenizerTraining
from tests.support.scenes import make_drive

TINY = presets.tiny().tokenizer
CONFIG = replace(TINY, codebook=replace(TINY.codebook, warm_up=50, start_from_data=True))
CARD = ModelCard(
    title="tiny", summary="for a test", trained_on=["nothing"], steps=0, samples=0, training_s=0.0, hardware="a core",
    command="none",
)  # fmt: skip


class Watched(TokenizerTask):
    """Remembers what the first step begins with."""

    def before_step(self, context):
        book = context.model.codebook
        self.begun_with = (book.weight.detach().clone(), book.warming_up, int(book.made))
        super().before_step(context)


@pytest.fixture
def shared(tmp_path):
    torch.manual_seed(1)
    tokenizer = Tokenizer(CONFIG)
    buffers = [name for name, _ in tokenizer.named_buffers()]
    folder = save_pretrained(
        tmp_path / "shared", tokenizer, kind="tokenizer", config=to_mapping(CONFIG), card=CARD, without=buffers
    )
    return tokenizer, folder


def start(folder, run) -> Watched:
    training = TokenizerTraining(tokenizer=CONFIG, rays_per_sweep=64)
    task = Watched(training, [make_drive(2, rings=8, azimuths=60)])
    recipe = Recipe(batch=1, warmup_steps=0, cosine_steps=2, clip_norm=1.0)
    train(task, TrainingConfig(recipe=recipe, run=run, init_from=folder, max_steps=1, workers=0, evaluate_every=None))
    return task


def test_a_shared_tokenizer_goes_on_with_its_codes_and_neither_warms_up_nor_makes_them_anew(shared, tmp_path):
    tokenizer, folder = shared
    weight, warming_up, made = start(folder, tmp_path / "run").begun_with
    assert torch.equal(weight, tokenizer.codebook.weight)
    assert not warming_up, "a trained encoder would be trained without quantisation again"
    assert made == 1, "the codes that the encoder knows would be replaced as soon as the bank is full"


def test_of_a_model_folder_the_task_takes_its_own_part(shared, tmp_path):
    tokenizer, folder = shared
    (tmp_path / "model").mkdir()
    folder.rename(tmp_path / "model" / "tokenizer")
    weight, *_ = start(tmp_path / "model", tmp_path / "run").begun_with
    assert torch.equal(weight, tokenizer.codebook.weight)


def test_a_tensor_that_the_folder_does_not_say_it_left_out_is_missed(shared, tmp_path):
    _, folder = shared
    (folder / "manifest.json").unlink()
    stated = json.loads((folder / "config.json").read_text())
    stated["left_out"] = stated["left_out"][1:]
    del stated["sealed"]  # as a folder of another tool
    (folder / "config.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match="1 missing"):
        start(folder, tmp_path / "run")
