"""What every word shares: options, messages, exit status, output."""

import os
import re
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from speclab import command, files, strict_json
from speclab.__main__ import is_here
from speclab.command import Fault, Misuse, Options, integer, number
from speclab.printable import printable


def options():
    o = Options("toy", "A toy.")
    o.option("--limit", type=integer(1, 9))
    o.option("--share", type=number(0, 1))
    o.option("--seed", type=integer(), help="with a help that is long enough for the usage to have more than one line")
    o.option("--a-long-name-that-fills-a-line-of-the-usage", metavar="AND-A-LONG-METAVAR")
    o.option("--form", choices=["csv", "jsonl"])
    o.flag("--all")
    o.add_argument("file", nargs="?")
    return o


@pytest.mark.parametrize("words, says", [
    (["--limt", "3"], "unknown option --limt; did you mean --limit?"),
    (["--zzz"], "unknown option --zzz; speclab toy --help lists all options"),
    (["--limit", "0"], '--limit: expected an integer from 1 to 9, found "0"'),
    (["--limit"], "--limit requires a value"),
    (["--limit", "1", "--limit", "2"], "--limit is given twice; expected it once"),
    (["--share", "nan"], '--share: expected a number from 0 to 1, found "nan"'),
    (["--form", "xml"], '--form: expected one of csv|jsonl, found "xml"'),
    (["a", "b"], 'unexpected argument "b": speclab toy'),
    (["--limit", "9" * 5000], '--limit: expected an integer from 1 to 9, found "999'),
])  # fmt: skip
def test_wrong_options_say_what_was_expected(words, says):
    with pytest.raises(Misuse) as raised:
        options().read(words)
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


def test_right_options_are_read():
    got = options().read(["--limit", "3", "--all", "f", "--share=0.5"])
    assert (got.limit, got.all, got.file, got.share, got.form) == (3, True, "f", 0.5, None)
    o = Options("toy", "Operands may stand between options.")
    o.option("--limit")
    o.add_argument("files", nargs="*")
    assert o.read(["a", "--limit", "3", "b"]).files == ["a", "b"] and o.read(["a", "--", "--limit"]).files == ["a", "--limit"]
    got = o.read(["a", "--limit", "3", "--", "--limit", "b"])
    assert got.files == ["a", "--limit", "b"] and got.limit == "3"
    with pytest.raises(Misuse, match="--limit requires a value"):
        o.read(["a", "--limit", "--", "3"])


def test_controls_are_escaped_and_texts_stay():
    assert printable("\ud800") == "\\uD800"
    assert printable("a\tb\r\nc\x1b[2Jd\u202ee\rf\udcff ü") == "a\tb\r\nc\\u001B[2Jd\\u202Ee\\u000Df\\xFF ü"


def test_outputs_appear_whole_or_not_at_all(tmp_path):
    to, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to(to)
    files.write(str(link), "one")
    assert to.read_text() == "one" and link.is_symlink()
    with pytest.raises(ZeroDivisionError), files.writing(str(to)) as f:
        f.write(b"two")
        raise ZeroDivisionError
    with pytest.raises(Fault, match="ends with a slash"):
        files.write(f"{to}/", "three")
    with pytest.raises(Fault, match="found an empty one"):
        files.write("", "three")
    assert to.read_text() == "one" and sorted(tmp_path.iterdir()) == [link, to]


def test_a_database_is_not_replaced(tmp_path):
    db = tmp_path / "x.db"
    db.write_bytes(b"SQLite format 3\0...")
    with pytest.raises(Fault, match="found a database"):
        files.write(str(db), "text")
    assert db.read_bytes().startswith(b"SQLite")


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(Fault, match="expected a file, found"):
            files.read(str(path))
    (tmp_path / "long").write_text("x" * 100)
    with pytest.raises(Fault, match="at most"):
        files.read(str(tmp_path / "long"), most=99)
    (tmp_path / "latin").write_bytes(b"a\nb\xe4")
    with pytest.raises(Fault, match=r":2: expected UTF-8, found byte 0xE4"):
        files.read_text(str(tmp_path / "latin"))


