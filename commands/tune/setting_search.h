// setting_search.h - which settings of a drafter are probed, and what a probe's recorded steps predict of the others.
//
// length   a chain as long as it may be is run once. Cut to fewer tokens, its steps say what those would do (view prediction_by_length).
// tree     a wide fixed tree is run once. Its acceptance by depth and rank says what any other fixed tree would do; of every size and depth
//          the best one is a candidate (tree_best: Sequoia's dynamic program). Trees of fixed widths are among them.
// itself   what depends on more than the acceptance by depth and rank is run at a few sizes, which are candidates themselves: best-first trees,
//          whose shape depends on q; fixed trees of a drafter that learns from what was verified before (recycling), of which a smaller one
//          learns less.
//
// Chains come first. Drafters whose best chain is far behind the best of all have no other probes.
// A candidate costs what the views say of its probe with the cost of passes from the probes' own steps: the views' source `steps`; the
// drafter's time is in proportion to the depth.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct drafter_type;
struct error;
struct settings;
struct store;

enum probe_form { PROBE_LENGTH, PROBE_TREE, PROBE_ITSELF };

struct setting_probe {
    enum probe_form form;
    int of;     // its drafter
    int family; // probes of one drafter and form: the best of each is confirmed first
    struct settings *drafter;
};

struct searched_drafter {
    const struct drafter_type *type;
    struct settings *drafter;
    int longest;               // tokens of a chain
    bool trees, nodes, learns; // what probes it may have beside its chain
};

struct candidate {
    int of, family;
    struct settings *drafter;
    char *shown;                     // as in an experiment's file; no two are equal
    double tokens_per_step, speedup; // predicted
};

struct setting_search {          // start with { .rule, .greedy }
    const struct settings *rule; // borrowed; NULL: the default rule
    bool greedy; // temperature 0: trees are of the tokens of largest q, since sampled ones have no siblings
    int n_drafters, n_probes, n_families;
    struct searched_drafter *drafters;
    struct setting_probe *probe;
    int n;
    struct candidate *candidate;
};

void setting_search_free(struct setting_search *s);
void setting_search_forget(struct setting_search *s); // all candidates
// Adds a drafter, as in an experiment's file, and the probe of its chains; options that it has are kept, but for those that are searched. Its
// `tokens` is the longest draft, else `longest`. Forms that the rule does not take are left out. A drafter with none is an error.
bool setting_search_add(struct setting_search *s, const struct settings *drafter, int longest, struct error *err);
// Adds the other probes, of `most` draft tokens at most (or the fewest that say anything), of the drafters whose chains are not far behind.
void setting_search_widen(struct setting_search *s, int most);
// Draft tokens of the largest draft that may be a candidate.
int setting_search_rows(const struct setting_search *s);
// Adds what a probe's run predicts, from the views.
bool setting_search_read(struct setting_search *s, const struct setting_probe *p, struct store *store, int64_t run,
                         struct error *err);
// Sorts candidates by prediction, those to confirm first: the best of each family that is not far behind the best of all, then
// the next best that are not like one of these.
void setting_search_sort(struct setting_search *s, int confirmed);
