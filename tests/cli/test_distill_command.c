// test_distill_command.c - `speclab distill` from outside: lines against `generate` and `tokenize`, interruption, and what is dropped.
#include "tests/support/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "tests/cli/child_process.h"
#include "tests/cli/printed_json.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

#define QUESTIONS \
    "{\"question\": \"What is the sum of two and two?\"}\n{\"question\": \"Who?\"}\n" \
    "{\"turns\": [\"Say it again and again.\", \"Once more, backwards.\"]}\n{\"question\": \"Who?\"}\n" \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Ping?\"}]}\n"
#define RUN "distill HERE/target.gguf --chat chatml --threads 1 --context 512 "

static void write_text(const char *name, const char *text)
{
    char *path = test_path(name);
    FILE *f = fopen(path, "wb");
    assert_true(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

static char *read_text(const char *name)
{
    struct error err;
    char *path = test_path(name), *text = file_text(path, NULL, &err);
    if (text == NULL)
        fail_msg("%s", err.text);
    free(path);
    return text;
}

static void remove_output(const char *name)
{
    static const char *const suffix[] = { "", ".dropped", ".settings.json" };
    for (int i = 0; i < 3; i++) {
        char *file = xformat("%s%s", name, suffix[i]), *path = test_path(file);
        unlink(path);
        free(file);
        free(path);
    }
}

static void distill(const char *words)
{
    char *line = words_here(words);
    struct child_result s = child_run("%s", line);
    child_expect_success(&s, line);
    child_result_free(&s);
    free(line);
}

static void refused(int status, const char *with, const char *words)
{
    char *line = words_here(words);
    child_expect_error(status, with, line);
    free(line);
}

// ---- lines of a file

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The lines of a file, sorted, as one text; to be freed. *n: their number.
static char *sorted_lines(const char *name, int *n)
{
    char *text = read_text(name), *line[1024];
    struct text t = { 0 };
    *n = 0;
    for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
        assert_true(*n < 1024);
        line[(*n)++] = at;
    }
    qsort(line, (size_t)*n, sizeof(*line), by_text);
    text_puts(&t, "");
    for (int i = 0; i < *n; i++)
        text_printf(&t, "%s\n", line[i]);
    free(text);
    return t.s;
}

static void expect_same_lines(const char *a, const char *b)
{
    int n, m;
    char *first = sorted_lines(a, &n), *second = sorted_lines(b, &m);
    if (strcmp(first, second) != 0)
        fail_msg("%s and %s have other lines: %d and %d", a, b, n, m);
    free(first);
    free(second);
}

// The conversation whose id ends like this; to be freed. NULL: none.
static struct json *conversation(const char *name, const char *end)
{
    struct error err;
    char *text = read_text(name);
    struct json *found = NULL;
    for (char *at = strtok(text, "\n"); at != NULL && found == NULL; at = strtok(NULL, "\n")) {
        found = json_parse(at, strlen(at), name, &err);
        assert_non_null(found);
        if (!ends_with(json_text(json_get(found, "id")), end)) {
            json_free(found);
            found = NULL;
        }
    }
    free(text);
    return found;
}

static const char *content(const struct json *c, size_t i)
{
    return json_text(json_get(json_at(json_get(c, "conversations"), i), "content"));
}

// ---- what a line holds

// The first mask of a line begins after the prompt, whose ids are those of the template written out here.
static void expect_prompt(const struct json *c, const char *rendered)
{
    const struct json *ids = json_get(c, "input_ids"), *mask = json_get(c, "loss_mask");
    char *expected = ids_of(rendered, ""), *text;
    struct text seen = { 0 };
    assert_int_equal(json_count(ids), json_count(mask));
    for (size_t i = 0; i < json_count(mask) && json_int(json_at(mask, i)) == 0; i++)
        text_printf(&seen, "%s%lld", i > 0 ? "," : "", (long long)json_int(json_at(ids, i)));
    text = seen.s;
    assert_string_equal(text, expected);
    free(expected);
    free(text);
}

// Conversation 0 is sequence 0, as `generate` has it: the same tokens at each temperature, through another command.
static void answers_are_those_of_generate(void **state)
{
    static const char *const temperature[] = { "0", "0.7", "1" };
    write_text("q.jsonl", QUESTIONS);
    for (int i = 0; i < 3; i++) {
        char *words = xformat(
            RUN "--prompts HERE/q.jsonl --temperatures %s --new-tokens 40 --seed 5 --out HERE/a.jsonl", temperature[i]);
        remove_output("a.jsonl");
        distill(words);
        struct json *c = conversation("a.jsonl", "-0-0");
        assert_non_null(c);
        expect_prompt(c, "<|im_start|>user\nWhat is the sum of two and two?<|im_end|>\n<|im_start|>assistant\n");
        char *with = words_here("generate HERE/target.gguf --chat chatml --tokens 40 --seed 5 --json --threads 1 "
                                "'What is the sum of two and two?' --temperature ");
        struct child_result s = child_run("%s%s", with, temperature[i]);
        child_expect_success(&s, "generate");
        struct json *g = child_result_json(&s);
        const struct json *ids = json_get(c, "input_ids"), *mask = json_get(c, "loss_mask");
        const struct json *new = json_get(g, "new_ids");
        const size_t first = json_count(ids) - json_count(new);
        for (size_t k = 0; k < json_count(new); k++) {
            assert_int_equal(json_int(json_at(ids, first + k)), json_int(json_at(new, k)));
            assert_int_equal(json_int(json_at(mask, first + k)), 1);
        }
        assert_int_equal(json_int(json_at(mask, first - 1)), 0);
        assert_string_equal(content(c, 1), json_text(json_get(g, "text")));
        assert_true(json_number(json_get(c, "temperature")) == strtod(temperature[i], NULL));
        assert_int_equal(json_int(json_get(c, "seed")), 5);
        json_free(c);
        json_free(g);
        child_result_free(&s);
        free(with);
        free(words);
    }
}

static void an_invented_turn_is_rendered_like_a_given_one(void **state)
{
    int seen = 0;
    remove_output("a.jsonl");
    distill(RUN "--invent 60 --new-tokens 150 --out HERE/a.jsonl");
    for (int i = 0; i < 60; i++) {
        char *id = xformat("invented-%d", i);
        struct json *c = conversation("a.jsonl", id);
        free(id);
        if (c == NULL)
            continue;
        char *text = xformat("<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", content(c, 0));
        expect_prompt(c, text);
        assert_true(strcspn(content(c, 0), " \n") > 0);
        free(text);
        json_free(c);
        seen++;
    }
    assert_true(seen > 5);
}

// The second turn follows the answer's own tokens, end token included.
static void later_turns_follow_the_answer(void **state)
{
    int second = 0;
    write_text("q.jsonl", "{\"turns\": [\"Say it.\", \"Once more.\"]}\n");
    remove_output("a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --samples 40 --temperatures 1 --new-tokens 100 --out HERE/a.jsonl");
    for (int i = 0; i < 40; i++) {
        char *id = xformat("-0-%d", i);
        struct json *c = conversation("a.jsonl", id);
        free(id);
        if (c == NULL || json_count(json_get(c, "conversations")) < 4) {
            json_free(c);
            continue;
        }
        const struct json *ids = json_get(c, "input_ids"), *mask = json_get(c, "loss_mask");
        size_t from = 0, to;
        while (json_int(json_at(mask, from)) == 0)
            from++;
        while (json_int(json_at(mask, from)) == 1)
            from++;
        assert_int_equal(json_int(json_at(ids, from - 1)), 2); // <|im_end|>
        struct text between = { 0 };
        for (to = from; json_int(json_at(mask, to)) == 0; to++)
            text_printf(&between, "%s%lld", to > from ? "," : "", (long long)json_int(json_at(ids, to)));
        char *expected = ids_of("\n<|im_start|>user\nOnce more.<|im_end|>\n<|im_start|>assistant\n", "");
        assert_string_equal(between.s, expected);
        free(expected);
        free(between.s);
        json_free(c);
        second++;
    }
    assert_true(second > 0);
}

// ---- interruption

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

// Runs words and kills the program once the file has become longer. Returns whether it was killed.
static bool killed_while_writing(const char *words, const char *out)
{
    char *line = words_here(words), *word[48], *path = test_path(out);
    int n = 0, status;
    word[n++] = (char *)(uintptr_t)SPECLAB;
    for (char *at = strtok(line, " "); at != NULL; at = strtok(NULL, " "))
        word[n++] = at;
    word[n] = NULL;
    const off_t before = size_of(path);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(126);
        execv(word[0], word);
        _exit(127);
    }
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && size_of(path) <= before)
        usleep(200);
    if (ended == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    free(line);
    free(path);
    return WIFSIGNALED(status);
}

