// script.h - several rules of fault injection: VERBENA_FAULT, and a scenario file with times
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#ifndef VB_FAULT_SCRIPT_H
#define VB_FAULT_SCRIPT_H

#include "fault/rule.h"

#define VB_FAULT_STEPS_MAX 256
#define VB_FAULT_FILE_MAX (64u << 10)

/* A step: at a time, a rule is added, or one or all are removed. */
struct vb_fault_step {
	uint64_t at;     /* ns from the start */
	bool removes;    /* otherwise rule is added */
	unsigned remove; /* the id; 0: all */
	struct vb_fault_rule rule;
};

struct vb_fault_script {
	unsigned n;
	struct vb_fault_step *steps; /* malloc'd; in the order of their times */
};

/* What is wrong: a whole line for the user. */
struct vb_fault_complaint {
	char line[720];
};

/* Reads rules with ; between them, or the older form (loss=1,dup=5). name: what the text is, for the complaint. False
 * and *c if a rule makes no sense; then *s has no steps. */
bool vb_fault_read_rules(const char *name, const char *text, struct vb_fault_script *s, struct vb_fault_complaint *c);
/* Reads a scenario: lines `[at TIME] add RULE`, `[at TIME] remove ID|all`, `RULE`, and comments with #. */
bool vb_fault_read_scenario(const char *name, const char *text, size_t len, struct vb_fault_script *s,
                            struct vb_fault_complaint *c);
/* The same for a file. */
bool vb_fault_read_file(const char *path, struct vb_fault_script *s, struct vb_fault_complaint *c);
/* The value of VERBENA_FAULT: rules, or @FILE. */
bool vb_fault_read_env(const char *value, struct vb_fault_script *s, struct vb_fault_complaint *c);
void vb_fault_script_free(struct vb_fault_script *s);

#endif
