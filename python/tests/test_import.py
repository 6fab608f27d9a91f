"""`import`: every prompt against the twin (tests/cases/make_imports.py), and bad files."""

import gzip
import json
import random
import shlex
import sys

import pytest
from conftest import ROOT, engine, inside, refused

from speclab import entries

GOLDEN = json.loads((ROOT / "tests/cases/imports.json").read_text())


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imports")
    for name, text in GOLDEN["files"].items():
        (folder / name).write_text(text)
    return folder


def run(here, words):
    """Words after `import`, in this process."""
    got = inside("import", *shlex.split(words.replace("HERE", str(here))))
    return got._replace(err=got.err.replace(str(here), "HERE"))


def made(here, words, out="out.jsonl"):
    status, said, err = run(here, f"{words} --out HERE/{out}")
    assert status == 0, err
    return [json.loads(line) for line in (here / out).read_text().splitlines()], said.replace(str(here), "HERE")


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: c["words"][:60])
def test_prompts_are_the_twin_s(here, case):
    words = case["words"].removeprefix("import ")
    lines, said = made(here, words)
    for source, name in zip(lines[0]["import"]["files"], words.split()[1:], strict=False):
        assert source.pop("hash") == entries.content_hash((here / name.removeprefix("HERE/")).read_bytes())
    assert lines == case["lines"] and list(map(list, lines)) == list(map(list, case["lines"]))
    assert all(part in said for part in case["said"])


def test_the_engine_reads_what_is_written(here, tiny):
    """The hash, too, is what the engine makes of the bytes: it is the name of the prompts in a database."""
    prompts, _ = made(here, "spec-bench HERE/question.jsonl --answers --category qa")
    yaml = here / "imported.yaml"
    yaml.write_text(f"name: imported\ntarget: {{model: {tiny}}}\nthreads: 1\nprompts: {{file: out.jsonl, chat: none}}\n"
                    "limits: {new_tokens: 4}\ncells:\n  drafter: [none]\n")  # fmt: skip
    assert f"{len(prompts)} prompts" in engine("run", yaml, "--dry-run", "--db", here / "none.db")
    engine("inspect", "--score", tiny, "--answers", here / "out.jsonl", "--threads", 1, "--chat", "none")
    assert entries.content_hash(b"") == "99aa06d3014798d86001c324468d497f"  # XXH3's own, of nothing


def test_gzipped_files_are_read_and_damaged_ones_refused(here):
    packed = gzip.compress((here / "HumanEval.jsonl").read_bytes())
    (here / "two.gz").write_bytes(packed)
    assert made(here, "humaneval HERE/two.gz")[0] == made(here, "humaneval HERE/HumanEval.jsonl")[0]
    for damaged in (packed[:10], packed[:-1], packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]):
        (here / "cut.gz").write_bytes(damaged)
        refused(run(here, "humaneval HERE/cut.gz"), "HERE/cut.gz: expected a gzip file, found one that is damaged or cut off")