#define MIXED "--prompts HERE/q.jsonl --samples 12 --invent 150 --new-tokens 120 --exclude HERE/e.jsonl "

static void a_killed_run_goes_on_to_the_same_lines(void **state)
{
    int kills = 0;
    write_text("q.jsonl", QUESTIONS);
    write_text("e.jsonl", "{\"text\": \"Who?\"}\n");
    remove_output("a.jsonl");
    remove_output("b.jsonl");
    distill(RUN MIXED "--slots 16 --out HERE/a.jsonl");
    while (kills < 30 && killed_while_writing(RUN MIXED "--slots 3 --out HERE/b.jsonl", "b.jsonl")) {
        FILE *f;
        char *path = test_path(kills % 2 == 0 ? "b.jsonl" : "b.jsonl.dropped");
        assert_non_null(f = fopen(path, "ab"));
        fputs("{\"id\": \"inv", f); // as a machine that stopped leaves it
        fclose(f);
        free(path);
        kills++;
    }
    assert_true(kills >= 2);
    distill(RUN MIXED "--slots 5 --out HERE/b.jsonl");
    expect_same_lines("a.jsonl", "b.jsonl");
    expect_same_lines("a.jsonl.dropped", "b.jsonl.dropped");
    char *before = read_text("a.jsonl"), *after;
    distill(RUN MIXED "--slots 16 --out HERE/a.jsonl"); // nothing is left
    after = read_text("a.jsonl");
    assert_string_equal(before, after);
    free(before);
    free(after);
}

