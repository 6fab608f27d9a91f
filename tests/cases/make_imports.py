"""make_imports.py - small files in the published forms of the datasets that `speclab import` reads, and the prompts that it must write.

All texts are invented here: no published one may be shipped. The prompts are made dataset by dataset, from what their publishers and
users document (docs/datasets.md), not from a table. Writes imports.json:

    files   name: text
    cases   words: the command; lines: the prompts, in order, the first with how it was made ("import", without hashes);
            said: lines of the summary

    python3 -B make_imports.py imports.json
"""

import json
import random
import sys

dice = random.Random(28)
WORDS = ("a the some green small quick old river train apple number letter friend teacher city song paper cloud window bread "
         "counts sells writes finds carries paints asks answers Müller 东京 naïve “so”").split()


def words(n):
    return " ".join(dice.choice(WORDS) for _ in range(n)) + dice.choice([".", "?", "!"])


files, cases = {}, []


def jsonl(name, rows):
    files[name] = "".join(json.dumps(r, ensure_ascii=len(name) % 2 == 0) + "\n" for r in rows)


def as_list(name, rows, indent=None):
    files[name] = json.dumps(rows, ensure_ascii=False, indent=indent)


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


def case(dataset, names, template, prompts, options="", said=(), entries=None, **choice):
    limits = {k: choice[k] for k in ("per_category", "limit", "seed") if k in choice}
    chosen = [line for _, line in sample(prompts, **limits)]
    names = names if isinstance(names, list) else [names]
    count = [len(json.loads(files[n])) if files[n].lstrip()[0] == "[" else sum(1 for x in files[n].split("\n") if x.strip())
             for n in names]
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

questions = []
for i, category in enumerate(["writing", "writing", "roleplay", "stem", "translation", "qa", "qa", "qa", "rag", "math_reasoning"]):
    q = {"question_id": 81 + i, "category": category, "turns": [words(8) for _ in range(1 + (i < 4))]}
    if i in (1, 5, 6, 7):
        q["reference"] = [words(3) for _ in q["turns"]]
    questions.append(q)
jsonl("question.jsonl", questions)
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
jsonl("mt_bench.jsonl", questions[:4])
case("mt-bench", "mt_bench.jsonl", "turns", prompts[:4])
hub = [{"category": q["category"], "prompt": q["turns"], "reference": [], "prompt_id": q["question_id"]} for q in questions[:4]]
jsonl("mt_bench_prompts.jsonl", hub)
case("mt-bench", "mt_bench_prompts.jsonl", "turns", prompts[:4])
jsonl("eagle.jsonl", [{"question_id": i, "category": "", "turns": [words(5)], "reference": [words(4)]} for i in range(3)])
case("eagle", "eagle.jsonl", "turns",
     [(i, line(i, "eagle", json.loads(l)["turns"])) for i, l in enumerate(files["eagle.jsonl"].splitlines())])

# ---- SPEED-Bench, prepared

speed = [{"question_id": f"{dice.getrandbits(128):032x}", "category": c, "sub_category": None if i else "debug", "turns": [words(9)] * (i + 1),
          "source": "made-up/source", "src_id": None, "difficulty": "easy", "multiturn": i > 0} for i, c in enumerate(["coding", "rag", "low_entropy"])]
jsonl("speed.jsonl", [{k: v if v is not None else "" for k, v in s.items()} for s in speed])
case("speed-bench", "speed.jsonl", "turns", [(i, line(s["question_id"], s["category"], s["turns"])) for i, s in enumerate(speed)])
fetched = [dict(s) for s in speed]
fetched[1]["turns"] = ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\n\n{article}"]
jsonl("speed_raw.jsonl", [{k: v if v is not None else "" for k, v in s.items()} for s in fetched])
case("speed-bench", "speed_raw.jsonl", "turns", [(0, line(speed[0]["question_id"], "coding", speed[0]["turns"]))],
     category=["coding"])

# ---- code

code = [{"task_id": f"HumanEval/{i}", "prompt": f'\n\ndef f{i}(x: int) -> int:\n    """ {words(6)}\n    >>> f{i}(2)\n    4\n    """\n',
         "entry_point": f"f{i}", "canonical_solution": "    return x * x\n", "test": f"assert f{i}(2) == 4"} for i in range(3)]
jsonl("HumanEval.jsonl", code)
case("humaneval", "HumanEval.jsonl", "instruct", [
    (i, line(c["task_id"], "humaneval", "Write a solution to the following problem and make sure that it passes the tests:\n"
             f"```python\n{c['prompt']}\n```")) for i, c in enumerate(code)])
