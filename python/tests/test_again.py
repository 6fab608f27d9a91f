"""`run --again`: a run again has the same texts; what has changed is named, and nothing is run; what is inside and
what is outside, with times that the test sets."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess

import pytest
from conftest import BUILD, ROOT, inside, process, program, refused

from speclab import database
from speclab.words.run import Comparison, Run

NONE, RUN = 1, 2
FILES = "target.gguf", "draft.gguf", "p.jsonl"
PROMPTS = '{"prompt": "abc abc abc"}\n{"prompt": "one two one two"}\n'
EXPERIMENT = """\
name: x # as given
target: {model: target.gguf}
prompts: {file: p.jsonl, chat: none}
threads: 1
limits: {new_tokens: 20, ignore_end: true}
seed: 9
cells:
  sampling: [{temperature: 0}, {temperature: 1}]
  rule: [rejection, match]
  drafter: [{kind: small, model: draft.gguf, tokens: 3}, ngram]
"""


def change(path, *statements):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for sql in statements:
            db.execute(sql)


# ---- the comparison

# `none` and a run, in a pair for each prompt: 40 tokens by 10 steps of 4 draft tokens, 3 of them accepted; twice as fast as `none`.
FILLED = """
INSERT INTO run (id, experiment, cell, peers, settings, target, drafter, rule, sampling, drafter_kind, target_hash, prompts, device, machine,
    revision, seed, batch, started, lossless, drafter_invariant, marked_inflated, model_type, activations, cache) SELECT value, 'x',
    'cell' || value, 'p', '{}', 't', 'd', 'r', 's', iif(value = 1, 'none', 'ngram'), 't', 'p.jsonl', 'cpu', 'm', 'v', 1, 1, 'now', 1, 1, 0,
    'llama', 'f32', 'f32' FROM json_each('[1, 2]');
WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 11)
    INSERT INTO pair (id, experiment, started) SELECT n + 1, 'x', 'now' FROM i;
WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 39) INSERT INTO sequence (id, run, pair, prompt, prompt_id, turn,
    repeat, prompt_tokens, new_tokens, steps, shared_tokens, prefill_ns, decode_ns, wall_ns, tokens, text_hash, stop) SELECT 100 * r.id + p.id,
    r.id, p.id, p.id - 1, p.id, 0, 0, 5, 40, iif(r.id = 1, 40, 10), 0, 1000, iif(r.id = 1, 80000, 40000), 1,
    (SELECT json_group_array(n) FROM i), 'h', 'limit' FROM run AS r, pair AS p;
WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 39) INSERT INTO step (sequence, step, drafted, depth, accepted,
    tokens, propose_ns, verify_ns, advance_ns, at_ns, batch, round, expected, variance, accepted_uncut) SELECT q.id, n, iif(run = 1, 0, 4),
    iif(run = 1, 0, 4), iif(run = 1, 0, 3), iif(run = 1, 1, 4), 1, 1, 1, 1, 1, 0, NULL, NULL, iif(run = 1, 0, 3)
    FROM sequence AS q, i WHERE run = 1 OR n < 10;
