// fuzz_mad.c - arbitrary bytes as management datagrams: what was decoded encodes, and decodes to the same
// follows: IBA volume 1, 13.6.2 (RMPP), 14.2 (subnet management), 16.1 (performance management)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <string.h>

#include "frame/pma.h"
#include "frame/rmpp.h"
#include "frame/sa.h"
#include "frame/smp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was decoded is the same after it was encoded and decoded: encoding loses nothing. */
#define STABLE(type, decode, encode, from)             \
	do {                                           \
		struct type x_, y_;                    \
		uint8_t data_[VB_SMP_DATA];            \
		memset(&x_, 0, sizeof(x_));            \
		memset(&y_, 0, sizeof(y_));            \
		decode(&x_, from);                     \
		encode(data_, &x_);                    \
		decode(&y_, data_);                    \
		assert(!memcmp(&x_, &y_, sizeof(x_))); \
	} while (0)

/* A path that was decoded is the same after a query for it was encoded, and turned into its answer. */
static void try_path(const uint8_t *data, size_t size)
{
	struct vb_sa_path path, again;
	uint8_t mad[VB_MAD_LEN];
	uint16_t status;
	uint64_t tid;

	memset(&path, 0, sizeof(path));
	memset(&again, 0, sizeof(again));
	if (!vb_sa_path_answer(data, size, &tid, &status, &path))
		return;
	vb_sa_path_query(mad, tid, ~0ull, &path);
	mad[3] |= VB_MAD_RESPONSE;
	assert(vb_sa_path_answer(mad, sizeof(mad), &tid, &status, &again) && !status);
	assert(!memcmp(path.dgid, again.dgid, 16) && path.dlid == again.dlid && path.slid == again.slid &&
	       path.pkey == again.pkey && path.mtu == again.mtu && path.sl == again.sl &&
	       path.hop_limit == again.hop_limit && path.flow_label == again.flow_label);
}

static void try_member(const uint8_t *data, size_t size)
{
	struct vb_sa_member m, again;
	uint8_t mad[VB_MAD_LEN];
	uint16_t status;

	if (!vb_sa_member_answer(data, size, &status, &m))
		return;
	vb_sa_member_query(mad, 1, VB_MAD_GET_RESP, ~0ull, &m);
	assert(vb_sa_member_answer(mad, sizeof(mad), &status, &again) && !status);
	assert(!memcmp(m.mgid, again.mgid, 16) && !memcmp(m.port_gid, again.port_gid, 16) && m.mlid == again.mlid &&
	       m.qkey == again.qkey && m.pkey == again.pkey && m.mtu == again.mtu && m.sl == again.sl &&
	       m.hop_limit == again.hop_limit && m.flow_label == again.flow_label && m.scope == again.scope &&
	       m.join_state == again.join_state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t mad[VB_MAD_LEN] = {0}, again[VB_MAD_LEN];
	struct vb_smp smp, smp_again;
	struct vb_rmpp rmpp;
	struct vb_pma_select select;
	struct vb_port_counters counters, counters_again;
	struct vb_class_port_info info = {0}, info_again = {0};

	memcpy(mad, data, size < sizeof(mad) ? size : sizeof(mad));
	vb_smp_decode(&smp, mad);
	vb_smp_encode(again, &smp);
	vb_smp_decode(&smp_again, again); /* both begin with zeros */
	assert(!memcmp(&smp, &smp_again, sizeof(smp)));
	STABLE(vb_node_info, vb_node_info_decode, vb_node_info_encode, mad + 64);
	STABLE(vb_port_info, vb_port_info_decode, vb_port_info_encode, mad + 64);
	STABLE(vb_switch_info, vb_switch_info_decode, vb_switch_info_encode, mad + 64);
	STABLE(vb_notice, vb_notice_decode, vb_notice_encode, mad + 64);
	try_path(data, size);
	try_member(data, size);
	vb_rmpp_decode(&rmpp, mad);
	memcpy(again, mad, sizeof(again));
	vb_rmpp_encode(again, &rmpp);
	assert(!memcmp(again, mad, sizeof(again)));
	vb_pma_select_decode(&select, mad + VB_PMA_DATA_AT, data && size & 1);
	vb_pma_counters_decode(&counters, mad + VB_PMA_DATA_AT);
	vb_pma_counters_encode(again + VB_PMA_DATA_AT, &select, &counters);
	vb_pma_counters_decode(&counters_again, again + VB_PMA_DATA_AT);
	assert(!memcmp(&counters, &counters_again, sizeof(counters)));
	vb_class_port_info_decode(&info, mad + VB_PMA_DATA_AT);
	vb_class_port_info_encode(again + VB_PMA_DATA_AT, &info);
	vb_class_port_info_decode(&info_again, again + VB_PMA_DATA_AT);
	assert(!memcmp(&info, &info_again, sizeof(info)));
	return 0;
}
