// log.c - Get Log Page
// follows: NVM Express Base 1.4, 5.14
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define ERRORS 16u

void nt_log_error(struct nt_request *r, uint16_t status)
{
	struct nt_controller *c = r->queue->ctrl;

	if (!c || !r->queue->connected || (r->queue->qid && !r->queue->authenticated)) /* not into another host's log */
		return;
	c->error_log[c->errors % ERRORS] =
	        (struct nt_error){.count = c->errors + 1,
	                          .lba = r->queue->qid ? (uint64_t)r->sqe.cdw[1] << 32 | r->sqe.cdw[0] : 0,
	                          .nsid = r->sqe.nsid,
	                          .sqid = r->queue->qid,
	                          .cid = r->sqe.cid,
	                          .status = status,
	                          .at = r->error_at};
	c->errors++;
}

/* Each function returns a log page of *len bytes in memory of its own. */

static uint8_t *error_log(struct nt_request *r, size_t *len)
{
	const struct nt_controller *c = r->queue->ctrl;
	uint8_t *d = calloc(ERRORS, 64), *at = d;

	*len = (size_t)ERRORS * 64;
	for (uint64_t n = c->errors; d && n && n + ERRORS > c->errors; n--, at += 64) {
		const struct nt_error *e = &c->error_log[(n - 1) % ERRORS];

		nv_put64(at, e->count);
		nv_put16(at + 8, e->sqid);
		nv_put16(at + 10, e->cid);
		nv_put16(at + 12, (uint16_t)(e->status << 1));
		nv_put16(at + 14, e->at);
		nv_put64(at + 16, e->lba);
		nv_put32(at + 24, e->nsid);
	}
	return d;
}

static void put_units(uint8_t *at, uint64_t blocks)
{
	nv_put64(at, (blocks + 999) / 1000); /* units of a thousand blocks, rounded up */
}

static uint8_t *smart_log(struct nt_request *r, size_t *len)
{
	const struct nt_controller *c = r->queue->ctrl;
	uint8_t *d = calloc(1, 512);

	*len = 512;
	if (!d)
		return NULL;
	d[3] = 100; /* available spare */
	d[4] = 10;  /* its threshold */
	put_units(d + 32, c->read_blocks);
	put_units(d + 48, c->written_blocks);
	nv_put64(d + 64, c->reads);
	nv_put64(d + 80, c->writes);
	nv_put64(d + 128, (c->subsystem->target->now - c->subsystem->target->started) / 3600000);
	nv_put64(d + 176, c->errors);
	return d;
}

static uint8_t *firmware_log(struct nt_request *r, size_t *len)
{
	uint8_t *d = calloc(1, 512);

	*len = 512;
	if (d) {
		const char *fr = r->queue->target->firmware;

		d[0] = 1;
		memset(d + 8, ' ', 8);
		memcpy(d + 8, fr, strnlen(fr, 8));
	}
	return d;
}

static uint8_t *changed_log(struct nt_request *r, size_t *len)
{
	struct nt_controller *c = r->queue->ctrl;
	uint8_t *d = calloc(1, 4096);

	*len = 4096;
	if (!d)
		return NULL;
	if (c->changed_count > 1024)
		nv_put32(d, NV_NSID_ALL);
	for (uint32_t i = 0; c->changed_count <= 1024 && i < c->changed_count; i++)
		nv_put32(d + 4 * i, c->changed_ns[i]);
	return d;
}

#define SUPPORTED 1u
#define CHANGES_CONTENT 2u /* logical block content */

static uint8_t *effects_log(struct nt_request *r, size_t *len)
{
	static const uint8_t admin[] = {NV_ADMIN_GET_LOG,      NV_ADMIN_IDENTIFY,     NV_ADMIN_ABORT,
	                                NV_ADMIN_SET_FEATURES, NV_ADMIN_GET_FEATURES, NV_ADMIN_ASYNC_EVENT,
	                                NV_ADMIN_KEEP_ALIVE};
	static const uint8_t io[] = {NV_IO_FLUSH,          NV_IO_WRITE,
	                             NV_IO_READ,           NV_IO_COMPARE,
	                             NV_IO_WRITE_ZEROES,   NV_IO_DSM,
	                             NV_IO_VERIFY,         NV_IO_RESERVE_REGISTER,
	                             NV_IO_RESERVE_REPORT, NV_IO_RESERVE_ACQUIRE,
	                             NV_IO_RESERVE_RELEASE};
	uint8_t *d = calloc(1, 4096);

	*len = 4096;
	if (!d)
		return NULL;
	for (size_t i = 0; i < sizeof(admin); i++)
		nv_put32(d + 4 * admin[i], SUPPORTED);
	for (size_t i = 0; i < sizeof(io); i++) {
		bool writes = io[i] == NV_IO_WRITE || io[i] == NV_IO_WRITE_ZEROES || io[i] == NV_IO_DSM;

		nv_put32(d + 1024 + 4 * io[i], SUPPORTED | (writes ? CHANGES_CONTENT : 0));
	}
	return d;
}

