// fuzz_fault.c - any bytes as rules of fault injection and as a scenario; what is accepted can be asked
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fault/script.h"

static void use_rule(struct vb_fault_rule *r)
{
	static const uint8_t peer[16];
	struct vb_fault_subject s = {
	        .path = VB_FAULT_ROCE, .dir = VB_FAULT_TX, .peer = peer, .device = "roce_lo", .len = 100};

	assert(r->action < VB_FAULT_ACTION_COUNT && r->paths && r->dirs);
	assert(strlen(r->text) < sizeof(r->text) && r->p <= 1);
	vb_fault_begin(r, 1, 5, 0);
	for (uint64_t now = 0; now < 20; now++)
		if (vb_fault_hits(r, &s, now) && r->action == VB_FAULT_RATE)
			vb_fault_pace(r, 9000, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	for (int whole = 0; whole < 2; whole++) {
		bool right = whole ? vb_fault_read_scenario("file", text, size, &s, &c)
		                   : vb_fault_read_rules("VERBENA_FAULT", text, &s, &c);

		assert(right || (!s.n && c.line[0] && strlen(c.line) < sizeof(c.line)));
		for (unsigned i = 0; i < s.n; i++)
			if (!s.steps[i].removes)
				use_rule(&s.steps[i].rule);
		vb_fault_script_free(&s);
	}
	free(text);
	return 0;
}
