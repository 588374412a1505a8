// nvme_test.c - bytes and numbers: checksums, names, PDU headers; structures pinned to libnvme's where that is
// installed
// follows: NVM Express Base 1.4; NVMe/TCP transport specification 1.0; RFC 3720 B.4 for the checksums
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/crc32c.h"
#include "nvme/nqn.h"
#include "nvme/nvme.h"
#include "nvme/tcp_pdu.h"

#ifdef HAVE_LIBNVME
#include <nvme/types.h>
#endif

static void checksums_are_those_of_the_standard(void)
{
	uint8_t b[48];

	memset(b, 0, 32);
	SAME(vb_crc32c(0, b, 32), 0x8a9136aa);
	memset(b, 0xff, 32);
	SAME(vb_crc32c(0, b, 32), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++)
		b[i] = i;
	SAME(vb_crc32c(0, b, 32), 0x46dd794e);
	for (size_t len = 0; len <= 32; len++)
		for (size_t cut = 0; cut <= len; cut++) {
			SAME(vb_crc32c(vb_crc32c(0, b, cut), b + cut, len - cut), vb_crc32c_portable(0, b, len));
			SAME(vb_crc32c_portable(vb_crc32c_portable(0, b, cut), b + cut, len - cut),
			     vb_crc32c(0, b, len));
		}
}