"""
NOISE = "UPDATE sequence SET decode_ns = CAST(decode_ns * ({}) AS INTEGER) WHERE run = 2"


def accept_fewer(which):
    """Fewer tokens a step, and less time for them: the speed stays."""
    return [f"UPDATE step SET accepted = 2, tokens = 3 WHERE sequence > 200 AND step <= {which} % 3",
            "UPDATE sequence SET decode_ns = 1000 * (SELECT sum(tokens) FROM step WHERE sequence = id) WHERE run = 2"]  # fmt: skip


@pytest.fixture
def both(tmp_path):
    """Two databases of the same run."""
    paths = [tmp_path / "then.db", tmp_path / "now.db"]
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executescript(
                "".join(database.files.shared(f"results/{file}").read_text() for file in database.TABLES)
                + f"PRAGMA application_id = {database.ID};{FILLED}"
            )
    return paths


@pytest.fixture
def compared(both):
    def compare(run=RUN, texts_vary=False, drafts_vary=False):
        with contextlib.closing(database.connect(str(both[0]))) as then, contextlib.closing(database.connect(str(both[1]))) as now:
            found = Comparison(Run(then, "then.db", run, run == NONE, texts_vary, drafts_vary), Run(now, "now.db", run, run == NONE))
        assert found.lines[-1].startswith("reproduced: " if found.same else "not reproduced: ")
        return "\n".join([*found.lines, ""])

    return compare


def test_noise_of_clocks_that_varies_by_prompt_is_inside(both, compared):
    inside_ = "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n"
    assert inside_ in compared()
    change(both[1], NOISE.format("1 + 0.03 * (prompt % 3 - 0.9)"))  # all prompts had the same speedup, so the stored interval is one number
    assert inside_ in compared()
    change(both[1], NOISE.format("3"))  # what slows every pass cancels in the interval of speeds, and is in its ratio
    change(both[1], "UPDATE sequence SET decode_ns = 3 * decode_ns WHERE run = 1")
    assert inside_ in compared() and re.search(r"tokens/s   was 1000000.0, is 33\d+\.\d: ratio 0.33", compared())


def test_a_change_beyond_the_noise_and_the_interval_is_outside(both, compared):
    change(both[1], NOISE.format("1.1 + 0.01 * (prompt % 3)"))
    out = compared()
    assert "\nnot reproduced: texts equal, steps equal, acceptance equal, speedup outside\n" in out
    assert "speedup    on 12 prompts: was 2.000 [2.000, 2.000], is 1.802, ratio 0.901 [" in out
    for path in both:  # where prompts differ by more, the stored interval has it
        change(path, NOISE.format("1 + 0.1 * prompt"))
    assert "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n" in compared()


def test_drafts_that_may_vary_are_compared_by_their_acceptance(both, compared):
    change(both[1], *accept_fewer("sequence"))
    assert "\nnot reproduced: texts equal, steps differ, acceptance outside, speedup inside\n" in compared()
    change(both[0], *accept_fewer("(sequence + 1)"))
    out = compared(drafts_vary=True)
    assert "\nreproduced: texts equal, steps differ, acceptance inside, speedup inside\n" in out and "it does not decide)" in out
    change(both[1], "UPDATE sequence SET tokens = json_set(tokens, '$[2]', 9) WHERE prompt = 3")
    out = compared(drafts_vary=True)
    assert "texts      11 of 12 are equal; first difference: prompt 4, turn 0, token 2\n" in out
    assert "\nnot reproduced: texts differ, steps differ, acceptance inside, speedup inside\n" in out
    assert "\nreproduced: texts differ, steps differ, acceptance inside, speedup inside\n" in compared(texts_vary=True, drafts_vary=True)


def test_only_texts_and_steps_decide_about_none_and_one_prompt_has_no_interval(both, compared):
    change(both[1], "UPDATE sequence SET decode_ns = 2 * decode_ns WHERE run = 1")
    assert "\nreproduced: texts equal, steps equal\n" in compared(NONE)
    change(both[1], "DELETE FROM sequence WHERE prompt > 0")
    out = compared()
    assert "texts      1 of 1 are equal\n" in out and ": one prompt has no interval\n" in out and ", speedup not known\n" in out


def test_intervals_of_sums_are_those_of_the_statistics_twin():
    """`report --intervals` hands the columns on: the numbers are those that tests/cases/interval_numbers.py makes in fractions and plain loops."""
    cases, work = json.loads((ROOT / "tests/cases/statistics.json").read_text()), ("steps", "other_steps", "old_steps", "old_other_steps")
    queries, expected = [], []
    for one in [*cases["intervals"], *cases["units"]]:
        columns = one["rows"][: 2 if one["of"] in ("rate", "ratio") else None]
        queries.append({"of": {"ratios": "ratio_of_ratios"}.get(one["of"], one["of"])} | dict(zip("abcdefgh", columns, strict=False)))
        if "slice" in one:
            queries[-1] |= {"prompt": one["prompt"], "unit": one["slice"]}
            queries[-1] |= {name: w for name, w in zip(work, one["work"] or [], strict=False) if w is not None}
        expected.append(one["interval"])
    got = [json.loads(line) for line in program("report", "--intervals", "-", stdin="".join(json.dumps(x) + "\n" for x in queries)).out.splitlines()]
    assert len(got) == len(expected) >= 190 and {x["of"] for x in queries} == {"rate", "ratio", "ratio_of_ratios", "difference", "change"}
    for x, y in zip(got, expected, strict=True):
        assert [x[k] for k in ("value", "low", "high", "prompts_for_2_percent")] == [None if v is None else pytest.approx(v, rel=1e-9) for v in y]


# ---- the word


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    """A folder with an experiment of two drafters beside `none`, and its database."""
    folder = tmp_path_factory.mktemp("again")
    for model, words in (("target", []), ("draft", ["keep=0"]), ("other", ["keep=0,1"])):
        subprocess.run([BUILD / "write_small_model", folder / f"{model}.gguf", *words], check=True)
    (folder / "p.jsonl").write_text(PROMPTS)
    (folder / "x.yaml").write_text(EXPERIMENT)
    assert program("run", "x.yaml", "--db", "x.db", "--no-probe", cwd=folder).status == 0
    return folder


@pytest.fixture
def again(decoded):
    """`run --again`, from a folder next to the experiment's, of a database of its own; status and words that are expected."""
    db, given = shutil.copy(decoded / "x.db", decoded / "own.db"), {decoded / name: (decoded / name).read_bytes() for name in FILES}

    def expect(words, status, *says, of=db):
        done = inside("run", "--again", *words.split(), "--db", of, "--no-probe", cwd=decoded.parent)
        assert done.status == status and all(said in (done.out if status in (0, 3) else done.err) for said in says), done
        return done

    expect.db, expect.folder = db, decoded
    yield expect
    for path, content in given.items():
        path.write_bytes(content)


