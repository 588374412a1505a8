// report.c - asynchronous event reports: units that were added, removed or resized
// follows: SRP (ANSI INCITS 365, T10/1415-D), SRP_AER_REQ; SPC-4, 4.5.3 (sense data)
// SPDX-License-Identifier: MIT
#include "srp/channel.h"

/* An initiator takes one request of the target at a time. */
void sp_report_next(struct sp_channel *c)
{
	struct sp_target_req q = {.opcode = SP_AER_REQ, .value = c->owed, .sense_len = SC_SENSE_LEN};
	uint8_t message[SP_RESPONSE_MAX];
	uint16_t code = 0x3f0e; /* REPORTED LUNS DATA HAS CHANGED */

	if (c->closed || c->asking || (!c->luns_changed && !c->resized))
		return;
	if (c->luns_changed) {
		c->luns_changed = false;
	} else {
		q.lun[1] = (uint8_t)__builtin_ctzll(c->resized);
		c->resized &= c->resized - 1;
		code = 0x2a09; /* CAPACITY DATA HAS CHANGED */
	}
	q.sense[0] = 0x70;
	q.sense[2] = SC_UNIT_ATTENTION;
	q.sense[7] = SC_SENSE_LEN - 8;
	sc_put16(q.sense + 12, code);
	c->owed = 0;
	c->asking++;
	c->ops->tell(c, message, sp_aer_encode(&q, message, sizeof(message)));
}

/* One channel of each initiator port: the oldest that has asked for it. */
static void report(struct sp_target *t, bool luns, uint64_t resized)
{
	for (struct sp_nexus *n = t->nexuses; n; n = n->next) {
		struct sp_channel *by = NULL;

		for (struct sp_channel *c = t->channels; c; c = c->next) /* the newest is the first */
			if (c->nexus == n && c->tells_events && !c->closed)
				by = c;
		if (!by)
			continue;
		by->luns_changed |= luns;
		by->resized |= resized;
		sp_report_next(by);
	}
}

void sp_report_luns(struct sp_target *t)
{
	report(t, true, 0);
}

void sp_report_capacity(struct sp_target *t, unsigned lun)
{
	report(t, false, (uint64_t)1 << lun);
}