static void more_can_be_added(void **state)
{
    remove_output("a.jsonl");
    remove_output("b.jsonl");
    distill(RUN MIXED "--out HERE/a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --samples 12 --invent 20 --new-tokens 120 --exclude HERE/e.jsonl --tokens 500 "
                "--slots 4 --out HERE/b.jsonl");
    int all, some;
    free(sorted_lines("a.jsonl", &all));
    free(sorted_lines("b.jsonl", &some));
    assert_true(some > 0 && 4 * some < all);
    distill(RUN MIXED "--out HERE/b.jsonl");
    expect_same_lines("a.jsonl", "b.jsonl");
}

// ---- what is dropped

static void expect_dropped(const char *name, const char *end, const char *reason)
{
    struct json *c = conversation(name, end);
    if (c == NULL || strcmp(json_text(json_get(c, "reason")), reason) != 0)
        fail_msg("%s in %s: expected %s, found %s", end, name, reason,
                 c != NULL ? json_text(json_get(c, "reason")) : "nothing");
    json_free(c);
}

static void expect_not_excluded(const char *name, const char *end)
{
    struct json *c = conversation(name, end);
    if (c != NULL && strcmp(json_text(json_get(c, "reason")), "excluded") == 0)
        fail_msg("%s in %s: excluded", end, name);
    json_free(c);
}

static void expect_written(const char *name, const char *end)
{
    struct json *c = conversation(name, end);
    if (c == NULL)
        fail_msg("%s is not in %s", end, name);
    json_free(c);
}

static void prompts_that_overlap_an_excluded_file_are_dropped(void **state)
{
    write_text("q.jsonl",
               "{\"question\": \"Begin: one two three four five six seven eight nine ten eleven twelve thirteen\"}\n"
               "{\"question\": \"One, two; three four five six seven eight nine ten eleven twelve -- end of it\"}\n"
               "{\"question\": \"Short one\"}\n{\"question\": \"Short one or not\"}\n"
               "{\"turns\": [\"Nothing.\", \"SHORT (one)!\"]}\n");
    write_text("e.jsonl", "{\"question_id\": \"Nothing\", \"turns\": [\"one two three four five six seven \", \"short "
                          "one\"]}\n{\"nested\": {\"reference\": [\"zero ONE two   three four five six 'seven' eight "
                          "nine\\nten eleven twelve thirteen fourteen\"]}}\n");
    remove_output("a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --exclude HERE/e.jsonl --new-tokens 9 --temperatures 0.5 --out HERE/a.jsonl");
    expect_dropped("a.jsonl.dropped", "-0-0", "excluded"); // 13 words
    expect_not_excluded("a.jsonl.dropped", "-1-0");        // 12 words
    expect_dropped("a.jsonl.dropped", "-2-0", "excluded"); // a whole text
    expect_not_excluded("a.jsonl.dropped", "-3-0");
    expect_dropped("a.jsonl.dropped", "-4-0", "excluded"); // in its second turn
}

