// test_exact.c - `speclab exact` as a person meets it, on little models: what it prints, what it stores, with which status
// it ends, and that a text put to the test is the same text whenever the work was interrupted.
#include "core/clock.h"
#include "tests/support/check.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "exact/observer.h"
#include "exact/power.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

// ---- files

enum { NEW_TOKENS = 24, NOTHING = 0, FOUND = 3, UNDECIDED = 4 }; // what is left: exit statuses

static const char head[] = "name: watched\ntarget: {model: target.gguf}\nthreads: 1\n"
                           "prompts: {file: talks.jsonl, chat: chatml}\nlimits: {new_tokens: 24, context: 320}\n"
                           "seed: 5\ncells:\n";

static void write_experiment(const char *name, const char *cells)
{
    char *text = xformat("%s%s", head, cells);
    write_file(name, text);
    free(text);
}

#define PLAIN "  sampling: [{temperature: 1}]\n"
#define SMALL "{kind: small, model: pruned.gguf, tokens: 3, pick: sampled}"

static int make_pair_of_models(void **state)
{
    make_files(state);
    struct said s =
        child_run("prune %s/target.gguf --keep 0,2 --out %s/pruned.gguf", tiny_directory(), tiny_directory());
    said_insist(&s, "prune");
    said_free(&s);
    struct tiny deep = tiny_usual; // and a draft model that lacks one of its layers, and mostly agrees with it
    deep.layers = 6;
    char *path = tiny_path("deep.gguf");
    tiny_write_gguf(path, &deep);
    s = child_run("prune %s --keep 0-3,5 --out %s/near.gguf", path, tiny_directory());
    said_insist(&s, "prune");
    said_free(&s);
    free(path);
    write_experiment("one.yaml", PLAIN "  drafter: [" SMALL "]\n");
    write_experiment("three.yaml", PLAIN "  batch: [3]\n  drafter: [" SMALL "]\n");
    return 0;
}

// The command on FILE.yaml of the test's folder, into a database there.
static struct said exact(const char *file, const char *db, const char *flags)
{
    return child_run("exact %s/%s --db %s/%s %s", tiny_directory(), file, tiny_directory(), db, flags);
}

static void expect_status(const char *file, const char *db, const char *flags, int status, const char *with)
{
    struct said s = exact(file, db, flags);
    if (s.status != status || strstr(s.out, with) == NULL) // on a slow machine stderr has its progress
        fail_msg("exact %s %s: expected status %d and \"%s\", got status %d and: %s%s", file, flags, status, with,
                 s.status, s.out, s.err);
    said_free(&s);
}

static int64_t ask_of(const char *db, const char *sql)
{
    struct store *s = open_store(db);
    int64_t answer = ask(s, sql);
    store_close(s);
    return answer;
}

// ---- rules

static void every_rule_is_what_it_says(void **state)
{
    (void)state;
    struct said s = child_run("exact --rules --instances 2 --db %s/rules.db", tiny_directory());
    said_insist(&s, "exact --rules");
    assert_string_equal(s.err, "");
    struct store *store = open_store("rules.db");
    for (int i = 0; rules[i] != NULL; i++) {
        char *line = xformat("\n  %-10s ", rules[i]->name),
             *sql = xformat("SELECT count(*) FROM exact_rule WHERE rule = '%s' AND claimed = %d AND instances > 0 AND "
                            "outcomes >= instances AND found = '%s' AND (distance <= 1e-12) = claimed",
                            rules[i]->name, rules[i]->exact, rules[i]->exact ? "exact" : "lossy, as it says");
        const char *at = strstr(s.out, line), *end = at != NULL ? strchr(at + 1, '\n') : NULL;
        const char *says = rules[i]->exact ? "  exact" : "  lossy, as it says";
        if (end == NULL || strncmp(end - strlen(says), says, strlen(says)) != 0)
            fail_msg("%s should be called%s: %s", rules[i]->name, says, s.out);
        assert_int_equal(ask(store, sql), 1);
        free(line);
        free(sql);
    }
    store_close(store);
    said_free(&s);
}

// ---- texts

