// scsi_disk.c - connects all channels of a SCSI disk, and asks it what it is
// follows: SPC-4, 6.6 (INQUIRY), 6.13 (MODE SENSE), 6.33 (REPORT LUNS); SBC-3, 5.16 (READ CAPACITY (16))
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "client/srp.h"

#define ADMIN_DEPTH 4u
#define TRIES 20u /* of a command that meets unit attentions, or a unit that is busy */
#define PAUSE_MS 50

/* ---- single commands ---- */

static bool worth_another(const struct vn_cmd *c)
{
	if (c->scsi.status == SC_CHECK_CONDITION)
		return c->scsi.sense >> 16 == SC_UNIT_ATTENTION || c->scsi.sense >> 16 == SC_NOT_READY;
	return c->cqe.status == NV_ABORT_REQUESTED;
}

/* Carries out a command with n bytes of data-in, of which *got came. 0, or -errno and why. c: the result */
static int scsi_command(struct vn_link *l, struct vn_queue *q, const char *what, const uint8_t *cdb, size_t cdb_len,
                        uint8_t *data, uint32_t n, struct vn_cmd *c)
{
	for (unsigned i = 0; i < TRIES; i++) {
		*c = (struct vn_cmd){.way = n ? VN_FROM_TARGET : VN_NO_DATA, .data = data, .length = n};
		c->scsi.raw = true;
		memcpy(c->scsi.cdb, cdb, cdb_len);
		int e = vn_command_run(q, c, l->deadline);

		if (e) {
			vn_say(l->why, "%s: %s", what, *q->why ? q->why : strerror(-e));
			return e;
		}
		if (!c->cqe.status)
			return 0;
		if (!worth_another(c))
			break;
		if (!c->soon)
			poll(NULL, 0, PAUSE_MS);
	}
	vn_say(l->why, "%s: the target says: status %#x, sense %06x", what, c->scsi.status, c->scsi.sense);
	return vn_status_errno(c->cqe.status);
}

#define CDB(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})

/* A page of vital product data, which not every unit has. Bytes that came; 0: none */
static uint32_t ask_page(struct vn_link *l, struct vn_queue *q, uint8_t page, uint8_t *data)
{
	struct vn_cmd c;

	memset(data, 0, VN_SCSI_REPLY);
	return scsi_command(l, q, "inquiry", CDB(SC_INQUIRY, 1, page, 0x02, 0x00), data, 0x200, &c) ? 0 : c.scsi.got;
}

static int ask_capacity(struct vn_link *l, struct vn_queue *q, struct vn_unit *u)
{
	uint8_t data[32] = {0};
	struct vn_cmd c;
	int e = scsi_command(l, q, "capacity",
	                     CDB(SC_SERVICE_IN16, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sizeof(data)), data,
	                     sizeof(data), &c);

	if (e || vn_scsi_capacity(data, c.scsi.got, u))
		return e;
	vn_say(l->why, "the unit's capacity or block size is not supported");
	return -EPROTO;
}

static int ask_unit(struct vn_link *l, struct vn_queue *q, struct vn_unit *u, struct vn_info *info)
{
	uint8_t *data = calloc(1, VN_SCSI_REPLY);
	struct vn_cmd c;

	if (!data)
		return -ENOMEM;
	int e = scsi_command(l, q, "inquiry", CDB(SC_INQUIRY, 0, 0, 0, 96), data, 96, &c);

	if (!e && !vn_scsi_inquiry(data, c.scsi.got, info)) {
		vn_say(l->why, "the target has no disk at LUN %u", l->lun);
		e = -ENXIO;
	}
	if (!e)
		e = ask_capacity(l, q, u);
	if (!e) {
		vn_scsi_serial(data, ask_page(l, q, 0x80, data), info);
		vn_scsi_designators(data, ask_page(l, q, 0x83, data), u);
		vn_scsi_limits(data, ask_page(l, q, 0xb0, data), u);
		vn_scsi_provisioning(data, ask_page(l, q, 0xb2, data), u);
		u->cached = true; /* unless it says otherwise */
		memset(data, 0, VN_SCSI_REPLY);
		if (!scsi_command(l, q, "mode sense", CDB(SC_MODE_SENSE10, 0x08, 0x08, 0, 0, 0, 0, 0, 64), data, 64,
		                  &c))
			vn_scsi_mode(data, c.scsi.got, u);
		e = -q->error;
	}
	free(data);
	return e;
}

/* ---- the disk ---- */

static int open_channel(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **out)
{
	int e = l->transport->open(l, qid, depth, out);

	if (!e)
		(*out)->stop = l->stop;
	return e;
}

