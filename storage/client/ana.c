// ana.c - the log page of asymmetric namespace access: what it says of a namespace
// follows: NVM Express Base 1.4, 5.14.1.12
// SPDX-License-Identifier: MIT
#include "client/client.h"
#include "nvme/le.h"

#define HEAD 16u
#define GROUP 32u
#define IDS_MAX (1u << 20) /* ids of a group; more is nonsense */

static bool is_state(uint8_t s)
{
	return (s >= NV_ANA_OPTIMIZED && s <= NV_ANA_LOSS) || s == NV_ANA_CHANGE;
}

const char *vn_access_name(uint8_t state)
{
	switch (state) {
	case NV_ANA_OPTIMIZED:
		return "optimized";
	case NV_ANA_NON_OPTIMIZED:
		return "non-optimized";
	case NV_ANA_INACCESSIBLE:
		return "inaccessible";
	case NV_ANA_LOSS:
		return "persistent-loss";
	default:
		return "change";
	}
}

/* Looks for nsid in the ids of a group. length: bytes of the page from there on */
static enum vn_found_access find_id(const uint8_t *ids, size_t length, uint32_t n, uint32_t nsid)
{
	for (uint32_t i = 0; i < n; i++) {
		if (length - 4 * (size_t)i < 4)
			return VN_ACCESS_MORE;
		if (nv_get32(ids + 4 * (size_t)i) == nsid)
			return VN_ACCESS_FOUND;
	}
	return VN_ACCESS_NONE;
}

enum vn_found_access vn_access_find(const uint8_t *page, size_t length, uint32_t nsid, uint8_t *state)
{
	size_t at = HEAD;

	if (length < HEAD)
		return VN_ACCESS_MORE;
	for (uint32_t groups = nv_get16(page + 8); groups; groups--) {
		if (length - at < GROUP)
			return VN_ACCESS_MORE;
		uint32_t n = nv_get32(page + at + 4);
		uint8_t s = page[at + 16] & 15;

		if (n > IDS_MAX || !is_state(s))
			return VN_ACCESS_WRONG;
		at += GROUP;
		enum vn_found_access f = find_id(page + at, length - at, n, nsid);

		if (f == VN_ACCESS_FOUND)
			*state = s;
		if (f != VN_ACCESS_NONE)
			return f;
		at += 4 * (size_t)n;
	}
	return VN_ACCESS_NONE;
}
