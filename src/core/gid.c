// gid.c - the GID table of a port, computed from the interface's addresses
// follows: IBA Annex A17 (RoCEv2) A17.3.1; the Linux RoCE GID cache (roce_gid_mgmt.c)
// SPDX-License-Identifier: MIT
#include "core/gid.h"

#include <string.h>

void vb_gid_eui64(uint8_t eui[8], const uint8_t mac[6])
{
	eui[0] = mac[0] ^ 2;
	eui[1] = mac[1];
	eui[2] = mac[2];
	eui[3] = 0xff;
	eui[4] = 0xfe;
	eui[5] = mac[3];
	eui[6] = mac[4];
	eui[7] = mac[5];
}

void vb_gid_default(union ibv_gid *gid, const uint8_t mac[6])
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	vb_gid_eui64(gid->raw + 8, mac);
}

bool vb_gid_is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

int vb_gid_table_find(const struct vb_gid_table *table, const union ibv_gid *gid)
{
	if (vb_gid_is_zero(gid))
		return -1;
	for (int i = 0; i < VB_GID_TBL_LEN; i++)
		if (!memcmp(&table->gid[i], gid, sizeof(*gid)))
			return i;
	return -1;
}

static bool gid_among(const union ibv_gid *gid, const uint8_t (*addrs)[16], size_t n_addrs)
{
	for (size_t i = 0; i < n_addrs; i++)
		if (!memcmp(addrs[i], gid->raw, 16))
			return true;
	return false;
}

static bool enter_gid(struct vb_gid_table *table, const union ibv_gid *gid)
{
	for (int i = 1; i < VB_GID_TBL_LEN; i++) {
		if (vb_gid_is_zero(&table->gid[i])) {
			table->gid[i] = *gid;
			return true;
		}
	}
	return false;
}

bool vb_gid_table_update(struct vb_gid_table *table, const uint8_t mac[6], const uint8_t (*addrs)[16], size_t n_addrs)
{
	union ibv_gid gid;
	bool changed = false;

	vb_gid_default(&gid, mac);
	if (memcmp(&table->gid[0], &gid, sizeof(gid))) {
		table->gid[0] = gid;
		changed = true;
	}
	for (int i = 1; i < VB_GID_TBL_LEN; i++) {
		bool repeats = !memcmp(&table->gid[i], &table->gid[0], sizeof(gid));

		if (vb_gid_is_zero(&table->gid[i]) || (!repeats && gid_among(&table->gid[i], addrs, n_addrs)))
			continue;
		memset(&table->gid[i], 0, sizeof(gid));
		changed = true;
	}
	for (size_t i = 0; i < n_addrs; i++) {
		memcpy(gid.raw, addrs[i], 16);
		if (!vb_gid_is_zero(&gid) && vb_gid_table_find(table, &gid) < 0)
			changed |= enter_gid(table, &gid);
	}
	return changed;
}