static void cells_are_judged_and_stored(void **state)
{
    (void)state;
    write_experiment("many.yaml",
                     "  sampling: [{temperature: 1}, {temperature: 0.7, top_p: 0.9, repetition_penalty: 1.2}]\n"
                     // What is found first is not forgotten.
                     "  batch: [3]\n  rule: [typical, rejection, block, match]\n"
                     "  drafter: [none, {kind: ngram, longest: 2, tokens: 3}, " SMALL "]\n");
    expect_status("many.yaml", "many.db", "--tokens 400", FOUND, "(LOSSY: a bias is what it is made of)");
    struct store *s = open_store("many.db");
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE finished IS NOT NULL"), 2 * 4 * 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE sequences > 0 AND steps > 0 AND"
                            " steps <= tokens AND batch = 3 AND level = 1e-6 AND accepted BETWEEN 0 AND 3"),
                     2 * 4 * 2);
    // A bet that has come to its mark ends a cell.
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE tokens < 400 AND (lossless OR most_log_e < 14.5)"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE lossless <> (rule NOT LIKE 'typical%')"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE lossless AND verdict = 'bias found'"), 0);
    assert_true(ask(s, "SELECT count(*) FROM exact WHERE NOT lossless AND verdict = 'bias found'") > 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_stream"), 2 * 4 * 2 * STREAMS);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id AND stream = 'text'"
                            " WHERE t.tokens <> exact.tokens OR alarm <> (verdict = 'bias found')"),
                     0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id"
                            " WHERE lossless AND stream IN ('text', 'control', 'drafter') AND alarm"),
                     0);
    // ngram chooses, so that nothing was drawn; small did.
    assert_int_equal(ask(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id"
                            " WHERE stream = 'drafter' AND (t.tokens > 0) = (drafter LIKE 'ngram%')"),
                     0);
    assert_int_equal(
        ask(s,
            "SELECT count(*) FROM exact WHERE NOT EXISTS (SELECT 1 FROM exact_test WHERE exact = id AND stream = 'text'"
            " AND kind = 'KS') OR NOT EXISTS (SELECT 1 FROM exact_test WHERE exact = id AND stream = 'control')"),
        0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_test WHERE log10_adjusted < log10_p"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    store_close(s);
}

static void too_few_tokens_are_no_verdict(void **state)
{
    (void)state;
    expect_status("one.yaml", "few.db", "--tokens 60", UNDECIDED, "More tokens are needed");
    assert_int_equal(ask_of("few.db", "SELECT count(*) FROM exact WHERE verdict = 'no verdict'"), 1);
}

static void enough_tokens_are_a_verdict(void **state)
{
    (void)state;
    write_file("near.yaml",
               "name: near\ntarget: {model: deep.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n"
               "limits: {new_tokens: 100, context: 320}\ncells:\n  sampling: [{temperature: 1}]\n  batch: [4]\n"
               "  drafter: [{kind: small, model: near.gguf, tokens: 3, pick: sampled}]\n");
    expect_status("near.yaml", "enough.db", "--tokens 12000 --level 1e-3", NOTHING, "Verdict: no bias found.");
    assert_int_equal(ask_of("enough.db", "SELECT count(*) FROM exact WHERE verdict = 'no bias found'"), 1);
}

static void until_says_how_many_tokens(void **state)
{
    (void)state;
    const struct power w = { 0.25, 0.999, 2 * EVIDENCE_TESTS + 2 };
    const int64_t needed = (int64_t)ceil(power_tokens(POWER_KS, 0.1, w));
    struct said s = exact("one.yaml", "until.db", "--until TV=0.1 --level 0.5");
    assert_true(s.status == NOTHING || s.status == UNDECIDED);
    said_free(&s);
    int64_t tokens = ask_of("until.db", "SELECT tokens FROM exact");
    print_message("a total variation of 0.1: %lld tokens, %lld judged\n", (long long)needed, (long long)tokens);
    assert_true(needed > 800 && tokens >= needed && tokens < needed + NEW_TOKENS + 4);
    s = exact("one.yaml", "until.db", "--until 0.1 --level 0.5"); // the same
    assert_int_equal(ask_of("until.db", "SELECT tokens FROM exact"), tokens);
    said_free(&s);
}

// ---- interruptions

struct packed_cache {
    int64_t sequences, tokens, steps;
    double most_log_e;
    size_t bytes;
    void *sums;
};

static struct packed_cache kept_in(const char *db)
{
    struct error err;
    struct packed_cache k = { 0 };
    struct store *s = open_store(db);
    struct query *q = query_open(s, "SELECT sequences, tokens, steps, most_log_e, sums FROM exact");
    assert_true(query_next(q));
    k.sequences = query_int(q, 0);
    k.tokens = query_int(q, 1);
    k.steps = query_int(q, 2);
    k.most_log_e = query_real(q, 3);
    const void *sums = query_blob(q, 4, &k.bytes);
    k.sums = xmalloc(k.bytes + 1);
    memcpy(k.sums, sums, k.bytes);
    assert_false(query_next(q)); // one cell
    assert_true(query_close(q, &err));
    store_close(s);
    return k;
}

