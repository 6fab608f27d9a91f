// test_run_again.c - `run --again` from outside: a run again has the same texts; what has changed is named, and nothing is run.
#include "tests/support/check.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static char *at(const char *name) // free() it
{
    return test_path(name);
}

static void write_text(const char *name, const char *text)
{
    char *path = at(name);
    file_write(path, text);
    free(path);
}

static void write_model(const char *name, int layers, unsigned seed)
{
    struct small_model t = small_default;
    char *path = at(name);
    t.layers = layers;
    t.seed += seed;
    unlink(path);
    small_write_gguf(path, &t);
    free(path);
}

static const char prompts[] = "{\"prompt\": \"abc abc abc\"}\n{\"prompt\": \"one two one two\"}\n";

// An experiment of one drafter beside `none`, at temperature 1.
static char *decode(const char *db_name)
{
    char *yaml = at("x.yaml"), *db = at(db_name);
    write_model("target.gguf", 2, 0);
    write_model("draft.gguf", 1, 0);
    write_text("p.jsonl", prompts);
    write_text(
        "x.yaml",
        "name: x # as given\ntarget: {model: target.gguf}\nprompts: {file: p.jsonl, chat: none}\nthreads: 1\n"
        "limits: {new_tokens: 20, ignore_end: true}\nseed: 9\ncells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n"
        "  rule: [rejection, match]\n  drafter: [{kind: small, model: draft.gguf, tokens: 3}, ngram]\n");
    struct child_result r = child_run("run %s --db %s --no-probe", yaml, db);
    child_expect_success(&r, "run");
    child_result_free(&r);
    free(yaml);
    return db;
}

static void expect_again(const char *db, const char *words, int status, const char *said)
{
    struct child_result r = child_run("run --again %s --db %s --no-probe", words, db);
    if (r.status != status || strstr(status < 3 && status > 0 ? r.err : r.out, said) == NULL)
        fail_msg("run --again %s: status %d, expected \"%s\": %s%s", words, r.status, said, r.out, r.err);
    child_result_free(&r);
}

static void update(const char *db, const char *sql)
{
    struct error err = { "" };
    struct store *s = store_open(db, &err);
    assert_ok(s != NULL, err);
    assert_ok(query_perform(query_open(s, sql), &err), err);
    store_close(s);
}

// One prompt has no interval, so the status depends on no clock.
static void a_run_again_has_the_same_texts(void **state)
{
    (void)state;
    char *db = decode("same.db"), *out = at("again.db");
    for (int run = 1; run <= 12; run++) { // none, small, ngram by rule and temperature
        char *words = xformat("%d --limit 1", run);
        expect_again(db, words, 0, "texts      1 of 1 are equal\n");
        free(words);
    }
    struct child_result r = child_run("run --again 5 --db %s --out %s", db, out);
    assert_true(r.status == 0 || r.status == 3); // by the clock
    assert_non_null(strstr(r.out, "inputs     are the same"));
    assert_non_null(strstr(r.out, "texts      2 of 2 are equal\n"));
    assert_non_null(strstr(r.out, "speedup    on 2 prompts: was "));
    assert_non_null(strstr(r.out, r.status == 0 ? ": inside\n" : ": outside\n"));
    assert_non_null(strstr(r.out, "steps      2 of 2 are equal\n"));
    assert_non_null(strstr(r.out, ": equal\nspeedup "));
    assert_non_null(strstr(
        r.out, r.status == 0 ? "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n"
                             : "\nnot reproduced: texts equal, steps equal, acceptance equal, speedup outside\n"));
    assert_non_null(strstr(r.out, "tokens/s   was "));
    child_result_free(&r);
    struct error err = { "" };
    struct store *s = store_open(out, &err);
    assert_ok(s != NULL, err);
    struct query *q = query_open(s, "SELECT count(*), sum(file IS NOT NULL), (SELECT count(*) FROM environment WHERE"
                                    " read_bytes_per_s > 0 AND read_one_bytes_per_s > 0) FROM run");
    assert_true(query_next(q) && query_int(q, 0) == 2 && query_int(q, 1) == 2 && query_int(q, 2) == 2);
    assert_ok(query_close(q, &err), err);
    store_close(s);
    free(db);
    free(out);
}

