// login.c - logins of the SRP target: initiator ports and their channels
// follows: SRP (ANSI INCITS 365, T10/1415-D), 5.1, 6.2
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "srp/channel.h"

static struct sp_nexus *find_nexus(const struct sp_target *t, const uint8_t port[SP_PORT_ID])
{
	struct sp_nexus *n = t->nexuses;

	while (n && (n->leaving || memcmp(n->scsi.port, port, SP_PORT_ID) != 0))
		n = n->next;
	return n;
}

uint32_t sp_login_check(const struct sp_target *t, const struct sp_login *l)
{
	const struct sp_nexus *n = find_nexus(t, l->initiator);

	if (l->iu_len < SP_IU_MIN || l->iu_len > SP_IU_MAX)
		return SP_REJ_IU_LENGTH;
	if (memcmp(l->target, t->scsi.port, SP_PORT_ID) != 0)
		return SP_REJ_NO_SUCH_PORT;
	if (l->formats & ~(SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT))
		return SP_REJ_FORMAT;
	if (t->count >= SP_CHANNELS)
		return SP_REJ_RESOURCES;
	return n && (l->flags & 3) == SP_MULTI_CHANNEL && n->channels >= SP_CHANNELS_OF_ONE ? SP_REJ_CHANNEL_LIMIT : 0;
}

/* A login for a single channel ends the others of its nexus. */
static void end_others(struct sp_target *t, struct sp_nexus *n, uint8_t *flags)
{
	for (struct sp_channel *c = t->channels; c; c = c->next)
		if (c->nexus == n && !c->closed)
			c->ops->fail(c);
	n->leaving = true;
	*flags |= SP_TERMINATED;
}

static struct sp_nexus *open_nexus(struct sp_target *t, const struct sp_login *l, uint8_t *flags)
{
	struct sp_nexus *n = find_nexus(t, l->initiator);

	if (n && (l->flags & 3) == SP_MULTI_CHANNEL) {
		*flags |= SP_MAINTAINED;
		return n;
	}
	struct sp_nexus *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	if (n)
		end_others(t, n, flags);
	memcpy(made->scsi.port, l->initiator, SP_PORT_ID);
	sc_nexus_open(&t->scsi, &made->scsi);
	made->next = t->nexuses;
	t->nexuses = made;
	return made;
}

bool sp_channel_open(struct sp_channel *c, struct sp_target *t, const struct sp_ops *ops, const struct sp_login *l,
                     struct sp_login_rsp *rsp)
{
	*rsp = (struct sp_login_rsp){.tag = l->tag,
	                             .credits = SP_CREDITS,
	                             .to_target = l->iu_len,
	                             .to_initiator = l->iu_len,
	                             .formats = SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT};
	if (!(c->pool = nt_pool_open(SP_POOL)))
		return false;
	if (!(c->nexus = open_nexus(t, l, &rsp->flags))) {
		nt_pool_close(c->pool);
		return false;
	}
	c->nexus->channels++;
	c->target = t;
	c->ops = ops;
	c->to_target = c->to_initiator = l->iu_len;
	c->waiting_end = &c->waiting;
	c->tells_events = l->flags & SP_TELL_EVENTS;
	if ((l->flags & SP_IMMEDIATE) && l->immediate >= SP_CMD_LEN && l->immediate < l->iu_len) {
		c->immediate = l->immediate;
		rsp->flags |= SP_IMMEDIATE;
	}
	c->next = t->channels;
	t->channels = c;
	t->count++;
	return true;
}

static void leave_nexus(struct sp_channel *c)
{
	struct sp_nexus *n = c->nexus, **at = &c->target->nexuses;

	if (--n->channels)
		return;
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	sc_nexus_close(&n->scsi);
	free(n);
}

void sp_channel_free(struct sp_channel *c)
{
	struct sp_channel **at = &c->target->channels;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->target->count--;
	leave_nexus(c);
	nt_pool_close(c->pool);
}

void sp_logout(struct sp_channel *c)
{
	uint8_t message[SP_SHORT_LEN];

	sp_short_encode(SP_T_LOGOUT, 0, 0, message);
	c->ops->tell(c, message, sizeof(message));
}
