// text.c - rules as text and as JSON
// follows: RFC 8259 (JSON)
// SPDX-License-Identifier: MIT
#include "fault/text.h"

#include <inttypes.h>

static void print_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if ((unsigned char)*s < ' ' || (unsigned char)*s >= 127)
			fprintf(f, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, f);
	}
	fputc('"', f);
}

void vb_fault_print_json(FILE *f, const struct vb_fault_rule *r)
{
	uint64_t n = r->hits < VB_FAULT_RECENT ? r->hits : VB_FAULT_RECENT;

	fprintf(f, "{\"id\": %u, \"rule\": ", r->id);
	print_string(f, r->text);
	fprintf(f, ", \"seed\": %" PRIu64 ", \"matched\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"last_hits\": [",
	        r->seed, r->seen, r->hits);
	for (uint64_t i = r->hits - n; i < r->hits; i++)
		fprintf(f, "%s%" PRIu64, i == r->hits - n ? "" : ", ", r->recent[i % VB_FAULT_RECENT]);
	fputs("]}", f);
}