static void a_text_or_a_step_that_differs_is_named(void **state)
{
    (void)state;
    char *db = decode("differs.db");
    update(db, "UPDATE environment SET revision = 'older'");
    expect_again(db, "2 --limit 1", 0, "revision   was older, is ");
    update(
        db,
        "UPDATE step SET drafted = drafted + 1 WHERE step = 0 AND sequence IN (SELECT id FROM sequence WHERE run = 2)");
    expect_again(db, "2 --limit 1", 3, "steps      0 of 1 are equal; first difference: prompt 0, turn 0: was ");
    expect_again(db, "2 --limit 1", 3, "\nnot reproduced: texts equal, steps differ, ");
    update(
        db,
        "UPDATE sequence SET tokens = json_set(tokens, '$[4]', (json_extract(tokens, '$[4]') + 1) % 200) WHERE run = 2 AND prompt = 0");
    expect_again(db, "2 --limit 1", 3, "texts      0 of 1 are equal; first difference: prompt 0, turn 0, token 4\n");
    expect_again(db, "2 --limit 1", 3, "\nnot reproduced: texts differ, ");
    free(db);
}

static void what_has_changed_is_named_and_nothing_is_run(void **state)
{
    (void)state;
    char *db = decode("changed.db");
    write_model("target.gguf", 2, 1);
    expect_again(db, "2", 3, "changed    weights of the target (");
    expect_again(db, "2 --limit 1", 3, "not reproduced: it would be another run\n");
    write_model("target.gguf", 2, 0);
    write_model("draft.gguf", 1, 1);
    expect_again(db, "2", 3, "changed    weights or configuration of the drafter: was ");
    expect_again(db, "3 --limit 1", 0, "reproduced"); // ngram has none
    write_model("draft.gguf", 1, 0);
    write_text("p.jsonl", "{\"prompt\": \"abc abc abd\"}\n");
    expect_again(db, "2", 3, "p.jsonl): was p.jsonl ");
    write_text("p.jsonl", prompts);
    expect_again(db, "2 --limit 1", 0, "reproduced");
    update(db, "UPDATE run SET config_hash = '00', cell = id");
    expect_again(db, "2", 3, "changed    configuration of the target (");
    update(db, "UPDATE run SET tokenizer_hash = '00'");
    expect_again(db, "2", 3, "changed    tokenizer of the target (");
    update(db, "UPDATE run SET settings = json_set(settings, '$.limits.new_tokens', 19)");
    expect_again(db, "2", 3, "changed    settings, limits.new_tokens: was 19, is 20\n");
    free(db);
}

static void a_file_that_is_gone_is_named(void **state)
{
    (void)state;
    char *db = decode("gone.db"), *target = at("target.gguf"), *file = at("p.jsonl"), *draft = at("draft.gguf");
    unlink(file);
    expect_again(db, "2", 3, "p.jsonl): was p.jsonl ");
    expect_again(db, "2", 3, ", is not there\nnot reproduced: it would be another run\n");
    unlink(target);
    expect_again(db, "2", 3, "changed    weights of the target (");
    write_text("p.jsonl", prompts);
    expect_again(db, "2", 3, ", is not there\nnot reproduced: it would be another run\n");
    write_model("target.gguf", 2, 0);
    unlink(draft);
    expect_again(db, "2", 3, "changed    weights or configuration of the drafter: was ");
    expect_again(db, "2", 3, ", cannot be opened: run.settings:1:");
    unlink(target);
    update(db, "UPDATE run SET prompts_path = '/nowhere/speclab-tune-Ab1Cd2/probed.jsonl'");
    expect_again(db, "2", 3,
                 "\n           /nowhere/speclab-tune-Ab1Cd2 was the folder of a command (tune) for the time");
    update(db, "UPDATE run SET model_path = '/nowhere/speclab-tune-Ab1Cd2/target.gguf'"); // said once
    expect_again(db, "2", 3, ", is not there\nchanged    prompts (/nowhere/speclab-tune-Ab1Cd2/probed.jsonl): was ");
    char *mine = at("speclab-tune-mine"), *sql = xformat("UPDATE run SET prompts_path = '%s/p.jsonl'", mine);
    assert_true(mkdir(mine, 0700) == 0 || errno == EEXIST);
    update(db, sql);
    update(db, "UPDATE run SET model_path = prompts_path");
    expect_again(db, "2", 3, "speclab-tune-mine/p.jsonl): was p.jsonl ");
    expect_again(db, "2", 3, ", is not there\nnot reproduced: it would be another run\n"); // the folder is there
    free(mine);
    free(sql);
    free(db);
    free(target);
    free(file);
    free(draft);
}

