// sa.c - encodes queries to the subnet administrator, and decodes their answers
// follows: IBA volume 1, 15.2.1.1 (SA MAD format), 15.2.5.16 (PathRecord), 15.2.5.17 (MCMemberRecord)
// SPDX-License-Identifier: MIT
#include "frame/sa.h"

#include "frame/smp.h"

enum { RMPP_LEN = 12, SM_KEY_LEN = 8, SELECTOR_EXACTLY = 2 << 6, CODE_BITS = 0x3f };

static void put_path(struct vb_writer *w, const struct vb_sa_path *p)
{
	vb_put64(w, p->service_id);
	vb_put_bytes(w, p->dgid, sizeof(p->dgid));
	vb_put_bytes(w, p->sgid, sizeof(p->sgid));
	vb_put16(w, p->dlid);
	vb_put16(w, p->slid);
	vb_put32(w, (p->flow_label & 0xfffff) << 8 | p->hop_limit);
	vb_put8(w, p->traffic_class);
	vb_put8(w, (uint8_t)(p->reversible << 7 | (p->numb_path & 0x7f)));
	vb_put16(w, p->pkey);
	vb_put16(w, (uint16_t)(p->qos_class << 4 | (p->sl & 15)));
	vb_put8(w, SELECTOR_EXACTLY | (p->mtu & CODE_BITS));
	vb_put8(w, SELECTOR_EXACTLY | (p->rate & CODE_BITS));
	vb_put8(w, SELECTOR_EXACTLY | (p->lifetime & CODE_BITS));
	vb_put8(w, p->preference);
}

static void get_gid(struct vb_reader *r, uint8_t gid[16])
{
	const uint8_t *at = vb_take(r, 16);

	if (at)
		memcpy(gid, at, 16);
}

static void get_path(struct vb_reader *r, struct vb_sa_path *p)
{
	p->service_id = vb_get64(r);
	get_gid(r, p->dgid);
	get_gid(r, p->sgid);
	p->dlid = vb_get16(r);
	p->slid = vb_get16(r);
	uint32_t flow = vb_get32(r);
	p->flow_label = flow >> 8 & 0xfffff;
	p->hop_limit = (uint8_t)flow;
	p->traffic_class = vb_get8(r);
	uint8_t count = vb_get8(r);
	p->reversible = count >> 7;
	p->numb_path = count & 0x7f;
	p->pkey = vb_get16(r);
	uint16_t sl = vb_get16(r);
	p->qos_class = sl >> 4;
	p->sl = sl & 15;
	p->mtu = vb_get8(r) & CODE_BITS;
	p->rate = vb_get8(r) & CODE_BITS;
	p->lifetime = vb_get8(r) & CODE_BITS;
	p->preference = vb_get8(r);
}

static void put_member(struct vb_writer *w, const struct vb_sa_member *m)
{
	vb_put_bytes(w, m->mgid, sizeof(m->mgid));
	vb_put_bytes(w, m->port_gid, sizeof(m->port_gid));
	vb_put32(w, m->qkey);
	vb_put16(w, m->mlid);
	vb_put8(w, SELECTOR_EXACTLY | (m->mtu & CODE_BITS));
	vb_put8(w, m->traffic_class);
	vb_put16(w, m->pkey);
	vb_put8(w, SELECTOR_EXACTLY | (m->rate & CODE_BITS));
	vb_put8(w, SELECTOR_EXACTLY | (m->lifetime & CODE_BITS));
	vb_put32(w, (uint32_t)(m->sl & 15) << 28 | (m->flow_label & 0xfffff) << 8 | m->hop_limit);
	vb_put8(w, (uint8_t)(m->scope << 4 | (m->join_state & 15)));
}

