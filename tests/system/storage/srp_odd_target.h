// srp_odd_target.h - a SRP target that is right, but unlike ours: it grants few credits, takes indirect descriptors and
// short messages alone, has a cache and no FUA, leaves a command unanswered until it is aborted, reports changes, and ends
// logins
// follows: SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
#ifndef SRP_ODD_TARGET_H
#define SRP_ODD_TARGET_H

#include <stdint.h>

#define ODD_BLOCKS 4096u
#define ODD_BLOCK 512u
/* What happens when these blocks are read, once each. */
#define ODD_SILENT 1000u   /* no answer, until the command is aborted */
#define ODD_BUSY 1001u     /* BUSY */
#define ODD_MEDIUM 1002u   /* a medium error, in descriptor format; each time */
#define ODD_GROWS 1003u    /* the disk has twice the blocks from now on, says SRP_AER_REQ */
#define ODD_LOGOUT 1004u   /* SRP_T_LOGOUT instead of an answer */
#define ODD_SHORT 1005u    /* GOOD, with less data than was asked for; each time */
#define ODD_NONSENSE 1006u /* an answer to no command */
#define ODD_CREDIT 1007u   /* the credit comes with SRP_CRED_REQ */
#define ODD_HELD 1009u     /* it is answered after the next task management */
#define ODD_SYNCS 4000u    /* the number of SYNCHRONIZE CACHE in its first four bytes; each time */
/* … or written, once. */
#define ODD_LATE 1008u /* it is answered, without a credit, when it is to be aborted and before the abort is */

/* Serves on 127.0.0.1, at a port that it writes to fd, until it is killed. */
_Noreturn void odd_target(int fd);

#endif