static void the_new_database_may_have_any_name(void **state)
{
    (void)state;
    char *db = decode("any.db"), *folder = at("names"), *here = getcwd(NULL, 0);
    assert_true(here != NULL && (mkdir(folder, 0700) == 0 || errno == EEXIST) && chdir(folder) == 0);
    unlink("file:x.db");
    expect_again(db, "2 --limit 1 --out file:x.db", 0, "\nreproduced: ");
    assert_true(access("file:x.db", F_OK) == 0 && access("x.db", F_OK) != 0);
    assert_int_equal(chdir(here), 0);
    free(db);
    free(folder);
    free(here);
}

// Waits until a file or folder is in `folder`. Returns whether it is a folder that nobody else can use.
static bool becomes_private(const char *folder)
{
    char *pattern = xformat("%s/speclab-again-*", folder);
    glob_t found;
    struct stat st = { 0 };
    while (glob(pattern, 0, NULL, &found) != 0)
        usleep(200);
    const bool is = stat(found.gl_pathv[0], &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700;
    globfree(&found);
    free(pattern);
    return is;
}

static void its_own_database_is_in_a_folder_of_its_own(void **state)
{
    (void)state;
    int private;
    char *db = decode("own.db"), *folder = at("own");
    assert_true(mkdir(folder, 0777) == 0 && chmod(folder, 0777) == 0 && setenv("TMPDIR", folder, 1) == 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(becomes_private(folder) ? 0 : 1);
    }
    expect_again(db, "2 --limit 1", 0, "\nreproduced: ");
    assert_int_equal(waitpid(child, &private, 0), child);
    assert_int_equal(private, 0);
    assert_int_equal(rmdir(folder), 0); // nothing is left
    unsetenv("TMPDIR");
    free(db);
    free(folder);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    char *db = decode("mistakes.db"), *out = xformat("1 --out %s", db);
    expect_again(db, "2 x.yaml", 2, "unexpected argument \"x.yaml\": speclab run --again RUN");
    expect_again(db, "two", 2, "--again: expected an integer from 1 to 4611686018427387904, found \"two\"");
    expect_again("/nowhere.db", "1", 2, "/nowhere.db: no such database");
    expect_again(db, out, 2, "the file exists; expected a new one");
    expect_again(db, "99", 2, "there is no run 99 in it");
    update(db, "UPDATE run SET file = NULL");
    expect_again(db, "1", 1, "its file, folder or hashes are not stored");
    free(db);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_again_has_the_same_texts),
        cmocka_unit_test(a_text_or_a_step_that_differs_is_named),
        cmocka_unit_test(what_has_changed_is_named_and_nothing_is_run),
        cmocka_unit_test(a_file_that_is_gone_is_named),
        cmocka_unit_test(the_new_database_may_have_any_name),
        cmocka_unit_test(its_own_database_is_in_a_folder_of_its_own),
        cmocka_unit_test(mistakes_are_named),
    };
    return run_with_models(tests);
}
