#include "drafters/draft_vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "models/config.h"
#include "models/model.h"

enum { CONTEXT = 16 }; // number of tokens before a draft on which its division into tokens may depend

void retokenizer_begin(struct retokenizer *t, const struct tokenizer *target, int used, struct tokenizer *draft,
                       int draft_vocab)
{
    struct error ignored; // the tokenizer alone encodes whole texts if some byte has no token
    *t = (struct retokenizer){
        .target = target, .draft = draft, .used = used, .draft_vocab = draft_vocab, .target_bos = -1, .draft_bos = -1
    };
    vocabulary_map_create(&t->map, target, used, draft, draft_vocab, &ignored);
}

void retokenizer_free(struct retokenizer *t)
{
    vocabulary_map_free(&t->map);
    tokenizer_close(t->draft);
    *t = (struct retokenizer){ 0 };
}

static bool begins_a_word(const struct tokenizer *t, int32_t id)
{
    size_t n;
    const char *s = tokenizer_token(t, id, &n);
    return s == NULL || n == 0 || strchr(" \n\t\r", s[0]) != NULL || tokenizer_is_special(t, id);
}

bool retokenize_text(const struct retokenizer *t, const int32_t *token, int n, struct ids *to)
{
    struct decoding held = { 0 };
    struct text text = { 0 };
    struct error ignored;
    const bool bos = n > 0 && token[0] == t->target_bos;
    int word = n; // the first token of the last word
    const int least = n - WORD_TOKENS > bos ? n - WORD_TOKENS : bos;
    while (t->map.tokens > 0 && word > least && token[word - 1] < t->map.tokens &&
           !begins_a_word(t->target, token[word - 1]))
        word--;
    if (t->map.tokens > 0 && word > least && token[word - 1] < t->map.tokens)
        word--;
    text_puts(&text, "");
    if (t->draft_bos >= 0 && bos)
        ids_add(to, t->draft_bos);
    tokenizer_decode(t->target, token + bos, (size_t)(word - bos), true, &held, &text);
    bool ok = held.n == 0 && tokenizer_encode(t->draft, text.s, text.n, true, to, &ignored);
    for (int i = word; i < n; i++)
        for (int k = t->map.first[token[i]]; k < t->map.first[token[i] + 1]; k++)
            ids_add(to, t->map.id[k]);
    tokenizer_decode(t->target, token + word, (size_t)(n - word), true, &held, &text);
    ok = ok && held.n == 0 && to->n > 0;
    for (size_t i = 0; ok && i < to->n; i++)
        ok = to->id[i] < t->draft_vocab;
    free(text.s);
    return ok;
}

// Appends the bytes of ids unchanged.
static void add_bytes(const struct tokenizer *t, const int32_t *id, int n, struct text *to)
{
    for (int i = 0; i < n; i++) {
        size_t bytes;
        const char *s = tokenizer_token(t, id[i], &bytes);
        if (s != NULL)
            text_add(to, s, bytes);
    }
}

// Returns the number of bytes up to the last complete character.
static size_t complete(const char *s, size_t n)
{
    size_t back = 0;
    while (back < n && back < 3 && ((unsigned char)s[n - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back == n)
        return 0;
    const unsigned char lead = (unsigned char)s[n - 1 - back];
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return back + 1 < length ? n - 1 - back : n;
}

// Returns the index, `from` or later, of the first of the ids whose bytes are the last `n`; -1: none begins there.
static int begins_at(const struct tokenizer *t, const struct ids *ids, size_t from, size_t n)
{
    size_t i = ids->n, bytes = 0;
    while (i > from && bytes < n) {
        size_t some;
        if (tokenizer_token(t, ids->id[--i], &some) == NULL)
            return -1;
        bytes += some;
    }
    return bytes == n ? (int)i : -1;
}

void retokenize_draft(const struct retokenizer *t, const int32_t *token, int n, const int32_t *draft, int count,
                      struct ids *to)
{
    struct text text = { 0 }, own = { 0 };
    struct ids ids = { 0 };
    struct error ignored;
    int context = 0, plain = 0;
    while (context < n && context < CONTEXT && !tokenizer_is_special(t->target, token[n - 1 - context]))
        context++;
    while (plain < count && !tokenizer_is_special(t->draft, draft[plain]))
        plain++;
    add_bytes(t->target, token + n - context, context, &text);
    add_bytes(t->draft, draft, plain, &own);
    const size_t drafted = own.s != NULL ? complete(own.s, own.n) : 0;
    size_t begin = 0; // offset of the first character
    while (begin < text.n && ((unsigned char)text.s[begin] & 0xC0) == 0x80)
        begin++;
    text_add(&text, own.s != NULL ? own.s : "", drafted);
    int first = -1;
    if (drafted > 0 && tokenizer_encode(t->target, text.s + begin, text.n - begin, false, &ids, &ignored))
        first = begins_at(t->target, &ids, 0, drafted);
    if (drafted > 0 && first < 0) {
        ids.n = 0;
        if (tokenizer_encode(t->target, own.s, drafted, false, &ids, &ignored))
            first = begins_at(t->target, &ids, 0, drafted);
    }
    for (size_t i = (size_t)first; first >= 0 && i < ids.n; i++) {
        if (ids.id[i] >= t->used)
            plain = count; // nothing follows it
        if (ids.id[i] >= t->used)
            break;
        ids_add(to, ids.id[i]);
    }
    if (plain < count && drafted == own.n &&
        (first >= 0 || own.n == 0)) { // a special token that the target has as well
        size_t bytes;
        const char *s = tokenizer_token(t->draft, draft[plain], &bytes);
        char *name = xstrndup(s, bytes);
        const int32_t id = tokenizer_id(t->target, name);
        free(name);
        if (id >= 0 && id < t->used && tokenizer_is_special(t->target, id))
            ids_add(to, id);
    }
    free(text.s);
    free(own.s);
    free(ids.id);
}

static struct address own_address(struct address at)
{
    at.purpose = FOR_OWN;
    return at;
}

static int own_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct rng *of = ((struct own_rng *)self)->of;
    return of->pick(of, weight, n, own_address(at));
}

static int own_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct rng *of = ((struct own_rng *)self)->of;
    return of->pick_row(of, weight, n, own_address(at));
}

