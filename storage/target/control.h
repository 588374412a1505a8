// control.h - the control socket of a target: lines of the same user or of root, and their answers
// SPDX-License-Identifier: MIT
#ifndef NT_CONTROL_H
#define NT_CONTROL_H

#include <stdint.h>

#include "target/loop.h"

struct nt_control;

/* Returns the answer to a line, malloc'd; NULL: no memory. What begins with "error:" makes the asker fail. NT_LATER:
 * nt_control_answer follows for the number that nt_control_defer has given. */
typedef char *nt_answer(void *owner, char *line);
extern char nt_later[];
#define NT_LATER nt_later

char *nt_control_path(const char *what, uint16_t port); /* the default for a target at this port; malloc'd */
int nt_control_open(struct nt_loop *l, const char *path, nt_answer *answer, void *owner,
                    struct nt_control **out); /* 0 or errno */
void nt_control_close(struct nt_control *c);
uint64_t nt_control_defer(struct nt_control *c); /* the asker whose line is being answered; 0: too many wait already */
void nt_control_answer(struct nt_control *c, uint64_t asker, char *answer); /* takes answer; it may have gone */
/* The client: sends the words as a line, prints the answer and returns an exit status. */
int nt_control_ask(const char *program, const char *path, int argc, char **argv);

#endif
