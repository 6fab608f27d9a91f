// cell_hash.h - the hash of a cell of an experiment before and after a file changed.
#pragma once
#include <stdbool.h>
#include "core/digest.h"

extern char cell_target[64], cell_drafter[200]; // of the cell; file names in the test's directory

enum outcome { REFUSED, SAME, OTHER }; // OTHER: another cell
extern int outcomes[3];                // number of each since cell_hash_before()

void cell_hash_before(char to[HASH_TEXT]);                // fails the test if the checkpoint is refused
enum outcome cell_hash_now(const char before[HASH_TEXT]); // compares the hash with the one before
void outcome_check(enum outcome found, bool ignored,
                   const char *what); // ignored: SAME is expected, otherwise it fails the test
void outcomes_print(const char *what);
