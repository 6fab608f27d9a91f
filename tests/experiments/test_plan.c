// test_plan.c - plans executed on a model of the database: from every set of stored turns, with every pattern of conversations
// that the context cuts, one plan completes everything, compared texts are in one pair, nothing is decoded needlessly, and
// the next plan is empty.
//
// The model has the final length of every conversation, which the plan has not. A sequence stores which sequence it was decoded
// after, so turns that continue wrong answers are detected.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/splitmix.h"
#include "experiments/pairs/plan.h"

enum { CELLS = 4, PROMPTS = 2, TURNS = 3, MAX_ROWS = 6 };

struct row {         // a sequence
    int pair, after; // after: the pair of the previous turn when it was decoded
};

struct scenario { // a group with the final lengths of its conversations
    int cells, prompts, turns;
    int none[CELLS];
    int length[CELLS][PROMPTS]; // turns of the finished conversation: all, or those that fit
};

struct base { // a database; rows of a turn are in order of their pairs
    int pairs;
    struct {
        int n;
        struct row row[MAX_ROWS];
    } at[CELLS][PROMPTS][TURNS];
};

static const struct scenario *current_scenario; // for messages
static const struct base *current_base;

static void complain(const char *what, int cell, int prompt, int turn)
{
    const struct scenario *w = current_scenario;
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++) {
            printf("cell %d (none %d) prompt %d, %d of %d turns:", c, w->none[c], i, w->length[c][i], w->turns);
            for (int t = 0; t < w->turns; t++) {
                printf(" [");
                for (int k = 0; k < current_base->at[c][i][t].n; k++)
                    printf(" %d<%d", current_base->at[c][i][t].row[k].pair, current_base->at[c][i][t].row[k].after);
                printf(" ]");
            }
            printf("\n");
        }
    fail_msg("cell %d, prompt %d, turn %d: %s", cell, prompt, turn, what);
}

// ---- the database as the runner reads it

static const struct row *latest(const struct base *b, int c, int i, int t)
{
    int n = b->at[c][i][t].n;
    return n > 0 ? &b->at[c][i][t].row[n - 1] : NULL;
}

static bool is_paired(const struct base *b, int c, int none, int i, int t)
{
    for (int k = 0; k < b->at[c][i][t].n; k++)
        for (int l = 0; l < b->at[none][i][t].n; l++)
            if (b->at[c][i][t].row[k].pair == b->at[none][i][t].row[l].pair)
                return true;
    return false;
}

static void make_plan(const struct scenario *w, const struct base *b, struct due due[CELLS * PROMPTS])
{
    static struct history h[CELLS * PROMPTS];
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++) {
            struct history *to = &h[c * w->prompts + i];
            to->n_turns = w->turns;
            for (int t = 0; t < w->turns; t++) {
                const struct row *r = latest(b, c, i, t);
                to->turn[t].pair = r != NULL ? r->pair : 0;
                to->turn[t].paired = r != NULL && is_paired(b, c, w->none[c], i, t);
            }
            to->full = history_answers(to) == w->length[c][i] && w->length[c][i] < w->turns;
        }
    plan_turns(&(struct stored){ w->cells, w->prompts, w->none, h }, due);
}

// ---- executing a plan

static void store(struct base *b, int c, int i, int t, int pair)
{
    struct row r = { pair, t > 0 && latest(b, c, i, t - 1) != NULL ? latest(b, c, i, t - 1)->pair : 0 };
    if (b->at[c][i][t].n == MAX_ROWS) // drops the oldest: walks are long
        memmove(&b->at[c][i][t].row[0], &b->at[c][i][t].row[1], (MAX_ROWS - 1) * sizeof(r)), b->at[c][i][t].n--;
    b->at[c][i][t].row[b->at[c][i][t].n++] = r;
}

// Checks that the turns before t are stored, each decoded after the one before it.
static void check_answers(const struct base *b, int c, int i, int t)
{
    for (int k = 0; k < t; k++)
        if (latest(b, c, i, k) == NULL)
            complain("is started without an earlier answer", c, i, t);
        else if (k > 0 && latest(b, c, i, k)->after != latest(b, c, i, k - 1)->pair)
            complain("is started after an answer to other turns", c, i, t);
}

// Executes a plan, killed after `max` sequences. Returns the number of sequences.
static int execute(const struct scenario *w, struct base *b, const struct due *due, int max)
{
    int pair = ++b->pairs, n = 0;
    for (int c = 0; c < w->cells; c++)
        for (int t = 0; t < w->turns; t++)
            for (int i = 0; i < w->prompts; i++) {
                const struct due *d = &due[c * w->prompts + i];
                if (d->from == PLAN_NOTHING || t < d->from || t >= w->length[c][i])
                    continue;
                if (n == max)
                    return n;
                check_answers(b, c, i, t);
                store(b, c, i, t, pair);
                n++;
            }
    return n;
}

// ---- properties

static bool decodes(const struct scenario *w, const struct due *due, int c, int i, int t)
{
    int from = due[c * w->prompts + i].from;
    return from != PLAN_NOTHING && from <= t && t < w->length[c][i];
}

