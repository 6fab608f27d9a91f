"""`distill` and `generate --prompts`: lines against `generate` and `inspect --tokenize`, interruption, and what is dropped."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, engine, inside, process, program, refused

from speclab.texts import distillation
from speclab.texts.distillation import NUMBERS, Plan, words_of

QUESTIONS = [{"question": "What is the sum of two and two?"}, {"question": "Who?"}, {"turns": ["Say it again and again.", "Once more, backwards."]},
             {"question": "Who?"}, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Ping?"}]}]  # fmt: skip
RUN = ("--chat", "chatml", "--threads", "1", "--context", "448")


def lines(path):
    return {line["id"]: line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def distill(tiny, tmp_path, monkeypatch):
    """Calls the word in this process, and closes, as the end of a process does, what it locked."""
    jsonl(tmp_path / "q.jsonl", QUESTIONS)
    opened, open_lines = [], distillation._open_lines
    monkeypatch.setattr(distillation, "_open_lines", lambda path: opened.append(open_lines(path)) or opened[-1])

    def called(*words, run=RUN):
        done = inside("distill", tiny, *run, *words, cwd=tmp_path)
        while opened:
            os.close(opened.pop())
        return done

    return called


def distilled(distill, out, *words):
    done = distill(*words, "--out", out)
    assert done.status == 0, done.err
    return done.out


def ids_of(tiny, *texts):
    """The ids of one text, or a list of those of each."""
    found = engine("inspect", "--tokenize", tiny, stdin="".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [json.loads(line)["ids"] for line in found.splitlines()]


def test_prompts_are_answered_in_the_file_s_order_whatever_the_slots(tiny, tmp_path):
    rows = [{"id": f"p{i}", "question": f"Count to {i} and back." * (1 + i % 3)} for i in range(12)] + QUESTIONS
    path = jsonl(tmp_path / "p.jsonl", [*rows, {"input_ids": [1, 5, 9]}, {"task_id": "x/1", "entry_point": "f", "prompt": "def f"},
                                        {"question": "long " * 600}, {"question": "Hot.", "temperature": 1, "number": 77}])  # fmt: skip
    words = ("--jsonl", *RUN, "--tokens", 20, "--seed", 3)
    shown = [engine("generate", tiny, "--prompts", path, *words, "--batch", n) for n in (1, 5, 64)]
    assert shown[0].split("\n", 1)[1] == shown[1].split("\n", 1)[1] == shown[2].split("\n", 1)[1]
    settings, *found = map(json.loads, shown[0].splitlines())
    assert settings["settings"]["batch"] == 1 and settings["settings"]["context"] == 448
    assert [line["id"] for line in found] == [f"p{i}" for i in range(12)] + [str(n) for n in range(12, 18)] + ["x/1", "19", "20"]
    alone = json.loads(engine("generate", tiny, rows[0]["question"], "--json", *RUN, "--tokens", 20, "--seed", 3))
    assert alone["new_ids"] == [i for i, m in zip(found[0]["input_ids"], found[0]["loss_mask"], strict=True) if m]
    assert alone["text"] == found[0]["answers"][0]["text"] and alone["stop"] == found[0]["answers"][0]["stop"]
    assert found[17]["input_ids"][:3] == [1, 5, 9] and [found[18]["input_ids"][:-20]] == ids_of(tiny, "def f")
    assert found[19]["unanswered"] == "long" and found[19]["answers"] == [] and found[20]["number"] == 77
    drafted = engine("generate", tiny, "--prompts", path, *words, "--drafter", "ngram:tokens=12", "--batch", 64)  # needs passes of 832 rows
    assert [json.loads(line)["answers"] for line in drafted.splitlines()[1:21]] == [line["answers"] for line in found[:20]]  # at temperature 0


def test_prompts_on_stdin_are_answered_as_they_come(tiny):
    words = [os.environ["SPECLAB_PROGRAM"], "generate", tiny, "--prompts", "-", "--jsonl", *RUN, "--tokens", "9"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert "settings" in json.loads(p.stdout.readline())
        for content in ("One.", "Two."):  # the second is written when the first is answered
            p.stdin.write(json.dumps({"question": content}) + "\n")
            p.stdin.flush()
            assert json.loads(p.stdout.readline())["messages"][0]["content"] == content


def test_a_line_s_sampling_is_that_of_the_options(tiny, tmp_path):
    own = {"frequency_penalty": 1.5, "presence_penalty": 0.5, "temperature": 0.8, "top_k": 40, "logit_bias": {"9": 3.5}}
    flags = ("--frequency-penalty", 1.5, "--presence-penalty", 0.5, "--temperature", 0.8, "--top-k", 40, "--logit-bias", "{9: 3.5}")
    plain = [{"question": f"Say {n}."} for n in range(3)]
    answers = []
    for rows, words in ((plain, flags), ([r | own for r in plain], ()), ([plain[0], plain[1] | own, plain[2]], ())):
        path = jsonl(tmp_path / "p.jsonl", rows)
        shown = engine("generate", tiny, "--prompts", path, "--jsonl", *RUN, "--tokens", 30, "--drafter", "ngram", *words)
        answers.append([json.loads(line)["input_ids"] for line in shown.splitlines()[1:]])
    assert answers[0] == answers[1] and answers[2][1] == answers[0][1] and answers[2][0] != answers[0][0]


def test_wrong_prompts_are_named(tiny, tmp_path):
    words = ("generate", tiny, "--prompts", "p.jsonl", "--jsonl")
    for line, says in (('{"question": 5}', "p.jsonl:1: question: expected a text, found an integer"), ("{", "p.jsonl:1:"),
                       ('{"question": "a", "temperature": -1}', "p.jsonl:1: sampling: temperature"),
                       ('{"question": "a", "frequency_penalty": 3}', "p.jsonl:1: sampling: frequency_penalty"),
                       ('{"question": "a", "top_p": "half"}', "p.jsonl:1: top_p: expected a number, found a text"),
                       ('{"question": "a", "logit_bias": {"99999": 1}}', "p.jsonl:1: logit_bias: token 99999"),
                       ('{"question": "a", "number": 1}\n{"question": "b", "number": 1}',
                        "p.jsonl:2: number: expected one that no prompt under way has, found 1")):  # fmt: skip
        (tmp_path / "p.jsonl").write_text(line + "\n")
        refused(program(*words, *RUN, cwd=tmp_path), says)
    for wrong in (words[:-1], (*words[:2], "--jsonl", "Hello"), (*words, "Hello")):
        assert program(*wrong, cwd=tmp_path)[0] == 2


@pytest.mark.parametrize("temperature", ["0", "0.7"])
def test_answers_are_those_of_generate(distill, tiny, tmp_path, temperature):
    """Conversation 0 is sequence 0, as `generate` has it."""
    distilled(distill, "a.jsonl", "--prompts", "q.jsonl", "--temperatures", temperature, "--new-tokens", 40, "--seed", 5)
    line = next(line for id, line in lines(tmp_path / "a.jsonl").items() if id.endswith("-0-0"))
    (prompt,) = ids_of(tiny, "<|im_start|>user\nWhat is the sum of two and two?<|im_end|>\n<|im_start|>assistant\n")
    words = (*RUN[:4], "--tokens", 40, "--seed", 5, "--json", "--temperature", temperature)
    alone = json.loads(engine("generate", tiny, QUESTIONS[0]["question"], *words))
    assert line["input_ids"] == prompt + alone["new_ids"] and line["loss_mask"] == [0] * len(prompt) + [1] * len(alone["new_ids"])
    assert line["conversations"][1] == {"role": "assistant", "content": alone["text"].split("\0")[0]}
    assert (line["temperature"], line["seed"]) == (float(temperature), 5)


def test_invented_turns_and_later_ones_are_rendered_like_given_ones(distill, tiny, tmp_path):
    distilled(distill, "a.jsonl", "--invent", 60, "--new-tokens", 150)
    found = lines(tmp_path / "a.jsonl").values()
    users = [line["conversations"][0]["content"] for line in found]
    assert len(found) > 5 and all(user == user.strip(" \t\r\n") != "" for user in users)
    prompts = ids_of(tiny, *(f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n" for user in users))
    assert [line["input_ids"][: line["loss_mask"].index(1)] for line in found] == prompts
    jsonl(tmp_path / "t.jsonl", [{"turns": ["Say it.", "Once more."]}])
    distilled(distill, "b.jsonl", "--prompts", "t.jsonl", "--samples", 20, "--temperatures", 1, "--new-tokens", 100)
    second = [line for line in lines(tmp_path / "b.jsonl").values() if len(line["conversations"]) == 4]
    (between,) = ids_of(tiny, "\n<|im_start|>user\nOnce more.<|im_end|>\n<|im_start|>assistant\n")
    for line in second:  # the second turn follows the answer's own tokens, end token included
        mask = "".join(map(str, line["loss_mask"]))
        at = mask.index("10") + 1
        assert line["input_ids"][at - 1] == 2 and line["input_ids"][at : mask.index("1", at)] == between
    assert second


def test_a_killed_run_goes_on_to_the_same_lines(distill, tiny, tmp_path):
    mixed = ("--prompts", "q.jsonl", "--samples", 12, "--new-tokens", 120, "--exclude", "e.jsonl")
    jsonl(tmp_path / "e.jsonl", [{"text": "Who?"}])
    distilled(distill, "a.jsonl", *mixed, "--invent", 150, "--slots", 16)
    kills, quiet = 0, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for torn in ("b.jsonl", "b.jsonl.dropped", "b.jsonl"):
        out = tmp_path / "b.jsonl"
        before = out.stat().st_size if out.exists() else 0
        with process("distill", tiny, *RUN, *mixed, "--invent", 150, "--slots", 3, "--out", "b.jsonl", cwd=tmp_path, **quiet) as p:
            while p.poll() is None and (out.stat().st_size if out.exists() else 0) <= before:
                time.sleep(0.002)
            p.kill()
        kills += p.returncode == -signal.SIGKILL
        with open(tmp_path / torn, "a") as f:
            f.write('{"id": "inv')  # as a machine that stopped leaves it
    assert kills >= 2
    distilled(distill, "b.jsonl", *mixed, "--invent", 20, "--slots", 4, "--tokens", 500)  # more can be added
    distilled(distill, "b.jsonl", *mixed, "--invent", 150, "--slots", 5)
    for end in ("", ".dropped"):
        assert lines(tmp_path / f"a.jsonl{end}") == lines(tmp_path / f"b.jsonl{end}") != {}
    before = (tmp_path / "a.jsonl").read_text()
    assert "this run: 0 conversations" in distilled(distill, "a.jsonl", *mixed, "--invent", 150)
    assert (tmp_path / "a.jsonl").read_text() == before
    some = distilled(distill, "c.jsonl", *mixed, "--invent", 150, "--slots", 4, "--tokens", 500)
    assert 500 <= int(some.split(" conversations, ")[1].split(" answer")[0]) < before.count("\n") * 60 // 4
    assert distill(*mixed, "--invent", 150, "--out", "a.jsonl", run=(*RUN, "--device", "none such")).status == 2


def test_messages_do_not_go_into_the_data(distill, tiny, tmp_path):
    words = f"'{sys.executable}' -B -m speclab distill '{tiny}' {' '.join(RUN)} --prompts q.jsonl --new-tokens 9 --out closed.jsonl <&- >&- 2>&-"
    subprocess.run(words, shell=True, cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    distilled(distill, "open.jsonl", "--prompts", "q.jsonl", "--new-tokens", 9)
    assert lines(tmp_path / "open.jsonl") == lines(tmp_path / "closed.jsonl") != {}


def test_prompts_that_overlap_an_excluded_file_are_dropped(distill, tmp_path):
    jsonl(tmp_path / "q.jsonl", [{"question": "Begin: one two three four five six seven eight nine ten eleven twelve thirteen"},
                                 {"question": "One, two; three four five six seven eight nine ten eleven twelve -- end of it"},
                                 {"question": "Short one"}, {"question": "Short one or not"}, {"turns": ["Nothing.", "SHORT (one)!"]}])  # fmt: skip
    jsonl(tmp_path / "e.jsonl", [{"question_id": "Nothing", "turns": ["one two three four five six seven ", "short one"]}, {"nested": {"reference": [
        "zero ONE two   three four five six 'seven' eight nine\nten eleven twelve thirteen fourteen"]}}, {"input_ids": [1]}])  # fmt: skip
    done = distill("--prompts", "q.jsonl", "--exclude", "e.jsonl", "--new-tokens", 9, "--temperatures", 0.5, "--out", "a.jsonl")
    assert done.status == 0 and "e.jsonl: 1 line without text excludes nothing" in done.err
    excluded = {id[-4:] for id, line in lines(tmp_path / "a.jsonl.dropped").items() if line["reason"] == "excluded"}
    assert excluded == {"-0-0", "-2-0", "-4-0"}
    assert [*words_of("“Don’t” — 4.5%, café\xa0ZÜrich ...")] == ["don", "t", "4", "5", "café", "zÜrich"]


def test_invented_turns_are_checked_and_greedy_answers_are_written_once(distill, tmp_path):
    """An invented turn, found by a first run, is excluded, given, or known from an earlier conversation in the next ones."""
    words = ("--invent", 40, "--new-tokens", 150)
    distilled(distill, "a.jsonl", *words)
    id, line = next((id, line) for id, line in lines(tmp_path / "a.jsonl").items() if id != "invented-0")
    user = line["conversations"][0]["content"]
    jsonl(tmp_path / "same.jsonl", [{"question": user}])
    for option, why in (("--exclude", "excluded"), ("--prompts", "repeated")):
        distilled(distill, f"{why}.jsonl", *words, option, "same.jsonl")
        assert lines(tmp_path / f"{why}.jsonl.dropped")[id]["reason"] == why
    distilled(distill, "b.jsonl", "--invent", 1, "--new-tokens", 150)
    (tmp_path / "b.jsonl").write_text("")
    jsonl(tmp_path / "b.jsonl.dropped", [{"id": "invented-0", "reason": "empty", "user": user}])
    distilled(distill, "b.jsonl", *words)
    assert lines(tmp_path / "b.jsonl.dropped")[id]["reason"] == "repeated"
    for temperature, count in (0, 2), (1, 0):  # lines 2 and 4 are the same prompt
        distilled(distill, f"g{temperature}.jsonl", "--prompts", "q.jsonl", "--samples", 2, "--temperatures", temperature, "--new-tokens", 9)
        repeated = {id[-4:] for id, line in lines(tmp_path / f"g{temperature}.jsonl.dropped").items() if line["reason"] == "repeated"}
        assert ("-3-0" in repeated, "-0-1" in repeated) == (count > 0, count > 0)


def test_mistakes_give_one_sentence(distill, tmp_path):
    for name, text in {"ids": '{"question": "a"}\n{"input_ids": [1, 2]}\n', "numbers": '{"input_ids": [1]}\n',
                       "broken": '{"a": "b"}\n{"a": \n', "strange": "a diary\n", "q2": (tmp_path / "q.jsonl").read_text(),
                       "twice": '{"id": 1, "question": "a"}\n{"id": "1", "question": "b"}\n'}.items():  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "used.jinja").write_text("{{ messages[0].content }}")
    begun, new = ("--prompts", "q.jsonl", "--new-tokens", 9, "--out", "a.jsonl"), ("--out", "n.jsonl")
    distilled(distill, "a.jsonl", *begun[:-2])
    for words, status, says in [
        (("--invent", 3), 2, "missing argument: --out"), (new, 2, "nothing to write"),
        (("--invent", 3, "--temperatures=0,warm", *new), 2, "--temperatures: expected a number from 0"),
        (("--prompts", "ids.jsonl", *new), 2, "ids.jsonl:2: prompt 1 is token ids"),
        (("--prompts", "twice.jsonl", *new), 2, 'twice.jsonl:2: expected a unique id, found "1", which twice.jsonl:1 has'),
        (("--prompts", "q.jsonl", "--prompts", "q2.jsonl", *new), 2, "q2.jsonl: has the content of q.jsonl"),
        (("--invent", 3, "--exclude", "numbers.jsonl", *new), 2, "numbers.jsonl: expected texts to exclude"),
        (("--invent", 3, "--exclude", "broken.jsonl", *new), 2, "broken.jsonl:2"),
        (("--invent", 3, "--out", "no/n.jsonl"), 1, "no/n.jsonl: cannot write it"), (("--invent", 3, "--out", "."), 1, "Is a directory"),
        (("--invent", 3, "--out", "strange.jsonl"), 1, "is not empty and has no"),
        ((*begun, "--seed", 8), 1, "a.jsonl was begun with seed 0, found 8"),
        (("--invent", 1, *new, "--context", 9999), 1, "--context: expected at most "),
        (("--invent", 1, *new, "--chat", "none"), 1, "--invent needs a chat template"),
        (("--invent", 1, *new, "--chat", "used.jinja"), 1, "the chat template writes nothing before the user's text"),
    ]:  # fmt: skip
        refused(distill(*words, run=RUN[2:] if "--chat" in words else RUN[:4] if "--context" in words else RUN), says, status)
    with open(tmp_path / "a.jsonl", "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        assert "a.jsonl: another process writes it" in distill(*begun).err
        f.write('{"id": 7}\n')
    assert "expected a conversation with id" in distill(*begun).err
    first = (tmp_path / "a.jsonl").read_text().split("\n")[0] + "\n"
    (tmp_path / "a.jsonl").write_text(first + first)
    assert "a.jsonl:2: expected each id once" in distill(*begun).err


def test_a_prompt_of_which_the_template_makes_no_text_is_dropped(distill, tmp_path):
    (tmp_path / "used.jinja").write_text("{% if false %}x{% endif %}")
    done = distill("--prompts", "q.jsonl", "--out", "a.jsonl", run=("--chat", "used.jinja", "--context", 448))
    assert done.status == 0 and "dropped: an empty answer, or a prompt of which the template makes no text" in done.out


@pytest.mark.parametrize("prompts, samples, kinds, invented", [
    ((), 1, 3, 11), ((7, 5), 3, 3, 20), ((3, 2), 4, 5, 900)])  # fmt: skip
def test_every_prefix_of_the_plan_is_a_fair_mixture(tmp_path, prompts, samples, kinds, invented):
    paths = [str(jsonl(tmp_path / f"{f}.jsonl", [{"question": f"{i} of {f}"} for i in range(n)])) for f, n in enumerate(prompts)]
    plan = Plan(paths, samples, list(range(kinds)), invented)
    all_of_it, given = list(plan), sum(prompts) * samples
    assert len(all_of_it) == len(plan) == given + invented
    assert len({p.id for p in all_of_it}) == len({p.number for p in all_of_it}) == len(all_of_it)
    seen = 0
    for i, p in enumerate(all_of_it):
        assert p.index == (seen if p.given else i - seen) and 0 <= p.number < NUMBERS
        seen += p.given is not None
        assert abs(seen - (i + 1) * given / len(plan)) < 1.01
        assert p.temperature == ((p.index % sum(prompts) + p.index // sum(prompts)) % kinds if p.given else p.index % kinds)
    more = {p.id: p for p in Plan(paths, samples, list(range(kinds)), invented + 30)}  # numbers do not depend on limits
    assert all(more[p.id].number == p.number and more[p.id].temperature == p.temperature for p in all_of_it)