case("humaneval", "HumanEval.jsonl", "completion", [
    (i, {"task_id": c["task_id"], "category": "humaneval", "entry_point": c["entry_point"], "prompt": c["prompt"],
         "answer": [c["canonical_solution"]]}) for i, c in enumerate(code)], " --template completion --answers")
tasks = [{"text": words(7), "code": "def g(x):\r\n  return x", "task_id": t, "test_setup_code": "",
          "test_list": [f"assert g({t}) == {t + k}" for k in range(3)], "challenge_test_list": []} for t in (2, 11, 12, 510, 511, 601)]
jsonl("mbpp.jsonl", tasks)
sanitized = [{"source_file": "x", "task_id": t["task_id"], "prompt": t["text"], "code": t["code"], "test_imports": [],
              "test_list": t["test_list"][:2]} for t in tasks[1:4]]
as_list("sanitized-mbpp.json", sanitized, 2)


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

sums = [{"question": words(12), "answer": f"{words(5)}\n#### {i}"} for i in range(60)]
jsonl("test.jsonl", sums)
prompts = [(i, line(f"gsm8k/{i}", "gsm8k", s["question"])) for i, s in enumerate(sums)]
for choice in ({}, {"limit": 7}, {"limit": 7, "seed": 0}, {"limit": 20, "seed": 1}, {"limit": 5, "seed": 2**63 - 1}, {"limit": 99}):
    case("gsm8k", "test.jsonl", "question", prompts, **choice)
boxed = "\nPlease reason step by step, and put your final answer within \\boxed{}."
case("gsm8k", "test.jsonl", "boxed", [(i, line(f"gsm8k/{i}", "gsm8k", s["question"] + boxed, [s["answer"]])) for i, s in enumerate(sums)],
     " --template boxed --answers", limit=2)
files["again.jsonl"] = "\ufeff" + "\n\n".join(files["test.jsonl"].split("\n")[:2]) + "\r\n \t\n"
case("gsm8k", ["test.jsonl", "again.jsonl"], "question",
     prompts + [(60 + i, line(f"gsm8k/{60 + i}", "gsm8k", sums[i]["question"])) for i in range(2)],
     said=["2 with the text of an earlier one, kept as published"])
problems = [{"problem": f"Find ${{x}}$ if $x^{i} = \\frac{{1}}{{{i}}}$. {words(3)}", "solution": "$\\boxed{1}$", "answer": "1",
             "subject": s, "level": i, "unique_id": f"test/{s.lower()}/{i}.json"} for i, s in enumerate(["Algebra", "Geometry", "Algebra"], 1)]
jsonl("math.jsonl", problems)
case("math-500", "math.jsonl", "boxed", [(i, line(p["unique_id"], p["subject"], p["problem"] + boxed)) for i, p in enumerate(problems)])
case("math-500", "math.jsonl", "problem", [(i, line(p["unique_id"], p["subject"], p["problem"])) for i, p in enumerate(problems)],
     " --template problem", per_category=1, seed=5)
older = [{"problem": p["problem"], "level": "Level 3", "type": p["subject"], "solution": p["solution"]} for p in problems]
as_list("older.json", older)
case("math-500", "older.json", "problem", [(i, line(f"math-500/{i}", p["type"], p["problem"])) for i, p in enumerate(older)],
     " --template problem")

# ---- summaries and instructions

news = [{"article": words(40), "highlights": words(6), "id": f"{i:040x}"} for i in range(4)] + [{"article": " ", "highlights": "x", "id": "5"}]
news.append({"article": news[1]["article"], "highlights": "again", "id": "6"})
jsonl("news.jsonl", news)
case("cnn-dm", "news.jsonl", "summarize", [(i, line(n["id"], "cnn-dm", "Summarize: " + n["article"])) for i, n in enumerate(news[:4])],
     said=["left out: 1 without a prompt, the first at HERE/news.jsonl:5", "left out: 1 with the id or the text of an earlier one"])
chores = [{"instruction": words(5), "input": "" if i % 2 else words(4), "output": words(3)} for i in range(5)]
as_list("alpaca.json", chores, 4)
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

contexts = [{"input": words(4) if t != "gov_report" else "", "context": "\n".join(words(30) for _ in range(4)), "answers": [words(2), words(2)],
             "length": 120, "dataset": t, "language": "en", "all_classes": None, "_id": f"{i:048x}"}
            for i, t in enumerate(["hotpotqa", "gov_report", "hotpotqa_e"])]
jsonl("hotpotqa.jsonl", contexts)
own = {"hotpotqa": "Read this.\n{context}\n\nNow answer a {b c} {} { {input}\nAnswer:", "gov_report": "Sum up:\n{context}\nSummary:"}
files["dataset2prompt.json"] = json.dumps(own, indent=4)
case("longbench", "hotpotqa.jsonl", "plain", [
    (i, line(c["_id"], c["dataset"], c["context"] + "\n\n" + c["input"], c["answers"][:1])) for i, c in enumerate(contexts)],
     " --template plain --answers")
