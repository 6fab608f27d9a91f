"""make_imports.py - small files in the published forms of the datasets that `speclab import` reads, and the prompts that it must write.

All texts are invented: no published one may be shipped. The prompts are made dataset by dataset, from what their publishers and
users document (docs/datasets.md), not from a table. Reads the files of imports.json and writes it again:

    files   name: text
    cases   words: the command; lines: the prompts, in order, the first with how it was made ("import", without hashes);
            said: lines of the summary

    python3 -B make_imports.py imports.json
"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    files = json.load(f)["files"]
cases = []


def entries(name):
    """Those of a file: a list, or a line each."""
    text = files[name].lstrip("\ufeff")
    return json.loads(text) if text.lstrip()[0] == "[" else [json.loads(x) for x in text.split("\n") if x.strip()]


def sample(prompts, per_category=0, limit=0, seed=None):
    """prompts: (number of the entry, line)"""
    mask, state, rank = 2**64 - 1, seed or 0, []
    for _ in range(1 + max(i for i, _ in prompts)):
        state = state + 0x9E3779B97F4A7C15 & mask
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        rank.append(z ^ z >> 31)
    best = sorted(prompts, key=lambda p: p[0] if seed is None else rank[p[0]])
    if per_category:
        seen = {}
        kept = []
        for p in best:
            seen[p[1]["category"]] = seen.get(p[1]["category"], 0) + 1
            if seen[p[1]["category"]] <= per_category:
                kept.append(p)
        best = kept
    if limit:
        best = best[:limit]
    return sorted(best, key=lambda p: p[0])


def case(dataset, names, template, prompts, options="", said=(), **choice):
    limits = {k: choice[k] for k in ("per_category", "limit", "seed") if k in choice}
    chosen = [line for _, line in sample(prompts, **limits)]
    names = names if isinstance(names, list) else [names]
    count = [len(entries(n)) for n in names]
    how = {"dataset": dataset, "template": template.split("/")[-1], "files": [{"entries": n} for n in count],
           "prompts": len(chosen)}
    how.update(choice)
    for option in ("per_category", "limit", "seed", "turns", "min_characters", "max_characters", "split"):
        if option in choice:
            options += f" --{option.replace('_', '-')} {choice[option]}"
    for category in choice.get("category", []):
        options += f" --category {category}"
    words_ = f"import {dataset} " + " ".join(f"HERE/{n}" for n in names) + options
    chosen = [{"import": how, **chosen[0]}] + chosen[1:]
    cases.append({"words": words_, "lines": chosen, "said": [f"{sum(count)} entries read", *said]})


def line(id, category, turns, answer=None):
    made = {"id": id, "category": category, "turns": turns if isinstance(turns, list) else [turns]}
    if answer is not None:
        made["answer"] = answer
    return made


# ---- Spec-Bench, MT-bench, EAGLE's files: question_id, category, turns, reference of some

questions = entries("question.jsonl")
prompts = [(i, line(q["question_id"], q["category"], q["turns"])) for i, q in enumerate(questions)]
case("spec-bench", "question.jsonl", "turns", prompts)
case("spec-bench", "question.jsonl", "turns", prompts, limit=4)
case("spec-bench", "question.jsonl", "turns", prompts, limit=4, seed=3)
case("spec-bench", "question.jsonl", "turns", prompts, per_category=1)
case("spec-bench", "question.jsonl", "turns", prompts, per_category=2, seed=0, limit=5)
of_qa = [p for p in prompts if p[1]["category"] in ("qa", "rag")]
case("spec-bench", "question.jsonl", "turns", of_qa, category=["qa", "rag"], said=["left out: 6 of another category"])
case("spec-bench", "question.jsonl", "turns",
     [(i, line(q["question_id"], "qa", q["turns"], q["reference"])) for i, q in enumerate(questions) if q["category"] == "qa"],
     " --answers", category=["qa"])
case("spec-bench", "question.jsonl", "turns", [(i, {**l, "turns": l["turns"][:1]}) for i, l in prompts], turns=1)
case("mt-bench", "mt_bench.jsonl", "turns", prompts[:4])
case("mt-bench", "mt_bench_prompts.jsonl", "turns", prompts[:4])
case("eagle", "eagle.jsonl", "turns", [(i, line(i, "eagle", e["turns"])) for i, e in enumerate(entries("eagle.jsonl"))])

# ---- SPEED-Bench, prepared

speed = entries("speed.jsonl")
case("speed-bench", "speed.jsonl", "turns", [(i, line(s["question_id"], s["category"], s["turns"])) for i, s in enumerate(speed)])
case("speed-bench", "speed_raw.jsonl", "turns", [(0, line(speed[0]["question_id"], "coding", speed[0]["turns"]))],
     category=["coding"])

# ---- code

code = entries("HumanEval.jsonl")
case("humaneval", "HumanEval.jsonl", "instruct", [
    (i, line(c["task_id"], "humaneval", "Write a solution to the following problem and make sure that it passes the tests:\n"
             f"```python\n{c['prompt']}\n```")) for i, c in enumerate(code)])
case("humaneval", "HumanEval.jsonl", "completion", [
    (i, {"task_id": c["task_id"], "category": "humaneval", "entry_point": c["entry_point"], "prompt": c["prompt"],
         "answer": [c["canonical_solution"]]}) for i, c in enumerate(code)], " --template completion --answers")
tasks, sanitized = entries("mbpp.jsonl"), entries("sanitized-mbpp.json")


def mbpp(rows):
    return [(i, line(f"mbpp/{t['task_id']}", "mbpp", "You are an expert Python programmer, and here is your task:\n"
                     + t.get("text", t.get("prompt")) + "\nYour code should pass these tests:\n" + "\n".join(t["test_list"])))
            for i, t in enumerate(rows)]


case("mbpp", "mbpp.jsonl", "instruct", mbpp(tasks))
case("mbpp", "mbpp.jsonl", "instruct", mbpp(tasks)[1:4], split="test", said=["left out: 3 of another split"])
case("mbpp", "mbpp.jsonl", "instruct", mbpp(tasks)[:1], split="prompt")
case("mbpp", "sanitized-mbpp.json", "instruct", mbpp(sanitized))
case("mbpp", "sanitized-mbpp.json", "task", [(i, line(l["id"], "mbpp", sanitized[i]["prompt"])) for i, l in mbpp(sanitized)],
     " --template task")

# ---- mathematics

sums = entries("test.jsonl")
prompts = [(i, line(f"gsm8k/{i}", "gsm8k", s["question"])) for i, s in enumerate(sums)]
for choice in ({}, {"limit": 7}, {"limit": 7, "seed": 0}, {"limit": 20, "seed": 1}, {"limit": 5, "seed": 2**63 - 1}, {"limit": 99}):
    case("gsm8k", "test.jsonl", "question", prompts, **choice)
boxed = "\nPlease reason step by step, and put your final answer within \\boxed{}."
case("gsm8k", "test.jsonl", "boxed", [(i, line(f"gsm8k/{i}", "gsm8k", s["question"] + boxed, [s["answer"]])) for i, s in enumerate(sums)],
     " --template boxed --answers", limit=2)
case("gsm8k", ["test.jsonl", "again.jsonl"], "question",
     prompts + [(60 + i, line(f"gsm8k/{60 + i}", "gsm8k", sums[i]["question"])) for i in range(2)],
     said=["2 with the text of an earlier one, kept as published"])
problems = entries("math.jsonl")
case("math-500", "math.jsonl", "boxed", [(i, line(p["unique_id"], p["subject"], p["problem"] + boxed)) for i, p in enumerate(problems)])
case("math-500", "math.jsonl", "problem", [(i, line(p["unique_id"], p["subject"], p["problem"])) for i, p in enumerate(problems)],
     " --template problem", per_category=1, seed=5)
older = entries("older.json")
case("math-500", "older.json", "problem", [(i, line(f"math-500/{i}", p["type"], p["problem"])) for i, p in enumerate(older)],
     " --template problem")

# ---- summaries and instructions

news = entries("news.jsonl")
case("cnn-dm", "news.jsonl", "summarize", [(i, line(n["id"], "cnn-dm", "Summarize: " + n["article"])) for i, n in enumerate(news[:4])],
     said=["left out: 1 without a prompt, the first at HERE/news.jsonl:5", "left out: 1 with the id or the text of an earlier one"])
chores = entries("alpaca.json")
case("alpaca", "alpaca.json", "chat", [
    (i, line(f"alpaca/{i}", "alpaca", c["instruction"] + ("\n\nInput:\n" + c["input"] if c["input"] else ""), [c["output"]]))
    for i, c in enumerate(chores)], " --answers")
case("alpaca", "alpaca.json", "alpaca", [
    (i, line(f"alpaca/{i}", "alpaca", "Below is an instruction that describes a task"
             + (", paired with an input that provides further context" if c["input"] else "")
             + f". Write a response that appropriately completes the request.\n\n### Instruction:\n{c['instruction']}\n\n"
             + (f"### Input:\n{c['input']}\n\n" if c["input"] else "") + "### Response:")) for i, c in enumerate(chores)],
     " --template alpaca")

# ---- long contexts

contexts, own = entries("hotpotqa.jsonl"), json.loads(files["dataset2prompt.json"])
case("longbench", "hotpotqa.jsonl", "plain", [
    (i, line(c["_id"], c["dataset"], c["context"] + "\n\n" + c["input"], c["answers"][:1])) for i, c in enumerate(contexts)],
     " --template plain --answers")
case("longbench", "hotpotqa.jsonl", "dataset2prompt.json", [
    (i, line(c["_id"], c["dataset"], own[c["dataset"].removesuffix("_e")].replace("{context}", c["context"]).replace("{input}", c["input"])))
    for i, c in enumerate(contexts)], " --template HERE/dataset2prompt.json")
choices = entries("data.json")
case("longbench-v2", "data.json", "0shot.txt", [
    (i, line(c["_id"], "Code", f"Text:\n{c['context'].strip()}\nQuestion: {c['question'].strip()}\n(A) {c['choice_A'].strip()} (B) "
             f"{c['choice_B'].strip()} (C) {c['choice_C'].strip()} (D) {c['choice_D'].strip()} for 5$\n")) for i, c in enumerate(choices)],
     " --template HERE/0shot.txt")
case("longbench-v2", "data.json", "plain", [
    (i, line(c["_id"], "Code", f"{c['context']}\n\n{c['question']}\n(A) {c['choice_A']}\n(B) {c['choice_B']}\n(C) {c['choice_C']}\n"
             f"(D) {c['choice_D']}")) for i, c in enumerate(choices)], " --template plain")

# ---- conversations

shared = entries("sg.json")


def turns_of(s, most=None):
    said = [m for m in s["conversations"] if m["from"] != "system"]
    return [m["value"] for m in said[0::2]][:most], [m["value"] for m in said[1::2]][:most]


usable = [(i, s) for i, s in enumerate(shared) if i in (0, 2, 5)]
case("sharegpt", "sg.json", "turns", [(i, line(s["id"], "sharegpt", turns_of(s)[0])) for i, s in usable], said=[
    "left out: 2 without a prompt, the first at HERE/sg.json[1]", "left out: 1 with a system message, the first at HERE/sg.json[4]",
    "left out: 1 with a message of another role", "left out: 1 whose user and model do not alternate",
    "left out: 1 with more than 64 turns", "left out: 1 with the id or the text of an earlier one"])
first = [(i, s) for i, s in enumerate(shared) if i in (0, 2, 5, 6, 9)]
case("sharegpt", "sg.json", "turns", [(i, line(s["id"], "sharegpt", turns_of(s, 1)[0], turns_of(s, 1)[1])) for i, s in first],
     " --answers", turns=1)
lengths = [(i, s, sum(len(t) for t in turns_of(s)[0])) for i, s in usable]
middle = sorted(n for _, _, n in lengths)[1]
case("sharegpt", "sg.json", "turns", [(i, line(s["id"], "sharegpt", turns_of(s)[0])) for i, s, n in lengths if n >= middle],
     min_characters=middle)
lengths.append((8, shared[8], len(shared[8]["conversations"][0]["value"])))  # the other conversation c is longer
case("sharegpt", "sg.json", "turns", [(i, line(s["id"], "sharegpt", turns_of(s)[0])) for i, s, n in lengths if n <= middle],
     max_characters=middle)
case("sharegpt", "sglang.jsonl", "turns", [(i, line(f"sharegpt/{i}", "sharegpt", turns_of(shared[2 * i])[0])) for i in range(2)])
magpie = entries("magpie.jsonl")
case("magpie", "magpie.jsonl", "turns", [
    (0, line("u0", "Math", magpie[0]["instruction"])), (1, line("u1", "magpie", turns_of(magpie[1])[0])),
    (3, line("u3", "magpie", magpie[3]["instruction"]))], said=["left out: 1 without a prompt, the first at HERE/magpie.jsonl:3"])

case("magpie", "magpie.jsonl", "turns", [
    (0, line("u0", "Math", magpie[0]["instruction"], [magpie[0]["response"]])), (1, line("u1", "magpie", *turns_of(magpie[1])))],
     " --answers", said=["left out: 1 without a prompt", "left out: 1 without an answer, the first at HERE/magpie.jsonl:4"])

with open(sys.argv[1], "w", encoding="utf-8") as to:
    to.write('{"files":' + json.dumps(files, indent=0) + ',\n"cases":[\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
print(f"{len(files)} files, {len(cases)} cases")
