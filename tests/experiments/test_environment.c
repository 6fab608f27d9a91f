// test_environment.c - a run that is gone on with elsewhere says so, and where bits may differ only if it is told to.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/environment.h"
#include "experiments/experiment.h"
#include "formats/file.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

#define TEXT \
    "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 6, context: 300}\ncells: {drafter: [none, ngram]}\n"

static char *said; // what the last run said of its progress

static const volatile int *stop; // of the next run; NULL: nothing stops it

static bool runs(struct store *s, const char *text, bool mix, struct error *err)
{
    struct experiment *e = load(text);
    size_t n;
    free(said);
    FILE *to = open_memstream(&said, &n);
    e->mix = mix;
    bool ok = experiment_run(e, s, to, stop, err);
    fclose(to);
    experiment_free(e);
    return ok;
}

static void does(struct store *s, const char *sql)
{
    struct error err = { "" };
    struct query *q = query_open(s, sql);
    if (!query_perform(q, &err))
        fail_msg("%s: %s", sql, err.text);
}

static void must_say(const char *text, const char *what)
{
    if (strstr(text, what) == NULL)
        fail_msg("expected \"%s\" in: %s", what, text);
}

static void a_run_notes_where_its_texts_were_decoded(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("noted.db");
    assert_true(runs(s, TEXT, false, &err));
    must_say(said, "2 cells, 10 conversations decoded, 0 were there already\n");
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM environment JOIN run ON run.id = run WHERE machine = processor || ', ' ||"
               " arithmetic AND run.revision = environment.revision AND arithmetic LIKE '%, 1 thread'"),
        2);
    assert_true(runs(s, TEXT, false, &err)); // nothing is lacking, nothing is noted
    must_say(said, "2 cells, 0 conversations decoded, 10 were there already\n");
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 2);
    store_close(s);
}

// What was decoded is of another revision: whoever only looks, or has everything, is not told.
static void another_revision_is_refused_where_texts_would_be_mixed(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("mixed.db");
    assert_true(runs(s, TEXT, false, &err));
    does(s, "UPDATE environment SET revision = 'older'");
    does(s, "UPDATE run SET revision = 'older'");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 2);

    does(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    const int64_t texts = ask(s, "SELECT count(*) FROM sequence");
    assert_false(runs(s, TEXT, false, &err));
    must_say(err.text, "texts of revision older with ");
    must_say(err.text, "--mix goes on all the same");
    must_say(err.text, speclab_revision());
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), texts);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE revision = 'older'"), 2);

    assert_true(runs(s, TEXT, true, &err));
    must_say(said, "goes on with revision ");
    must_say(said, "before: older, ");
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE run = 2"), TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 4);
    char *both = xformat("SELECT count(*) FROM run WHERE revision = 'older, %s'", speclab_revision());
    assert_int_equal(ask(s, both), 2);
    free(both);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE machine LIKE '%;%'"), 0); // one machine, once
    store_close(s);
}

static void another_instruction_set_is_refused_and_another_processor_is_said(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("other.db");
    assert_true(runs(s, TEXT, false, &err));
    does(s, "UPDATE environment SET arithmetic = 'sse7, 1 thread'");
    does(s, "DELETE FROM sequence WHERE run = 1 AND prompt = 0");
    assert_false(runs(s, TEXT, false, &err));
    must_say(err.text, "with sse7, 1 thread; this is");

    does(s,
         "UPDATE environment SET arithmetic = (SELECT replace(machine, processor || ', ', '') FROM run WHERE id = run),"
         " processor = 'Another CPU'");
    assert_true(runs(s, TEXT, false, &err));
    must_say(said, "before: ");
    must_say(said, "Another CPU");
    // What is decoded beside it, too.
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE machine LIKE 'Another CPU, %; %'"), 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM (SELECT DISTINCT run, prompt, turn, repeat FROM sequence)"),
                     2 * TURNS);
    store_close(s);
}

// Stopped after it has been let in, and before its first text: what is noted is still what texts there are came from.
static void what_brought_no_text_is_not_noted(void **state)
{
    (void)state;
    static const int at_once = 1;
    struct error err = { "" };
    struct store *s = open_store("stopped.db");
    assert_true(runs(s, TEXT, false, &err));
    does(s, "UPDATE environment SET revision = 'older', processor = 'Another CPU'");
    does(s, "UPDATE run SET revision = 'older'");
    does(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    stop = &at_once;
    assert_false(runs(s, TEXT, true, &err));
    stop = NULL;
    must_say(err.text, "interrupted");
    must_say(said, "before: older, ");
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE revision = 'older'"), 2);
    assert_false(runs(s, TEXT, false, &err)); // and is asked for again
    assert_true(runs(s, TEXT, true, &err));
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 4);
    // Pairs from `since` on, it says.
    assert_int_equal(ask(s, "SELECT count(*) FROM environment AS e WHERE since <> (SELECT started FROM pair WHERE id ="
                            " (SELECT max(pair) FROM sequence WHERE run = e.run)) AND revision <> 'older'"),
                     0);
    store_close(s);
}

