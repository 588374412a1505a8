// features.c - Get Features and Set Features
// follows: NVM Express Base 1.4, 5.14, 5.21; NVMe over Fabrics 1.1, 5.1 (keep alive timer, host identifier)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

enum { SELECT_CURRENT, SELECT_DEFAULT, SELECT_SAVED, SELECT_CAPABILITIES };
#define CHANGEABLE 0x4u
#define PER_NS 0x2u
#define STAMP_LEN 8u
#define STAMP_MAX ((uint64_t)1 << 48) /* ms; then it begins again */
#define NOTICES 0xeu                  /* bits of the events that can be masked: 1 << enum nr_event */

/* The features of I/O and of discovery controllers; per_ns: of a namespace. */
static const struct feature {
	uint8_t id, io, discovery, changeable, per_ns;
} features[] = {
        {NV_FEAT_ARBITRATION, 1, 0, 1},    {NV_FEAT_POWER, 1, 0, 1},          {NV_FEAT_TEMPERATURE, 1, 0, 1},
        {NV_FEAT_ERROR_RECOVERY, 1, 0, 1}, {NV_FEAT_WRITE_CACHE, 1, 0, 1},    {NV_FEAT_QUEUES, 1, 0, 1},
        {NV_FEAT_ATOMICITY, 1, 0, 1},      {NV_FEAT_ASYNC_EVENTS, 1, 1, 1},   {NV_FEAT_KATO, 1, 1, 1},
        {NV_FEAT_HOST_ID, 1, 0, 0},        {NV_FEAT_NOTICE_MASK, 1, 0, 1, 1}, {NV_FEAT_PERSISTENCE, 1, 0, 1, 1},
        {NV_FEAT_TIMESTAMP, 1, 0, 1},
};

void nt_features_reset(struct nt_controller *c)
{
	c->events = 0;      /* Fabrics 1.1, 5.2: no events that were not requested */
	c->arbitration = 7; /* no limit of the burst */
	c->power = c->recovery = c->atomicity = 0;
	c->temperature = 0xffff;
	c->write_cache = true;
	c->pending = c->masked = 0;
	c->notice_count = 0;
	c->stamp = 0;
	c->stamp_at = c->subsystem->target->now;
	c->stamped = false;
	memset(c->notice_mask, 0, sizeof(c->notice_mask));
}

static uint32_t offered_events(const struct nt_controller *c)
{
	return c->subsystem->discovery ? NV_AEC_DISCOVERY_CHANGED : NV_AEC_NS_CHANGED | NV_AEC_ANA_CHANGED;
}

static const struct feature *find_feature(struct nt_request *r)
{
	uint8_t id = (uint8_t)r->sqe.cdw[0];
	bool discovery = r->queue->ctrl->subsystem->discovery;

	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++)
		if (features[i].id == id && (discovery ? features[i].discovery : features[i].io))
			return &features[i];
	r->error_at = NV_SQE_AT_CDW10;
	return NULL;
}

/* A namespace whose RESCAP is 0 has none of the features of reservations. */
static uint16_t check_reserved(struct nt_request *r)
{
	uint16_t status = nt_check_ns(r);

	return !status && r->ns->backend->readonly ? NT_INVALID(r, NV_SQE_AT_NSID) : status;
}

uint16_t nt_get_features_check(struct nt_request *r)
{
	const struct feature *f = find_feature(r);

	if (!f || (r->sqe.cdw[0] >> 8 & 7) > SELECT_CAPABILITIES)
		return NV_INVALID_FIELD | NV_DNR;
	if (f->per_ns && (r->sqe.cdw[0] >> 8 & 7) != SELECT_CAPABILITIES)
		return check_reserved(r);
	if (r->info->way == NT_TO_HOST) /* EXHID: only the 128-bit form exists over fabrics */
		r->length = f->id == NV_FEAT_TIMESTAMP ? STAMP_LEN : 16;
	return 0;
}

static uint32_t granted_queues(const struct nt_controller *c)
{
	uint32_t n = c->granted - 1u;

	return n << 16 | n;
}

static uint32_t feature_value(struct nt_controller *c, const struct nt_request *r)
{
	switch (r->sqe.cdw[0] & 0xff) {
	case NV_FEAT_ARBITRATION:
		return c->arbitration;
	case NV_FEAT_POWER:
		return c->power;
	case NV_FEAT_TEMPERATURE: /* one sensor, over-temperature type only; other thresholds are never reached */
		return (r->sqe.cdw[1] >> 16 & 0x3f) ? 0 : c->temperature;
	case NV_FEAT_ERROR_RECOVERY:
		return c->recovery;
	case NV_FEAT_WRITE_CACHE:
		return c->write_cache;
	case NV_FEAT_QUEUES:
		return granted_queues(c);
	case NV_FEAT_ATOMICITY:
		return c->atomicity;
	case NV_FEAT_ASYNC_EVENTS:
		return c->events;
	case NV_FEAT_NOTICE_MASK:
		return c->notice_mask[r->sqe.nsid];
	case NV_FEAT_PERSISTENCE:
		return r->ns->reserve.state.persists;
	default: /* NV_FEAT_KATO */
		return c->kato;
	}
}

/* Base 1.4, 5.21.1.14. Origin: since a reset, or as the host has set it. */
static void give_stamp(struct nt_request *r, const struct nt_controller *c, bool current)
{
	uint64_t now = c->subsystem->target->now;

	if (!current)
		return; /* zeros */
	nv_put64(r->data, (c->stamp + (now - c->stamp_at)) % STAMP_MAX);
	r->data[6] = (uint8_t)(c->stamped << 1);
}

