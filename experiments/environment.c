#include "experiments/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/error.h"
#include "experiments/machine.h"
#include "experiments/pairs/paired_run.h"
#include "core/files/mapped.h"
#include "kernels/cpu/probe.h"
#include "revision.h"

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

struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c)
{
    return (struct environment){
        o->processor, c->identity.arithmetic, speclab_revision(), o->read, o->read_one, o->round_trip, o->mhz
    };
}

// Measures the machine, in about a second.
static void probe_machine(struct loaded_experiment *o)
{
    struct prober *p = prober_create(o->e->threads);
    if (p == NULL)
        return;
    const struct machine_state s = machine_state_probe(p, o->e->threads);
    prober_destroy(p);
    o->read = s.all;
    o->read_one = s.one;
    o->round_trip = s.round_trip;
    o->mhz = machine_mhz();
}

bool environment_check(struct runner *r, struct cell_runner *c, struct error *err)
{
    const struct environment e = environment_of(r->loaded, c);
    char *change;
    if (c->environment_checked)
        return true;
    c->environment_checked = store_environment(r->store, c->run, &e, r->e->mix, &change, err);
    if (change != NULL)
        progress_line(&r->progress, "%s", change);
    free(change);
    if (c->environment_checked && r->e->probe && r->loaded->read == 0)
        probe_machine(r->loaded);
    return c->environment_checked;
}
