"""collect.py - prompts from public collections of instructions, for `speclab distill`: programs, roles, news to
summarize, questions about passages, translations.

    python3 python/training/collect.py REPOSITORIES [SEED SCALE] >collected.jsonl

SEED (5) selects the prompts, SCALE (1) multiplies their number. REPOSITORIES: a folder for git clones of the sources
below, which are fetched if they are missing. Only prompts are taken: the target writes the answers. The program needs
Python and git.

    self-instruct    Apache-2.0   seed tasks, user-oriented instructions, and a sample of T0's training prompts
                                  (P3, Sanh et al. 2022)
    GPTeacher        MIT          instructions about code and role play
    multi30k         (none said)  captions in English, German and French
"""
import gzip
import json
import pathlib
import random
import subprocess
import sys

SOURCES = {"self-instruct": ("https://github.com/yizhongw/self-instruct", "0b26ccaa415992100fa32df62d41b994cf928e23"),
           "GPTeacher": ("https://github.com/teknium1/GPTeacher", "481075123c29854bddb82655badeef6a438f2436"),
           "multi30k": ("https://github.com/multi30k/dataset", "a3d2e0d26b56f3846f66a952536ffed4e401d05a")}
LONGEST = 4200   # maximum characters of a prompt
T0 = {"cnn_dailymail": 600, "xsum": 450, "samsum": 250, "multi_news": 150, "adversarial_qa": 300, "ropes": 200, "quoref": 150, "duorc": 200, "cosmos": 80,
      "sciq": 60, "wiki_qa": 60, "gigaword": 60, "wiki_bio": 80, "ag_news": 40, "amazon": 60, "yelp": 40, "imdb": 50, "common_gen": 60, "kilt": 80, "qasc": 40,
      # Numbers of prompts by the beginning of a template's name.
      "wiqa": 40, "dream": 40, "commonsense": 40, "social_i": 40, "app_reviews": 30, "trec": 20}
INTO_ENGLISH = ["Translate {language} to English: ", "Translate the following text from {language} to English: ", "Please translate this {language} text into English.\n\n"]


class Sources:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def git(self, name, *arguments):
        return subprocess.run(["git", "-C", str(self.folder / name), *arguments], capture_output=True, check=True).stdout

    def clone(self):
        for name, (url, _) in SOURCES.items():
            if not (self.folder / name).exists():
                subprocess.run(["git", "clone", "--quiet", "--no-checkout", url, str(self.folder / name)], check=True)

    def bytes(self, name, path):
        return self.git(name, "show", f"{SOURCES[name][1]}:{path}")

    def lines(self, name, path):
        return self.bytes(name, path).decode().splitlines()

    def names(self, name, folder):
        return self.git(name, "ls-tree", "-r", "--name-only", SOURCES[name][1], folder).decode().splitlines()


class Prompts:
    def __init__(self, seed, scale):
        self.random, self.scale, self.all = random.Random(seed), scale, []

    def some(self, list_, n):
        return self.random.sample(list_, min(round(n * self.scale), len(list_)))

    def add(self, category, text):
        if 10 < len(text) < LONGEST:
            self.all.append({"category": category, "turns": [text]})

    def instruct(self, category, instruction, text):
        """Adds an instruction, mostly before the text that it is about."""
        instruction, text = instruction.strip(), (text or "").strip()
        before = self.random.random() < 0.7
        if text in ("", "<noinput>", "N/A", "None"):
            self.add(category, instruction)
        else:
            self.add(category, f"{instruction}\n\n{text}" if before else f"{text}\n\n{instruction}")


def instructions(p, s):
    for category, path, n in (("code", "Codegen/codegen-instruct.json", 700), ("roleplay", "Roleplay/roleplay-simple-deduped-roleplay-instruct.json", 350)):
        for d in p.some(json.loads(s.bytes("GPTeacher", path)), n):
            p.instruct(category, d["instruction"], d["input"])
    for category, path in (("seed", "data/seed_tasks.jsonl"), ("user", "human_eval/user_oriented_instructions.jsonl")):
        for d in map(json.loads, s.lines("self-instruct", path)):
            p.instruct(category, d["instruction"], d["instances"][0]["input"])


def passages(p, s):
    files = s.names("self-instruct", "data/finetuning/t0_train_50k/data_per_template")
    for name, n in T0.items():
        texts = []
        for file in files:
            template = file.split("/")[-1]
            if template.startswith(name) or name in template.split("_")[0]:
                texts += [json.loads(line)["prompt"] for line in s.lines("self-instruct", file)]
        texts = [t for t in texts if len(t) < LONGEST]
        for text in p.some(texts, n):
            p.add(f"t0_{name}", text.strip())


def translations(p, s):
    def captions(language):
        return gzip.decompress(s.bytes("multi30k", f"data/task1/raw/train.{language}.gz")).decode().splitlines()
    r = p.random
    for language, lines in (("German", captions("de")), ("French", captions("fr"))):
        for _ in range(round(160 * p.scale)):
            i, n = r.randrange(len(lines) - 8), r.randint(1, 6)
            p.add("translation", r.choice(INTO_ENGLISH).format(language=language) + " ".join(lines[i:i + n]))
    lines = captions("en")
    for _ in range(round(160 * p.scale)):
        i, n = r.randrange(len(lines) - 8), r.randint(1, 5)
        p.add("translation", f"Translate English to {r.choice(['German', 'French', 'Spanish', 'Italian'])}: " + " ".join(lines[i:i + n]))


def main():
    if len(sys.argv) not in (2, 4):
        raise SystemExit("usage: collect.py REPOSITORIES [SEED SCALE]")
    s, p = Sources(sys.argv[1]), Prompts(*(int(v) for v in sys.argv[2:] or (5, 1)))
    s.clone()
    instructions(p, s)
    passages(p, s)
    translations(p, s)
    p.random.shuffle(p.all)
    for d in p.all:
        print(json.dumps(d))


if __name__ == "__main__":
    main()
