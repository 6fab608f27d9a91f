"""`./run model ORG/NAME` with a hub that is imitated on the loopback address."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from unittest import mock

import pytest
from conftest import Called, process, program, refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "org/plain": {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"x", "README.md": b"r", "pytorch_model.bin": b"b",
                  "onnx/model.onnx": b"o", "training_args.bin": b"t"},
    "org/long": {"config.json": b"{}", "model.safetensors": b"x" * 24_000_000},
    "org/one": {"m-Q8_0.gguf": b"g", "README.md": b"r"},
    "org/many": {"m-Q8_0.gguf": b"g8", "m-Q4_0.gguf": b"g4", "big-00001-of-00002.gguf": b"1", "big-00002-of-00002.gguf": b"2"},
    "org/pickled": {"config.json": b"{}", "pytorch_model.bin": b"b"},
    "org/gated": {"config.json": b"{}", "model.safetensors": b"x"},
    "org/none": {"README.md": b"r"},
}  # fmt: skip


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content_Length": len(body), "X_Repo_Commit": COMMIT, **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server, urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).strip("/").split("/")
        hub.requests.append((self.command, "/".join(path), self.headers.get("Range")))
        api = path[:2] == ["api", "models"]
        name, rest = ("/".join(path[2:4]), path[4:]) if api else ("/".join(path[:2]), path[2:])
        files = FILES.get(name)
        if files is None:
            return self.answer(401, b"{}", X_Error_Code="RepoNotFound")
        if name == "org/gated" and self.headers.get("Authorization") != "Bearer hf_good":
            return self.answer(403, b"{}", X_Error_Code="GatedRepo")
        if len(rest) > 1 and rest[1] not in ("main", "v1", COMMIT):
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        if api:
            tree = [{"type": "file", "path": f, "size": len(b), "oid": hashlib.sha1(b).hexdigest()} for f, b in files.items()]
            about = {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "downloads": 0, "likes": 0,
                     "siblings": [{"rfilename": f} for f in files]}  # fmt: skip
            return self.answer(200, json.dumps(tree if rest[:1] == ["tree"] else about).encode(), Content_Type="application/json")
        body, start = files["/".join(rest[2:])], int((self.headers.get("Range") or "bytes=0").removeprefix("bytes=").split("-")[0])
        headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "Accept_Ranges": "bytes"}
        if self.command == "GET" and len(body) > 1000 and hub.cut:  # breaks off in the middle, once
            hub.cut, self.close_connection = False, True
            return self.answer(200, body[: len(body) // 2], **headers, Content_Length=len(body))
        if start:
            headers["Content_Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self.answer(206 if start else 200, body[start:], **headers)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The library reads its environment when it is imported, so one hub and one cache serve these tests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.requests, server.cut, server.cache = [], False, tmp_path_factory.mktemp("hub")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    environment = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(server.cache), "HF_HOME": str(server.cache / "home"),
                   "HF_TOKEN": "", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "no_proxy": "127.0.0.1"}  # fmt: skip
    library = [name for name in sys.modules if name.startswith("huggingface_hub")]
    with mock.patch.dict(os.environ, environment), mock.patch.dict(sys.modules):
        for name in library:
            del sys.modules[name]
        yield server
    server.shutdown()
    server.server_close()


def there(hub, name):
    folder = hub.cache / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_a_model_is_fetched_once_and_only_what_is_read(in_process, hub):
    got = in_process("model", "org/plain")
    assert got[:2] == (0, f"org/plain@{COMMIT}\n"), got
    assert list(there(hub, "org/plain")) == ["config.json", "model.safetensors", "tokenizer.json"]
    hub.requests.clear()
    assert in_process("model", "org/plain@v1")[0] == 0
    assert not [a for a in hub.requests if a[0] == "GET" and a[1].endswith("safetensors")]
    # The engine finds it by its name, its tag and its commit, and reads what it finds.
    for name in ("org/plain", "org/plain@v1", f"org/plain@{COMMIT}"):
        err = program("inspect", "--json", name)[2]
        assert f"snapshots/{COMMIT}" in err and "config.json" in err, err
    refused(program("inspect", "--json", "org/other@v3"), "fetch it with: ./run model org/other@v3\n")


def test_a_broken_connection_is_taken_up_where_it_was(in_process, hub):
    hub.cut = True
    assert in_process("model", "org/long")[0] == 0
    ranges = [a[2] for a in hub.requests if a[0] == "GET" and a[1].endswith("model.safetensors") and "long" in a[1]]
    assert len(ranges) == 2 and ranges[0] is None and int(ranges[1].removeprefix("bytes=").rstrip("-")) >= 10 << 20
    assert there(hub, "org/long") == FILES["org/long"]


@pytest.mark.parametrize("words, status, says", [
    (["org/absent"], 1, "org/absent: http://127.0.0.1:"),
    (["org/plain@v2"], 1, 'org/plain: expected a branch, tag or commit of it, found "v2"'),
    (["org/gated"], 1, "org/gated: its owner asks for an agreement"),
    (["org/many"], 2, "it has 4 GGUF files; choose one by --file: m-Q8_0.gguf, m-Q4_0.gguf"),
    (["org/many", "--file", "x.gguf"], 1, "--file: expected one of its files"),
    (["org/none"], 1, "expected safetensors, GGUF or PyTorch files in the repository, found README.md"),
    (["../etc/passwd"], 2, "expected ORG/NAME or ORG/NAME@REVISION"),
])  # fmt: skip
def test_what_cannot_be_fetched_is_said(in_process, hub, words, status, says):
    refused(in_process("model", *words), says, status)


def test_another_hub_can_be_named(hub):
    words = "model", "org/plain", "--endpoint", "http://127.0.0.1:9"
    with process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as fresh:  # huggingface_hub reads it when it is imported
        out, err = fresh.communicate(timeout=100)
    refused(Called(fresh.returncode, out, err), "org/plain: cannot be fetched from http://127.0.0.1:9")


@pytest.mark.parametrize("words, files, says", [
    (["org/one"], ["m-Q8_0.gguf"], ""),
    (["org/many", "--file", "big-00001-of-00002.gguf"], ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"], ""),
    (["org/pickled"], ["config.json", "pytorch_model.bin"], "./run convert"),
    (["org/gated"], ["config.json", "model.safetensors"], ""),
])  # fmt: skip
def test_files_are_chosen_by_what_the_engine_reads_and_a_token_opens_a_gated_model(in_process, hub, monkeypatch, words, files, says):
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    status, _, err = in_process("model", *words)
    assert status == 0 and says in err and list(there(hub, words[0])) == files
