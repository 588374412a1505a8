// tso_test.c - the headers of TCP segments: which bytes are such headers, and what each frame gets
// follows: RFC 791, RFC 8200, RFC 9293, RFC 3168 §6.1.2
// SPDX-License-Identifier: MIT
#include <string.h>

#include "../../support/check.h"
#include "frame/tso.h"

static uint8_t head[300];

/* Ethernet, `tags` VLAN tags, IP with `options` words, TCP with `tcp_options` words. Returns the length. */
static uint32_t make_head(bool v4, unsigned tags, unsigned options, unsigned tcp_options)
{
	uint8_t *at = head + 12;

	memset(head, 0x11, sizeof(head));
	for (unsigned i = 0; i < tags; i++, at += 4)
		memcpy(at, i ? (uint8_t[]){0x81, 0, 0, 5} : (uint8_t[]){0x88, 0xa8, 0, 6}, 4);
	memcpy(at, v4 ? (uint8_t[]){8, 0} : (uint8_t[]){0x86, 0xdd}, 2);
	at += 2;
	at[0] = (uint8_t)(v4 ? 0x40 + 5 + options : 0x60);
	at[v4 ? 9 : 6] = 6;
	at += v4 ? 20 + 4 * options : 40;
	at[12] = (uint8_t)((5 + tcp_options) << 4);
	at[13] = 0xff; /* all flags */
	return (uint32_t)(at - head) + 20 + 4 * tcp_options;
}

static void headers_of_tcp_are_recognized(void)
{
	struct vb_tso t;

	for (unsigned tags = 0; tags < 3; tags++)
		for (unsigned options = 0; options < 11; options++) {
			bool v4 = options || tags % 2;
			uint32_t len = make_head(v4, tags, v4 ? options : 0, options);

			CHECK(vb_tso_parse(&t, head, len));
			SAME(t.v4, v4);
			SAME(t.ip_at, 14 + 4 * tags);
			SAME(t.tcp_at, len - 20 - 4 * options);
			for (uint32_t other = 0; other < len + 9; other++)
				SAME(vb_tso_parse(&t, head, other), other == len);
		}
}

static void other_headers_are_refused(void)
{
	struct vb_tso t;

	for (int v4 = 0; v4 < 2; v4++) {
		uint32_t len = make_head(v4, 0, 0, 0);
		const struct {
			uint32_t at;
			uint8_t value;
		} wrong[] = {{12, 0x12},         {13, 6},        {14, 0x54}, {14, v4 ? 0x44 : 0x54},
		             {v4 ? 23 : 20, 17}, {len - 8, 0x40}};

		for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
			make_head(v4, 0, 0, 0);
			CHECK(vb_tso_parse(&t, head, len));
			head[wrong[i].at] = wrong[i].value;
			CHECK(!vb_tso_parse(&t, head, len));
		}
	}
}

static uint32_t sum_of(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void every_frame_has_right_lengths_flags_and_checksums(void)
{
	static uint8_t frame[2000];

	for (int v4 = 0; v4 < 2; v4++)
		for (uint32_t number = 0; number < 3; number++) {
			uint32_t len = make_head(v4, 1, 0, 3), payload = 99 + number;
			bool last = number == 2;
			struct vb_tso t;

			CHECK(vb_tso_parse(&t, head, len));
			memset(frame, 0xa5, sizeof(frame));
			vb_tso_head(&t, head, frame, number, number * 1000, payload, last);
			uint8_t *ip = frame + t.ip_at, *tcp = frame + t.tcp_at;
			uint32_t body = len - t.tcp_at + payload;

			SAME(v4 ? ip[2] << 8 | ip[3] : ip[4] << 8 | ip[5], v4 ? body + 20 : body);
			if (v4) {
				SAME(ip[4] << 8 | ip[5], 0x1111 + number);
				SAME(sum_of(ip, 20, 0), 0xffff);
			}
			SAME((uint32_t)tcp[4] << 24 | tcp[5] << 16 | tcp[6] << 8 | tcp[7], 0x11111111u + number * 1000);
			SAME(tcp[13], (number ? 0x7f : 0xff) & (last ? 0xff : 0xf6));
			SAME(sum_of(tcp, body, sum_of(v4 ? ip + 12 : ip + 8, v4 ? 8 : 32, body + 6)), 0xffff);
			CHECK(!memcmp(frame, head, t.ip_at) && frame[len] == 0xa5 && frame[len + payload] == 0xa5);
		}
}

int main(void)
{
	RUN(headers_of_tcp_are_recognized);
	RUN(other_headers_are_refused);
	RUN(every_frame_has_right_lengths_flags_and_checksums);
	return 0;
}