case("longbench", "hotpotqa.jsonl", "dataset2prompt.json", [
    (i, line(c["_id"], c["dataset"], own[c["dataset"].removesuffix("_e")].replace("{context}", c["context"]).replace("{input}", c["input"])))
    for i, c in enumerate(contexts)], " --template HERE/dataset2prompt.json")
choices = [{"_id": f"v{i}", "domain": "Code", "sub_domain": "x", "difficulty": "hard", "length": "short", "question": f" {words(4)}\n",
            **{f"choice_{k}": f"{words(2)} " for k in "ABCD"}, "answer": "B", "context": f"\n\u00a0{words(50)}\u3000"} for i in range(2)]
as_list("data.json", choices)
files["0shot.txt"] = "Text:\n$DOC$\nQuestion: $Q$\n(A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$ for 5$\n"
case("longbench-v2", "data.json", "0shot.txt", [
    (i, line(c["_id"], "Code", f"Text:\n{c['context'].strip()}\nQuestion: {c['question'].strip()}\n(A) {c['choice_A'].strip()} (B) "
             f"{c['choice_B'].strip()} (C) {c['choice_C'].strip()} (D) {c['choice_D'].strip()} for 5$\n")) for i, c in enumerate(choices)],
     " --template HERE/0shot.txt")
case("longbench-v2", "data.json", "plain", [
    (i, line(c["_id"], "Code", f"{c['context']}\n\n{c['question']}\n(A) {c['choice_A']}\n(B) {c['choice_B']}\n(C) {c['choice_C']}\n"
             f"(D) {c['choice_D']}")) for i, c in enumerate(choices)], " --template plain")

# ---- conversations


def conversation(*parts, who=("human", "gpt")):
    return [{"from": who[i % 2], "value": v} for i, v in enumerate(parts)]


shared = [
    {"id": "aB_0", "conversations": conversation(words(6), words(9), words(4), words(7))},
    {"id": "aB_1", "conversations": []},
    {"id": "c", "conversations": conversation(words(6), words(9), words(4), who=("user", "chatgpt"))},
    {"id": "d", "conversations": conversation(words(9), words(4), words(4), who=("gpt", "human"))},
    {"id": "e", "conversations": [{"from": "system", "value": "Be short."}] + conversation(words(5), words(5))},
    {"id": "f", "conversations": [{"from": "system", "value": ""}] + conversation(words(5), words(50))},
    {"id": "g", "conversations": conversation(words(3), words(3)) + [{"from": "tool", "value": "{}"}]},
    {"id": "h", "conversations": conversation(" \n", words(3))},
    {"id": "c", "conversations": conversation(words(2), words(2))},
    {"id": "i", "conversations": conversation(*[f"{k} {words(2)}" for k in range(2 * 65)])},
]
as_list("sg.json", shared, 2)


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
jsonl("sglang.jsonl", [{"conversation": shared[0]["conversations"]}, {"conversation": shared[2]["conversations"]}])
case("sharegpt", "sglang.jsonl", "turns", [(i, line(f"sharegpt/{i}", "sharegpt", turns_of(shared[2 * i])[0])) for i in range(2)])
magpie = [
    {"uuid": "u0", "instruction": words(6), "response": words(9), "conversations": None, "task_category": "Math", "gen_input_configs": {"top_p": 1.0}},
    {"uuid": "u1", "conversations": conversation(words(6), words(9), words(4), words(7))},
    {"uuid": "u2", "instruction": "", "response": words(9)},
    {"uuid": "u3", "instruction": "two " + words(3), "response": None, "task_category": None},
]
jsonl("magpie.jsonl", magpie)
case("magpie", "magpie.jsonl", "turns", [
    (0, line("u0", "Math", magpie[0]["instruction"])), (1, line("u1", "magpie", turns_of(magpie[1])[0])),
    (3, line("u3", "magpie", magpie[3]["instruction"]))], said=["left out: 1 without a prompt, the first at HERE/magpie.jsonl:3"])

case("magpie", "magpie.jsonl", "turns", [
    (0, line("u0", "Math", magpie[0]["instruction"], [magpie[0]["response"]])), (1, line("u1", "magpie", *turns_of(magpie[1])))],
     " --answers", said=["left out: 1 without a prompt", "left out: 1 without an answer, the first at HERE/magpie.jsonl:4"])

with open(sys.argv[1], "w", encoding="utf-8") as to:
    to.write('{"files":' + json.dumps(files, indent=0) + ',\n"cases":[\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
print(f"{len(files)} files, {len(cases)} cases")
