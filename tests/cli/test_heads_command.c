// test_heads_command.c - `speclab heads`: how well drafters guess texts that are known, and the tree that follows.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/tree.h"
#include "experiments/experiment.h"
#include "commands/heads_run.h"
#include "formats/file.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_heads.h"
#include "tests/support/pairings.h"
#include "tests/support/small_model.h"

#define HEAD \
    "name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 24, context: 320}\nseed: 5\n"
#define CELLS(sampling, drafter) HEAD "cells:\n  sampling: [" sampling "]\n  drafter: [" drafter "]\n"

static bool keep(void *self, const char *shown, const struct heads_seen *seen, struct error *err)
{
    (void)shown, (void)err;
    *(struct heads_seen *)self = *seen;
    return true;
}

// said: NULL, or what was printed; free() it
static struct heads_seen examined_and_said(const char *text, int64_t tokens, char **said)
{
    struct error err;
    struct heads_seen seen = { .depth = -1 };
    FILE *out = tmpfile();
    assert_non_null(out);
    const struct heads_plan plan = { .tokens = tokens, .out = out, .each = keep, .self = &seen };
    struct experiment *e = load(text);
    if (!heads_run(e, &plan, &err))
        fail_msg("%s", err.text);
    experiment_free(e);
    if (said != NULL) {
        *said = xcalloc(1, 1 << 14);
        rewind(out);
        assert_true(fread(*said, 1, (1 << 14) - 1, out) < (1 << 14) - 1);
    }
    fclose(out);
    return seen;
}

static struct heads_seen examined(const char *text, int64_t tokens)
{
    return examined_and_said(text, tokens, NULL);
}

static void a_target_that_drafts_for_itself_is_always_right(void **unused)
{
    (void)unused;
    const struct heads_seen s =
        examined(CELLS("{temperature: 0}", "{kind: small, model: target.gguf, tokens: 4}"), 100);
    assert_int_equal(s.depth, 4);
    assert_int_equal(s.places[0], 100);
    for (int d = 0; d < 4; d++) {
        assert_true(s.places[d] > 80 && s.places[d] <= 100);
        assert_int_equal(s.ranked[d][0], s.places[d]);
    }
}

// A model that reads the text itself finds at one place what it finds when it is asked from the place before: depths differ
// by the first place of each text alone. Whoever went on from another token, or another row, would find something else.
static void what_it_finds_deeper_is_what_it_finds_from_there(void **unused)
{
    (void)unused;
    const struct heads_seen s =
        examined(CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}"), 2 * 24);
    int64_t found = 0;
    assert_int_equal(s.depth, 3);
    for (int d = 0; d + 1 < 3; d++) {
        assert_int_equal(s.places[d] - s.places[d + 1], s.texts);
        for (int r = 0; r < HEADS_RANKS; r++) {
            assert_true(s.ranked[d][r] >= s.ranked[d + 1][r]);
            found += s.ranked[d][r];
        }
    }
    assert_true(found > 0 && s.ranked[0][0] < s.places[0]);
}

static void every_head_answers_as_deep_as_its_drafts_go(void **unused)
{
    (void)unused;
    char *target = tiny_path("target.gguf"), *draft = tiny_path("draft.gguf");
    pair_heads_make(target, draft);
    static const char *const drafters[] = {
        "{kind: medusa, weights: draft.gguf.medusa, tokens: 3}",
        "{kind: medusa, weights: draft.gguf.medusa, tree: mc_sim_7b_63, pick: greedy}",
        "{kind: eagle, weights: draft.gguf.eagle, nodes: 9, top: 3, tokens: 4, pick: greedy}",
        "{kind: eagle3, weights: draft.gguf.eagle3, widths: [2, 2]}",
    };
    const int depth[] = { 3, 4, 4, 2 };
    for (int i = 0; i < 4; i++) {
        char *text = xformat(HEAD "cells:\n  sampling: [{temperature: 1}]\n  drafter: [%s]\n", drafters[i]);
        const struct heads_seen s = examined(text, 60);
        assert_int_equal(s.depth, depth[i]);
        assert_int_equal(s.places[0], 60);
        assert_true(i == 3 ? s.unknown > 0 && s.unknown < 60 : s.unknown == 0); // two tokens of three it does not know
        free(text);
    }
    free(target);
    free(draft);
}

// Among 288 tokens a guess by chance is right once in 288.
static void a_head_made_of_the_targets_layer_is_mostly_right(void **unused)
{
    (void)unused;
    struct tiny one = tiny_usual;
    one.layers = 1;
    char *target = tiny_path("one"), *head = tiny_path("one.eagle");
    tiny_write_hf(target, &one);
    heads_write_eagle_of(head, &one);
    const struct heads_seen s =
        examined("name: examined\ntarget: {model: one}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n"
                 "limits: {new_tokens: 24, context: 320}\ncells:\n  sampling: [{temperature: 0}]\n"
                 "  drafter: [{kind: eagle, weights: one.eagle, tokens: 3, pick: greedy}]\n",
                 150);
    for (int d = 0; d < 3; d++) {
        print_message("    after %d right ones: %lld of %lld right\n", d, (long long)s.ranked[d][0],
                      (long long)s.places[d]);
        assert_true(s.ranked[d][0] * 4 > s.places[d]);
    }
    free(target);
    free(head);
}

