"""Models on the Hugging Face hub: "hf:user/name", or "hf:user/name@revision". Needs the extra `hub`.

Only weights (.safetensors), JSON and the model cards that the folder's seal covers are fetched; nothing is executed.
The hub's own cache is used, and its offline mode (HF_HUB_OFFLINE=1) respected.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from copilot4d.errors import DataError, UsageError

PREFIX = "hf:"
FETCHED = ("*.json", "*.safetensors", "README.md", "*/README.md")
INSTALL = "pip install 'copilot4d[hub]'"
_NAME = re.compile(r"[\w.\-]+/[\w.\-]+")


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A model of the hub on this disk."""

    repository: str  # user/name
    revision: str  # the commit that was fetched
    folder: Path


def is_hub_name(name: str | Path) -> bool:
    """Whether a model's name means the hub."""
    return str(name).startswith(PREFIX)


def parse_hub_name(name: str) -> tuple[str, str | None]:
    """ "hf:user/name@revision" -> "user/name", "revision"; UsageError where it is none.

    >>> parse_hub_name("hf:me/mini"), parse_hub_name("hf:me/mini@v1")
    (('me/mini', None), ('me/mini', 'v1'))
    """
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    if not is_hub_name(name) or not _NAME.fullmatch(repository) or ("@" in name and not revision):
        raise UsageError(f"{name!r} is no model of the hub: write hf:user/name, or hf:user/name@revision")
    return repository, revision or None


@lru_cache(maxsize=16)
def fetch(name: str) -> HubModel:
    """The model's folder in the hub's cache, downloaded where it is not there. Once a process for each name."""
    repository, revision = parse_hub_name(name)
    hub = _hub()
    try:
        folder = Path(hub.snapshot_download(repository, revision=revision, allow_patterns=list(FETCHED)))
    except Exception as error:
        raise _said(hub, name, error) from error
    if not any(folder.rglob("*.json")):
        raise DataError(
            name, "model", expected="a folder of `copilot4d export`", found="no JSON file in it",
            remedy="check the name: the model must have been pushed by `copilot4d export`",
        )  # fmt: skip
    return HubModel(repository=repository, revision=folder.name, folder=_plain_files(folder))


def _plain_files(snapshot: Path) -> Path:
    """The snapshot as regular files: the hub's cache is made of links, which a sealed folder refuses.

    Hard links beside the hub's own folders, so that nothing is stored twice; copies where the disk knows none.
    """
    if not any(path.is_symlink() for path in snapshot.rglob("*")):
        return snapshot
    place = snapshot.parents[1] / "copilot4d" / snapshot.name
    if place.is_dir():
        return place
    blobs = (snapshot.parents[1] / "blobs").resolve()
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as writing:
        made = Path(writing) / "model"
        for link in (path for path in snapshot.rglob("*") if path.is_file()):
            target = link.resolve()
            if target.parent != blobs and not target.is_relative_to(snapshot.resolve()):
                raise DataError(
                    link, "file", expected="a file of the hub's cache", found="a link to elsewhere",
                    remedy=f"remove {snapshot.parents[1]} and fetch the model again",
                )  # fmt: skip
            goal = made / link.relative_to(snapshot)
            goal.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(target, goal)
            except OSError:
                shutil.copyfile(target, goal)
        made.replace(place)
    return place


def push(folder: Path, name: str) -> str:
    """Upload a folder of `copilot4d export`; returns the commit. The hub's own login is used (`hf auth login`)."""
    repository, revision = parse_hub_name(name)
    hub = _hub()
    api = hub.HfApi()
    try:
        api.create_repo(repository, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, revision=revision, allow_patterns=list(FETCHED),
            commit_message="A model of copilot4d",
        )  # fmt: skip
    except Exception as error:
        raise _said(hub, name, error) from error
    return str(done.oid)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UsageError(f"models of the hub need huggingface_hub, which is not installed: {INSTALL}") from error
    return huggingface_hub


def _said(hub: Any, name: str, error: Exception) -> Exception:
    """What the hub's client raised, as one sentence; anything that is no trouble with the hub stays what it is."""
    errors = hub.errors
    if isinstance(error, errors.GatedRepoError):
        return UsageError(f"{name} is gated: accept its terms on the hub, and log in with `hf auth login`")
    if isinstance(error, errors.RevisionNotFoundError):
        return UsageError(f"{name}: the hub has this model, but no such revision; leave @... out for the newest")
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(f"{name}: the hub has no such model, or it is private and you are not logged in")
    if isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, OSError)):
        return DataError(
            name, "model", expected="it in the hub's cache, or a network to fetch it by", found="neither",
            remedy="connect to the network once, or give a folder of `copilot4d export` instead",
        )  # fmt: skip
    if isinstance(error, (errors.HfHubHTTPError, errors.HFValidationError)):
        words = " ".join(str(error).split())[:200]
        return DataError(name, "hub", expected="an answer", found=words, remedy="try again later, or log in")
    return error
