// machine.h - state of the machine during a measurement (load by other processes, and placement of its two processors
// relative to caches and memory), and the revision of this program.
//
// A host moves virtual processors within minutes. With both on one cluster of cores, a cache line's round trip is fast
// and memory bandwidth is shared (S). On two clusters it is slow, and each has its own path to memory (D). A guest
// cannot see this, but it can measure both. Any other result, as on other machines, is "other".
#pragma once
#include <stddef.h>

struct prober;

enum placement { PLACED_S, PLACED_D, PLACED_OTHER, PLACED_UNSTABLE, PLACED_UNPROBED, PLACEMENTS };
extern const char *const placement_names[PLACEMENTS]; // "S", "D", "other", "unstable", "unprobed"

struct machine_state { // measured by probes
    double one, all;   // memory reads, bytes a second: one thread, all threads
    double round_trip; // ns; NAN: unknown
};

// Returns S if the round trip is under 100 ns, and all threads read less than 1.5 times what one reads; D if it is over
// 250 ns, and they read at least 1.5 times as much.
enum placement placement_of(const struct machine_state *s);
// Returns the placement during a measurement between two probes: theirs, if it is equal and memory speed agrees within
// 15 %; otherwise unstable.
enum placement placement_between(const struct machine_state *before, const struct machine_state *after);
struct machine_state machine_state_probe(struct prober *p, int threads);

// Measures processor time used since load_begin by processes other than this one. others: seconds used so far by
// processes that are not load.
struct load {
    double wall, busy, own; // seconds; busy: the whole machine's, steal time included
};
struct load load_begin(double others);
#define MAX_FOREIGN_LOAD 0.08 // processors that other processes may use in a measurement that counts
// Returns the load in processors: 0.08 is 8 % of one. NAN: the time is too short, because the kernel counts in
// hundredths of a second.
double load_foreign(const struct load *begun, double others);

size_t machine_available(void); // bytes of memory that a program can still use, as the kernel estimates; 0: not known
// Returns the clock of the first processor, from /proc/cpuinfo; 0: the kernel does not report it.
double machine_mhz(void);
// Returns "AMD EPYC (family 26, model 2)", from /proc/cpuinfo; the caller frees it. In a virtual machine the name alone
// may denote several generations.
char *machine_processor(void);

// Returns "0.2.0", a static string.
const char *speclab_version(void);
// Returns "48af27e08199". With uncommitted changes it is "48af27e08199+changes 0f3a9c2b71d4", where the second hash is
// that of the program's file. A build other than the release build adds "+debug". The string is static.
const char *speclab_revision(void);
// Returns both: "0.2.0 (48af27e08199)", a static string.
const char *program_version(void);
