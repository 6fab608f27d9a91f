"""tasks.py - prompts about texts that the target wrote: to summarize, to translate, to answer from, to continue.

     python3 python/training/tasks.py data.jsonl N >tasks.jsonl

It reads texts of `speclab distill` and prints N prompts for another run of it. Invented conversations are short; with
these prompts a head also sees long prompts, answers that repeat them, and second turns. The program needs nothing but
Python. The same texts and N give the same prompts.
"""
import json
import random
import sys

WHOLE = ["Summarize the following text.\n\n{a}", "{a}\n\nWrite a short summary of the text above.", "List the main points of this text:\n\n{a}",
         "Summarize in two sentences what these texts say.\n\n{a}\n\n{b}", "Rewrite this text in simpler words:\n\n{a}",
         "Write a title and three keywords for this text.\n\n{a}", "Correct the mistakes in this text, if there are any:\n\n{a}",
         "Answer the question with the help of the passages.\n\nPassage 1: {b}\n\nPassage 2: {a}\n\nPassage 3: {c}\n\nQuestion: {question}",
         "{b}\n\n{a}\n\nAccording to the texts above: {question}"]
SENTENCE = ["Translate into {language}: {s}", "How does one say this in {language}?\n\n{s}", "Translate the following sentence into {language}.\n\n{s}"]
SECOND = ["Explain that in more detail.", "Give an example.", "Say that again in one sentence.", "Rewrite your answer as a list.",
          "Why?", "What is the most important point of your answer?", "Write the same for a child of ten.", "Are you sure? Check your answer."]
LANGUAGES = ["German", "French", "Spanish", "Italian", "Portuguese", "Dutch"]


def documents(path):
    """Returns invented questions with answers that are neither short nor loops."""
    with open(path, encoding="utf-8") as f:
        for line in f:
            c = json.loads(line)
            question, answer = (m["content"] for m in c["conversations"][:2])
            words = answer.split()
            if c["id"].startswith("invented") and c["temperature"] < 1 and 60 <= len(words) <= 330 and len(set(words)) > 0.5 * len(words):
                yield question, answer


def task(r, some):
    (question, a), (_, b), (_, c) = r.sample(some, 3)
    kind = r.random()
    if kind < 0.5:
        return [r.choice(WHOLE).format(a=a, b=b, c=c, question=question)]
    if kind < 0.7:
        sentences = [s.strip() + "." for s in a.replace("\n", " ").split(". ") if 5 <= len(s.split()) <= 40]
        return [r.choice(SENTENCE).format(language=r.choice(LANGUAGES), s=r.choice(sentences or [question]))]
    return [question, r.choice(SECOND)]


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        raise SystemExit("usage: tasks.py DATA.jsonl N")
    r, some = random.Random(1), list(documents(sys.argv[1]))
    if len(some) < 3:
        raise SystemExit(f"{sys.argv[1]}: expected invented conversations with answers of 60 to 330 words, found {len(some)}")
    for _ in range(int(sys.argv[2])):
        print(json.dumps({"turns": task(r, some)}, ensure_ascii=False))


if __name__ == "__main__":
    main()