def test_a_dry_run_knows_the_hashes_that_a_run_stores(again):
    done = program("run", "-", "--dry-run", "--json", "--db", again.db, "--set", "prompts.limit=1", cwd=again.folder, stdin=EXPERIMENT)
    cells = {cell.pop("cell"): cell for cell in json.loads(done.out)["cells"]}
    with contextlib.closing(database.connect(str(again.db))) as db:
        rows = database.dicts(db, "SELECT *, drafter_kind = 'none' AS baseline FROM run")
    assert len(rows) == len(cells) == 12
    for row in rows:
        cell = cells[row["cell"]]
        assert all(cell[key] == (row[key] or "") for key in ("target_hash", "config_hash", "tokenizer_hash", "drafter_hash", "prompts"))
        assert json.loads(row["settings"]) == cell["settings"] and row["baseline"] == cell["baseline"]
        assert (cell["done"], cell["conversations"], cell["turns"], cell["drafts_vary"], cell["texts_vary"]) == (1, 1, 0, False, False)


def test_a_run_again_has_the_same_texts(again):
    for run in (1, 2, 3, 5, 7, 8, 12):  # none, small, ngram by rule and temperature; one prompt has no interval: the status depends on no clock
        again(f"{run} --limit 1", 0, "texts      1 of 1 are equal\n")
    out = again.folder.parent / "file:again.db"
    out.unlink(missing_ok=True)
    done = inside("run", "--again", "5", "--db", again.db, "--out", out.name, cwd=again.folder.parent)
    assert done.status in (0, 3), done  # by the clock
    found = ["inside", "outside"][done.status == 3]
    lines = [r"run 5      x: small\(model=draft.gguf, tokens=3\), match, temperature=0", "inputs     are the same: .*",
             r"(?:machine .*\n)?texts      2 of 2 are equal", "steps      2 of 2 are equal", "acceptance on 2 prompts: was .*: equal",
             rf"speedup    on 2 prompts: was .*, ratio .*: {found}", "tokens/s   was .*: ratio .*",
             f"(not )?reproduced: texts equal, steps equal, acceptance equal, speedup {found}"]  # fmt: skip
    assert re.fullmatch("\n".join(lines) + "\n", done.out), done.out
    with contextlib.closing(sqlite3.connect(out)) as db:
        assert db.execute("SELECT count(*), sum(folder = ?) FROM run", [str(again.folder)]).fetchone() == (2, 2)
        assert db.execute("SELECT count(*) FROM environment WHERE read_bytes_per_s > 0 AND read_one_bytes_per_s > 0").fetchone() == (2,)


def test_a_text_or_a_step_that_differs_is_named(again):
    change(again.db, "UPDATE environment SET revision = 'older', mhz = 1000, round_trip_ns = 5")
    again("2 --limit 1", 0, "revision   was older, is ")
    change(again.db, "UPDATE step SET drafted = drafted + 1 WHERE step = 0 AND sequence IN (SELECT id FROM sequence WHERE run = 2)")
    again("2 --limit 1", 3, "steps      0 of 1 are equal; first difference: prompt 0, turn 0: was ", "\nnot reproduced: texts equal, steps differ, ")
    change(again.db, "UPDATE sequence SET tokens = json_set(tokens, '$[4]', (json_extract(tokens, '$[4]') + 1) % 200) WHERE run = 2 AND prompt = 0")
    again("2 --limit 1", 3, "texts      0 of 1 are equal; first difference: prompt 0, turn 0, token 4\n", "\nnot reproduced: texts differ, ")