// Stored turns, each decoded after the one before it.
static int valid_turns(const struct scenario *w, const struct base *b, int c, int i)
{
    int t = 0;
    while (t < w->length[c][i] && latest(b, c, i, t) != NULL &&
           (t == 0 || latest(b, c, i, t)->after == latest(b, c, i, t - 1)->pair))
        t++;
    return t;
}

// Whether a turn of the conversation is missing, or one that none has, or may still get, is in no pair with none's.
static bool is_incomplete(const struct scenario *w, const struct base *b, int c, int i)
{
    int none = w->none[c], end = valid_turns(w, b, none, i) == w->length[none][i] ? w->length[none][i] : w->turns;
    if (valid_turns(w, b, c, i) < w->length[c][i])
        return true;
    for (int t = 0; t < w->length[c][i] && t < end; t++)
        if (!is_paired(b, c, none, i, t))
            return true;
    return false;
}

static void check_plan(const struct scenario *w, const struct base *b, const struct due *due)
{
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++) {
            const struct due *d = &due[c * w->prompts + i];
            if (d->from != PLAN_NOTHING && d->from >= w->length[c][i])
                complain("is started but does not fit", c, i, d->from);
            if (d->missing != is_incomplete(w, b, c, i))
                complain(d->missing ? "is planned as missing but complete" : "is missing but not planned", c, i, 0);
            for (int t = 0; t < w->length[c][i]; t++)
                if (decodes(w, due, c, i, t) && t < w->length[w->none[c]][i] && !decodes(w, due, w->none[c], i, t))
                    complain("is decoded without its none", c, i, t);
        }
}

// The first conversation that lacks a turn, or a pair with its none's. Returns false if there is none.
static bool find_lack(const struct scenario *w, const struct base *b, int at[3])
{
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++)
            for (int t = 0; t < w->length[c][i]; t++)
                if (t >= valid_turns(w, b, c, i) ||
                    (t < w->length[w->none[c]][i] && !is_paired(b, c, w->none[c], i, t))) {
                    memcpy(at, (int[]){ c, i, t }, 3 * sizeof(*at));
                    return true;
                }
    return false;
}

static void check_complete(const struct scenario *w, const struct base *b)
{
    int at[3];
    if (find_lack(w, b, at))
        complain("is missing after the plan, or in no pair with its none", at[0], at[1], at[2]);
}

static bool is_empty(const struct scenario *w, const struct due *due)
{
    for (int k = 0; k < w->cells * w->prompts; k++)
        if (due[k].from != PLAN_NOTHING || due[k].missing)
            return false;
    return true;
}

static void resume(const struct scenario *w, struct base *b)
{
    struct due due[CELLS * PROMPTS];
    current_scenario = w;
    current_base = b;
    make_plan(w, b, due);
    check_plan(w, b, due);
    execute(w, b, due, INT32_MAX);
    check_complete(w, b);
    make_plan(w, b, due);
    if (!is_empty(w, due))
        complain("the next plan is not empty", 0, 0, 0);
}

// ---- every set of stored turns, every pattern of cuts

// stored: a bit for each turn of each conversation of each cell, all of one pair.
static void fill(const struct scenario *w, struct base *b, uint32_t stored)
{
    *b = (struct base){ .pairs = 1 };
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++)
            for (int t = 0; t < w->turns; t++, stored >>= 1)
                if ((stored & 1) != 0)
                    b->at[c][i][t].row[b->at[c][i][t].n++] = (struct row){ 1, t > 0 ? 1 : 0 };
}

static bool is_possible(const struct scenario *w, uint32_t stored)
{
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++, stored >>= w->turns)
            if ((stored & ((1u << w->turns) - 1)) >> w->length[c][i] != 0)
                return false;
    return true;
}

static void set_lengths(struct scenario *w, int pattern)
{
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++, pattern /= w->turns)
            w->length[c][i] = 1 + pattern % w->turns;
}

static int power(int a, int n)
{
    return n > 0 ? a * power(a, n - 1) : 1;
}

// Every set of stored turns with every stride-th pattern of cuts, starting at another pattern for each set. stride 0: uncut.
static int64_t every_set(struct scenario *w, int stride)
{
    int conversations = w->cells * w->prompts, patterns = power(w->turns, conversations);
    int64_t n = 0;
    for (uint32_t stored = 0; stored >> (conversations * w->turns) == 0; stored++)
        for (int pattern = stride == 0 ? patterns - 1 : (int)(stored * 2654435761u >> 8) % stride;
             pattern<patterns; pattern += stride> 0 ? stride : 1) {
            struct base b;
            set_lengths(w, pattern);
            if (!is_possible(w, stored))
                continue;
            fill(w, &b, stored);
            resume(w, &b);
            n++;
        }
    return n;
}

static int stride = 81; // 1: all patterns of cuts

