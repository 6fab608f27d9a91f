// test_environment.c - a run resumed elsewhere is reported, and refused without --mix where bits may differ.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/machine.h"
#include "experiments/experiment.h"
#include "core/files/input.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

#define TEXT \
    "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 6, context: 300}\ncells: {drafter: [none, ngram]}\n"

static char *progress; // output of the last run

static const volatile int *stop; // for the next run; NULL: not interrupted

static bool runs(struct store *s, const char *text, bool mix, struct error *err)
{
    struct experiment *e = load(text);
    size_t n;
    free(progress);
    FILE *to = open_memstream(&progress, &n);
    e->mix = mix;
    bool ok = experiment_run(e, s, to, stop, err);
    fclose(to);
    experiment_free(e);
    return ok;
}

static void a_run_stores_where_its_texts_were_decoded(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("noted.db");
    assert_true(runs(s, TEXT, false, &err));
    expect_contains(progress, "2 cells, 10 conversations decoded, 0 stored already\n");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(
        query_first_int(s,
                        "SELECT count(*) FROM environment JOIN run ON run.id = run WHERE machine = processor || ', ' ||"
                        " arithmetic AND run.revision = environment.revision AND arithmetic LIKE '%, 1 thread'"),
        2);
    assert_true(runs(s, TEXT, false, &err)); // nothing is missing, nothing is stored
    expect_contains(progress, "2 cells, 0 conversations decoded, 10 stored already\n");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 2);
    store_close(s);
}

// Stored texts are of another revision. A run with nothing to decode does not fail.
static void another_revision_is_refused_if_texts_would_be_mixed(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("mixed.db");
    assert_true(runs(s, TEXT, false, &err));
    perform(s, "UPDATE environment SET revision = 'older'");
    perform(s, "UPDATE run SET revision = 'older'");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 2);

    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    const int64_t texts = query_first_int(s, "SELECT count(*) FROM sequence");
    assert_false(runs(s, TEXT, false, &err));
    expect_contains(err.text, "texts of revision older with ");
    expect_contains(err.text, "--mix resumes");
    expect_contains(err.text, speclab_revision());
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), texts);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE revision = 'older'"), 2);

    assert_true(runs(s, TEXT, true, &err));
    expect_contains(progress, "resumes with revision ");
    expect_contains(progress, "before: older, ");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE run = 2"), TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 4);
    char *both = xformat("SELECT count(*) FROM run WHERE revision = 'older, %s'", speclab_revision());
    assert_int_equal(query_first_int(s, both), 2);
    free(both);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE machine LIKE '%;%'"), 0); // one machine, once
    store_close(s);
}

static void another_instruction_set_is_refused_and_another_processor_reported(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("other.db");
    assert_true(runs(s, TEXT, false, &err));
    perform(s, "UPDATE environment SET arithmetic = 'sse7, 1 thread'");
    perform(s, "DELETE FROM sequence WHERE run = 1 AND prompt = 0");
    assert_false(runs(s, TEXT, false, &err));
    expect_contains(err.text, "with sse7, 1 thread; this is");

    perform(
        s,
        "UPDATE environment SET arithmetic = (SELECT replace(machine, processor || ', ', '') FROM run WHERE id = run),"
        " processor = 'Another CPU'");
    assert_true(runs(s, TEXT, false, &err));
    expect_contains(progress, "before: ");
    expect_contains(progress, "Another CPU");
    // Its partner was decoded again, too.
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE machine LIKE 'Another CPU, %; %'"), 2);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM (SELECT DISTINCT run, prompt, turn, repeat FROM sequence)"),
        2 * TURNS);
    store_close(s);
}

// Stopped after the check and before its first text: table environment still describes the stored texts.
static void an_environment_without_a_text_is_not_stored(void **state)
{
    static const int at_once = 1;
    struct error err = { "" };
    struct store *s = open_store("stopped.db");
    assert_true(runs(s, TEXT, false, &err));
    perform(s, "UPDATE environment SET revision = 'older', processor = 'Another CPU'");
    perform(s, "UPDATE run SET revision = 'older'");
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    stop = &at_once;
    assert_false(runs(s, TEXT, true, &err));
    stop = NULL;
    expect_contains(err.text, "interrupted");
    expect_contains(progress, "before: older, ");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE revision = 'older'"), 2);
    assert_false(runs(s, TEXT, false, &err)); // --mix is needed again
    assert_true(runs(s, TEXT, true, &err));
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 4);
    // since: when its first pair started.
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM environment AS e WHERE since <> (SELECT started FROM pair WHERE id ="
                           " (SELECT max(pair) FROM sequence WHERE run = e.run)) AND revision <> 'older'"),
        0);
    // The resumed texts were decoded under the new one, the others under the old one.
    assert_int_equal(
        query_first_int(
            s, "SELECT count(*) FROM sequence AS q JOIN environment AS e ON e.id = q.environment AND e.run = q.run"
               " WHERE (e.revision <> 'older') = (q.pair = (SELECT max(id) FROM pair))"),
        query_first_int(s, "SELECT count(*) FROM sequence"));
    store_close(s);
}

static void a_run_whose_texts_cannot_be_stored_fails(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("failing.db");
    perform(s, "CREATE TEMP TRIGGER no BEFORE INSERT ON sequence WHEN new.prompt = 2 BEGIN SELECT RAISE(ABORT, 'not"
               " stored'); END");
    assert_false(runs(s, TEXT, false, &err));
    expect_contains(err.text, "not stored");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE prompt = 2"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NOT NULL"), 0);
    perform(s, "DROP TRIGGER no");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 2 * TURNS);
    store_close(s);
}