def test_what_has_changed_is_named_and_nothing_is_run(again):
    end, target, draft = "not reproduced: it would be another run\n", again.folder / "target.gguf", again.folder / "draft.gguf"
    given = target.read_bytes()
    shutil.copy(again.folder / "other.gguf", target)
    done = again("2 --limit 1", 3, "changed    weights of the target (", end)
    assert "texts" not in done.out
    target.write_bytes(given)
    given = draft.read_bytes()
    shutil.copy(again.folder / "other.gguf", draft)
    again("2", 3, "changed    weights or configuration of the drafter: was ", end)
    again("3 --limit 1", 0, "reproduced")  # ngram has none
    draft.write_bytes(given)
    (again.folder / "p.jsonl").write_text('{"prompt": "abc abc abd"}\n')
    again("2", 3, "p.jsonl): was p.jsonl ", end)
    (again.folder / "p.jsonl").write_text(PROMPTS)
    again("2 --limit 1", 0, "reproduced")
    for sql, says in [("cell = 'old' || id", "changed    the hash of the same settings and inputs, by this revision: was old2, is "),
                      ("config_hash = '00'", "changed    configuration of the target ("),
                      ("tokenizer_hash = '00'", "changed    tokenizer of the target ("),
                      ("settings = json_set(settings, '$.limits.new_tokens', 19)", "changed    settings, limits.new_tokens: was 19, is 20\n"),
                      ("settings = json_set(settings, '$.limits.old', 'x')", "changed    settings, limits.old: was x, is not there\n")]:  # fmt: skip
        change(again.db, f"UPDATE run SET {sql}")
        again("2", 3, says, end)


def test_a_file_that_is_gone_is_named(again):
    gone, end = ", is not there\n", "not reproduced: it would be another run\n"
    (again.folder / "p.jsonl").unlink()
    again("2", 3, "p.jsonl): was p.jsonl ", gone + end)
    (again.folder / "p.jsonl").write_text(PROMPTS)
    target = (again.folder / "target.gguf").read_bytes()
    (again.folder / "target.gguf").unlink()
    again("2", 3, "changed    weights of the target (", gone + end)
    (again.folder / "target.gguf").write_bytes(target)
    (again.folder / "draft.gguf").unlink()
    again("2", 3, "changed    weights or configuration of the drafter: was ", ", cannot be opened: ", "draft.gguf")
    (again.folder / "target.gguf").unlink()
    made = "/nowhere/speclab-tune-Ab1Cd2"
    change(again.db, f"UPDATE run SET prompts_path = '{made}/probed.jsonl', model_path = '{made}/target.gguf'")
    done = again("2", 3, f"\nchanged    prompts ({made}/probed.jsonl): was ", f"\n           {made} was the folder of a command (tune) for the time")
    assert done.out.count("for the time") == 1
    change(again.db, f"UPDATE run SET prompts_path = '{again.folder}/speclab-tune-mine/p.jsonl'", "UPDATE run SET model_path = prompts_path")
    (again.folder / "speclab-tune-mine").mkdir(exist_ok=True)
    again("2", 3, "speclab-tune-mine/p.jsonl): was p.jsonl ", gone + end)  # the folder is there


def test_plugins_that_a_database_names_are_not_loaded(again):
    (again.folder / "loaded.py").write_text(f"open({str(again.folder / 'trace')!r}, 'w')\n")
    change(again.db, "UPDATE run SET file = replace(file, 'seed: 9', 'seed: 9, \"\\u0070lugins\": [loaded.py]')")
    again("2 --limit 1", 0, "\nreproduced: ")
    assert not (again.folder / "trace").exists()


def test_its_own_database_is_in_a_folder_of_its_own_and_is_removed(again, tmp_path):
    with process("run", "--again", "2", "--db", again.db, "--no-probe", "--limit", "1", env={"TMPDIR": str(tmp_path)}, stdout=-1, text=True) as word:
        modes = set()
        while word.poll() is None:
            with contextlib.suppress(OSError):
                modes |= {entry.stat().st_mode for entry in os.scandir(tmp_path) if entry.is_dir()}
        assert word.returncode == 0 and "\nreproduced: " in word.stdout.read()
    assert modes == {0o40700} and not list(tmp_path.iterdir())


def test_mistakes_are_named(again, decoded):
    for words, says in [("2 x.yaml", 'unexpected argument "x.yaml"'), ("2 --mix", "unknown option --mix"), ("99", "there is no run 99 in it"),
                        ("two", '--again: expected an integer from 1 to 4611686018427387904, found "two"'),
                        (f"1 --out {again.db}", "the file exists; expected a new one")]:  # fmt: skip
        refused(again(words, 2), says, 2)
    refused(again("1", 2, of="/nowhere.db"), "/nowhere.db: no such database", 2)
    change(again.db, "UPDATE run SET folder = '/nowhere/a'")
    refused(again("1", 1), "/nowhere/a: the folder of the run's file is not there")
    change(again.db, "UPDATE run SET settings = '[1]'")
    refused(again("1", 1), "its settings are those of no cell")
    change(again.db, "UPDATE run SET file = NULL")
    refused(again("1", 1), "its file, folder or hashes are not stored")
