// srp_ask.h - the commands of verbena-srp-host to a running one
// SPDX-License-Identifier: MIT
#ifndef VD_SRP_ASK_H
#define VD_SRP_ASK_H

/* Logs in by a line, or ends a login; the other one is NULL. Returns the exit status, after a complaint on standard
 * error. */
int vd_srp_ask(const char *directory, const char *add, const char *host);

#endif