struct own_rng retokenize_rng(struct rng *of)
{
    return (struct own_rng){
        .rng = { .pick = own_pick, .root = of->root, .pick_row = of->pick_row != NULL ? own_pick_row : NULL }, .of = of
    };
}

// ---- the choice among the three relations

static bool fail_other(const char *path, const struct error *why, struct error *err)
{
    return fail(
        err,
        "drafter small: %s has another vocabulary than the target: %s (vocabulary: common drafts with the tokens of both)",
        path, why->text);
}

static bool check_same(const struct model *m, const struct drafter_env *env, const char *path, struct error *err)
{
    struct error why;
    const bool has_own = env->tokenizer != NULL && tokenizer_present(path);
    struct tokenizer *own = has_own ? tokenizer_open(path, &why) : NULL;
    if (has_own && own == NULL)
        return fail_other(path, &why, err);
    const int draft = model_shape(m)->vocab, target = env->target != NULL ? model_shape(env->target)->vocab : draft;
    bool ok = own != NULL ? tokenizer_same(env->tokenizer, own, &why) : draft == target;
    if (own == NULL && !ok)
        fail(&why,
             "without a tokenizer, vocabularies must have the same size; the target has %d ids, the draft model %d",
             target, draft);
    tokenizer_close(own);
    return ok || fail_other(path, &why, err);
}

static void identify(struct hash *identity, const struct tokenizer *own)
{
    struct digest *d = digest_begin();
    digest_hash(d, *identity);
    digest_hash(d, tokenizer_hash(own));
    *identity = digest_end(d);
}

// Vocabularies with equal tokens need no map.
static bool open_common(struct draft_vocabulary *v, struct model *m, int longest, const struct drafter_env *env,
                        const char *path, struct hash *identity, struct error *err)
{
    struct error why;
    struct tokenizer *own = env->tokenizer != NULL ? tokenizer_open(path, &why) : NULL;
    bool ok = own != NULL || (env->tokenizer == NULL && fail(&why, "the target has no tokenizer"));
    v->mapped = ok && !tokenizer_same(env->tokenizer, own, &why);
    if (v->mapped)
        ok = vocabulary_map_create(&v->map, env->tokenizer, env->used_vocab, own, model_shape(m)->vocab, &why) &&
             (v->map.longest <= longest ||
              fail(&why, "a token of the target is %d tokens of the draft model", v->map.longest)) &&
             model_restrict_head(m, v->map.draft_id, v->map.common, &why);
    if (v->mapped && ok)
        identify(identity, own);
    tokenizer_close(own);
    return ok || fail(err, "drafter small: %s: vocabulary: %s", path, why.text);
}

static bool open_retokenizer(struct draft_vocabulary *v, const struct model *m, const struct drafter_env *env,
                             const char *path, struct hash *identity, struct error *err)
{
    struct error why;
    if (env->tokenizer == NULL)
        return fail(err, "drafter small: vocabulary: retokenize needs a tokenizer of the target");
    struct tokenizer *own = tokenizer_open(path, &why);
    if (own == NULL)
        return fail(err, "drafter small: vocabulary: retokenize: %s", why.text);
    identify(identity, own);
    retokenizer_begin(&v->retokenizer, env->tokenizer, env->used_vocab, own, model_shape(m)->vocab);
    v->retokenizer.target_bos = env->target != NULL ? model_config(env->target)->bos : -1;
    v->retokenizer.draft_bos = model_config(m)->bos;
    return true;
}

bool draft_vocabulary_open(struct draft_vocabulary *v, enum vocabularies kind, struct model *m, int longest,
                           const struct drafter_env *env, const char *path, struct hash *identity, struct error *err)
{
    return kind == COMMON       ? open_common(v, m, longest, env, path, identity, err)
           : kind == RETOKENIZE ? open_retokenizer(v, m, env, path, identity, err)
                                : check_same(m, env, path, err);
}

void draft_vocabulary_close(struct draft_vocabulary *v)
{
    vocabulary_map_free(&v->map);
    retokenizer_free(&v->retokenizer);
}