// An invented turn, found by a first run, is excluded, given, or known from an earlier conversation in the next ones.
static void invented_turns_are_checked_too(void **state)
{
    remove_output("a.jsonl");
    distill(RUN "--invent 40 --new-tokens 150 --out HERE/a.jsonl");
    struct json *c = NULL;
    int which = 40;
    while (c == NULL && which > 1) { // not the first, as a lower number is needed
        char *id = xformat("invented-%d", --which);
        c = conversation("a.jsonl", id);
        free(id);
    }
    assert_non_null(c);
    const char *id = json_text(json_get(c, "id"));
    struct json *line = json_new_object();
    json_set(line, "question", json_new_text(content(c, 0)));
    char *text = json_write(line);
    write_text("same.jsonl", text);
    remove_output("b.jsonl");
    distill(RUN "--invent 40 --new-tokens 150 --exclude HERE/same.jsonl --out HERE/b.jsonl");
    expect_dropped("b.jsonl.dropped", id, "excluded");
    remove_output("b.jsonl");
    distill(RUN "--invent 40 --new-tokens 150 --prompts HERE/same.jsonl --out HERE/b.jsonl");
    expect_dropped("b.jsonl.dropped", id, "repeated");
    free(text);

    remove_output("b.jsonl");
    distill(RUN "--invent 1 --new-tokens 150 --out HERE/b.jsonl"); // the settings
    write_text("b.jsonl", "");
    text = json_write(json_at(json_get(c, "conversations"), 0));
    char *known =
        xformat("{\"id\": \"invented-0\", \"reason\": \"empty\", \"user\": %s\n", strstr(text, "\"content\":") + 10);
    write_text("b.jsonl.dropped", known);
    distill(RUN "--invent 40 --new-tokens 150 --out HERE/b.jsonl");
    expect_dropped("b.jsonl.dropped", id, "repeated");
    free(known);
    free(text);
    json_free(line);
    json_free(c);
}

static void a_greedy_answer_is_written_once(void **state)
{
    write_text("q.jsonl", QUESTIONS); // lines 2 and 4 are the same
    remove_output("a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --samples 2 --temperatures 0 --new-tokens 9 --out HERE/a.jsonl");
    expect_dropped("a.jsonl.dropped", "-3-0", "repeated");
    expect_dropped("a.jsonl.dropped", "-0-1", "repeated");
    expect_written("a.jsonl", "-1-0");
    remove_output("a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --samples 2 --temperatures 1 --new-tokens 9 --out HERE/a.jsonl");
    expect_written("a.jsonl", "-3-0");
    expect_written("a.jsonl", "-0-1");
}

// ---- mistakes

static void mistakes_give_one_sentence(void **state)
{
    write_text("q.jsonl", QUESTIONS);
    write_text("q2.jsonl", QUESTIONS);
    write_text("ids.jsonl", "{\"question\": \"a\"}\n{\"input_ids\": [1, 2]}\n");
    write_text("code.jsonl", "{\"task_id\": \"x/1\", \"entry_point\": \"f\", \"prompt\": \"def f\"}\n");
    write_text("numbers.jsonl", "{\"input_ids\": [1]}\n");
    write_text("broken.jsonl", "{\"a\": \"b\"}\n{\"a\": \n");
    write_text("strange.jsonl", "a diary\n");
    remove_output("a.jsonl");
    distill(RUN "--prompts HERE/q.jsonl --new-tokens 9 --out HERE/a.jsonl");
    refused(2, "missing --out", RUN "--invent 3");
    refused(2, "nothing to write", RUN "--out HERE/n.jsonl");
    refused(2, "--temperatures 0,warm", RUN "--invent 3 --temperatures 0,warm --out HERE/n.jsonl");
    refused(2, "--temperatures 0,,1", RUN "--invent 3 --temperatures 0,,1 --out HERE/n.jsonl");
    refused(2, "--temperatures -1", RUN "--invent 3 --temperatures=-1 --out HERE/n.jsonl");
    refused(2, "ids.jsonl:2: prompt 1 is token ids", RUN "--prompts HERE/ids.jsonl --out HERE/n.jsonl");
    refused(2, "code.jsonl:1: prompt x/1 is a completion", RUN "--prompts HERE/code.jsonl --out HERE/n.jsonl");
    refused(2, "has the content of", RUN "--prompts HERE/q.jsonl --prompts HERE/q2.jsonl --out HERE/n.jsonl");
    refused(2, "no.jsonl: No such file", RUN "--prompts HERE/no.jsonl --out HERE/n.jsonl");
    refused(2, "no.jsonl: No such file", RUN "--invent 3 --exclude HERE/no.jsonl --out HERE/n.jsonl");
    refused(2, "numbers.jsonl: expected texts to exclude",
            RUN "--invent 3 --exclude HERE/numbers.jsonl --out HERE/n.jsonl");
    refused(2, "broken.jsonl:2", RUN "--invent 3 --exclude HERE/broken.jsonl --out HERE/n.jsonl");
    refused(2, "--slots", RUN "--invent 3 --slots 0 --out HERE/n.jsonl");
    refused(1, "no/n.jsonl: cannot write it", RUN "--invent 3 --out HERE/no/n.jsonl");
    refused(1, "cannot write it: Is a directory", RUN "--invent 3 --out HERE");
    refused(1, "expected a regular file", RUN "--invent 3 --out /dev/null");
    refused(1, "is not empty and has no", RUN "--invent 3 --out HERE/strange.jsonl");
    refused(1, "was begun with new_tokens 9, found 8", RUN "--prompts HERE/q.jsonl --new-tokens 8 --out HERE/a.jsonl");
    refused(1, "was begun with temperatures",
            RUN "--prompts HERE/q.jsonl --new-tokens 9 --temperatures 0 --out HERE/a.jsonl");
    refused(1, "was begun with prompts", RUN "--invent 2 --new-tokens 9 --out HERE/a.jsonl");
    refused(1, "--context: expected at most",
            "distill HERE/target.gguf --chat chatml --context 513 --invent 1 --out HERE/n.jsonl");
    refused(1, "--invent needs a chat template", "distill HERE/target.gguf --chat none --invent 1 --out HERE/n.jsonl");
    refused(1, "no text without a tokenizer", "distill HERE/no_tokenizer --chat chatml --invent 1 --out HERE/n.jsonl");

    char *path = test_path("a.jsonl");
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(flock(fileno(f), LOCK_EX), 0);
    refused(1, "a.jsonl: another process writes it", RUN "--prompts HERE/q.jsonl --new-tokens 9 --out HERE/a.jsonl");
    fputs("{\"id\": 7}\n", f);
    fclose(f);
    refused(1, "expected a conversation with id", RUN "--prompts HERE/q.jsonl --new-tokens 9 --out HERE/a.jsonl");
    char *text = read_text("a.jsonl"), *end = strchr(text, '\n') + 1;
    struct text twice = { 0 };
    text_add(&twice, text, (size_t)(end - text));
    text_add(&twice, text, (size_t)(end - text));
    write_text("a.jsonl", twice.s);
    refused(1, "a.jsonl:2: expected each id once", RUN "--prompts HERE/q.jsonl --new-tokens 9 --out HERE/a.jsonl");
    free(twice.s);
    free(text);
    free(path);
}