static void expect_the_same(const char *a, const char *b)
{
    struct packed_cache x = kept_in(a), y = kept_in(b);
    assert_int_equal(x.sequences, y.sequences);
    assert_int_equal(x.tokens, y.tokens);
    assert_int_equal(x.steps, y.steps);
    assert_memory_equal(&x.most_log_e, &y.most_log_e, sizeof(x.most_log_e));
    assert_int_equal(x.bytes, sizeof(struct observed));
    assert_int_equal(y.bytes, x.bytes);
    assert_memory_equal(x.sums, y.sums, x.bytes);
    free(x.sums);
    free(y.sums);
}

static pid_t start(const char *file, const char *db, const char *tokens)
{
    char *path = tiny_path(file), *to = tiny_path(db), *log = tiny_path("log");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, 1);
        dup2(out, 2);
        execl(SPECLAB, SPECLAB, "exact", path, "--db", to, "--tokens", tokens, (char *)NULL);
        _exit(127);
    }
    free(path);
    free(to);
    free(log);
    return pid;
}

// Sends the signal after so many microseconds, unless it has ended; true: it was cut off.
static bool cut_off(pid_t pid, int64_t us, int number)
{
    const int64_t until = clock_ns() / 1000 + us;
    int status = 0;
    pid_t gone = 0;
    while (clock_ns() / 1000 < until && (gone = waitpid(pid, &status, WNOHANG)) == 0)
        usleep(500);
    if (gone == 0) {
        kill(pid, number);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    if (WIFSIGNALED(status)) // SIGTERM, too, before anybody listens to it
        assert_int_equal(WTERMSIG(status), number);
    else if (gone != 0)
        assert_int_equal(WEXITSTATUS(status), UNDECIDED); // at its end
    else if (WEXITSTATUS(status) != UNDECIDED) {
        assert_int_equal(WEXITSTATUS(status), 1);
        char said[200] = "", *log = tiny_path("log");
        FILE *f = fopen(log, "rb");
        assert_true(f != NULL && number == SIGTERM);
        while (strstr(said, "interrupted") == NULL)
            assert_non_null(fgets(said, sizeof(said), f));
        fclose(f);
        free(log);
    }
    return !WIFEXITED(status) || WEXITSTATUS(status) != UNDECIDED;
}

static void interrupted_texts_come_to_the_same_sums(void **state)
{
    (void)state;
    static const char *const files[] = { "one.yaml", "three.yaml" }, *const whole[] = { "one.db", "three.db" };
    for (int batch = 0; batch < 2; batch++) {
        int64_t began = clock_ns() / 1000;
        expect_status(files[batch], whole[batch], "--tokens 600", UNDECIDED, "More tokens");
        int64_t took = clock_ns() / 1000 - began;
        for (int number = SIGKILL, k = 0; k < 2; k++, number = SIGTERM) {
            char *db = xformat("cut%d%d.db", batch, k);
            int cuts = 0, amid = 0; // each go has longer than the last, so that there is an end to it
            while (cut_off(start(files[batch], db, "600"), took * (2 + cuts) / 8, number)) {
                amid += ask_of(db, "SELECT count(*) FROM exact WHERE tokens > 0 AND finished IS NULL") > 0;
                assert_int_equal(
                    ask_of(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
                assert_true(++cuts < 50);
            }
            print_message("%s, signal %d: cut off %d times, %d times amid the texts\n", files[batch], number, cuts,
                          amid);
            assert_true(cuts > 0);
            expect_the_same(db, whole[batch]);
            free(db);
        }
    }
    expect_the_same(whole[0], whole[1]); // each text's chance is its own, and its rows do not depend on its neighbours
}

static void what_is_finished_is_not_decoded_again_but_goes_on(void **state)
{
    (void)state;
    expect_status("three.yaml", "again.db", "--tokens 300", UNDECIDED, "More tokens");
    struct packed_cache first = kept_in("again.db");
    expect_status("three.yaml", "again.db", "--tokens 200", UNDECIDED, "More tokens");
    struct packed_cache second = kept_in("again.db");
    assert_int_equal(second.sequences, first.sequences);
    assert_memory_equal(first.sums, second.sums, first.bytes);
    assert_int_equal(ask_of("again.db", "SELECT count(*) FROM exact_stream"), STREAMS);
    expect_status("three.yaml", "again.db", "--tokens 600", UNDECIDED, "More tokens");
    expect_the_same("again.db", "three.db");
    free(first.sums);
    free(second.sums);
}

// ---- mistakes

static void what_cannot_be_judged_or_kept_is_an_error(void **state)
{
    (void)state;
    write_experiment("greedy.yaml", "  sampling: [{temperature: 0}]\n  drafter: [ngram]\n");
    struct said s = exact("greedy.yaml", "greedy.db", "--tokens 30");
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "greedy.yaml: at temperature 0 every token is certain"));
    said_free(&s);
    struct store *store = open_store("locked.db");
    ask(store, "CREATE TRIGGER no BEFORE INSERT ON exact_stream BEGIN SELECT RAISE(ABORT, 'nothing is kept'); END");
    store_close(store);
    s = exact("one.yaml", "locked.db", "--tokens 30");
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "nothing is kept"));
    said_free(&s);
    assert_int_equal(ask_of("locked.db", "SELECT count(*) FROM exact WHERE finished IS NULL"), 1);
}

