// machine.h - what the machine was like while something was measured: who else used it, and how its two
// processors and its memory stood to one another.
//
// Virtual processors are moved about on their host within minutes. With both on one cluster of cores a cache line is
// quick to go round and memory is shared (S); on two, it is slow, and each has its own way to memory (D). Neither can
// be seen from within, both can be measured; what is neither, as on other machines, is "other".
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct prober;

enum placement { PLACED_S, PLACED_D, PLACED_OTHER, UNSETTLED, UNPROBED, PLACEMENTS };
extern const char *const placement_names[PLACEMENTS]; // "S", "D", "other", "unsettled", "unprobed"

struct surroundings {
    double one, all;   // bytes a second read by one thread, by all
    double round_trip; // ns; NAN: unknown
};

// round trip under 100 ns and all threads read less than 1.5 times what one does: S. Over 250 ns, and at least 1.5 times: D.
enum placement placement_of(const struct surroundings *s);
// What was measured between the two: their placement if they have the same, and memory as fast within 15 %.
enum placement placement_between(const struct surroundings *before, const struct surroundings *after);
struct surroundings surroundings_probe(struct prober *p, int threads);

// Processor time that was used neither by this process nor by the processes of some groups since load_begin.
struct load {
    const pid_t *group; // (n), borrowed until load_foreign
    int n;
    double wall, busy, own; // seconds; busy: of the whole machine, what its host took away included
};
struct load load_begin(const pid_t *group, int n);
// Processors' worth: 0.08 is 8 % of one. NAN: too short a time to tell, for the kernel counts in hundredths of a second.
double load_foreign(const struct load *begun);

// "AMD EPYC (family 26, model 2)", as /proc/cpuinfo has it; free() it. The name alone may stand for several generations where
// the machine is a virtual one.
char *machine_processor(void);
