#include "drafters/draft_vocabulary.h"

#include "core/digest.h"
#include "core/error.h"
#include "drafters/drafter.h"
#include "models/config.h"
#include "models/model.h"
#include "tokenizers/tokenizer.h"

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

// Vocabularies of the same tokens need no map.
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