/* The groups that have namespaces, with the ids of these. Base 1.4, 5.14.1.12 */
static uint8_t *ana_log(struct nt_request *r, size_t *len)
{
	const struct nt_subsystem *s = r->queue->ctrl->subsystem;
	bool ids = !(r->sqe.cdw[0] >> 8 & 1); /* RGO: groups only */
	const size_t size = 16 + NT_ANA_LAST * 32 + NT_NAMESPACES_MAX * 4;
	uint8_t *d = calloc(1, size), *at = d + 16;
	uint16_t groups = 0;

	if (!d)
		return NULL;
	for (uint32_t g = 1; g <= NT_ANA_LAST; g++) {
		uint32_t n = 0;

		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++) {
			if (!s->ns[i] || nt_ana_group(s->ns[i]) != g)
				continue;
			if (ids)
				nv_put32(at + 32 + 4 * n, i);
			n++;
		}
		if (!n)
			continue;
		nv_put32(at, g);
		nv_put32(at + 4, ids ? n : 0);
		nv_put64(at + 8, s->ana_changes);
		at[16] = s->ana[g];
		at += 32 + (ids ? 4 * n : 0);
		groups++;
	}
	nv_put64(d, s->ana_changes);
	nv_put16(d + 8, groups);
	*len = size; /* hosts read what all groups and namespaces would need, in pieces */
	return d;
}

static const struct page {
	uint8_t id, io, discovery;
	uint32_t event;
	uint8_t clears; /* reading the page re-enables this event */
	uint8_t *(*make)(struct nt_request *r, size_t *len);
} pages[] = {
        {NV_LOG_ERROR, 1, 1, 0, 0, error_log},
        {NV_LOG_SMART, 1, 0, 0, 0, smart_log},
        {NV_LOG_FIRMWARE, 1, 0, 0, 0, firmware_log},
        {NV_LOG_CHANGED_NS, 1, 0, NV_AEN_NS_CHANGED, 1, changed_log},
        {NV_LOG_EFFECTS, 1, 0, 0, 0, effects_log},
        {NV_LOG_ANA, 1, 0, NV_AEN_ANA_CHANGED, 1, ana_log},
        {NV_LOG_DISCOVERY, 0, 1, NV_AEN_DISCOVERY_CHANGED, 1, nt_discovery_log},
        {NV_LOG_RESERVATION, 1, 0, NV_AEN_RESERVATION, 1, nt_notice_log},
};

static const struct page *find_page(const struct nt_request *r)
{
	bool discovery = r->queue->ctrl->subsystem->discovery;

	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		if (pages[i].id == (uint8_t)r->sqe.cdw[0] && (discovery ? pages[i].discovery : pages[i].io))
			return &pages[i];
	return NULL;
}

uint16_t nt_get_log_check(struct nt_request *r)
{
	uint64_t dwords = ((uint64_t)(r->sqe.cdw[1] & 0xffff) << 16 | r->sqe.cdw[0] >> 16) + 1;

	r->error_at = NV_SQE_AT_CDW10;
	if (!find_page(r))
		return NV_INVALID_LOG | NV_DNR;
	if (dwords > NT_TRANSFER_MAX / 4)
		return NV_INVALID_FIELD | NV_DNR;
	if (r->sqe.cdw[2] & 3)
		return NT_INVALID(r, NV_SQE_AT_CDW12);
	r->length = (uint32_t)(dwords * 4);
	return 0;
}

void nt_get_log(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;
	const struct page *p = find_page(r);
	uint64_t offset = (uint64_t)r->sqe.cdw[3] << 32 | r->sqe.cdw[2];
	size_t len;
	uint8_t *page = p->make(r, &len);

	if (!page) {
		nt_complete(r, NV_INTERNAL);
		return;
	}
	if (offset > len) {
		free(page);
		r->error_at = NV_SQE_AT_CDW12;
		nt_complete(r, NV_INVALID_FIELD | NV_DNR);
		return;
	}
	memcpy(r->data, page + offset, len - offset < r->length ? len - offset : r->length);
	free(page);
	bool read = p->clears && !(r->sqe.cdw[0] >> 15 & 1); /* RAE: retain the event */

	if (read && p->id == NV_LOG_CHANGED_NS)
		c->changed_count = 0;
	nt_complete(r, 0);
	if (read)
		nt_event_read(c, p->event);
	if (read && p->id == NV_LOG_RESERVATION)
		nt_notice_read(c);
}
