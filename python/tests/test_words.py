"""What every word shares: options, messages, exit status, output."""

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import ROOT, engine, program, refused

from speclab import files, strict_json
from speclab.__main__ import is_here, names, options
from speclab.command import Fault, Misuse, Options, integer, number
from speclab.printable import printable


def toy():
    o = Options("toy", "Operands may stand between options.")
    o.option("--limit", type=integer(1, 9))
    o.option("--share", type=number(0, 1))
    o.option("--form", choices=["csv", "jsonl"])
    o.flag("--all")
    o.add_argument("files", nargs="*")
    return o


@pytest.mark.parametrize("words, says", [
    (["--limt", "3"], "unknown option --limt; did you mean --limit?"),
    (["--zzz"], "unknown option --zzz; speclab toy --help lists all options"),
    (["--limit", "0"], '--limit: expected an integer from 1 to 9, found "0"'),
    (["--limit"], "--limit requires a value"),
    (["--limit", "1", "--limit", "2"], "--limit is given twice; expected it once"),
    (["--share", "nan"], '--share: expected a number from 0 to 1, found "nan"'),
    (["--form", "xml"], '--form: expected one of csv|jsonl, found "xml"'),
    (["--limit", "--", "3"], "--limit requires a value"),
    (["--limit", "9" * 5000], '--limit: expected an integer from 1 to 9, found "999'),
])  # fmt: skip
def test_wrong_options_say_what_was_expected(words, says):
    with pytest.raises(Misuse) as raised:
        toy().read(words)
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


def test_right_options_are_read():
    got = toy().read(["a", "--limit", "3", "--all", "b", "--share=0.5", "--", "--limit", "c"])
    assert (got.limit, got.all, got.files, got.share, got.form) == (3, True, ["a", "b", "--limit", "c"], 0.5, None)


def test_help_is_printed_where_a_value_is_missing(capsys):
    for words in (["--limit", "--help"], ["a", "--help", "--zzz"]):
        with pytest.raises(SystemExit):
            toy().read(words)
        assert "  --limit LIMIT" in capsys.readouterr().out
    assert toy().read(["--", "--help"]).files == ["--help"]


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
    assert to.read_text() == "one"
    (tmp_path / "x.db").write_text("SQLite format 3\0...")
    for name, says in (f"{to}/", "ends with a slash"), ("", "found an empty one"), (str(tmp_path / "x.db"), "found a database"):
        with pytest.raises(Fault, match=says):
            files.write(name, "three")
    assert [p.read_text() for p in sorted(tmp_path.iterdir())] == ["one", "one", "SQLite format 3\0..."]


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
    words = [p.stem for p in (ROOT / "python/speclab/words").glob("[a-z]*.py") if "standard library alone" in p.read_text().lower()]
    code = f"import importlib, sys; sys.path.insert(0, {str(ROOT / 'python')!r})\nfor w in {words}: importlib.import_module('speclab.words.' + w)"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], check=True)


@pytest.mark.parametrize("words", [
    ["prune", "--keep", "0", "--out", "x"], ["tune", "--drafter", "ngram", "--prompts", "x"], ["distill", "--invent", "1", "--out", "x"],
    ["generate", "--trace-html", "x"],
])  # fmt: skip
def test_an_operand_is_no_option_of_the_engine(in_process, words):
    more = ["a"] if words[0] == "generate" else []
    refused(in_process(*words, "--", "--help", *more), "--help: there is no such model")


def test_a_key_given_twice_among_many_is_found_at_once():
    began = time.monotonic()
    with pytest.raises(ValueError, match='duplicate object key "7"'):
        strict_json.parse("{" + "".join(f'"{i}":1,' for i in range(200000)) + '"7":2}')
    assert time.monotonic() - began < 5


def test_some_words_are_tools_with_some_options_only():
    assert is_here(["bench", "x.gguf", "--peer-command=x"]) and is_here(["bench", "--compare"])
    assert is_here(["bench", "x.gguf", "--rows", "1"]) and is_here(["bench", "--json", "--compare"]) and is_here(["bench", "--", "--json"])
    assert is_here(["run", "--again=1"]) and is_here(["run", "x.yaml", "--dry-run"])
    assert not any(map(is_here, ([], ["bench", "--json"], ["run", "x.yaml"], ["run", "--", "--again"], ["run", "--json", "--dry-run"])))


def test_other_words_are_the_engine_s(speclab):
    assert "rejection" in speclab("list").out
    unknown = speclab("lst")
    assert unknown.status == 2 and "did you mean list?" in unknown.err


def test_wrong_calls_of_schema_and_completion_are_refused(speclab):
    refused(speclab("completion", "fish"), 'expected bash or zsh, found "fish"', 2)
    refused(speclab("completion"), "missing argument: bash|zsh", 2)
    refused(speclab("schema", "x"), 'unexpected argument "x"', 2)
    refused(speclab("schema", "--plugin", "missing.so"), "missing.so: No such file or directory")


def test_the_program_hands_words_of_the_package_to_run(monkeypatch):
    if not os.environ["SPECLAB_PROGRAM"].startswith(f"{ROOT}/build/"):
        pytest.skip("the program is not in the checkout's build folder")
    shown = program("import", "--list")
    assert shown.status == 0 and "gsm8k" in shown.out, shown.err
    monkeypatch.setenv("SPECLAB_TOOL", "1")
    refused(program("import"), "part of the Python package: ./run import", 2)


def test_the_program_knows_the_words_and_options_of_the_package():
    """commands/main.c names them, where the program meets one; run and `python -m speclab` read the modules."""
    listed = sorted((t["name"], (t["with"] or "").split(), (t["without"] or "").split()) for t in json.loads(engine("--tables"))["tools"])
    assert listed == sorted((word, *line) for word in names() for line in options(word) or [([], [])])