TEST(from_every_set_of_stored_turns_one_plan_completes_everything)
{
    // 2 prompts of 3 turns by 3 cells
    struct scenario w = { 3, 2, 3, { 0, 0, 0 }, { { 0 } } };
    int64_t uncut = every_set(&w, 0);
    assert_int_equal(uncut, 1 << 18);
    int64_t cut = every_set(&w, stride);
    assert_true(stride > 1 || cut == 7529536); // (2 + 4 + 8)^6
    // One prompt, all patterns of cuts, each position of `none`.
    for (int none = 0; none < 3; none++) {
        w = (struct scenario){ 3, 1, 3, { none, none, none }, { { 0 } } };
        assert_int_equal(every_set(&w, 1), 2744); // (2 + 4 + 8)^3
    }
    // Two rules, each with its `none`
    w = (struct scenario){ 4, 1, 3, { 0, 0, 2, 2 }, { { 0 } } };
    assert_int_equal(every_set(&w, 1), 38416); // (2 + 4 + 8)^4
    w = (struct scenario){ 4, 2, 2, { 0, 0, 2, 2 }, { { 0 } } };
    cut += every_set(&w, stride);
    print_message("%lld sets of stored turns, %lld more with conversations that are cut\n", (long long)uncut,
                  (long long)cut);
}

// ---- minimality

static int sequences_of(const struct scenario *w, const struct due *due)
{
    int n = 0;
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++)
            for (int t = 0; t < w->turns; t++)
                n += decodes(w, due, c, i, t);
    return n;
}

static bool completes(const struct scenario *w, const struct base *from, const struct due *due)
{
    struct base b = *from;
    int pair = ++b.pairs;
    for (int c = 0; c < w->cells; c++)
        for (int i = 0; i < w->prompts; i++)
            for (int t = 0; t < w->length[c][i]; t++) {
                if (decodes(w, due, c, i, t))
                    store(&b, c, i, t, pair);
                // a turn that none has is decoded in a pair with none
                if (decodes(w, due, c, i, t) && t < w->length[w->none[c]][i] && !decodes(w, due, w->none[c], i, t))
                    return false;
            }
    return !find_lack(w, &b, (int[3]){ 0 });
}

// All possible plans: each cell from any turn or not at all.
TEST(no_plan_decodes_less)
{
    struct scenario w = { 3, 1, 3, { 0, 0, 0 }, { { 0 } } };
    for (int pattern = 0; pattern < 27; pattern++)
        for (uint32_t stored = 0; stored < 1 << 9; stored++) {
            struct base b;
            struct due due[CELLS * PROMPTS], other[CELLS * PROMPTS];
            set_lengths(&w, pattern);
            if (!is_possible(&w, stored))
                continue;
            fill(&w, &b, stored);
            // Until none's conversation is complete, a plan cannot know where it ends.
            if (w.length[0][0] < w.turns && valid_turns(&w, &b, 0, 0) < w.length[0][0])
                continue;
            current_scenario = &w;
            current_base = &b;
            make_plan(&w, &b, due);
            for (int k = 0; k < 64; k++) {
                for (int c = 0, left = k; c < 3; c++, left /= 4)
                    other[c].from = left % 4 == 3 ? PLAN_NOTHING : left % 4;
                if (completes(&w, &b, other) && sequences_of(&w, other) < sequences_of(&w, due))
                    complain("another plan completes everything with fewer sequences", 0, 0, 0);
            }
        }
}

// ---- repeated kills

TEST(killed_plans_complete_everything_in_the_end)
{
    uint64_t random_state = 2024;
    int killed = 0;
    for (int round = 0; round < 20000; round++) {
        static const int nones[][CELLS] = { { 0, 0, 0, 0 }, { 1, 1, 1, 1 }, { 0, 0, 2, 2 }, { 0, 1, 1, 0 } };
        struct scenario w = { 3 + round % 2, 2, 3, { 0 }, { { 0 } } };
        struct base b = { 0 };
        struct due due[CELLS * PROMPTS];
        int which = (int)(splitmix(&random_state) % (w.cells == 4 ? 4 : 2));
        memcpy(w.none, nones[which], sizeof(w.none));
        set_lengths(&w, (int)(splitmix(&random_state) % (uint64_t)power(3, w.cells * 2)));
        current_scenario = &w;
        current_base = &b;
        for (int kills = (int)(splitmix(&random_state) % 5); kills > 0; kills--) {
            make_plan(&w, &b, due);
            check_plan(&w, &b, due);
            int max = (int)(splitmix(&random_state) % 20), n = execute(&w, &b, due, max);
            killed += n == max;
            if (splitmix(&random_state) % 4 == 0) { // a turn is deleted by hand
                int c = (int)(splitmix(&random_state) % (uint64_t)w.cells), i = (int)(splitmix(&random_state) % 2),
                    t = (int)(splitmix(&random_state) % 3);
                b.at[c][i][t].n = 0;
            }
        }
        resume(&w, &b);
    }
    assert_true(killed > 10000);
}

// test_plan [STRIDE]: 1 for every pattern of cuts with every set of stored turns
int main(int argc, char **argv)
{
    if (argc > 1)
        stride = atoi(argv[1]);
    return tests_run(NULL, NULL);
}
