// test_exact.c - `speclab exact` on small models: output, database and exit status, and that interrupted runs reach the
// same sums as uninterrupted ones.
#include "tests/formats/derived_model.h"
#include "tests/support/tests.h"

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
#include "verifier/exact/observer.h"
#include "verifier/exact/verdict.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

// ---- files

enum { NEW_TOKENS = 24, NOTHING = 0, FOUND = 3, UNDECIDED = 4 }; // the last three: exit statuses

static const char head[] =
    "name: tested\ntarget: {model: target.gguf}\nthreads: 1\n"
    "prompts: {file: conversations.jsonl, chat: chatml}\nlimits: {new_tokens: 24, context: 320}\n"
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
    static const int two[] = { 0, 2 }, most[] = { 0, 1, 2, 3, 5 };
    char *target = test_path("target.gguf"), *pruned = test_path("pruned.gguf"), *near = test_path("near.gguf");
    derived_write(target, pruned, &(const struct derived){ .keep = two, .n = 2, .type = F32 });
    struct small_model deep = small_default; // and a draft model without one of its layers, which mostly agrees with it
    deep.layers = 6;
    char *path = test_path("deep.gguf");
    small_write_gguf(path, &deep);
    derived_write(path, near, &(const struct derived){ .keep = most, .n = 5, .type = F32 });
    free(target);
    free(pruned);
    free(near);
    free(path);
    write_experiment("one.yaml", PLAIN "  drafter: [" SMALL "]\n");
    write_experiment("three.yaml", PLAIN "  batch: [3]\n  drafter: [" SMALL "]\n");
    return 0;
}

// Runs the command on a file of the test's folder, with a database there.
static struct child_result exact(const char *file, const char *db, const char *flags)
{
    return child_run("exact %s/%s --db %s/%s %s", test_directory(), file, test_directory(), db, flags);
}

static void expect_status(const char *file, const char *db, const char *flags, int status, const char *with)
{
    struct child_result s = exact(file, db, flags);
    if (s.status != status || strstr(s.out, with) == NULL) // on a slow machine stderr has its progress
        fail_msg("exact %s %s: expected status %d and \"%s\", got status %d and: %s%s", file, flags, status, with,
                 s.status, s.out, s.err);
    child_result_free(&s);
}

static int64_t first_int_of(const char *db, const char *sql)
{
    struct store *s = open_store(db);
    int64_t answer = query_first_int(s, sql);
    store_close(s);
    return answer;
}

// ---- rules

TEST(every_rule_is_as_declared)
{
    struct child_result s = child_run("exact --rules --instances 2 --db %s/rules.db", test_directory());
    child_expect_success(&s, "exact --rules");
    assert_string_equal(s.err, "");
    struct store *store = open_store("rules.db");
    for (int i = 0; rules[i] != NULL; i++) {
        char *line = xformat("\n  %-10s ", rules[i]->name),
             *sql = xformat(
                 "SELECT count(*) FROM exact_rule WHERE rule = '%s' AND declared_exact = %d AND instances > 0 AND "
                 "outcomes >= instances AND verdict = '%s' AND (distance <= 1e-12) = declared_exact",
                 rules[i]->name, rules[i]->exact, rules[i]->exact ? "exact" : "lossy, as declared");
        const char *at = strstr(s.out, line), *end = at != NULL ? strchr(at + 1, '\n') : NULL;
        const char *verdict = rules[i]->exact ? "  exact" : "  lossy, as declared";
        if (end == NULL || strncmp(end - strlen(verdict), verdict, strlen(verdict)) != 0)
            fail_msg("%s: expected%s, found: %s", rules[i]->name, verdict, s.out);
        assert_int_equal(query_first_int(store, sql), 1);
        free(line);
        free(sql);
    }
    store_close(store);
    child_result_free(&s);
}

// ---- texts

