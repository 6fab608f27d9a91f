// bisect_race.c - the winning probabilities of a race, from pairs of uniforms.
#include <math.h>

#include "verifier/exact/law.h"
#include "tests/support/bisect_parts.h"

static double time_of(uint64_t k)
{
    return -log1p(-(((double)k + 0.5) * 0x1p-53));
}

// Runs the race at `depth` with the uniforms of_two for two tokens, and times near infinity for all others.
static struct outcome run_two(struct survey *s, uint64_t *k, int depth, const uint64_t of_two[2], const int two[2])
{
    uint64_t *u = k + depth * s->in->vocab;
    for (int i = 0; i < s->in->vocab; i++)
        u[i] = BISECT_LAST;
    u[two[0]] = of_two[0];
    u[two[1]] = of_two[1];
    return bisect_run(s, k);
}

static bool emitted(const struct outcome *o, int depth, int token)
{
    return o->n > depth && o->token[depth] == token;
}

// The ratio of token i's weight to that of the heaviest token, whose uniform is fixed at `at`.
static double ratio_to(struct survey *s, uint64_t *k, int depth, int argmax, int i, uint64_t at)
{
    uint64_t wins = 0, loses = BISECT_LAST;
    struct outcome o = run_two(s, k, depth, (uint64_t[]){ at, wins }, (int[]){ argmax, i });
    if (!emitted(&o, depth, i))
        return 0;
    while (wins + 1 < loses) {
        uint64_t middle = wins + (loses - wins) / 2;
        o = run_two(s, k, depth, (uint64_t[]){ at, middle }, (int[]){ argmax, i });
        *(emitted(&o, depth, i) ? &wins : &loses) = middle;
    }
    return -log1p(-((double)loses * 0x1p-53)) / time_of(at);
}

// Checks at a random point that the ratios of pairs determine the winner among all tokens.
static void check_race(struct survey *s, uint64_t *k, int depth, const double *ratio)
{
    uint64_t *u = k + depth * s->in->vocab;
    int first = -1;
    double best = INFINITY, second = INFINITY;
    for (int i = 0; i < s->in->vocab; i++) {
        u[i] = splitmix(&s->random_state) >> 11;
        double time = ratio[i] > 0 ? time_of(u[i]) / ratio[i] : INFINITY;
        second = fmin(second, fmax(time, best));
        if (time < best)
            best = time, first = i;
    }
    struct outcome o = bisect_run(s, k);
    if (best < second * (1 - 1e-9)) // otherwise a tie within rounding
        s->found.contradictions += !emitted(&o, depth, first);
}

static void measure_race(struct survey *s, uint64_t *k, int depth, double *ratio)
{
    static const uint64_t at[] = { UINT64_C(1) << 52, UINT64_C(1) << 51, UINT64_C(3) << 51 };
    const int vocab = s->in->vocab;
    for (int i = 0; i < vocab; i++)
        k[depth * vocab + i] = at[0]; // equal uniforms: the heaviest wins
    struct outcome o = bisect_run(s, k);
    int argmax = o.n > depth && o.token[depth] >= 0 && o.token[depth] < vocab ? o.token[depth] : 0;
    for (int i = 0; i < vocab; i++) {
        ratio[i] = i == argmax ? 1 : ratio_to(s, k, depth, argmax, i, at[0]);
        for (int t = 1; i != argmax && t < 3; t++)
            s->found.ratio_spread =
                law_max(s->found.ratio_spread, fabs(ratio[i] - ratio_to(s, k, depth, argmax, i, at[t])));
    }
    for (int t = 0; t < BISECT_CHECKS; t++)
        check_race(s, k, depth, ratio);
}

void bisect_race(struct survey *s, uint64_t *k, int depth, double share)
{
    double ratio[LAW_VOCAB], sum = 0;
    measure_race(s, k, depth, ratio);
    for (int i = 0; i < s->in->vocab; i++)
        sum += ratio[i];
    for (int i = 0; i < s->in->vocab && s->found.sound; i++) {
        if (ratio[i] == 0)
            continue;
        struct outcome o = run_two(s, k, depth, (uint64_t[]){ 0, 0 }, (int[]){ i, i });
        if (o.n > depth + 1 && o.n <= s->uniforms / s->in->vocab)
            bisect_race(s, k, depth + 1, share * ratio[i] / sum);
        else
            bisect_add_mass(s, &o, share * ratio[i] / sum);
    }
}
