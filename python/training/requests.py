"""requests.py - requests of many kinds, combined from lists of subjects: prompts for `speclab distill`.

     python3 python/training/requests.py N >requests.jsonl

A model's invented questions are narrow; these ask for letters, stories, programs, explanations, plans, tables,
calculations, translations. The program needs nothing but Python. The same N gives the same prompts.
"""
import json
import random
import sys

SUBJECTS = """the water cycle; photosynthesis; black holes; the French Revolution; the printing press; vaccines; earthquakes; chess openings; bread baking; bicycle repair;
solar panels; the human heart; glaciers; the stock market; jazz; bee keeping; the Roman Empire; recycling; coral reefs; volcanoes; electric cars; tea; the Silk Road; sleep;
the moon landing; inflation; gardening on a balcony; the immune system; deserts; marathon training; origami; airports; the alphabet; tides; antibiotics; photography; whales;
steam engines; public libraries; the Vikings; gravity; coffee; tax returns; weather forecasts; dinosaurs; the brain; swimming; opera; migratory birds; databases; rainforests;
the Olympic Games; cheese; mountain climbing; the internet; wind power; maps; pottery; insurance; the periodic table; knitting; trains; fermentation; tornadoes;
museums; soil; comets; the violin; wetlands; bridges; time zones; honey; elections; optical illusions; ants; the Renaissance; submarines; allergies; calendars""".replace("\n", " ").split("; ")
PEOPLE = """a teacher; a nurse; a retired sailor; a young engineer; a farmer; a baker; a taxi driver; a violinist; a park ranger; a programmer; a grandmother; a detective; a postman;
an astronaut; a student in her first year; a shy librarian; a football coach; a carpenter; a journalist; a cook; a widowed fisherman; a museum guard; a pilot; a gardener""".replace("\n", " ").split("; ")
PLACES = """a small island; a railway station at night; a mountain village; a busy market; an old theatre; a desert town; a research station in Antarctica; a school
kitchen; a forest cabin; a harbour; a hospital; an empty office; a city park; a castle; a ferry; a farm in winter; a space station; a hotel lobby; a library""".replace("\n", " ").split("; ")
EVENTS = """a lost key; a sudden storm; a wedding that almost fails; a broken bridge; a letter from a stranger; a stolen painting; the first day at work; a power cut; a race; a birthday;
a missing dog; an unexpected inheritance; a long journey; a wrong phone call; a flood; a reunion after twenty years; a flower that never fades; a secret recipe""".replace("\n", " ").split("; ")
THINGS = """a backpack; a coffee machine; a bicycle light; headphones; a tent; a dictionary app; running shoes; a rain jacket; a desk lamp; a board game; a garden hose; a camera;
a kitchen knife; a travel guide; a water bottle; an alarm clock; a mattress; a bird feeder""".replace("\n", " ").split("; ")
PROGRAMS = """returns the sum of the digits of an integer; checks whether a word is a palindrome; counts the vowels of a text; finds the two largest numbers of a list; removes duplicates
from a list and keeps the order; converts Celsius to Fahrenheit; sorts words by their length; computes the greatest common divisor; merges two sorted lists; reverses the words
of a sentence; checks whether a year is a leap year; counts how often each word occurs; finds the missing number from 1 to n; rotates a list by k places; computes Fibonacci
numbers; checks whether brackets are balanced; transposes a matrix; finds the longest common prefix of some words; converts a number to binary; computes compound interest;
splits a text into lines of at most n characters; finds all prime numbers below n; parses a date such as 2024-03-17; returns the median of a list""".replace("\n", " ").split("; ")
CODE = ["Python", "C", "JavaScript", "Java", "Rust", "Go"]
LANGUAGES = ["German", "French", "Spanish", "Italian", "Portuguese", "Dutch"]
SENTENCES = """The train leaves at half past seven.; My sister has lived in this town for ten years.; Please send me the invoice before Friday.; It rained so much that the river rose by two metres.;
We forgot our umbrellas, but the museum was open.; Could you tell me where the nearest pharmacy is?; The new bridge will be opened next spring.; He would rather read a book than watch television.;
Nobody knew why the lights had gone out.; The soup is too salty, and the bread is still warm.; I have been waiting for an answer since Monday.; The children built a castle of sand and shells.;
Our neighbours are moving to another country.; The doctor advised her to sleep more and work less.; If I had known that, I would have called you earlier.; The shop closes at six on Saturdays.""".replace("\n", " ").split("; ")
TURNS = ["Thank you. Now make it shorter.", "Can you give an example?", "What would change if there were only half as much time?", "Write it again in a friendlier tone.", "Explain the second point in more detail.",
         "Are you sure? Check each step.", "Add a title.", "Turn this into a table.", "Which part is the most important, and why?", "Continue.", "Now the same for children."]