TEST(cells_are_tested_and_stored)
{
    write_experiment("many.yaml",
                     "  sampling: [{temperature: 1}, {temperature: 0.7, top_p: 0.9, repetition_penalty: 1.2}]\n"
                     // The exit status remembers the bias of the first rule.
                     "  batch: [3]\n  rule: [typical, rejection, block, match]\n"
                     "  drafter: [none, {kind: ngram, longest: 2, tokens: 3}, " SMALL "]\n");
    expect_status("many.yaml", "many.db", "--tokens 400", FOUND, "(LOSSY: a bias is expected)");
    struct store *s = open_store("many.db");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact WHERE finished IS NOT NULL"), 2 * 4 * 2);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact WHERE sequences > 0 AND steps > 0 AND"
                                        " steps <= tokens AND batch = 3 AND level = 1e-6 AND accepted BETWEEN 0 AND 3"),
                     2 * 4 * 2);
    // A cell ends early only if its bet reached the level of certainty.
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM exact WHERE tokens < 400 AND (lossless OR max_log_e < 14.5)"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact WHERE lossless <> (rule NOT LIKE 'typical%')"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact WHERE lossless AND verdict = 'bias found'"), 0);
    assert_true(query_first_int(s, "SELECT count(*) FROM exact WHERE NOT lossless AND verdict = 'bias found'") > 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_stream"), 2 * 4 * 2 * STREAMS);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id AND stream = 'text'"
                           " WHERE t.tokens <> exact.tokens OR alarm <> (verdict = 'bias found')"),
        0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id"
                                        " WHERE lossless AND stream IN ('text', 'control', 'drafter') AND alarm"),
                     0);
    // ngram proposes deterministic tokens, so there are no draws to test; small samples.
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact JOIN exact_stream AS t ON t.exact = id"
                                        " WHERE stream = 'drafter' AND (t.tokens > 0) = (drafter LIKE 'ngram%')"),
                     0);
    assert_int_equal(
        query_first_int(
            s,
            "SELECT count(*) FROM exact WHERE NOT EXISTS (SELECT 1 FROM exact_test WHERE exact = id AND stream = 'text'"
            " AND kind = 'KS') OR NOT EXISTS (SELECT 1 FROM exact_test WHERE exact = id AND stream = 'control')"),
        0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_test WHERE log10_adjusted < log10_p"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    store_close(s);
}

TEST(enough_tokens_give_a_verdict)
{
    write_file(
        "near.yaml",
        "name: near\ntarget: {model: deep.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n"
        "limits: {new_tokens: 100, context: 320}\ncells:\n  sampling: [{temperature: 1}]\n  batch: [4]\n"
        "  drafter: [{kind: small, model: near.gguf, tokens: 3, pick: sampled}]\n");
    expect_status("near.yaml", "enough.db", "--tokens 12000 --level 1e-3", NOTHING, "Verdict: no bias found.");
    assert_int_equal(first_int_of("enough.db", "SELECT count(*) FROM exact WHERE verdict = 'no bias found'"), 1);
}

TEST(until_sets_the_number_of_tokens)
{
    const struct power w = { 0.25, 0.999, 2 * EVIDENCE_TESTS + 2 };
    const int64_t needed = (int64_t)ceil(power_tokens(POWER_KS, 0.1, w));
    struct child_result s = exact("one.yaml", "until.db", "--until TV=0.1 --level 0.5");
    assert_true(s.status == NOTHING || s.status == UNDECIDED);
    child_result_free(&s);
    int64_t tokens = first_int_of("until.db", "SELECT tokens FROM exact");
    print_message("a total variation of 0.1: %lld tokens, %lld tested\n", (long long)needed, (long long)tokens);
    assert_true(needed > 800 && tokens >= needed && tokens < needed + NEW_TOKENS + 4);
    s = exact("one.yaml", "until.db", "--until 0.1 --level 0.5"); // "TV=" is optional
    assert_int_equal(first_int_of("until.db", "SELECT tokens FROM exact"), tokens);
    child_result_free(&s);
}

// ---- interruptions

struct stored_sums {
    int64_t sequences, tokens, steps;
    double max_log_e;
    size_t bytes;
    void *sums;
};

static struct stored_sums sums_in(const char *db)
{
    struct error err;
    struct stored_sums k = { 0 };
    struct store *s = open_store(db);
    struct query *q = query_open(s, "SELECT sequences, tokens, steps, max_log_e, sums FROM exact");
    assert_true(query_next(q));
    k.sequences = query_int(q, 0);
    k.tokens = query_int(q, 1);
    k.steps = query_int(q, 2);
    k.max_log_e = query_real(q, 3);
    const void *sums = query_blob(q, 4, &k.bytes);
    k.sums = xmalloc(k.bytes + 1);
    memcpy(k.sums, sums, k.bytes);
    assert_false(query_next(q)); // one cell
    assert_true(query_close(q, &err));
    store_close(s);
    return k;
}