// The table from what was counted. EAGLE-3's head knows a third of the vocabulary, and is right now and then.
static void the_table_is_of_what_was_counted(void **unused)
{
    (void)unused;
    static const char *const drafters[] = {
        "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}",
        "{kind: small, model: draft.gguf, tokens: 3, pick: coupled}",
        "{kind: eagle3, weights: draft.gguf.eagle3, tokens: 2}",
    };
    int64_t unknown = 0;
    double right = 0;
    for (int i = 0; i < 3; i++) {
        char *text = xformat(HEAD "cells:\n  sampling: [{temperature: 1}]\n  drafter: [%s]\n", drafters[i]), *said;
        const struct heads_seen s = examined_and_said(text, 200, &said);
        const char *table = strchr(said, '\n') + 1;
        struct text expected = { 0 };
        text_printf(
            &expected,
            "  %lld places of %lld texts of the target's own; share of those where its token was among the so many\n"
            "  likeliest, after so many right ones (n-alpha: n right ones were the drafter's own states)\n"
            "  right  places    1       2       3       4       5      10\n",
            (long long)s.places[0], (long long)s.texts);
        double chain = 0, reached = 1;
        for (int d = 0; d < s.depth; d++) {
            static const int columns[] = { 1, 2, 3, 4, 5, 10 };
            text_printf(&expected, "  %5d %7lld", d, (long long)s.places[d]);
            for (int c = 0; c < 6; c++) {
                int64_t among = 0;
                for (int r = 0; r < columns[c]; r++)
                    among += s.ranked[d][r];
                text_printf(&expected, "  %.4f", (double)among / (double)s.places[d]);
            }
            text_puts(&expected, "\n");
            reached *= (double)s.ranked[d][0] / (double)s.places[d];
            chain += reached;
        }
        text_printf(&expected,
                    "  A chain of the likeliest would go %.2f tokens deep on average, were these independent.\n",
                    chain);
        if (s.unknown > 0)
            text_printf(&expected, "  Of %.2f %% of the places its vocabulary has no such token.\n",
                        (double)s.unknown / (double)s.places[0] * 100);
        assert_string_equal(table, expected.s);
        unknown += s.unknown;
        right += chain;
        free(expected.s);
        free(said);
        free(text);
    }
    assert_true(unknown > 0 && right > 0.1);
}

static void a_lookup_has_nothing_to_examine(void **unused)
{
    (void)unused;
    const struct heads_seen s = examined(CELLS("{temperature: 0}", "ngram"), 50);
    assert_int_equal(s.depth, -1); // nothing was told
}

static void the_command_writes_a_tree_that_a_drafter_reads(void **unused)
{
    (void)unused;
    if (!child_is_present())
        skip();
    struct error err;
    write_file("one.yaml", CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tokens: 3, pick: greedy}"));
    struct said s =
        child_run("heads %s/one.yaml --tokens 40 --tree 9 --out %s/tree.json", tiny_directory(), tiny_directory());
    said_insist(&s, "heads");
    assert_non_null(strstr(s.out, "The tree of 9 guesses that goes deepest: [[0], "));
    said_free(&s);
    static struct tree t;
    char *path = tiny_path("tree.json");
    if (!tree_read(path, NULL, &t, &err))
        fail_msg("%s", err.text);
    assert_int_equal(t.n, 10);
    free(path);
    const struct heads_seen seen =
        examined(CELLS("{temperature: 1}", "{kind: small, model: draft.gguf, tree: tree.json, pick: greedy}"), 20);
    assert_int_equal(seen.depth, tree_max_depth(&t));
}

