"""Which checkpoints a run may go on from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from copilot4d.checkpoints.checkpoint import RunIdentity
from copilot4d.errors import UsageError
from copilot4d.training.setup import check_same_run


@dataclass
class Written:
    """What `check_same_run` reads of a checkpoint."""

    content: dict[str, Any]
    path: Path = field(default_factory=lambda: Path("step_7"))


def identity(task: dict[str, Any], **settings) -> RunIdentity:
    defaults = {"task": {"model": {"width": 8, "gathered": False}}}
    return RunIdentity(
        task="t", config={"seed": 0, "task": task}, data_fingerprint="f", conventions={}, defaults=defaults, **settings
    )


def test_a_checkpoint_from_before_a_setting_existed_goes_on_where_it_has_its_default():
    old = Written(identity({"model": {"width": 8}}).content())
    check_same_run(old, identity({"model": {"width": 8, "gathered": False}}))
    with pytest.raises(UsageError, match=r"config\.task\.model\.gathered differ"):
        check_same_run(old, identity({"model": {"width": 8, "gathered": True}}))
    with pytest.raises(UsageError, match=r"config\.task\.model\.width differ"):
        check_same_run(old, identity({"model": {"width": 9, "gathered": False}}))


def test_a_checkpoint_without_settings_is_refused():
    with pytest.raises(UsageError, match="config, conventions differ"):
        check_same_run(Written({"task": "t", "data_fingerprint": "f"}), identity({"model": {"width": 8}}))


def test_a_checkpoint_from_before_intervals_were_stated_goes_on():
    settings = {"task": "t", "config": {}, "data_fingerprint": "f"}
    old = Written(RunIdentity(conventions={"vocabulary": 3}, **settings).content())
    new = RunIdentity(conventions={"vocabulary": 3, "intervals_s": [0.2]}, **settings)
    check_same_run(old, new)
    check_same_run(Written(new.content()), new)
    with pytest.raises(UsageError, match=r"conventions\.intervals_s differ"):
        check_same_run(
            Written(new.content()), RunIdentity(conventions={**new.conventions, "intervals_s": [0.6]}, **settings)
        )
    with pytest.raises(UsageError, match=r"conventions\.vocabulary differ"):
        check_same_run(old, RunIdentity(conventions={"vocabulary": 4, "intervals_s": [0.2]}, **settings))
