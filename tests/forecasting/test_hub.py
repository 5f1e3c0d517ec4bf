"""Models of the hub, against a small server on this machine and a cache of the hub's shape; no network is used."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from copilot4d import load_forecaster
from copilot4d.errors import DataError, UsageError
from copilot4d.forecasting import hub

huggingface_hub = pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Repositories:
    """{repository: {file: bytes}}, what was asked for, and one server that speaks enough of the hub's protocol."""

    def __init__(self):
        self.files: dict[str, dict[str, bytes]] = {}
        self.fetched: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def _send(self, code, body=b"", **headers):
                self.send_response(code)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def _json(self, code, content, **headers):
                self._send(code, json.dumps(content).encode(), Content_Type="application/json", **headers)

            def _missing(self, kind):
                self._json(404, {"error": "not found"}, X_Error_Code=kind, X_Error_Message="not found")

            def do_GET(self):
                parts = self.path.split("?")[0].strip("/").split("/")
                if parts[:2] == ["api", "models"]:
                    name = "/".join(parts[2:4])
                    if name not in outer.files:
                        return self._missing("RepoNotFound")
                    if parts[4:5] in (["revision"], ["tree"]) and parts[5] not in ("main", COMMIT, "v1"):
                        return self._missing("RevisionNotFound")
                    names = sorted(outer.files[name])
                    if parts[4:5] == ["tree"]:
                        rows = [
                            {"type": "file", "path": n, "size": len(outer.files[name][n]), "oid": "a" * 40}
                            for n in names
                        ]
                        return self._json(200, rows)
                    siblings = [{"rfilename": n} for n in names]
                    return self._json(200, {"id": name, "sha": COMMIT, "siblings": siblings})
                name, file = "/".join(parts[:2]), "/".join(parts[4:])
                if name not in outer.files:
                    return self._missing("RepoNotFound")
                if file not in outer.files[name]:
                    return self._missing("EntryNotFound")
                body = outer.files[name][file]
                if self.command == "GET":
                    outer.fetched.append(file)
                return self._send(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"', X_Repo_Commit=COMMIT)

            def do_HEAD(self):
                return self.do_GET()

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = self.path.split("?")[0].strip("/").split("/")
                if parts == ["api", "repos", "create"]:
                    asked = json.loads(body)
                    name = f"{asked.get('organization', 'me')}/{asked['name']}"
                    outer.files.setdefault(name, {})
                    return self._json(200, {"url": f"{outer.url}/{name}", "name": name, "id": name})
                if parts == ["api", "validate-yaml"]:
                    return self._json(200, {"errors": [], "warnings": []})
                name = "/".join(parts[2:4])
                if parts[4] == "preupload":
                    asked = json.loads(body)["files"]
                    files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]
                    return self._json(200, {"files": files})
                assert parts[4] == "commit"
                for line in body.decode().splitlines():
                    entry = json.loads(line)
                    if entry["key"] == "file":
                        outer.files[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                return self._json(200, {"commitUrl": f"{outer.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT,
                                        "success": True})  # fmt: skip

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def repositories(tmp_path, monkeypatch):
    served = Repositories()
    real_download, real_api = huggingface_hub.snapshot_download, huggingface_hub.HfApi
    cache = tmp_path / "cache"

    def download(*names, **options):
        return real_download(*names, **options, endpoint=served.url, cache_dir=cache, token=False, etag_timeout=2)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: real_api(endpoint=served.url, token="not-a-real-one"))
    hub.fetch.cache_clear()
    yield served
    hub.fetch.cache_clear()
    served.server.shutdown()
    served.server.server_close()


def model_files() -> dict[str, bytes]:
    """The shipped 4D-Occ: a pretrained folder that forecasts by itself."""
    from copilot4d.checkpoints.model_folder import shipped_occupancy_4d

    folder = Path(shipped_occupancy_4d())
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_model_is_fetched_loaded_and_found_again_offline(repositories, tmp_path):
    extra = {"weights.pkl": b"never", "code.py": b"never", "sub/model.bin": b"never"}
    repositories.files["me/occupancy"] = model_files() | extra
    model = load_forecaster("hf:me/occupancy")
    assert model.name == "occupancy_4d"
    assert not set(repositories.fetched) & set(extra), "only JSON, safetensors and cards"
    assert all(f.endswith((".json", ".safetensors", "README.md")) for f in repositories.fetched)
    fetched = hub.fetch("hf:me/occupancy")
    assert fetched.revision == COMMIT
    repositories.server.shutdown()
    repositories.server.server_close()
    hub.fetch.cache_clear()
    assert hub.fetch("hf:me/occupancy").folder == fetched.folder, "the cache is enough"
    assert hub.fetch(f"hf:me/occupancy@{COMMIT}").revision == COMMIT
    with pytest.raises(DataError, match=r"hf:me/other: model: expected it in the hub's cache, or a network"):
        hub.fetch("hf:me/other")


def test_what_the_hub_has_not(repositories):
    with pytest.raises(UsageError, match="the hub has no such model, or it is private"):
        hub.fetch("hf:me/nothing")
    repositories.files["me/x"] = {"notes.txt": b"hello"}
    with pytest.raises(UsageError, match="no such revision"):
        hub.fetch("hf:me/x@v9")
    with pytest.raises(DataError, match="no JSON file in it"):
        hub.fetch("hf:me/x")


@pytest.mark.parametrize("name", ["hf:", "hf:mini", "hf:a/b/c", "hf:a/b@", "hf:a/../b", "mini"])
def test_names_that_are_none(name):
    with pytest.raises(UsageError, match="write hf:user/name"):
        hub.parse_hub_name(name)


def test_push_and_fetch_give_the_same_files(repositories, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name, body in model_files().items():
        (folder / name).write_bytes(body)
    (folder / "notes.txt").write_text("stays here")
    assert hub.push(folder, "hf:me/pushed") == COMMIT
    assert repositories.files["me/pushed"] == model_files()
    assert load_forecaster("hf:me/pushed").name == "occupancy_4d"


def test_without_the_extra_the_error_is_one_sentence():
    program = (
        "import sys; sys.modules['huggingface_hub'] = None\nfrom copilot4d import load_forecaster\n"
        "from copilot4d.errors import UsageError\n"
        "try:\n    load_forecaster('hf:me/x')\nexcept UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"models of the hub need huggingface_hub, which is not installed: {hub.INSTALL}"