static void expect_equal_sums(const char *a, const char *b)
{
    struct stored_sums x = sums_in(a), y = sums_in(b);
    assert_int_equal(x.sequences, y.sequences);
    assert_int_equal(x.tokens, y.tokens);
    assert_int_equal(x.steps, y.steps);
    assert_memory_equal(&x.max_log_e, &y.max_log_e, sizeof(x.max_log_e));
    assert_int_equal(x.bytes, sizeof(struct observed));
    assert_int_equal(y.bytes, x.bytes);
    assert_memory_equal(x.sums, y.sums, x.bytes);
    free(x.sums);
    free(y.sums);
}

static pid_t start(const char *file, const char *db, const char *tokens)
{
    char *path = test_path(file), *to = test_path(db), *log = test_path("log");
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

// Changes with every commit to a database: sizes and times of its file and of its write-ahead log.
static uint64_t commit_mark(const char *db)
{
    uint64_t mark = 0;
    static const char *const suffix[] = { "", "-wal" };
    for (int i = 0; i < 2; i++) {
        struct stat st;
        char *name = xformat("%s%s", db, suffix[i]), *path = test_path(name);
        if (stat(path, &st) == 0)
            mark = mark * 31 + (uint64_t)st.st_size + (uint64_t)st.st_mtim.tv_sec * 1000000007 +
                   (uint64_t)st.st_mtim.tv_nsec * 131;
        free(name);
        free(path);
    }
    return mark;
}

static void remove_database(const char *db)
{
    static const char *const suffix[] = { "", "-wal", "-shm" };
    for (int i = 0; i < 3; i++) {
        char *name = xformat("%s%s", db, suffix[i]), *path = test_path(name);
        unlink(path);
        free(name);
        free(path);
    }
}

// Sends the signal after this number of commits to the database; false: the process finished first.
static bool interrupt_after(pid_t pid, const char *db, int commits, int number)
{
    uint64_t mark = commit_mark(db);
    int status = 0;
    pid_t ended = 0;
    for (int seen = 0; seen < commits && (ended = waitpid(pid, &status, WNOHANG)) == 0;) {
        const uint64_t now = commit_mark(db);
        seen += now != mark;
        mark = now;
        usleep(200);
    }
    if (ended == 0) {
        kill(pid, number);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    if (WIFSIGNALED(status)) // by SIGTERM as well, before the handler is installed
        assert_int_equal(WTERMSIG(status), number);
    else if (ended != 0)
        assert_int_equal(WEXITSTATUS(status), UNDECIDED); // finished
    else if (WEXITSTATUS(status) != UNDECIDED) {
        assert_int_equal(WEXITSTATUS(status), 128 + number);
        char line[200] = "", *log = test_path("log");
        FILE *f = fopen(log, "rb");
        assert_true(f != NULL && number == SIGTERM);
        while (strstr(line, "interrupted") == NULL)
            assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
        free(log);
    }
    return !WIFEXITED(status) || WEXITSTATUS(status) != UNDECIDED;
}

// Runs the command until it finishes, interrupted again and again after a growing number of commits. A process that is
// faster than this test sees commits is started again with fewer of them: after 0 commits it is interrupted for certain.
static void run_with_interrupts(const char *file, const char *db, int number)
{
    int interrupts = 0, amid = 0, commits = 8;
    for (;;) {
        if (!interrupt_after(start(file, db, "600"), db, commits, number)) {
            if (interrupts > 0)
                break;
            remove_database(db);
            commits /= 2;
            continue;
        }
        amid += first_int_of(db, "SELECT count(*) FROM exact WHERE tokens > 0 AND finished IS NULL") > 0;
        assert_int_equal(first_int_of(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
                         0);
        assert_true(++interrupts < 50);
        commits += 3;
    }
    print_message("%s, signal %d: interrupted %d times, %d times amid the texts\n", file, number, interrupts, amid);
}

TEST(interrupted_runs_reach_the_same_sums)
{
    static const char *const files[] = { "one.yaml", "three.yaml" }, *const whole[] = { "one.db", "three.db" };
    for (int batch = 0; batch < 2; batch++) {
        expect_status(files[batch], whole[batch], "--tokens 600", UNDECIDED, "More tokens are needed");
        assert_int_equal(first_int_of(whole[batch], "SELECT count(*) FROM exact WHERE verdict = 'no verdict'"), 1);
        for (int number = SIGKILL, k = 0; k < 2; k++, number = SIGTERM) {
            char *db = xformat("cut%d%d.db", batch, k);
            run_with_interrupts(files[batch], db, number);
            expect_equal_sums(db, whole[batch]);
            free(db);
        }
    }
    expect_equal_sums(whole[0], whole[1]); // a text has its own random numbers, and its rows do not depend on the batch
}

TEST(finished_texts_are_not_decoded_again_and_runs_can_be_extended)
{
    expect_status("three.yaml", "again.db", "--tokens 300", UNDECIDED, "More tokens");
    struct stored_sums first = sums_in("again.db");
    expect_status("three.yaml", "again.db", "--tokens 200", UNDECIDED, "More tokens");
    struct stored_sums second = sums_in("again.db");
    assert_int_equal(second.sequences, first.sequences);
    assert_memory_equal(first.sums, second.sums, first.bytes);
    assert_int_equal(first_int_of("again.db", "SELECT count(*) FROM exact_stream"), STREAMS);
    expect_status("three.yaml", "again.db", "--tokens 600", UNDECIDED, "More tokens");
    expect_equal_sums("again.db", "three.db");
    free(first.sums);
    free(second.sums);
}

// ---- errors

TEST(untestable_cells_and_failed_writes_are_errors)
{
    write_experiment("greedy.yaml", "  sampling: [{temperature: 0}]\n  drafter: [ngram]\n");
    struct child_result s = exact("greedy.yaml", "greedy.db", "--tokens 30");
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "greedy.yaml: at temperature 0 there is no distribution to test"));
    child_result_free(&s);
    struct store *store = open_store("locked.db");
    query_first_int(store, "CREATE INDEX no ON exact_stream (json(stream))"); // a name is no JSON
    store_close(store);
    s = exact("one.yaml", "locked.db", "--tokens 30");
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "locked.db: malformed JSON"));
    child_result_free(&s);
    assert_int_equal(first_int_of("locked.db", "SELECT count(*) FROM exact WHERE finished IS NULL"), 1);
}

