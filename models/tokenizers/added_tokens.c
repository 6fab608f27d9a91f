#include "models/tokenizers/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/tokenizers/pattern.h"
#include "core/utf8.h"
#include "models/tokenizers/vocabulary.h"

void added_add(struct added *a, const char *text, size_t n, struct added_token flags)
{
    array_reserve(a->token, a->capacity, a->n + 1);
    flags.text = xstrndup(text, n);
    flags.n = n;
    flags.order = a->n;
    a->token[a->n++] = flags;
}

static int compare_text(const struct added_token *a, const struct added_token *b)
{
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return order != 0 ? order : a->n < b->n ? -1 : a->n > b->n;
}

static int by_text_and_order(const void *one, const void *other)
{
    const struct added_token *a = one, *b = other;
    int order = compare_text(a, b);
    return order != 0 ? order : a->order < b->order ? -1 : a->order > b->order;
}

// Drops duplicates.
static bool make_unique(struct added *a, struct error *err)
{
    size_t n = 0;
    bool ok = true; // the remaining tokens are kept after a failure, so that each is freed once
    for (size_t i = 0; i < a->n; i++) {
        struct added_token *last = n > 0 ? &a->token[n - 1] : NULL, *t = &a->token[i];
        if (!ok || last == NULL || compare_text(last, t) != 0) {
            a->token[n++] = *t;
        } else if (last->id == t->id) {
            free(last->text);
            *last = *t;
        } else {
            char *shown = printable_text(t->text, t->n);
            ok = fail(err, "the added tokens %d and %d are both %s", (int)last->id, (int)t->id, shown);
            free(shown);
            a->token[n++] = *t;
        }
    }
    a->n = n;
    return ok;
}

// This is \w of Rust's regex crate: alphabetic characters, marks, decimal digits, connectors, joiners. The ranges are
// the circled and squared letters, which are alphabetic symbols.
static const char word_character[] = "[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                                     "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}\\x{200C}\\x{200D}]";

bool added_finish(struct added *a, struct error *err)
{
    if (a->n == 0)
        return true;
    qsort(a->token, a->n, sizeof(*a->token), by_text_and_order);
    if (!make_unique(a, err))
        return false;
    bool any_single_word = false;
    for (size_t i = 0; i < a->n; i++) {
        char *what = xformat("the added token %d", (int)a->token[i].id);
        const bool text = require_utf8(a->token[i].text, a->token[i].n, what, err);
        free(what);
        if (!text)
            return false;
        a->begins[(unsigned char)a->token[i].text[0]] = true;
        any_single_word |= a->token[i].single_word;
    }
    return !any_single_word || (a->word = pattern_compile(word_character, sizeof(word_character) - 1, err)) != NULL;
}

void added_free(struct added *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->token[i].text);
    free(a->token);
    pattern_free(a->word);
}

// Returns the index of the first of tokens low .. high whose byte `depth` is at least b; all share the bytes before it.
// A token that ends there sorts first, below any byte.
static size_t first_at_least(const struct added *a, size_t low, size_t high, size_t depth, int b)
{
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct added_token *t = &a->token[middle];
        if ((depth < t->n ? (unsigned char)t->text[depth] : -1) < b)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Narrows the sorted tokens byte by byte to those that match.
const struct added_token *added_longest(const struct added *a, const char *text, size_t n)
{
    const struct added_token *best = NULL;
    size_t low = 0, high = a->n;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        int b = (unsigned char)text[depth];
        low = first_at_least(a, low, high, depth, b);
        high = first_at_least(a, low, high, depth, b + 1);
        if (low < high && a->token[low].n == depth + 1)
            best = &a->token[low];
    }
    return best;
}

static size_t spaces_begin(const char *text, size_t end)
{
    while (end > 0) {
        size_t at = utf8_before(text, end);
        if (!utf8_is_space(utf8_code(text + at)))
            break;
        end = at;
    }
    return end;
}

static size_t spaces_end(const char *text, size_t n, size_t at)
{
    while (at < n && utf8_is_space(utf8_code(text + at)))
        at += utf8_character(text + at, n - at);
    return at;
}

static bool is_word(const struct added *a, const char *text, size_t at)
{
    struct search *s = search_begin(a->word);
    struct error ignored;
    size_t start, stop;
    search_text(s, text + at, utf8_character(text + at, 4));
    const bool word = search_next(s, &start, &stop, &ignored) == FOUND_MATCH;
    search_end(s);
    return word;
}

static bool is_single_word(const struct added_walk *w, size_t start, size_t stop)
{
    return (start == 0 || !is_word(w->a, w->text, utf8_before(w->text, start))) &&
           (stop == w->n || !is_word(w->a, w->text, stop));
}

// Returns the next matching token with its stripped white space; NULL if there is none. A token that is found but does
// not match because of its flags still hides tokens that overlap it, as in Hugging Face's tokenizers.
static const struct added_token *find(struct added_walk *w, size_t *start, size_t *stop)
{
    while (w->at < w->n) {
        if (!w->a->begins[(unsigned char)w->text[w->at]]) {
            w->at++;
            continue;
        }
        const struct added_token *t = added_longest(w->a, w->text + w->at, w->n - w->at);
        if (t == NULL) {
            w->at++;
            continue;
        }
        *start = w->at;
        *stop = w->at += t->n;
        if ((t->special && !w->special) || (t->single_word && !is_single_word(w, *start, *stop)))
            continue;
        if (t->lstrip) {
            size_t wider = spaces_begin(w->text, *start);
            *start = wider > w->from ? wider : w->from;
        }
        if (t->rstrip)
            *stop = spaces_end(w->text, w->n, *stop);
        if (*start < *stop)
            return t;
        w->from = *stop; // the previous token's match already includes this white space
    }
    return NULL;
}

bool added_next(struct added_walk *w, struct added_part *to)
{
    if (w->next == NULL) {
        size_t start, stop;
        const struct added_token *t = find(w, &start, &stop);
        if (t == NULL) {
            *to = (struct added_part){ NULL, w->text + w->from, w->n - w->from };
            w->from = w->n;
            return to->n > 0;
        }
        w->next = t;
        w->next_stop = stop;
        if (w->from < start) {
            *to = (struct added_part){ NULL, w->text + w->from, start - w->from };
            return true;
        }
    }
    *to = (struct added_part){ w->next, NULL, 0 };
    w->from = w->next_stop;
    w->next = NULL;
    return true;
}