static void get_member(struct vb_reader *r, struct vb_sa_member *m)
{
	get_gid(r, m->mgid);
	get_gid(r, m->port_gid);
	m->qkey = vb_get32(r);
	m->mlid = vb_get16(r);
	m->mtu = vb_get8(r) & CODE_BITS;
	m->traffic_class = vb_get8(r);
	m->pkey = vb_get16(r);
	m->rate = vb_get8(r) & CODE_BITS;
	m->lifetime = vb_get8(r) & CODE_BITS;
	uint32_t flow = vb_get32(r);
	m->sl = flow >> 28;
	m->flow_label = flow >> 8 & 0xfffff;
	m->hop_limit = (uint8_t)flow;
	uint8_t state = vb_get8(r);
	m->scope = state >> 4;
	m->join_state = state & 15;
}

/* What precedes the record. */
static struct vb_writer begin_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint8_t method, uint16_t attr, uint64_t mask)
{
	const struct vb_mad h = {.base_version = VB_MAD_BASE_VERSION,
	                         .mgmt_class = VB_MAD_CLASS_SA,
	                         .class_version = VB_MAD_CLASS_SA_VERSION,
	                         .method = method,
	                         .tid = tid,
	                         .attr_id = attr};
	struct vb_writer w = vb_writer(mad, VB_MAD_LEN);

	memset(mad, 0, VB_MAD_LEN);
	vb_mad_encode(&w, &h);
	vb_put_zeros(&w, RMPP_LEN + SM_KEY_LEN);
	vb_put32(&w, 0); /* AttributeOffset, reserved */
	vb_put64(&w, mask);
	return w;
}

/* Returns a reader of the record, which has failed if the datagram is of another class or attribute. */
static struct vb_reader begin_record(const uint8_t *mad, size_t len, uint16_t attr, struct vb_mad *h)
{
	struct vb_reader r = vb_reader(mad, len);

	vb_mad_decode(&r, h);
	vb_take(&r, RMPP_LEN + SM_KEY_LEN + 4 + 8);
	if (h->base_version != VB_MAD_BASE_VERSION || h->mgmt_class != VB_MAD_CLASS_SA ||
	    h->class_version != VB_MAD_CLASS_SA_VERSION || h->attr_id != attr)
		r.failed = true;
	return r;
}

void vb_sa_path_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint64_t mask, const struct vb_sa_path *want)
{
	struct vb_writer w = begin_query(mad, tid, VB_MAD_GET, VB_SA_PATH_RECORD, mask);

	put_path(&w, want);
}

bool vb_sa_path_answer(const uint8_t *mad, size_t len, uint64_t *tid, uint16_t *status, struct vb_sa_path *path)
{
	struct vb_mad h;
	struct vb_reader r = begin_record(mad, len, VB_SA_PATH_RECORD, &h);
	struct vb_sa_path got;

	get_path(&r, &got);
	if (r.failed || h.method != VB_MAD_GET_RESP)
		return false;
	*tid = h.tid;
	*status = h.status;
	*path = got;
	return true;
}

void vb_sa_member_query(uint8_t mad[VB_MAD_LEN], uint64_t tid, uint8_t method, uint64_t mask,
                        const struct vb_sa_member *want)
{
	struct vb_writer w = begin_query(mad, tid, method, VB_SA_MEMBER_RECORD, mask);

	put_member(&w, want);
}

/* The method of such a datagram, or 0. */
static uint8_t member_decode(const uint8_t *mad, size_t len, uint16_t *status, struct vb_sa_member *member)
{
	struct vb_mad h;
	struct vb_reader r = begin_record(mad, len, VB_SA_MEMBER_RECORD, &h);
	struct vb_sa_member got;

	get_member(&r, &got);
	if (r.failed)
		return 0;
	*status = h.status;
	*member = got;
	return h.method;
}

uint8_t vb_sa_member_asked(const uint8_t mad[VB_MAD_LEN], struct vb_sa_member *member)
{
	uint16_t status;
	uint8_t method = member_decode(mad, VB_MAD_LEN, &status, member);

	return method == VB_MAD_SET || method == VB_SA_DELETE ? method : 0;
}

bool vb_sa_member_answer(const uint8_t *mad, size_t len, uint16_t *status, struct vb_sa_member *member)
{
	struct vb_sa_member got;
	uint16_t said;

	if (member_decode(mad, len, &said, &got) != VB_MAD_GET_RESP)
		return false;
	*status = said;
	*member = got;
	return true;
}
