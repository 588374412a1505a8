// late.c - requests that arrive between the close of a listener and the start of the next one
// see: broker/server/gsi_late.c, which does the same for requests without a binding
// SPDX-License-Identifier: MIT
#include "rdmacm/rdmacm.h"
#include "util/units.h"

#define HELD 32
#define CLOSED 16
#define CLOSED_NS VB_S(3)
#define PATIENCE_NS VB_MS(1500)

struct held {
	uint64_t until;
	struct vb_cm_addr from;
	uint8_t mad[VB_MAD_LEN];
};

struct closed {
	uint64_t until;
	int ps;
	uint16_t port;
};

/* rcm.lock guards all of these. */
static struct held held[HELD];
static uint32_t nheld, nclosed;
static struct closed closed[CLOSED];
static bool wanted, replaying, over; /* wanted: the request just seen may wait; over: no request may wait any longer */

void rcm_late_closed(const struct rcm_id *id)
{
	closed[nclosed++ % CLOSED] = (struct closed){
	        .until = vb_gsi_client_now() + CLOSED_NS, .ps = (int)id->id.ps, .port = rcm_addr_port(&id->src)};
}

bool rcm_late_may_wait(uint64_t service_id)
{
	uint64_t now = vb_gsi_client_now();
	enum vb_port_space ps;
	uint16_t port;

	if (over || (!replaying && nheld == HELD) || !vb_cm_service_port(service_id, &ps, &port))
		return false;
	for (int i = 0; i < CLOSED; i++)
		if (closed[i].until > now && closed[i].ps == (int)ps && closed[i].port == port)
			return wanted = true;
	return false;
}

void rcm_input_mad(const struct vb_cm_addr *from, const uint8_t *mad, size_t len, uint64_t now)
{
	wanted = false;
	vb_cm_input(&rcm.cm, from, mad, len, now);
	if (!wanted)
		return;
	held[nheld] = (struct held){.until = now + PATIENCE_NS, .from = *from};
	memcpy(held[nheld++].mad, mad, sizeof(held[0].mad));
}

/* Handles the oldest requests once more, and keeps those that may still wait. */
static void replay_held(uint32_t last, bool may_wait)
{
	uint32_t kept = 0;

	replaying = true;
	over = !may_wait;
	for (uint32_t i = 0; i < last; i++) {
		wanted = false;
		vb_cm_input(&rcm.cm, &held[i].from, held[i].mad, sizeof(held[i].mad), vb_gsi_client_now());
		if (wanted)
			held[kept++] = held[i];
	}
	memmove(&held[kept], &held[last], (nheld - last) * sizeof(held[0]));
	nheld -= last - kept;
	replaying = over = false;
}

void rcm_late_listening(void)
{
	replay_held(nheld, true);
}

uint64_t rcm_late_due(void)
{
	return nheld ? held[0].until : 0;
}

void rcm_late_timeout(uint64_t now)
{
	uint32_t n = 0;

	while (n < nheld && held[n].until <= now)
		n++;
	if (n)
		replay_held(n, false);
}

void rcm_late_forget(void)
{
	nheld = 0;
	memset(closed, 0, sizeof(closed));
}