void nt_get_features(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;
	uint32_t select = r->sqe.cdw[0] >> 8 & 7;

	if (select == SELECT_CAPABILITIES) {
		const struct feature *f = find_feature(r);

		r->cqe.result = (f->changeable ? CHANGEABLE : 0) | (f->per_ns ? PER_NS : 0);
	} else if (r->info->way == NT_TO_HOST && (r->sqe.cdw[0] & 0xff) == NV_FEAT_TIMESTAMP) {
		give_stamp(r, c, select == SELECT_CURRENT);
	} else if (r->info->way == NT_TO_HOST) {
		if (!(r->sqe.cdw[1] & 1)) {
			nt_complete(r, NV_HOST_ID_FORMAT | NV_DNR);
			return;
		}
		memcpy(r->data, c->who.id, 16);
	} else if (select != SELECT_CURRENT && find_feature(r)->per_ns) {
		r->cqe.result = 0;
	} else if (select != SELECT_CURRENT && (r->sqe.cdw[0] & 0xff) != NV_FEAT_QUEUES) {
		struct nt_controller fresh = {.subsystem = c->subsystem};

		nt_features_reset(&fresh);
		r->cqe.result = feature_value(&fresh, r);
	} else {
		r->cqe.result = feature_value(c, r);
	}
	nt_complete(r, 0);
}

uint16_t nt_set_features_check(struct nt_request *r)
{
	const struct feature *f = find_feature(r);

	if (!f)
		return NV_INVALID_FIELD | NV_DNR;
	if (r->sqe.cdw[0] >> 31)
		return NV_NOT_SAVEABLE | NV_DNR;
	if (f->id == NV_FEAT_HOST_ID) /* set by Connect. Fabrics 1.1, 5.4 */
		return NV_SEQUENCE | NV_DNR;
	if (f->per_ns)
		return r->sqe.nsid == NV_NSID_ALL && f->id == NV_FEAT_NOTICE_MASK ? 0 : check_reserved(r);
	if (r->sqe.nsid && r->sqe.nsid != NV_NSID_ALL)
		return NV_NOT_PER_NS | NV_DNR;
	if (f->id == NV_FEAT_TIMESTAMP)
		r->length = STAMP_LEN;
	return 0;
}

static bool any_io_queue(const struct nt_controller *c)
{
	for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++)
		if (c->queues[i])
			return true;
	return false;
}

static uint16_t set_queues(struct nt_request *r, struct nt_controller *c, uint32_t value)
{
	uint32_t want_sq = value & 0xffff, want_cq = value >> 16;
	uint32_t want = (want_sq < want_cq ? want_sq : want_cq) + 1, most = c->subsystem->target->queues;

	if (want_sq == 0xffff || want_cq == 0xffff)
		return NT_INVALID(r, NV_SQE_AT_CDW11);
	if (any_io_queue(c))
		return NV_SEQUENCE | NV_DNR;
	if (most > NT_QUEUES_MAX)
		most = NT_QUEUES_MAX;
	c->granted = (uint16_t)(want < most ? want : most);
	r->cqe.result = granted_queues(c);
	return 0;
}

static uint16_t set_feature(struct nt_request *r, struct nt_controller *c, uint32_t value)
{
	switch (r->sqe.cdw[0] & 0xff) {
	case NV_FEAT_ARBITRATION:
		c->arbitration = value;
		break;
	case NV_FEAT_POWER:
		if (value & 0x1f) /* there is only one power state */
			return NT_INVALID(r, NV_SQE_AT_CDW11);
		c->power = value & 0xff;
		break;
	case NV_FEAT_TEMPERATURE:
		if (!(value >> 16 & 0x3f))
			c->temperature = value & 0xffff;
		break;
	case NV_FEAT_ERROR_RECOVERY:
		if (value & 1u << 16) /* DULBE: no namespace supports it */
			return NT_INVALID(r, NV_SQE_AT_CDW11);
		c->recovery = value & 0xffff;
		break;
	case NV_FEAT_WRITE_CACHE:
		c->write_cache = value & 1;
		break;
	case NV_FEAT_QUEUES:
		return set_queues(r, c, value);
	case NV_FEAT_ATOMICITY:
		c->atomicity = value & 1;
		break;
	case NV_FEAT_ASYNC_EVENTS:
		if (value & ~(offered_events(c) | 0xff)) /* the low byte is for health warnings, which are never sent */
			return NT_INVALID(r, NV_SQE_AT_CDW11);
		c->events = value;
		break;
	case NV_FEAT_TIMESTAMP:
		c->stamp = nv_get64(r->data) % STAMP_MAX;
		c->stamp_at = c->subsystem->target->now;
		c->stamped = true;
		break;
	case NV_FEAT_NOTICE_MASK:
		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
			if (r->sqe.nsid == NV_NSID_ALL || r->sqe.nsid == i)
				c->notice_mask[i] = value & NOTICES;
		break;
	default: /* NV_FEAT_KATO */
		if (value > UINT32_MAX - 1000)
			return NV_KEEP_ALIVE_INVALID | NV_DNR;
		c->kato = (value + 999) / 1000 * 1000;
		c->subsystem->target->alive_due = 0;
		break;
	}
	return 0;
}

/* Where nothing persists, it cannot be asked for. */
static void set_persistence(struct nt_request *r)
{
	bool persists = r->sqe.cdw[1] & 1;

	if (r->ns->backend->reservations)
		nt_reserve_persist(r, persists);
	else
		nt_complete(r, persists ? NT_INVALID(r, NV_SQE_AT_CDW11) : 0);
}

void nt_set_features(struct nt_request *r)
{
	if ((r->sqe.cdw[0] & 0xff) == NV_FEAT_PERSISTENCE) {
		set_persistence(r);
		return;
	}
	nt_complete(r, set_feature(r, r->queue->ctrl, r->sqe.cdw[1]));
}