TEST(errors_are_one_sentence)
{
    write_experiment("none.yaml", PLAIN "  drafter: [none]\n");
    write_experiment("no_draft.yaml", PLAIN "  drafter: [{kind: small, model: absent.gguf}]\n");
    write_file("no_target.yaml",
               "name: x\ntarget: {model: absent.gguf}\nprompts: {file: conversations.jsonl, chat: chatml}\n"
               "limits: {new_tokens: 8}\ncells:\n  drafter: [ngram]\n");
    char *folder = test_path("folder");
    mkdir(folder, 0700);
    static const struct {
        int status;
        const char *with, *words; // HERE: the test's folder
    } mistakes[] = {
        { 2, "expected one experiment's file, or --rules", "exact" },
        { 2, "--tokens", "exact HERE/one.yaml --tokens 0" },
        { 2, "--until x:", "exact HERE/one.yaml --until x" },
        { 2, "--until nan:", "exact HERE/one.yaml --until nan" },
        { 2, "--level 0:", "exact HERE/one.yaml --level 0" },
        { 2, "--tokens and --until exclude each other", "exact HERE/one.yaml --tokens 30 --until TV=0.1" },
        { 2, "unknown rule", "exact --rules HERE/one.yaml" },
        { 2, "--bits and --until exclude each other", "exact --bits --until TV=0.1 HERE/one.yaml" },
        { 2, "--instances requires --rules", "exact --instances 3 HERE/one.yaml" },
        { 1, "expected a drafter other than `none`", "exact HERE/none.yaml --db HERE/mistake.db" },
        { 2, "no_target.yaml:2:17: model: absent.gguf", "exact HERE/no_target.yaml --db HERE/mistake.db" },
        { 1, "absent.gguf", "exact HERE/no_draft.yaml --db HERE/mistake.db" },
        { 1, "folder", "exact HERE/one.yaml --tokens 30 --db HERE/folder" },
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        char *words = words_here(mistakes[i].words);
        child_expect_error(mistakes[i].status, mistakes[i].with, words);
        free(words);
    }
    free(folder);
}

int main(void)
{
    if (!child_is_present())
        return 77;
    return tests_run(make_pair_of_models, test_directory_tear_down);
}