// What a file says is part of what a cell is, not what the file is called: a run with another tree or another configuration
// of a head is another run, and two names for one tree are one.
static void what_files_say_is_part_of_a_cell(void **unused)
{
    (void)unused;
    static const char tree_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: t.json, pick: greedy}");
    static const char same_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: \"[[1], [0]]\", pick: greedy}");
    static const char listed_cell[] =
        CELLS("{temperature: 0}", "{kind: small, model: draft.gguf, tree: [[0], [1]], pick: greedy}");
    static const char head_cell[] = CELLS("{temperature: 0}", "{kind: eagle, weights: draft.gguf.eagle, tokens: 1}");
    struct store *s = open_store("cells.db");
    write_file("t.json", "[[0], [0, 0]]");
    run(tree_cell, s);
    run(tree_cell, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE drafter_kind = 'small'"), 1);
    write_file("t.json", "[[0], [1]]");
    run(tree_cell, s);
    run(same_cell, s);
    run(listed_cell, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE drafter_kind = 'small'"), 2);
    run(head_cell, s);
    char *config = tiny_path("draft.gguf.eagle/config.json"), *text = file_text(config, NULL, &(struct error){ "" });
    char *changed = xformat("{\"rope_theta\": 500000.0, %s", strchr(text, '{') + 1);
    run(head_cell, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE drafter_kind = 'eagle'"), 1);
    write_file("draft.gguf.eagle/config.json", changed);
    run(head_cell, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE drafter_kind = 'eagle'"), 2);
    write_file("draft.gguf.eagle/config.json", text);
    store_close(s);
    free(config);
    free(text);
    free(changed);
}

static void mistakes_are_said_in_a_sentence(void **unused)
{
    (void)unused;
    if (!child_is_present())
        skip();
    write_file("two.yaml", CELLS("{temperature: 1}, {temperature: 0}", "{kind: small, model: draft.gguf}"));
    write_file("plain.yaml", CELLS("{temperature: 1}", "none"));
    child_refuses(2, "FILE.yaml", "heads");
    child_refuses(2, "--tree", "heads x.yaml --tree 0");
    child_refuses(2, "absent.yaml", "heads absent.yaml");
    char *none = words_with("heads %s/plain.yaml", tiny_directory());
    child_refuses(1, "no drafter but `none`", none);
    free(none);
    char *two = words_with("heads %s/two.yaml --out x.json", tiny_directory());
    child_refuses(1, "1 drafters and 2 samplings", two);
    free(two);
    write_file("lookup.yaml", CELLS("{temperature: 1}", "ngram"));
    struct said s = child_run("heads %s/lookup.yaml --out %s/x.json", tiny_directory(), tiny_directory());
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "nothing to write: no drafter has rows of its own"));
    said_free(&s);
    char *head = words_with("inspect %s/draft.gguf.eagle", tiny_directory());
    child_refuses(2, "say which with --target MODEL", head);
    char *itself = xformat("%s --target %s/draft.gguf.eagle", head, tiny_directory());
    child_refuses(1, "there is no tensor model.layers.0.input_layernorm.weight", itself);
    free(itself);
    char *more = xformat("%s --target %s/target.gguf --tensors", head, tiny_directory());
    child_refuses(2, "only --json can be asked for, found --tensors", more);
    free(more);
    free(head);
}

// A prompt of one token has no state behind it that a head could read: the next place has one.
static void a_prompt_of_one_token_is_no_lookup(void **unused)
{
    (void)unused;
    write_file("short.jsonl", "{\"question_id\": 1, \"category\": \"x\", \"input_ids\": [40]}\n");
    const struct heads_seen s =
        examined("name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: short.jsonl, chat: none}\n"
                 "limits: {new_tokens: 24, context: 320, ignore_end: true}\ncells:\n  sampling: [{temperature: 0}]\n"
                 "  drafter: [{kind: medusa, weights: draft.gguf.medusa, tokens: 2}]\n",
                 500);
    assert_int_equal(s.texts, 1); // and without chance it is not read twice
    assert_int_equal(s.places[0], 23);
    assert_int_equal(s.places[1], 22);
}

// One token behind a prompt of one: whether the head answers is known with the second prompt alone.
static void a_text_too_short_to_know_is_not_the_last_one(void **unused)
{
    (void)unused;
    write_file("shorter.jsonl", "{\"question_id\": 1, \"category\": \"x\", \"input_ids\": [40]}\n"
                                "{\"question_id\": 2, \"category\": \"x\", \"input_ids\": [40, 41]}\n");
    const struct heads_seen s = examined(
        "name: examined\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: shorter.jsonl, chat: none}\n"
        "limits: {new_tokens: 1, context: 320, ignore_end: true}\ncells:\n  sampling: [{temperature: 0}]\n"
        "  drafter: [{kind: medusa, weights: draft.gguf.medusa, tokens: 2}]\n",
        500);
    assert_int_equal(s.texts, 2);
    assert_int_equal(s.places[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_that_drafts_for_itself_is_always_right),
        cmocka_unit_test(what_it_finds_deeper_is_what_it_finds_from_there),
        cmocka_unit_test(every_head_answers_as_deep_as_its_drafts_go),
        cmocka_unit_test(a_head_made_of_the_targets_layer_is_mostly_right),
        cmocka_unit_test(the_table_is_of_what_was_counted),
        cmocka_unit_test(a_lookup_has_nothing_to_examine),
        cmocka_unit_test(the_command_writes_a_tree_that_a_drafter_reads),
        cmocka_unit_test(what_files_say_is_part_of_a_cell),
        cmocka_unit_test(mistakes_are_said_in_a_sentence),
        cmocka_unit_test(a_prompt_of_one_token_is_no_lookup),
        cmocka_unit_test(a_text_too_short_to_know_is_not_the_last_one),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
