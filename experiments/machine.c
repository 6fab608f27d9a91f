#include "experiments/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/digest.h"
#include "core/error.h"
#include "core/files/mapped.h"
#include "core/memory.h"
#include "kernels/cpu/probe.h"
#include "revision.h"

#define MEMORY_TOLERANCE 0.15 // relative difference of memory speed
#define MIN_LOAD_S 0.2        // shortest time for load_foreign

const char *const placement_names[PLACEMENTS] = { "S", "D", "other", "unstable", "unprobed" };

enum placement placement_of(const struct machine_state *s)
{
    double ratio = s->all / s->one;
    if (s->round_trip < 100 && ratio < 1.5)
        return PLACED_S;
    if (s->round_trip > 250 && ratio >= 1.5)
        return PLACED_D;
    return PLACED_OTHER;
}

enum placement placement_between(const struct machine_state *before, const struct machine_state *after)
{
    enum placement p = placement_of(before);
    double larger = fmax(before->all, after->all), smaller = fmin(before->all, after->all);
    return p == placement_of(after) && larger <= smaller * (1 + MEMORY_TOLERANCE) ? p : PLACED_UNSTABLE;
}

struct machine_state machine_state_probe(struct prober *p, int threads)
{
    struct machine_state s = { 0 };
    s.one = prober_read(p, 1, 0).bytes_per_second;
    s.all = threads == 1 ? s.one : prober_read(p, threads, 0.2).bytes_per_second;
    s.round_trip = probe_round_trip();
    return s;
}

// ---- load by other processes

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Returns the sum of user, nice, system, irq, softirq and steal time, without idle and iowait.
static double machine_busy(void)
{
    unsigned long long v[8] = { 0 };
    FILE *f = fopen("/proc/stat", "r");
    if (f == NULL)
        return 0;
    if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
               &v[7]) != 8)
        memset(v, 0, sizeof(v));
    fclose(f);
    return (double)(v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

struct load load_begin(double others)
{
    return (struct load){ .wall = seconds_of(CLOCK_MONOTONIC),
                          .busy = machine_busy(),
                          .own = seconds_of(CLOCK_PROCESS_CPUTIME_ID) + others };
}

double load_foreign(const struct load *begun, double others)
{
    const struct load now = load_begin(others);
    double wall = now.wall - begun->wall;
    if (wall < MIN_LOAD_S || now.busy == 0)
        return NAN;
    return fmax(0, (now.busy - begun->busy) - (now.own - begun->own)) / wall;
}

// Returns the value of the first line `name : value` of a file, up to an empty line; "": there is none.
static const char *read_value(const char *path, const char *name, char *to, size_t n)
{
    char line[256];
    const size_t length = strlen(name);
    FILE *f = fopen(path, "r");
    *to = '\0';
    while (f != NULL && *to == '\0' && fgets(line, sizeof(line), f) != NULL && line[0] != '\n') {
        line[strcspn(line, "\n")] = '\0';
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, name, length) == 0 &&
            strspn(line + length, " \t") == (size_t)(colon - line) - length)
            snprintf(to, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f != NULL)
        fclose(f);
    return to;
}

double machine_mhz(void)
{
    char value[64];
    return strtod(read_value("/proc/cpuinfo", "cpu MHz", value, sizeof(value)), NULL);
}

size_t machine_available(void)
{
    char value[64];
    return (size_t)(strtod(read_value("/proc/meminfo", "MemAvailable", value, sizeof(value)), NULL) * 1024);
}

// Reads the first processor's block.
char *machine_processor(void)
{
    static const char path[] = "/proc/cpuinfo";
    char name[200], family[16], model[16];
    if (*read_value(path, "model name", name, sizeof(name)) == '\0')
        snprintf(name, sizeof(name), "unknown processor");
    const bool known = *read_value(path, "cpu family", family, sizeof(family)) != '\0' &&
                       *read_value(path, "model", model, sizeof(model)) != '\0';
    return known ? xformat("%s (family %s, model %s)", name, family, model) : xstrdup(name);
}

// ---- this program

// This is the only file that includes revision.h, which changes with every commit: a build recompiles nothing else for
// it.
const char *speclab_version(void)
{
    return SPECLAB_RELEASE;
}

// Builds with different uncommitted changes to one revision have different names.
const char *speclab_revision(void)
{
    static char revision[sizeof(SPECLAB_REVISION) + 16];
    const bool known = strchr(SPECLAB_REVISION, '+') == NULL && strcmp(SPECLAB_REVISION, "unknown") != 0;
    struct mapping program = { 0 };
    struct error ignored;
    if (known || revision[0] != '\0')
        return known ? SPECLAB_REVISION : revision;
    char hash[HASH_TEXT] = "";
    if (file_map("/proc/self/exe", &program, &ignored))
        hash_write(hash_of(program.at, program.n), hash);
    file_unmap(&program);
    snprintf(revision, sizeof(revision), "%s %.12s", SPECLAB_REVISION, hash);
    return revision;
}

const char *program_version(void)
{
    static char version[sizeof(SPECLAB_RELEASE SPECLAB_REVISION) + 20];
    snprintf(version, sizeof(version), SPECLAB_RELEASE " (%s)", speclab_revision());
    return version;
}