static void names_are_checked_to_their_end(void)
{
	char field[256];

	CHECK(nv_nqn_valid("nqn.2014-08.org.nvmexpress.discovery", 256));
	CHECK(!nv_nqn_valid("", 256));
	CHECK(!nv_nqn_valid("iqn.2014-08.org.nvmexpress.discovery", 256));
	CHECK(!nv_nqn_valid("nqn.20x4-08.org.nvmexpress", 256));
	CHECK(!nv_nqn_valid("nqn.2014-08.", 256));
	CHECK(!nv_nqn_valid("nqn.2014-08.a b", 256));
	CHECK(nv_nqn_valid("nqn.2014-08.\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 256));
	static const char *const bytes[] = {"\xff",
	                                    "\x80",
	                                    "\xc3",
	                                    "\xc0\xaf",
	                                    "\xe0\x80\x80",
	                                    "\xed\xa0\x80",
	                                    "\xf0\x80\x80\x80",
	                                    "\xf4\x90\x80\x80",
	                                    "\xf5\x80\x80\x80",
	                                    "\xe2\x82",
	                                    "\xc2\x9b[31m",
	                                    "\x1b[31m"};

	for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
		snprintf(field, sizeof(field), "nqn.2014-08.%s", bytes[i]);
		CHECK(!nv_nqn_valid(field, 256));
		strcat(field, "x");
		CHECK(!nv_nqn_valid(field, 256));
	}
	memset(field, 'a', sizeof(field));
	memcpy(field, "nqn.2014-08.", 12);
	CHECK(!nv_nqn_valid(field, 256));
	field[224] = 0;
	CHECK(!nv_nqn_valid(field, 256));
	field[223] = 0;
	CHECK(nv_nqn_valid(field, 256));
	CHECK(!nv_nqn_valid(field, 223));
}

static void uuids_are_read_and_written(void)
{
	uint8_t a[16], b[16];
	char text[NV_UUID_TEXT];

	nv_uuid_from("name", 1, a);
	nv_uuid_format(a, text);
	CHECK(strlen(text) == 36 && text[14] == '8');
	CHECK(nv_uuid_parse(text, b) && !memcmp(a, b, 16));
	nv_uuid_from("name", 2, b);
	CHECK(memcmp(a, b, 16));
	CHECK(!nv_uuid_parse("", b) && !nv_uuid_parse("0123", b) && !nv_uuid_parse("g", b));
	strcat(text, "");
	text[35] = 0;
	CHECK(!nv_uuid_parse(text, b));
}

static void commands_come_back_from_their_bytes(void)
{
	uint8_t at[NV_SQE_LEN];
	struct nv_sqe c = {.opcode = 2,
	                   .fuse = 1,
	                   .psdt = 1,
	                   .cid = 0x1234,
	                   .nsid = 0x89abcdef,
	                   .sgl = {.type = NV_SGL_KEYED,
	                           .subtype = 0xf,
	                           .length = 0x123456,
	                           .key = 0xdeadbeef,
	                           .address = 0x1122334455667788},
	                   .cdw = {1, 2, 3, 4, 5, 0xffffffff}};

	nv_sqe_encode(&c, at);
	struct nv_sqe d = nv_sqe_decode(at);

	SAME(d.opcode, 2);
	SAME(d.fuse, 1);
	SAME(d.psdt, 1);
	SAME(d.cid, 0x1234);
	SAME(d.nsid, 0x89abcdef);
	SAME(d.sgl.length, 0x123456);
	SAME(d.sgl.key, 0xdeadbeef);
	SAME(d.sgl.address, 0x1122334455667788);
	SAME(at[39], 0x4f);
	SAME(d.cdw[5], 0xffffffff);
	struct nv_cqe e = {.result = 0x0102030405060708,
	                   .sqhd = 9,
	                   .sqid = 10,
	                   .cid = 11,
	                   .status = NV_INVALID_FIELD | NV_DNR},
	              f;

	nv_cqe_encode(&e, at);
	SAME(at[15], 0x80);
	SAME(at[14], 4);
	f = nv_cqe_decode(at);
	CHECK(f.result == e.result && f.sqhd == 9 && f.sqid == 10 && f.cid == 11 && f.status == e.status);
}

static void statuses_have_texts(void)
{
	CHECK(!strcmp(nv_status_text(NV_LBA_RANGE | NV_DNR), "LBA out of range"));
	CHECK(!strcmp(nv_status_text(0x7fe), "unknown status"));
}

/* All headers of eight bytes from a small set of values: an accepted one has a data length that fits. */
static void accepted_headers_are_consistent(void)
{
	static const uint8_t lens[] = {0, 8, 24, 28, 72, 76, 128, 255};
	static const uint32_t plens[] = {0, 7, 24, 28, 32, 72, 76, 80, 84, 128, 152, 153, 4096, UINT32_MAX};

	for (unsigned type = 0; type < 12; type++)
		for (unsigned flags = 0; flags < 32; flags++)
			for (unsigned bits = 0; bits < 4; bits++)
				for (unsigned i = 0; i < 8 * 8 * 14 * 2; i++) {
					struct nv_tcp_common c = {.type = (uint8_t)type,
					                          .flags = (uint8_t)flags,
					                          .hlen = lens[i % 8],
					                          .pdo = lens[i / 8 % 8],
					                          .plen = plens[i / 64 % 14]};
					uint32_t data = 12345, fei = 0;
					int fes = nv_tcp_check(&c, i / 896, (uint8_t)bits, 0, &data, &fei);

					CHECK(fes == 0 || (fes == NV_TCP_FES_HEADER && fei <= 4));
					if (!fes)
						CHECK(!data || (c.pdo >= c.hlen && (uint64_t)c.pdo + data <= c.plen));
				}
}

#ifdef HAVE_LIBNVME
#define PIN(structure, member, at) _Static_assert(offsetof(struct structure, member) == (at), #member)
PIN(nvme_id_ctrl, mdts, 77);
PIN(nvme_id_ctrl, cntrltype, 111);
PIN(nvme_id_ctrl, kas, 320);
PIN(nvme_id_ctrl, anacap, 343);
PIN(nvme_id_ctrl, nanagrpid, 348);
PIN(nvme_id_ctrl, maxcmd, 514);
PIN(nvme_id_ctrl, oncs, 520);
PIN(nvme_id_ctrl, vwc, 525);
PIN(nvme_id_ctrl, sgls, 536);
PIN(nvme_id_ctrl, mnan, 540);
PIN(nvme_id_ctrl, subnqn, 768);
PIN(nvme_id_ctrl, ioccsz, 1792);
PIN(nvme_id_ctrl, ofcs, 1804);
PIN(nvme_id_ctrl, psd, 2048);
PIN(nvme_id_ns, nmic, 30);
PIN(nvme_id_ns, dlfeat, 33);
PIN(nvme_id_ns, npwg, 64);
PIN(nvme_id_ns, anagrpid, 92);
PIN(nvme_id_ns, nsattr, 99);
PIN(nvme_id_ns, nguid, 104);
PIN(nvme_id_ns, lbaf, 128);
PIN(nvmf_disc_log_entry, trsvcid, 32);
PIN(nvmf_disc_log_entry, subnqn, 256);
PIN(nvmf_disc_log_entry, traddr, 512);
PIN(nvmf_disc_log_entry, tsas, 768);
PIN(nvmf_connect_data, cntlid, NV_CONNECT_AT_CNTLID);
PIN(nvmf_connect_data, subsysnqn, NV_CONNECT_AT_SUBNQN);
PIN(nvmf_connect_data, hostnqn, NV_CONNECT_AT_HOSTNQN);
PIN(nvme_error_log_page, lba, 16);
PIN(nvme_smart_log, data_units_read, 32);
PIN(nvme_smart_log, host_reads, 64);
PIN(nvme_smart_log, power_on_hours, 128);
PIN(nvme_smart_log, num_err_log_entries, 176);
PIN(nvme_ana_group_desc, nsids, 32);
PIN(nvme_ana_log, descs, 16);
#endif

int main(void)
{
	RUN(checksums_are_those_of_the_standard);
	RUN(names_are_checked_to_their_end);
	RUN(uuids_are_read_and_written);
	RUN(commands_come_back_from_their_bytes);
	RUN(statuses_have_texts);
	RUN(accepted_headers_are_consistent);
	return 0;
}