static void a_run_whose_texts_cannot_be_kept_fails(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("kept.db");
    does(s, "CREATE TRIGGER no BEFORE INSERT ON sequence WHEN new.prompt = 2 BEGIN SELECT RAISE(ABORT, 'nothing is"
            " kept'); END");
    assert_false(runs(s, TEXT, false, &err));
    must_say(err.text, "nothing is kept");
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE prompt >= 2"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NOT NULL"), 0);
    does(s, "DROP TRIGGER no");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 2 * TURNS);
    store_close(s);
}

static void a_run_without_texts_may_begin_anywhere(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("begun.db");
    assert_true(runs(s, TEXT, false, &err));
    does(s, "UPDATE environment SET revision = 'older', arithmetic = 'sse7, 1 thread'");
    does(s, "DELETE FROM sequence");
    assert_true(runs(s, TEXT, false, &err));
    assert_int_equal(ask(s, "SELECT count(*) FROM environment WHERE revision <> 'older'"), 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM environment"), 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE revision LIKE '%older%' OR machine LIKE '%sse7%'"), 0);
    store_close(s);
}

// Everything is decoded once more: the sentence says what of the files made it so.
static void a_cell_whose_files_are_others_says_so(void **state)
{
    (void)state;
    static const char text[] =
        "name: x\ntarget: {model: patched.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "limits: {new_tokens: 4}\n";
    struct error err = { "" };
    struct tiny t = tiny_usual;
    char *path = tiny_path("patched.gguf");
    struct store *s = open_store("patched.db");
    tiny_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    assert_null(strstr(said, "anew"));
    t.theta = 500;
    tiny_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    must_say(
        said,
        "run 2 (none, rejection) is not run 1 gone on with: the target's configuration, tokenizer or chat template "
        "is another");
    t.seed++;
    tiny_write_gguf(path, &t);
    assert_true(runs(s, text, false, &err));
    must_say(said, "run 3 (none, rejection) is not run 2 gone on with: the target's weights are others");
    assert_true(runs(s, text, false, &err)); // it is known by then
    assert_null(strstr(said, "is not run"));
    write_file("p.jsonl", "{\"id\": \"q\", \"prompt\": \"Hello, you\"}\n");
    assert_true(runs(s, text, false, &err));
    must_say(said, "run 4 (none, rejection) is not run 3 gone on with: the prompts are others");
    // Before version 6 cells had other hashes.
    does(s, "UPDATE run SET cell = substr(cell, 1, 15) || id");
    assert_true(runs(s, text, false, &err));
    must_say(said, "run 5 (none, rejection) is not run 4 gone on with: that is of an older speclab");
    store_close(s);
    free(path);
}

// What the dry run says; free() it.
static char *plan_of(struct store *s, bool mix)
{
    struct error err = { "" };
    struct experiment *e = load(TEXT);
    char *plan;
    size_t n;
    FILE *to = open_memstream(&plan, &n);
    e->mix = mix;
    assert_true(experiment_dry_run(e, s, to, &err));
    fclose(to);
    experiment_free(e);
    return plan;
}

// Before groups that come first have run for hours.
static void a_dry_run_says_what_will_be_refused(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("planned.db");
    assert_true(runs(s, TEXT, false, &err));
    does(s, "UPDATE environment SET revision = 'older'");
    char *finished = plan_of(s, false);
    does(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 2");
    char *refused = plan_of(s, false), *mixed = plan_of(s, true);
    assert_null(strstr(finished, "older"));
    must_say(refused, "run 1 (none, ");
    must_say(refused, "run 2 (ngram, ");
    must_say(refused, "--mix");
    must_say(mixed, "before: older, ");
    assert_null(strstr(mixed, "--mix"));
    assert_int_equal(ask(s, "SELECT count(*) FROM environment WHERE revision <> 'older'"), 0);
    free(finished);
    free(refused);
    free(mixed);
    store_close(s);
}

// What cmake/revision.cmake says of the folder "source"; free() it.
static char *revision_of(const char *build)
{
    struct error err = { "" };
    char *to = tiny_path("revision.h"), *source = tiny_path("source");
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
    char *all = xformat("cd %s/source && (%s) >&2", tiny_directory(), command);
    assert_int_equal(system(all), 0);
    free(all);
}

// Twelve digits stand for what git has of them, built as released, and for nothing else.
static void a_revision_says_what_no_commit_has(void **state)
{
    (void)state;
    char *folder, *clean, *other;
    if (system("git --version >&2") != 0)
        skip();
    folder = tiny_path("source");
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
        cmocka_unit_test(a_run_notes_where_its_texts_were_decoded),
        cmocka_unit_test(another_revision_is_refused_where_texts_would_be_mixed),
        cmocka_unit_test(another_instruction_set_is_refused_and_another_processor_is_said),
        cmocka_unit_test(what_brought_no_text_is_not_noted),
        cmocka_unit_test(a_run_whose_texts_cannot_be_kept_fails),
        cmocka_unit_test(a_run_without_texts_may_begin_anywhere),
        cmocka_unit_test(a_cell_whose_files_are_others_says_so),
        cmocka_unit_test(a_dry_run_says_what_will_be_refused),
        cmocka_unit_test(a_revision_says_what_no_commit_has),
    };
    const int failed = cmocka_run_group_tests(tests, make_files, remove_files);
    free(said);
    return failed;
}
