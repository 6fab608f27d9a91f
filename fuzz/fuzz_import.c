// fuzz_import.c - arbitrary bytes as the file of each dataset that `speclab import` knows: what is made of it is a file of prompts.
//
// reader: commands/import/entries.c commands/import/made_prompt.c commands/import/messages.c commands/import/template.c
#include <stdlib.h>
#include <string.h>

#include "commands/import/datasets.h"
#include "commands/import/entries.h"
#include "commands/import/selection.h"
#include "core/error.h"
#include "core/memory.h"
#include "engine/prompts.h"
#include "fuzz/fuzz.h"

static const struct fuzz_file files[] = { { "dataset.jsonl", FUZZ_JSON_LINES }, { NULL, FUZZ_TEXT } };
static const char *const words[] = { "question_id",
                                     "prompt_id",
                                     "category",
                                     "turns",
                                     "reference",
                                     "sub_category",
                                     "src_id",
                                     "source",
                                     "task_id",
                                     "prompt",
                                     "text",
                                     "test_list",
                                     "code",
                                     "entry_point",
                                     "question",
                                     "answer",
                                     "article",
                                     "highlights",
                                     "id",
                                     "input",
                                     "output",
                                     "problem",
                                     "subject",
                                     "type",
                                     "level",
                                     "solution",
                                     "unique_id",
                                     "context",
                                     "dataset",
                                     "_id",
                                     "answers",
                                     "domain",
                                     "choice_A",
                                     "choice_B",
                                     "choice_C",
                                     "choice_D",
                                     "uuid",
                                     "human",
                                     "user",
                                     "gpt",
                                     "system",
                                     "from",
                                     "value",
                                     "conversations",
                                     "conversation",
                                     "response",
                                     "writing",
                                     "instruction",
                                     "task_category",
                                     "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH",
                                     NULL };

static bool read_all_entries(const struct prompt_choice *c, const char *path, struct selection *to, struct error *err)
{
    struct entries e;
    bool ok = entries_open(&e, path, err);
    int64_t number = 0;
    while (ok && entries_next(&e, err)) {
        struct made_prompt p;
        ok = made_prompt_of(c, &e, number++, &p, err);
        insist(number == e.n && p.drop < DROPS && (p.line != NULL) == (ok && p.drop == DROP_NOT));
        if (p.line != NULL)
            selection_add(to, p, entries_place(&e), number - 1);
        else
            made_prompt_free(&p);
    }
    ok = ok && !e.failed;
    entries_close(&e);
    return ok;
}

// The lines are a file of prompts, each with its answers if these are kept.
static void check_lines(const struct selection *s, bool answers)
{
    struct text lines = { 0 };
    struct prompts p;
    struct error err = { "" };
    char *path = fuzz_path("prompts.jsonl");
    for (size_t i = 0; i < s->n; i++) {
        text_puts(&lines, s->candidate[i].p.line);
        text_puts(&lines, "\n");
    }
    fuzz_write("prompts.jsonl", lines.s, lines.n);
    insist(answers ? prompts_read_answered(path, &p, &err) : prompts_read(path, 0, 0, &p, &err));
    insist(p.n == (int)s->n);
    for (int i = 0; i < p.n; i++)
        insist(strcmp(p.prompt[i].category, s->candidate[i].p.category) == 0);
    prompts_free(&p);
    free(path);
    free(lines.s);
}

static void use(const struct dataset *d, const struct prompt_template *t, bool answers, const char *path)
{
    struct prompt_choice c = {
        .dataset = d, .template = t, .template_name = t->name, .answers = answers, .turns = answers ? 1 : 0
    };
    struct selection s = { 0 };
    struct error err = { "" };
    int64_t repeated;
    const bool ok = read_all_entries(&c, path, &s, &err) && selection_check(&s, d->collected, &repeated, &err);
    insist(ok || strncmp(err.text, path, strlen(path)) == 0);
    if (ok && s.n > 0) {
        const size_t all = s.n;
        check_lines(&s, answers);
        selection_limit(&s, 2, 3, answers ? 5 : -1);
        insist(s.n > 0 && s.n <= 3 && s.n <= all);
    }
    selection_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n)
{
    char *path = fuzz_path(files[0].name);
    fuzz_write(files[0].name, input, n);
    for (const struct dataset *d = datasets; d->name != NULL && n > 0; d++)
        for (int t = 0; t < MAX_TEMPLATES && d->template[t].name != NULL; t++)
            for (int answers = 0; answers < 2; answers++)
                use(d, &d->template[t], answers, path);
    free(path);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max_size, unsigned seed)
{
    return fuzz_change(data, n, max_size, seed, files, words);
}