static void a_run_without_texts_may_start_anywhere(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("begun.db");
    assert_true(runs(s, TEXT, false, &err));
    perform(s, "UPDATE environment SET revision = 'older', arithmetic = 'sse7, 1 thread'");
    perform(s, "DELETE FROM sequence");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment WHERE revision <> 'older'"), 2);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM run WHERE revision LIKE '%older%' OR machine LIKE '%sse7%'"), 0);
    store_close(s);
}

// A changed file makes a new cell; the message names what has changed.
static void a_cell_with_changed_files_is_reported(void **state)
{
    static const char text[] =
        "name: x\ntarget: {model: patched.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "limits: {new_tokens: 4}\n";
    struct error err = { "" };
    struct small_model t = small_default;
    char *path = test_path("patched.gguf");
    struct store *s = open_store("patched.db");
    small_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    assert_null(strstr(progress, "does not resume"));
    t.theta = 500;
    small_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    expect_contains(
        progress,
        "run 2 (none, rejection) does not resume run 1: the target's configuration, tokenizer or chat template "
        "differs");
    t.seed++;
    small_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    expect_contains(progress, "run 3 (none, rejection) does not resume run 2: the target's weights differ");
    assert_true(runs(s, text, false, &err)); // the run exists now
    assert_null(strstr(progress, "does not resume"));
    write_file("p.jsonl", "{\"id\": \"q\", \"prompt\": \"Hello, you\"}\n");
    assert_true(runs(s, text, false, &err));
    expect_contains(progress, "run 4 (none, rejection) does not resume run 3: the prompts differ");
    store_close(s);
    free(path);
}

// The dry run's output; the caller frees it.
static char *plan_of(struct store *s, bool mix)
{
    struct error err = { "" };
    struct experiment *e = load(TEXT);
    e->mix = mix;
    struct json *j = experiment_dry_run(e, s, &err);
    char *plan = json_write(j);
    json_free(j);
    experiment_free(e);
    return plan;
}

// So that it does not fail after earlier groups have run for hours.
static void a_dry_run_reports_what_will_be_refused(void **state)
{
    struct error err = { "" };
    struct store *s = open_store("planned.db");
    assert_true(runs(s, TEXT, false, &err));
    perform(s, "UPDATE environment SET revision = 'older'");
    char *finished = plan_of(s, false);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    char *refused = plan_of(s, false), *mixed = plan_of(s, true);
    assert_null(strstr(finished, "older"));
    expect_contains(refused, "run 1 (none, ");
    expect_contains(refused, "run 2 (ngram, ");
    expect_contains(refused, "--mix");
    expect_contains(mixed, "before: older, ");
    assert_null(strstr(mixed, "--mix"));
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM environment WHERE revision <> 'older'"), 0);
    free(finished);
    free(refused);
    free(mixed);
    store_close(s);
}

// The revision that cmake/revision.cmake writes for the folder "source"; the caller frees it.
static char *revision_of(const char *build)
{
    struct error err = { "" };
    char *to = test_path("revision.h"), *source = test_path("source");
    char *command = xformat("cmake -DSOURCE=%s -DTO=%s -DVERSION=1 -DBUILD=%s -P " SOURCE "/cmake/revision.cmake",
                            source, to, build);
    assert_int_equal(system(command), 0);
    char *text = file_text(to, NULL, &err), *at = text != NULL ? strstr(text, "REVISION \"") : NULL;
    assert_non_null(at);
    char *revision = xformat("%.*s", (int)strcspn(at + 10, "\""), at + 10);
    free(text);
    free(command);
    free(source);
    free(to);
    return revision;
}

static void in_source(const char *command)
{
    char *all = xformat("cd %s/source && (%s) >&2", test_directory(), command);
    assert_int_equal(system(all), 0);
    free(all);
}

// Twelve digits alone denote a release build of a commit; anything else has a suffix.
static void a_revision_shows_uncommitted_changes_and_debug_builds(void **state)
{
    char *folder, *clean, *other;
    if (system("git --version >&2") != 0)
        skip();
    folder = test_path("source");
    assert_int_equal(mkdir(folder, 0777), 0);
    in_source("git init -q && touch a.c && git add a.c && git -c user.name=x -c user.email=x@x commit -q -m x");
    clean = revision_of("Release");
    assert_int_equal(strlen(clean), 12);
    static const struct {
        const char *command, *build, *mark;
    } as[] = { { "touch notes.txt", "Release", "" },
               { "true", "Debug", "+debug" },
               { "mkdir b && touch b/new.c", "Release", "+changes" },
               { "rm b/new.c", "Release", "" },
               { "echo >>a.c", "Release", "+changes" },
               { "true", "Debug", "+changes+debug" } };
    for (size_t i = 0; i < sizeof(as) / sizeof(*as); i++) {
        in_source(as[i].command);
        other = revision_of(as[i].build);
        assert_memory_equal(other, clean, 12);
        assert_string_equal(other + 12, as[i].mark);
        free(other);
    }
    free(clean);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stores_where_its_texts_were_decoded),
        cmocka_unit_test(another_revision_is_refused_if_texts_would_be_mixed),
        cmocka_unit_test(another_instruction_set_is_refused_and_another_processor_reported),
        cmocka_unit_test(an_environment_without_a_text_is_not_stored),
        cmocka_unit_test(a_run_whose_texts_cannot_be_stored_fails),
        cmocka_unit_test(a_run_without_texts_may_start_anywhere),
        cmocka_unit_test(a_cell_with_changed_files_is_reported),
        cmocka_unit_test(a_dry_run_reports_what_will_be_refused),
        cmocka_unit_test(a_revision_shows_uncommitted_changes_and_debug_builds),
    };
    const int failed = cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
    free(progress);
    return failed;
}
