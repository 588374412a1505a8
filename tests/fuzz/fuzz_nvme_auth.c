// fuzz_nvme_auth.c - a hostile host at the target's authentication: any messages in any order, some with values that
// only an honest host knows. No host without the secret gets in
// follows: NVM Express Base 2.0, 8.13.5
// SPDX-License-Identifier: MIT
#include <stdint.h>

#include "host.h"
#include "nvme/chap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t at[4096];

static void ask(struct host *h, uint8_t type, uint32_t len)
{
	struct nv_sqe s = {.opcode = NV_FABRICS, .fctype = type, .sgl = by_transport(len), .cdw = {NV_AUTH_CDW10, len}};

	memcpy(h->out, at, len <= sizeof(at) ? len : sizeof(at));
	host_do(h, s);
}

/* A valid message, partly overwritten with the input's bytes. */
static uint32_t likely(uint8_t kind, const uint8_t *in, size_t n)
{
	static uint8_t some[NV_DH_MAX];
	struct nv_negotiate negotiate = {.hashes = (uint8_t)(1u << (1 + kind / 8 % 3)), .groups = kind & 0x80 ? 2 : 1};
	struct nv_reply reply = {.hash = (uint8_t)(1 + kind / 8 % 3),
	                         .group = kind & 0x80 ? 1 : 0,
	                         .seq = kind & 0x40,
	                         .response = some,
	                         .challenge = kind & 0x40 ? some + 1 : NULL,
	                         .exponential = some};
	size_t len = kind % 4 == 0   ? nv_negotiate_encode(&negotiate, at)
	             : kind % 4 == 1 ? nv_reply_encode(&reply, at)
	             : kind % 4 == 2 ? nv_success2_encode(0, at)
	                             : nv_failure_encode(NV_AUTH_FAILURE2, 0, NV_AUTH_FAILED, at);

	some[255] = 9;
	for (size_t i = 0; i + 1 < n; i += 2)
		at[in[i] % len] = in[i + 1];
	return (uint32_t)len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nt_secrets s = {.host = {.length = 32}, .controller = {.length = 48, .hash = 2}, .groups = 3};

	target_open(16 << 20);
	target.auth = &nt_dhchap;
	CHECK(nv_random(s.host.bytes, 32) && nv_random(s.controller.bytes, 48) &&
	      nt_subsystem_allow(subsystem, HOSTNQN));
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	struct host *h = host_open();

	host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC));
	for (unsigned steps = 0; size >= 2 && steps < 20 && !h->asked_to_close; steps++) {
		uint8_t op = *data++, n = *data++;

		size -= 2;
		n = n < size ? n : (uint8_t)size;
		if (op % 3 == 0) {
			ask(h, NV_FCT_AUTH_RECEIVE, n * 16u);
		} else if (op % 3 == 1) {
			memcpy(at, data, n);
			ask(h, NV_FCT_AUTH_SEND, n);
		} else {
			ask(h, NV_FCT_AUTH_SEND, likely(op / 3, data, n));
		}
		data += n;
		size -= n;
		CHECK(!h->q.authenticated);
	}
	host_close(h);
	target_close();
	return 0;
}