def test_words_that_need_no_library_import_none():
    """They run on a node that has python3 alone."""
    words = [p for p in (ROOT / "python/speclab/words").glob("*.py") if "standard library alone" in p.read_text().lower()]
    for path in words:
        if path.stem != "__init__":
            code = f"import importlib, sys; sys.path.insert(0, {str(ROOT / 'python')!r}); importlib.import_module('speclab.words.{path.stem}')"
            subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], check=True)


@pytest.mark.parametrize("words", [
    ["prune", "--keep", "0", "--out", "x", "--", "--help"], ["tune", "--", "--help", "--json"],
    ["distill", "--invent", "1", "--out", "x", "--", "--help"],
    ["tune", "--drafter", "ngram", "--prompts", "x", "--", "--help"], ["generate", "--trace-html", "x", "--", "--help", "a"],
])  # fmt: skip
def test_an_operand_is_no_option_of_the_engine(speclab, words):
    got = speclab(*words)
    assert got.status == 1 and "--help: there is no such model" in got.err and got.err.count("\n") == 1, got.err


def test_a_key_given_twice_among_many_is_found_at_once():
    text = "{" + "".join(f'"{i}":1,' for i in range(200000)) + '"7":2}'
    for read in (lambda: strict_json.loads(text, "f"), lambda: strict_json.parse(text.encode())):
        began = time.monotonic()
        with pytest.raises((Fault, ValueError), match='duplicate .*key "7"'):
            read()
        assert time.monotonic() - began < 5


def test_a_library_that_cannot_be_loaded_is_one_sentence(monkeypatch, capfd):
    def fail(_):
        raise ImportError("Please see\nthe traceback", name="pandas") from OSError("libx.so: failed to map segment from shared object")

    monkeypatch.setattr(command.importlib, "import_module", fail)
    assert command._called("toy", []) == 1
    assert capfd.readouterr().err == "speclab toy: cannot load the Python package pandas: libx.so: failed to map segment from shared object\n"


def test_some_words_are_tools_with_some_options_only():
    assert is_here(["bench", "x.gguf", "--peer-command=x"]) and is_here(["bench", "--compare"])
    assert not is_here(["bench", "x.gguf", "--rows", "1"]) and not is_here(["bench", "--", "--compare"])
    assert not is_here([])


def test_other_words_are_the_engine_s(speclab):
    assert "Decodes one prompt" in speclab("generate", "--help").out
    assert "--trace-html" not in speclab("generate", "--", "--trace-html").err.split("speclab generate:")[0]
    assert "rejection" in speclab("list").out
    assert speclab("lst").status == 2 and "did you mean list?" in speclab("lst").err


def test_the_program_hands_words_of_the_package_to_run():
    program = os.environ["SPECLAB_PROGRAM"]
    if not program.startswith(f"{ROOT}/build/"):
        pytest.skip("the program is not in the checkout's build folder")
    done = subprocess.run([program, "predict", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Leviathan's formula" in done.stdout, done.stderr
    refused = subprocess.run([program, "predict"], env=dict(os.environ, SPECLAB_TOOL="1"), capture_output=True, text=True)
    assert refused.returncode == 2 and "part of the Python package: ./run predict" in refused.stderr


def test_the_program_knows_the_words_and_options_of_the_package():
    """commands/main.c names them, where the program meets one; run and `python -m speclab` read the modules."""
    table = re.search(r"\} tools\[\] = \{(.*?)\n\};", (ROOT / "commands/main.c").read_text(), re.S)[1]
    listed = {(word, option or None) for word, option in re.findall(r'\{ "(\w+)", (?:NULL|"(--[\w-]+)")', table)}
    here = set()
    for path in (ROOT / "python/speclab/words").glob("[a-z]*.py"):
        options = re.search("^# with (.*)$", path.read_text(), re.M)
        here |= {(path.stem, option) for option in (options[1].split() if options else [None])}
    assert listed == here