/* The first channel is required; others are an offer. */
static int open_channels(struct vn_path *p, struct vn_link *l, const struct vn_unit *u, struct vn_association *a)
{
	uint32_t depth = p->disk->options.queue_depth;

	for (int e; a->n < p->disk->options.queues; a->n++) {
		if ((e = open_channel(l, (uint16_t)(a->n + 1), (uint16_t)depth, &a->io[a->n])))
			return a->n && e == -EBUSY ? 0 : e;
		struct vn_srp_queue *s = vn_srp_of(a->io[a->n]);

		s->block = u->block;
		s->cached = u->cached;
		s->fua = u->fua;
		if (s->credits < depth)
			depth = s->credits ? s->credits : 1;
	}
	a->info.queue_depth = (uint16_t)depth;
	return 0;
}

int vn_scsi_associate(struct vn_path *p, struct vn_link *l, struct vn_association *a)
{
	struct vn_unit u = {0};

	memset(a, 0, sizeof(*a));
	a->access = NV_ANA_OPTIMIZED;
	l->initiator = p->disk->initiator;
	l->target = p->disk->url.target;
	l->lun = p->disk->url.lun;
	strcpy(a->info.nqn, p->disk->url.nqn);
	a->info.nsid = p->disk->url.lun;
	int e = open_channel(l, 0, ADMIN_DEPTH, &a->admin);

	if (!e)
		e = ask_unit(l, a->admin, &u, &a->info);
	if (!e)
		e = open_channels(p, l, &u, a);
	if (!e) {
		vn_scsi_describe(&u, &a->info, &a->limits);
		a->names = u.names;
		a->info.queues = (uint16_t)a->n;
		a->info.max_transfer = (uint32_t)vn_least(vn_least(a->limits.transfer, p->disk->options.max_transfer),
		                                          VN_TRANSFER_MAX);
		a->info.max_transfer -= a->info.max_transfer % u.block;
		e = a->info.max_transfer ? 0 : -EINVAL;
	}
	if (e)
		vn_dissolve(a);
	return e;
}

int vn_scsi_alive(struct vn_queue *admin, uint64_t deadline)
{
	struct vn_cmd c = {.way = VN_NO_DATA}; /* all zeros: TEST UNIT READY, whatever its answer */

	c.scsi.raw = true;
	return vn_command_run(admin, &c, deadline);
}

static bool take_news(struct vn_path *p)
{
	bool any = p->now.admin->news;

	p->now.admin->news = false;
	vn_lock(p->disk);
	for (unsigned i = 0; i < p->now.n; i++) {
		any |= p->now.io[i]->news;
		p->now.io[i]->news = false;
	}
	for (unsigned i = 0; any && i < p->now.n; i++)
		vn_srp_of(p->now.io[i])->cached = true; /* another initiator may have switched the write cache on */
	pthread_mutex_unlock(&p->disk->lock);
	return any;
}

void vn_scsi_look(struct vn_path *p)
{
	char why[120];
	struct vn_link l = {.deadline = vn_now() + p->disk->options.connect_ms, .stop = &p->disk->stop, .why = why};
	struct vn_unit u = {0};

	if (p->now.admin->error || !take_news(p) || ask_capacity(&l, p->now.admin, &u))
		return; /* if the unit is gone, requests will fail */
	vn_lock(p->disk);
	if (u.block == p->disk->info.block_size)
		vn_resize(p->disk, u.blocks * u.block);
	else
		vn_lost(p);
	pthread_mutex_unlock(&p->disk->lock);
}

/* ---- the list of a target's units ---- */

static int list_units(struct vn_link *l, struct vn_queue *q, uint8_t *data, struct vn_found **found, size_t *count)
{
	uint16_t luns[VN_SCSI_LUNS_MAX];
	struct vn_cmd c;
	int e = scsi_command(l, q, "report luns", CDB(SC_REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, VN_SCSI_REPLY >> 8, 0, 0, 0),
	                     data, VN_SCSI_REPLY, &c);

	if (e)
		return e;
	size_t n = vn_scsi_luns(data, c.scsi.got, luns);
	struct vn_found *f = calloc(n ? n : 1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		strcpy(f[i].transport, "srp");
		strcpy(f[i].address, l->host);
		if (l->service_id) {
			snprintf(f[i].nqn, sizeof(f[i].nqn), "%.40s?service=%llx&pkey=%x&lun=%u", l->nqn,
			         (unsigned long long)l->service_id, l->pkey, luns[i]);
			continue;
		}
		strcpy(f[i].service, l->service);
		snprintf(f[i].nqn, sizeof(f[i].nqn), "%s?lun=%u", l->nqn, luns[i]);
	}
	*found = f;
	*count = n;
	return 0;
}

int vn_scsi_list(struct vn_link *l, const struct vn_identity *who, struct vn_found **found, size_t *count)
{
	uint8_t *data = calloc(1, VN_SCSI_REPLY);
	struct vn_queue *q = NULL;
	int e = data ? open_channel(l, 0, ADMIN_DEPTH, &q) : -ENOMEM;

	if (!e)
		e = list_units(l, q, data, found, count);
	if (q)
		l->transport->close(q);
	free(data);
	return e;
}
