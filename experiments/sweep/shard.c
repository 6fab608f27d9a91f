// shard.c - which part of the work a process has: by option or, in a job array of Slurm, by its variables.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/settings.h"
#include "experiments/sweep/division.h"

static bool is_set(const char *name)
{
    const char *s = getenv(name);
    return s != NULL && *s != '\0';
}

// default_value: if it is not set; below 0: it has to be.
static bool read_variable(const char *name, long long min, long long default_value, long long *to, struct error *err)
{
    struct error why;
    if (!is_set(name)) {
        *to = default_value;
        return default_value >= 0 ||
               fail(err, "SLURM_ARRAY_TASK_ID is set and %s is not: expected both, or --shard I/N, or --shard none",
                    name);
    }
    struct settings *s = settings_scalar(getenv(name));
    const bool ok = settings_int(s, name, min, INT_MAX, to, &why) || fail(err, "%s (or give --shard)", why.text);
    settings_free(s);
    return ok;
}

// Tasks MIN, MIN + STEP, .. of an array are shards 0, 1, ..
static bool read_slurm(struct shard *to, struct error *err)
{
    long long id, count, min, step;
    if (!read_variable("SLURM_ARRAY_TASK_ID", 0, -1, &id, err) ||
        !read_variable("SLURM_ARRAY_TASK_COUNT", 1, -1, &count, err) ||
        !read_variable("SLURM_ARRAY_TASK_MIN", 0, 0, &min, err) ||
        !read_variable("SLURM_ARRAY_TASK_STEP", 1, 1, &step, err))
        return false;
    if (count == 1) // a task that is submitted again alone, most likely
        return fail(
            err, "SLURM_ARRAY_TASK_COUNT is 1: expected several tasks that share the work; --shard I/N says what this "
                 "one runs, --shard none that it is all");
    if (count > MAX_SHARDS || id < min || (id - min) % step != 0 || (id - min) / step >= count)
        return fail(err,
                    "SLURM_ARRAY_TASK_ID is %lld: expected one of at most %d evenly spaced tasks, found %lld from %lld "
                    "with step %lld; --shard I/N says what this one runs",
                    id, MAX_SHARDS, count, min, step);
    *to = (struct shard){ (int)((id - min) / step), (int)count, true };
    return true;
}

bool shard_read(const char *option, struct shard *to, struct error *err)
{
    *to = (struct shard){ 0, 1, false };
    if (option == NULL)
        return !is_set("SLURM_ARRAY_TASK_ID") || read_slurm(to, err);
    if (strcmp(option, "none") == 0)
        return true;
    char *slash, *end;
    const long index = strtol(option, &slash, 10), of = *slash == '/' ? strtol(slash + 1, &end, 10) : 0;
    const bool digits = option[0] >= '0' && option[0] <= '9' && *slash == '/' && slash[1] >= '0' && slash[1] <= '9';
    if (!digits || *end != '\0' || of < 1 || of > MAX_SHARDS)
        return fail(err, "--shard: expected I/N, as in 0/4, N up to %d, or none, found \"%s\"", MAX_SHARDS, option);
    if (index >= of)
        return fail(err, "--shard: expected I from 0 to %ld in I/%ld, found \"%s\": the first shard is 0", of - 1, of,
                    option);
    *to = (struct shard){ (int)index, (int)of, false };
    return true;
}