// Found when the first conversation is begun.
static void a_template_that_cannot_be_used_ends_the_run_with_a_sentence(void **state)
{
    static const struct {
        const char *jinja, *source, *message;
    } cases[] = {
        { "{{ messages[0].content }}", "--invent 1", "the chat template writes nothing before the user's text" },
        { "{{ nothing.at.all }}", "--prompts HERE/q.jsonl", "used.jinja, line 1: 'nothing' is undefined" },
    };
    char *path = test_path("used.jinja");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *line =
            xformat("distill HERE/target.gguf --chat HERE/used.jinja --context 512 %s --out HERE/used%zu.jsonl",
                    cases[i].source, i);
        char *words = words_here(line);
        file_write(path, cases[i].jinja);
        struct child_result s = child_run("%s", words);
        assert_int_equal(s.status, 1);
        if (strstr(s.err, cases[i].message) == NULL)
            fail_msg("\"%s\" does not contain \"%s\"", s.err, cases[i].message);
        child_result_free(&s);
        free(words);
        free(line);
    }
    // A prompt of which the template makes nothing is dropped.
    file_write(path, "{% if false %}x{% endif %}");
    char *words = words_here(
        "distill HERE/target.gguf --chat HERE/used.jinja --context 512 --prompts HERE/q.jsonl --out HERE/nothing.jsonl");
    struct child_result s = child_run("%s", words);
    assert_int_equal(s.status, 0);
    assert_non_null(strstr(s.out, "dropped: "));
    child_result_free(&s);
    free(words);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_generate),
        cmocka_unit_test(an_invented_turn_is_rendered_like_a_given_one),
        cmocka_unit_test(later_turns_follow_the_answer),
        cmocka_unit_test(a_killed_run_goes_on_to_the_same_lines),
        cmocka_unit_test(more_can_be_added),
        cmocka_unit_test(prompts_that_overlap_an_excluded_file_are_dropped),
        cmocka_unit_test(invented_turns_are_checked_too),
        cmocka_unit_test(a_greedy_answer_is_written_once),
        cmocka_unit_test(mistakes_give_one_sentence),
        cmocka_unit_test(a_template_that_cannot_be_used_ends_the_run_with_a_sentence),
    };
    return run_with_models(tests);
}
