// program.h - what verbena-target and verbena-srp-target have in common: numbers of the command line, signals, loop and ring
// SPDX-License-Identifier: MIT
#ifndef NT_PROGRAM_H
#define NT_PROGRAM_H

#include "backend/ring.h"
#include "target/loop.h"

/* A number of the command line: digits alone, up to most. base: 10 or 16. */
bool nt_number_parse(const char *text, int base, uint64_t most, uint64_t *out);

/*
 * Opens the loop and the ring, and watches the ring and the signals: SIGINT and SIGTERM set *stop, SIGHUP sets *reload
 * (NULL: it ends the program). Once per process, before it starts a thread. 0 or errno; the caller closes what is set
 * in either case.
 */
int nt_program_open(struct nt_loop **loop, struct nb_ring **ring, bool threads, bool *stop, bool *reload);

#endif