Q, S, G = '{"question": "a", "answer": ""}', '{"question_id": 1, "category": "qa", "turns": ["a"]}', "gsm8k HERE/a"
MISTAKES = [  # words, the content of HERE/a, and what is said; with status 2 where no file is wrong
    (G, '{"question": "Who?", "answer": "I"}\n{"question": "Who', "HERE/a:2:14: not valid JSON: Unterminated string"),
    (G, '{"question": "Who', "the file ends in this line: is it complete?"),
    (G, '\n\n{"question": 5, "answer": "I"}\n', "HERE/a:3: question: expected a text, found an integer"),
    (G, '{"question": "a\\u0000", "answer": ""}\n', "HERE/a:1: question: expected a text, found a NUL character"),
    (G, '{"question": "\udce9", "answer": ""}\n', "HERE/a:1:14: not valid JSON: unable to decode byte 0xe9"),
    (G, '{"question": "a", "question": "b"}\n', 'not valid JSON: duplicate object key "question"'),
    (G, '{"question": "\\ud800", "answer": ""}\n', "not valid JSON: half of a surrogate pair"),
    (G, '{"question": NaN, "answer": ""}\n', "not valid JSON: invalid token NaN"),
    (G, '{"question": 1' + 5000 * "0" + "}\n", "not valid JSON: real number overflow"),
    (G, 100000 * "[", "[0]: not valid JSON: nested too deeply"),
    (G, "[]", "HERE/a: expected entries of gsm8k, found none"),
    (G, f'[{Q}, {{"question": ["]\\""], "answer": ""}}', "HERE/a[1]: question: expected a text, found a list"),
    (G, f"[{Q}", "the end of the file: is it complete?"),
    (G, f"[{Q} {{}}]", "HERE/a[0]: expected a comma or the end of the list behind the object"),
    (G, f"[{Q}] {{}}", "HERE/a: expected the end of the file behind the list, found more"),
    (G, "PK\3\4xyz", "found a ZIP archive; `unzip` unpacks it"),
    (G, "", "HERE/a: the file is empty"),
    ("gsm8k HERE/HumanEval.jsonl", None, ":1: question: expected an entry of gsm8k (question, answer), found none; this looks like humaneval ("),
    ("mt-bench HERE/question.jsonl", None, ":5: category: expected one of mt-bench's, such as writing, found \"translation\""),
    ("speed-bench HERE/speed_raw.jsonl", None, ":2: turns[0]: expected a prompt, found NVIDIA's placeholder for a text of made-up/source"),
    ("spec-bench HERE/a", S.replace('["a"]', '"a"'), "HERE/a:1: turns: expected a list of texts, found a text"),
    ("spec-bench HERE/a", f"{S}\n\n{S}", "HERE/a:3: expected an id that no other entry has, found that of HERE/a:1"),
    ("sharegpt HERE/a", '[{"conversations": []}]', "HERE/a: expected prompts, found none among 1 entries"),
    ("longbench --template HERE/dataset2prompt.json HERE/a", '{"context": "a", "input": "b", "dataset": "vcsum", "_id": "1"}',
     'HERE/a:1: dataset: expected one that dataset2prompt.json has a template for, found "vcsum"'),
    ("spec-bench --answers HERE/question.jsonl", None, ":1: reference: expected an answer (--answers), found none"),
    ("spec-bench HERE/question.jsonl --category law", None, "--category: expected one of HERE/question.jsonl's, found \"law\", which no prompt has"),
    ("gsm8k /dev/zero", None, "/dev/zero: expected a file, found a device or pipe"),
    ("", 2, "missing argument: speclab import [OPTION...] DATASET FILE...; --list describes the datasets"),
    ("gsm8k", 2, "missing file of gsm8k: https://github.com/openai/grade-school-math"),
    ("gsm9k HERE/test.jsonl", 2, 'unknown dataset "gsm9k"; did you mean gsm8k?'),
    ("longbench HERE/hotpotqa.jsonl --template HERE/data.json", 2, "expected an object with a template for each task, found a list"),
    ("gsm8k --split test HERE/test.jsonl", 2, "--split: expected a dataset whose entries belong to splits (mbpp), found gsm8k"),
    ("gsm8k HERE/test.jsonl --out HERE/test.jsonl", 2, "--out: expected another file than HERE/test.jsonl, which is read"),
    ("gsm8k HERE/test.jsonl HERE/./test.jsonl", 2, "HERE/./test.jsonl: expected each file once"),
]  # fmt: skip


@pytest.mark.parametrize("words, text, says", MISTAKES)
def test_mistakes_are_named_with_their_place(here, words, text, says):
    if isinstance(text, str):
        (here / "a").write_text(text, errors="surrogateescape", newline="")
    refused(run(here, words if text == 2 else f"{words} --out HERE/none.jsonl"), says, 2 if text == 2 else 1)
    assert not (here / "none.jsonl").exists()


def test_damaged_files_get_a_sentence(here):
    """Any other exception than Fault would leave `run`."""
    dice = random.Random(43)
    calls = [shlex.split(c["words"]) for c in GOLDEN["cases"]]
    for _ in range(150):
        words = dice.choice(calls)
        data = bytearray((here / words[2].removeprefix("HERE/")).read_bytes())
        for _ in range(dice.choice((1, 1, 3))):
            at = dice.randrange(len(data))
            data[at : at + dice.choice((0, 1, 40))] = dice.choice((b"", b'"', b"{", b"[", b"]", b",", b"null", b"\\u0000", b"\xff", b"9" * 30, b"\n"))
        (here / "damaged").write_bytes(data)
        status, _, err = run(here, " ".join(["HERE/damaged" if i == 1 else w for i, w in enumerate(words[1:])]))
        assert status in (0, 1) and (status == 0 or (err.startswith("speclab import: ") and err.count("\n") == 1)), err


