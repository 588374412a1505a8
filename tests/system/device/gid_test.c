// gid_test.c - the GID table follows the addresses and never moves an entry
// follows: IBA Annex A17; RFC 4291 App. A
// SPDX-License-Identifier: MIT
#include "core/gid.h"

#include <arpa/inet.h>
#include <string.h>

#include "../../support/check.h"

static const uint8_t mac[6] = {0x02, 0xfc, 0, 0, 0, 1};
static uint8_t addrs[VB_GID_TBL_LEN + 10][16];

/* Sets the addresses from texts, up to NULL. Returns their number. */
static size_t set(const char *const *texts)
{
	size_t n = 0;

	for (; texts[n]; n++)
		CHECK(inet_pton(AF_INET6, texts[n], addrs[n]) == 1);
	return n;
}

#define UPDATE(t, ...)                                           \
	vb_gid_table_update(t, mac, (const uint8_t(*)[16])addrs, \
	                    set((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL}))

static bool is(const struct vb_gid_table *t, int index, const char *text)
{
	uint8_t raw[16];

	CHECK(inet_pton(AF_INET6, text, raw) == 1);
	return !memcmp(t->gid[index].raw, raw, 16);
}

static void index_0_is_the_default_gid_of_the_mac(void)
{
	struct vb_gid_table t = {0};

	CHECK(UPDATE(&t));
	CHECK(is(&t, 0, "fe80::fc:ff:fe00:1"));
	CHECK(is(&t, 1, "::"));
	CHECK(!UPDATE(&t));
}

static void a_mac_of_zeros_has_a_default_gid_too(void)
{
	struct vb_gid_table t = {0};

	CHECK(vb_gid_table_update(&t, (const uint8_t[6]){0}, NULL, 0));
	CHECK(is(&t, 0, "fe80::200:ff:fe00:0"));
}

static void addresses_follow_from_1_in_their_order(void)
{
	struct vb_gid_table t = {0};

	CHECK(UPDATE(&t, "::ffff:192.0.2.2", "fd00::2"));
	CHECK(is(&t, 1, "::ffff:192.0.2.2") && is(&t, 2, "fd00::2") && is(&t, 3, "::"));
}

static void the_link_local_address_that_is_the_default_gid_is_not_repeated(void)
{
	struct vb_gid_table t = {0};

	CHECK(UPDATE(&t, "fe80::fc:ff:fe00:1", "fe80::1234"));
	CHECK(is(&t, 1, "fe80::1234") && is(&t, 2, "::"));
}

static void duplicates_are_entered_once(void)
{
	struct vb_gid_table t = {0};

	CHECK(UPDATE(&t, "fd00::1", "fd00::1", "::ffff:10.0.0.1", "fd00::1"));
	CHECK(is(&t, 1, "fd00::1") && is(&t, 2, "::ffff:10.0.0.1") && is(&t, 3, "::"));
}

static void entries_keep_their_index_and_new_ones_fill_holes(void)
{
	struct vb_gid_table t = {0};

	UPDATE(&t, "fd00::1", "fd00::2", "fd00::3");
	CHECK(UPDATE(&t, "fd00::1", "fd00::3"));
	CHECK(is(&t, 1, "fd00::1") && is(&t, 2, "::") && is(&t, 3, "fd00::3"));
	CHECK(!UPDATE(&t, "fd00::3", "fd00::1"));
	CHECK(UPDATE(&t, "fd00::4", "fd00::3", "fd00::1", "fd00::5"));
	CHECK(is(&t, 1, "fd00::1") && is(&t, 2, "fd00::4") && is(&t, 3, "fd00::3") && is(&t, 4, "fd00::5"));
	CHECK(UPDATE(&t));
	for (int i = 1; i < VB_GID_TBL_LEN; i++)
		CHECK(vb_gid_is_zero(&t.gid[i]));
}

static void what_does_not_fit_is_left_out_and_comes_in_when_there_is_room(void)
{
	struct vb_gid_table t = {0};
	size_t n = VB_GID_TBL_LEN + 10;

	memset(addrs, 0, sizeof(addrs));
	for (size_t i = 0; i < n; i++) {
		addrs[i][0] = 0xfd;
		addrs[i][15] = (uint8_t)i;
		addrs[i][14] = 1;
	}
	vb_gid_table_update(&t, mac, (const uint8_t(*)[16])addrs, n);
	CHECK(!memcmp(t.gid[VB_GID_TBL_LEN - 1].raw, addrs[VB_GID_TBL_LEN - 2], 16));
	vb_gid_table_update(&t, mac, (const uint8_t(*)[16])addrs + 1, n - 1);
	CHECK(!memcmp(t.gid[1].raw, addrs[VB_GID_TBL_LEN - 1], 16));
	CHECK(!memcmp(t.gid[2].raw, addrs[1], 16));
}

static void a_new_mac_changes_index_0_only(void)
{
	struct vb_gid_table t = {0};

	UPDATE(&t, "fd00::1", "fe80::fc:ff:fe00:2");
	CHECK(is(&t, 2, "fe80::fc:ff:fe00:2"));
	set((const char *const[]){"fd00::1", "fe80::fc:ff:fe00:2", NULL});
	CHECK(vb_gid_table_update(&t, (const uint8_t[6]){0x02, 0xfc, 0, 0, 0, 2}, (const uint8_t(*)[16])addrs, 2));
	CHECK(is(&t, 0, "fe80::fc:ff:fe00:2") && is(&t, 1, "fd00::1"));
	CHECK(is(&t, 2, "::"));
}

static void the_zero_gid_is_never_found(void)
{
	struct vb_gid_table t = {0};
	union ibv_gid zero = {0};

	UPDATE(&t, "fd00::1");
	CHECK(vb_gid_table_find(&t, &zero) == -1);
	CHECK(vb_gid_table_find(&t, &t.gid[1]) == 1);
}

int main(void)
{
	RUN(index_0_is_the_default_gid_of_the_mac);
	RUN(a_mac_of_zeros_has_a_default_gid_too);
	RUN(addresses_follow_from_1_in_their_order);
	RUN(the_link_local_address_that_is_the_default_gid_is_not_repeated);
	RUN(duplicates_are_entered_once);
	RUN(entries_keep_their_index_and_new_ones_fill_holes);
	RUN(what_does_not_fit_is_left_out_and_comes_in_when_there_is_room);
	RUN(a_new_mac_changes_index_0_only);
	RUN(the_zero_gid_is_never_found);
	return 0;
}
