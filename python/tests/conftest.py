"""What tests share: the program that the build made, calls of words as a user makes them, small models and databases."""

import contextlib
import ctypes
import io
import json
import os
import runpy
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest

from speclab import command, database, door, files  # noqa: F401 (a child need not import door)

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SPECLAB_BUILD", ROOT / "build" / "release"))
os.environ.setdefault("SPECLAB_PROGRAM", str(BUILD / "speclab"))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: in CI's release tests only")
    config.addinivalue_line("markers", "library: loads libspeclab_program.so, whose sanitizers need their runtime in Python")


class Called(NamedTuple):
    """A word that has ended: its exit status and what it wrote."""

    status: int
    out: str
    err: str


def process(*words, cwd=None, env=None, **how) -> subprocess.Popen:
    """`./run WORD ...`, without the set-up."""
    return subprocess.Popen([sys.executable, "-B", "-m", "speclab", *map(str, words)], cwd=cwd,
                            env=dict(os.environ, PYTHONPATH=str(ROOT / "python"), **(env or {})), **how)  # fmt: skip


def forked(run, *words, cwd=None, stdin=None, env=None, timeout=120) -> Called:
    """A function in a child of this process, as in a process of its own with these words, which takes no second to start and to import numpy."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((stdin or "").encode(errors="surrogateescape"))
        given.seek(0)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for n, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), n)
                sys.argv, sys.stdin, sys.stdout = ["speclab", *map(str, words)], os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
                sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
                sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
                os.environ.update({"PYTHONPATH": str(ROOT / "python"), **(env or {})})
                os.chdir(cwd or ".")
                signal.alarm(timeout)
                status = run() or 0
            except SystemExit as end:
                status = end.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                ctypes.CDLL(None).exit(status)  # as a process ends, in which the counters of coverage are written
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(io.TextIOWrapper(file, errors="surrogateescape").read())
    assert "Traceback" not in said[1], said[1]
    return Called(status, *said)


def call(*words, **how) -> Called:
    """A word that ends."""
    return forked(lambda: runpy.run_module("speclab", run_name="__main__"), *words, **how)


def executed(code: str, *words, cwd) -> Called:
    """Python in a process of its own, as the classes of plugins stay for the rest of it, with the folder's modules. It fails if the code does."""
    done = forked(lambda: exec(f"import sys; sys.path.insert(0, '.')\n{code}", {"__name__": "__main__"}), *words, cwd=cwd)
    assert done.status == 0, done
    return done


def interrupted(*words, cwd, when: str, env=None) -> Called:
    """A word that gets Ctrl-C once this file is there, in cwd."""
    with process(*words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            end = time.monotonic() + 100
            while not (cwd / when).exists() and running.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    return Called(running.returncode, out, err)


@pytest.fixture
def speclab(tmp_path):
    """Calls a word in a new folder."""
    return lambda *words, **how: call(*words, **{"cwd": tmp_path, **how})


def expect_golden(name: str, text: str) -> None:
    """The text is that of tests/cases/NAME; with SPECLAB_WRITE_GOLDEN it is written there, for a person to review."""
    path = ROOT / "tests" / "cases" / name
    if os.environ.get("SPECLAB_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def program(*words, cwd=None, stdin=None) -> Called:
    """The engine's program."""
    done = subprocess.run([os.environ["SPECLAB_PROGRAM"], *map(str, words)], cwd=cwd, input=stdin, capture_output=True, text=True)
    return Called(done.returncode, done.stdout, done.stderr)


def engine(*words, cwd=None, stdin=None) -> str:
    """The stdout of the engine's program. Fails the test if it fails."""
    done = program(*words, cwd=cwd, stdin=stdin)
    assert done.status == 0, done.err
    return done.out


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A small model with random weights, tiny.gguf in a folder of its own."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    subprocess.run([BUILD / "write_small_model", path], check=True)
    return path


@pytest.fixture(scope="session")
def heads(tiny, tmp_path_factory) -> Path:
    """A folder with heads of random weights for `tiny`: medusa, eagle and eagle3."""
    folder = tmp_path_factory.mktemp("heads")
    subprocess.run([BUILD / "write_small_heads", tiny, *(folder / kind for kind in ("medusa", "eagle", "eagle3"))], check=True)
    return folder


def refused(got: Called, says: str, status: int = 1) -> None:
    """A word has failed with one sentence."""
    assert got.status == status and says in got.err and got.err.count("\n") == 1, got


@pytest.fixture(scope="session")
def frozen_once(tiny, tmp_path_factory) -> Path:
    import frozen

    return frozen.make(tiny, tmp_path_factory.mktemp("frozen"))


@pytest.fixture
def frozen_db(frozen_once, tmp_path) -> Path:
    """A database of results of its own, with the same numbers on every machine (frozen.py)."""
    return Path(shutil.copy(frozen_once, tmp_path / "frozen.db"))


def inside(word, *words, cwd=".") -> Called:
    """As `call`, in this process, which takes no second to import pandas and matplotlib."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "__stdout__", out)
        status = command.call(word, [str(w) for w in words])
    return Called(status, out.getvalue(), err.getvalue())


@pytest.fixture
def within(tmp_path):
    """Calls a word in this process, in a new folder."""
    return lambda *words: inside(*words, cwd=tmp_path)


@pytest.fixture
def in_process():
    """Calls a word in this process."""
    return inside


@pytest.fixture(scope="session")
def golden(tmp_path_factory) -> dict[str, dict]:
    """The models of tests/cases/architectures.jsonl, and those of FP8, by name (tests/models/write_golden_models.c)."""
    folder = tmp_path_factory.mktemp("golden")
    done = subprocess.run([BUILD / "write_golden_models", folder], capture_output=True, text=True, check=True)
    return {m["name"] + (" fp8" if "fp8" in m else ""): m for m in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="session")
def cases_once(tmp_path_factory):
    """The database of tests/cases/make_views.py, whose numbers are in views.json."""
    path = tmp_path_factory.mktemp("cases") / "views.db"
    db = sqlite3.connect(path)
    for file in (*database.TABLES, *database.VIEWS):
        db.executescript(files.shared(f"results/{file}").read_text())
    for line in (ROOT / "tests/cases/views_facts.sql").read_text().splitlines():
        db.execute(line)
    db.commit()
    db.executescript(f"PRAGMA application_id = {database.ID}; PRAGMA user_version = {database.VERSION}")
    db.close()
    return path


@pytest.fixture
def cases(cases_once, tmp_path):
    from speclab.results import Results

    return Results(shutil.copy(cases_once, tmp_path / "views.db"))