def test_a_template_that_multiplies_is_refused(here):
    """A context of a million bytes, named 18 times."""
    (here / "long.jsonl").write_text(json.dumps({"context": "a" * (1 << 20), "input": "b", "dataset": "qasper", "_id": "1"}))
    (here / "multiplies.json").write_text(json.dumps({"qasper": 18 * "{context}"}))
    refused(run(here, "longbench HERE/long.jsonl --template HERE/multiplies.json"),
            "HERE/long.jsonl:1: expected a template that adds at most 16777216 bytes to the longest field, found multiplies.json")  # fmt: skip


def test_a_category_does_not_move_a_terminal_s_cursor(here):
    (here / "a").write_text(S.replace("qa", "x\\u001b[2J"))
    status, out, err = run(here, "spec-bench HERE/a")
    assert status == 0 and "    x\\u001B[2J" in err and '"x\\u001B[2J"' in out


NEW = '''
import pandas
from speclab.datasets import Dataset, Template

def rows(path):
    table = pandas.read_csv(path, sep="\\t")
    return table[table.difficulty > 1].to_dict("records")

DATASET = Dataset("trivia", "question difficulty", (Template("plain", "Q: {question}"),), id="id", category="topic", answer="answer", rows=rows)
'''


def test_a_python_file_declares_a_dataset(here):
    (here / "trivia.py").write_text(NEW)
    (here / "t.tsv").write_text("id\tquestion\tdifficulty\ttopic\tanswer\n7\tWho?\t2\tart\tI\n8\tWhat?\t1\tart\t\n9\tWhere?\t3\t\tHere\n")
    lines, said = made(here, "HERE/trivia.py HERE/t.tsv --answers")
    assert lines[0].pop("import")["dataset"] == "trivia" and "2 prompts of trivia, template plain; 2 entries read" in said
    assert lines == [{"id": 7, "category": "art", "turns": ["Q: Who?"], "answer": ["I"]},
                     {"id": 9, "category": "trivia", "turns": ["Q: Where?"], "answer": ["Here"]}]  # fmt: skip
    for text, status, says in ((NEW.replace("difficulty > 1", "no"), 1, "trivia.py:7: AttributeError"), ("\n1 +", 2, "trivia.py:2: SyntaxError"),
                               ("import sys; sys.exit(0)", 2, "trivia.py:1: SystemExit: 0"), ("raise ValueError('a\\nb')", 2, "ValueError: a b\n"),
                               (NEW.replace("difficulty > 1", "exit()"), 1, "trivia.py:7: "),
                               ("DATASET = 5", 2, "trivia.py: expected DATASET = Dataset(")):  # fmt: skip
        (here / "trivia.py").write_text(text)
        refused(run(here, "HERE/trivia.py HERE/t.tsv"), says, status)


def test_a_conversation_of_too_many_turns_is_left_out_of_any_dataset(here):
    declared = 'Dataset("talks", "conversations", (Template("turns"),), messages=True)'
    (here / "talks.py").write_text(f"from speclab.datasets import Dataset, Template\nDATASET = {declared}\n")
    said = [{"from": "human", "value": "why"}, {"from": "gpt", "value": "so"}]
    (here / "talks.jsonl").write_text("".join(json.dumps({"conversations": said * n}) + "\n" for n in (65, 64)))
    lines, out = made(here, "HERE/talks.py HERE/talks.jsonl")
    assert [len(line["turns"]) for line in lines] == [64] and "left out: 1 with more than 64 turns" in out


def test_parquet_is_read_by_pyarrow(here, monkeypatch):
    (here / "t.parquet").write_bytes(b"PAR1")
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "found a parquet file, which is read by pyarrow: pip install pyarrow" in run(here, "gsm8k HERE/t.parquet")[2]
    monkeypatch.undo()
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    assert "HERE/t.parquet: expected a parquet file, found one that is damaged" in run(here, "gsm8k HERE/t.parquet")[2]
    rows = [json.loads(line) for line in (here / "speed.jsonl").read_text().splitlines()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), here / "t.parquet")
    assert made(here, "speed-bench HERE/t.parquet")[0][1:] == made(here, "speed-bench HERE/speed.jsonl")[0][1:]


def test_the_list_names_every_dataset(here):
    status, out, _ = run(here, "--list")
    assert status == 0 and out.count("    licence     ") == 14 and max(map(len, out.splitlines())) <= 120