def amount(r):
    a, b, c = r.randint(3, 40), r.randint(2, 12), r.randint(2, 9)
    return r.choice([
        f"A shop sells {a} boxes with {b} pens each. {c} pens of every box are red. How many pens are not red? Show your work.",
        f"A train travels {a * 10} km in {c} hours. How far does it go in {b} hours at the same speed?",
        f"{a} children share {a * b + c} sweets equally. How many does each get, and how many are left?",
        f"Anna is {b} years older than Ben, and together they are {2 * a + b} years old. How old is each of them?",
        f"What is {a}% of {b * 100}? Explain how you computed it.",
        f"A tank holds {a * 20} litres. A pump fills {c} litres a minute, and a leak loses 1 litre a minute. After how many minutes is it full?",
        f"Solve {c}x + {b} = {c * a + b} and check the solution."])


def request(r):
    s, t = r.sample(SUBJECTS, 2)
    who, other, where, event, thing = r.choice(PEOPLE), r.choice(PEOPLE), r.choice(PLACES), r.choice(EVENTS), r.choice(THINGS)
    code, work, language, n = r.choice(CODE), r.choice(PROGRAMS), r.choice(LANGUAGES), r.randint(3, 9)
    return r.choice([
        lambda: f"Explain {s} to {who}.", lambda: f"What is {s}? Answer in at most {n} sentences.", lambda: f"Write an essay about {s}.",
        lambda: f"Write an article of about {n * 50} words about {s}. Mention {t} once.", lambda: f"List {n} facts about {s}.",
        lambda: f"Compare {s} and {t}.", lambda: f"Make a table with {n} rows about {s}. Use columns that make sense.",
        lambda: f"Write a quiz with {n} questions and answers about {s}.", lambda: f"What are the advantages and disadvantages of {s}?",
        lambda: f"Write a letter from {who} to {other} about {event}.", lambda: f"Write an email in which {who} asks {other} for help with {s}.",
        lambda: f"Write a short story. It happens in {where}, and it is about {who} and {event}.", lambda: f"Write a dialogue between {who} and {other} about {s}.",
        lambda: f"Write a poem about {s} and {event}.", lambda: f"Describe {where} in the early morning.", lambda: f"You are {who}. Tell me about your day in {where}.",
        lambda: f"Write a product description for {thing}.", lambda: f"Write a review of {thing} with {n % 5 + 1} of 5 stars.", lambda: f"Write a speech about {s} for {other}.",
        lambda: f"Give {n} tips for beginners who are interested in {s}.", lambda: f"Plan a week with a little time each day for {s}.", lambda: f"How do I get started with {s}? Give me steps.",
        lambda: f"Write a function in {code} that {work}.", lambda: f"Write a {code} function that {work}. Add comments and an example.",
        lambda: f"Explain how a function that {work} works, step by step, with code in {code}.", lambda: f"Which tests would you write for a function that {work}?",
        lambda: f"Write a JSON object that describes {thing} with {n} fields.", lambda: f"Write an SQL query that counts the orders of {thing} for each month.",
        lambda: amount(r), lambda: amount(r), lambda: amount(r),
        lambda: f"Translate into {language}: {r.choice(SENTENCES)}", lambda: f"Translate the following text into {language}: {r.choice(SENTENCES)} {r.choice(SENTENCES)}",
        lambda: f"Correct this sentence and explain the mistake: {r.choice(SENTENCES).replace('the ', '', 1).lower()}", lambda: f"Write {n} sentences with the word \"{s.split()[-1]}\".",
        lambda: f"Why does {s} matter?", lambda: f"Who should know about {s}, and why?", lambda: f"Invent a name and a slogan for a company that sells {thing}.",
        lambda: f"Summarize what is known about {s} in {n} bullet points."])()


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        raise SystemExit("usage: requests.py N")
    r = random.Random(2)
    for _ in range(int(sys.argv[1])):
        turns = [request(r)] + ([r.choice(TURNS)] if r.random() < 0.3 else [])
        print(json.dumps({"turns": turns}, ensure_ascii=False))


if __name__ == "__main__":
    main()