static void mistakes_are_one_sentence(void **state)
{
    (void)state;
    write_experiment("none.yaml", PLAIN "  drafter: [none]\n");
    write_experiment("no_draft.yaml", PLAIN "  drafter: [{kind: small, model: absent.gguf}]\n");
    write_file("no_target.yaml", "name: x\ntarget: {model: absent.gguf}\nprompts: {file: talks.jsonl, chat: chatml}\n"
                                 "limits: {new_tokens: 8}\ncells:\n  drafter: [ngram]\n");
    char *folder = tiny_path("folder");
    mkdir(folder, 0700);
    static const struct {
        int status;
        const char *with, *words; // D: the test's folder
    } mistakes[] = {
        { 2, "expected an experiment's file, or --rules", "exact" },
        { 2, "absent.yaml", "exact D/absent.yaml" },
        { 2, "did you mean --tokens", "exact D/one.yaml --tokns 3" },
        { 2, "no option --frobnicate", "exact D/one.yaml --frobnicate" },
        { 2, "--tokens", "exact D/one.yaml --tokens 0" },
        { 2, "--tokens", "exact D/one.yaml --tokens many" },
        { 2, "--until TV=2:", "exact D/one.yaml --until TV=2" },
        { 2, "--until x:", "exact D/one.yaml --until x" },
        { 2, "--until TV=:", "exact D/one.yaml --until TV=" },
        { 2, "--until nan:", "exact D/one.yaml --until nan" },
        { 2, "--level 7:", "exact D/one.yaml --level 7" },
        { 2, "--level 0:", "exact D/one.yaml --level 0" },
        { 2, "give one of them", "exact D/one.yaml --tokens 30 --until TV=0.1" },
        { 2, "--rules needs no file", "exact --rules D/one.yaml" },
        { 2, "--instances", "exact --rules --instances 0" },
        { 2, "unexpected argument", "exact D/one.yaml D/three.yaml" },
        { 1, "there is no drafter but `none`", "exact D/none.yaml --db D/mistake.db" },
        { 2, "no_target.yaml:2:17: model: absent.gguf", "exact D/no_target.yaml --db D/mistake.db" },
        { 1, "absent.gguf", "exact D/no_draft.yaml --db D/mistake.db" },
        { 1, "folder", "exact D/one.yaml --tokens 30 --db D/folder" },
        { 1, "folder", "exact --rules --instances 1 --db D/folder" },
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct text words = { 0 };
        for (const char *c = mistakes[i].words; *c != '\0'; c++)
            if (*c == 'D' && c[1] == '/')
                text_puts(&words, tiny_directory());
            else
                text_add(&words, c, 1);
        child_refuses(mistakes[i].status, mistakes[i].with, words.s);
        free(words.s);
    }
    free(folder);
}

int main(void)
{
    if (!child_is_present())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_is_what_it_says),
        cmocka_unit_test(cells_are_judged_and_stored),
        cmocka_unit_test(too_few_tokens_are_no_verdict),
        cmocka_unit_test(enough_tokens_are_a_verdict),
        cmocka_unit_test(until_says_how_many_tokens),
        cmocka_unit_test(interrupted_texts_come_to_the_same_sums),
        cmocka_unit_test(what_is_finished_is_not_decoded_again_but_goes_on),
        cmocka_unit_test(what_cannot_be_judged_or_kept_is_an_error),
        cmocka_unit_test(mistakes_are_one_sentence),
    };
    return cmocka_run_group_tests(tests, make_pair_of_models, remove_files);
}
