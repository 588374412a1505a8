// fabric_group.c - multicast groups on an InfiniBand fabric: their MGIDs, and the membership record of the subnet administrator
// follows: rdma_join_multicast(3); IBA volume 1, 15.2.5.17 (MCMemberRecord); RFC 4391 §4 (IP groups as MGIDs)
// SPDX-License-Identifier: MIT
#include "frame/fields.h"
#include "frame/sa.h"
#include "frame/smp.h"
#include "rdmacm/fabric.h"

enum { FULL_MEMBER = 0x8000, ANSWER_MS = 10000, NO_MEMBER = EINVAL };
/* RFC 4391 §4: transient groups of link-local scope. */
enum { PREFIX_LINK_LOCAL = 0xff12, SIGNATURE_IPV4 = 0x401b, SIGNATURE_IPV6 = 0x601b };

static uint16_t pkey_of_group(const struct rcm_id *id)
{
	return (id->path.pkey ? id->path.pkey : VB_DEFAULT_PKEY) | FULL_MEMBER;
}

/* An IPv6 address that is the MGID itself: the subnet administrator assigns such ones. */
static bool is_assigned(const uint8_t ip[16])
{
	return ip[0] == 0xff && ip[1] >> 4 == 1 && ip[2] == 0xa0 && ip[3] == 0x1b;
}

/* As the kernel makes them: groups of RDMA_PS_UDP, which have another Q_Key than IPoIB's, have the signature's last byte 1. */
void rcm_fabric_group(const struct rcm_id *id, const union rcm_addr *addr, union ibv_gid *mgid)
{
	bool v6 = addr->sa.sa_family == AF_INET6;
	uint16_t signature = v6 ? SIGNATURE_IPV6 : SIGNATURE_IPV4;
	struct vb_writer w = vb_writer(mgid->raw, sizeof(mgid->raw));

	if (addr->sa.sa_family == AF_IB || (v6 && is_assigned(addr->sin6.sin6_addr.s6_addr))) {
		rcm_addr_gid(addr, mgid->raw);
		return;
	}
	vb_put16(&w, PREFIX_LINK_LOCAL);
	vb_put16(&w, id->id.ps == RDMA_PS_UDP ? (signature & 0xff00) | 1 : signature);
	vb_put16(&w, pkey_of_group(id));
	if (v6) {
		vb_put_bytes(&w, &addr->sin6.sin6_addr.s6_addr[6], 10);
		return;
	}
	vb_put_zeros(&w, 6);
	vb_put32(&w, ntohl(addr->sin.sin_addr.s_addr) & 0x0fffffff);
}

static struct vb_sa_member record_of(const struct rcm_id *id, const struct rcm_mcast *mc)
{
	struct vb_sa_member m = {.qkey = RDMA_UDP_QKEY,
	                         .pkey = pkey_of_group(id),
	                         .join_state = mc->send_only ? VB_SA_SEND_ONLY_FULL_MEMBER : VB_SA_FULL_MEMBER};

	memcpy(m.mgid, mc->mgid.raw, sizeof(m.mgid));
	memcpy(m.port_gid, id->source.gid.raw, sizeof(m.port_gid));
	return m;
}

int rcm_fabric_join(struct rcm_id *id, struct rcm_mcast *mc)
{
	uint8_t mad[VB_MAD_LEN];

	if (!rcm_fabric_present())
		return ENODEV;
	rcm_fabric_group(id, &mc->addr, &mc->mgid);
	mc->question = rcm_fabric_question();
	mc->asked = true;
	const struct vb_sa_member want = record_of(id, mc);

	vb_sa_member_query(mad, mc->question, VB_MAD_SET, VB_SA_MEMBER_NAME | VB_SA_MEMBER_NEW, &want);
	rcm_fabric_ask_sa(mad, ANSWER_MS);
	return 0;
}

void rcm_fabric_leave(const struct rcm_id *id, struct rcm_mcast *mc)
{
	const struct vb_sa_member m = record_of(id, mc);
	uint8_t mad[VB_MAD_LEN];

	mc->asked = false;
	vb_sa_member_query(mad, rcm_fabric_question(), VB_SA_DELETE, VB_SA_MEMBER_NAME, &m);
	rcm_fabric_ask_sa(mad, ANSWER_MS);
}

/* --- the answer --- */

static void conclude_join(struct rcm_id *id, struct rcm_mcast *mc, int err, const struct vb_sa_member *m)
{
	struct ibv_ah_attr ah = {.port_num = id->source.port, .is_global = 1};

	mc->question = 0;
	if (err) {
		rcm_post_joined(id, mc, err, &ah, 0);
		return;
	}
	mc->mlid = m->mlid;
	ah.dlid = m->mlid;
	ah.sl = m->sl;
	ah.static_rate = m->rate;
	ah.grh = (struct ibv_global_route){.dgid = mc->mgid,
	                                   .flow_label = m->flow_label,
	                                   .sgid_index = (uint8_t)id->source.gid_index,
	                                   .hop_limit = m->hop_limit,
	                                   .traffic_class = m->traffic_class};
	rcm_post_joined(id, mc, 0, &ah, m->qkey);
}

static void group_told(struct rcm_id *id, struct rcm_mcast *mc, const struct vb_fabric_sa_is *is)
{
	struct vb_sa_member m = {0};
	uint16_t status = 0;
	bool joined = !is->error && vb_sa_member_answer(is->mad, sizeof(is->mad), &status, &m) && !status &&
	              vb_ib_is_group_lid(m.mlid);

	conclude_join(id, mc, joined ? 0 : is->error ? is->error : NO_MEMBER, &m);
}

void rcm_fabric_group_told(uint32_t question, const struct vb_fabric_sa_is *is)
{
	for (struct rcm_id *id = rcm.ids; id; id = id->next)
		for (struct rcm_mcast *mc = id->mcasts; mc; mc = mc->next)
			if (mc->question == question) {
				group_told(id, mc, is);
				return;
			}
}

/* As the kernel does it: an error with ENETRESET, and the program may leave the group and join it again. */
void rcm_fabric_group_lost(const struct vb_fabric_sa_is *is)
{
	const struct ibv_ah_attr none = {0};
	struct vb_sa_member m;

	if (vb_sa_member_asked(is->mad, &m) != VB_MAD_SET)
		return;
	rcm_lock();
	for (struct rcm_id *id = rcm.ids; id; id = id->next)
		for (struct rcm_mcast *mc = id->mcasts; mc; mc = mc->next)
			if (mc->asked && !mc->question && mc->mlid && !memcmp(mc->mgid.raw, m.mgid, sizeof(m.mgid)))
				rcm_post_joined(id, mc, ENETRESET, &none, 0);
	rcm_unlock();
}

void rcm_fabric_group_unanswered(struct rcm_id *id, int err)
{
	for (struct rcm_mcast *mc = id->mcasts; mc; mc = mc->next)
		if (mc->question)
			conclude_join(id, mc, err, NULL);
}
