// tcp.h - the window of a TCP that writes endlessly, in virtual time: reno, cubic or BBR
// follows: RFC 5681 (AIMD), RFC 9438 (CUBIC), RFC 9406 (HyStart, delay only),
// draft-cardwell-iccrg-bbr-congestion-control-00
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_TCP_H
#define VB_TEST_WIRE_TCP_H

#include <stdbool.h>
#include <stdint.h>

#define TCP_LEN 1448u /* bytes of payload in each packet */
#define TCP_RING 65536u
#define TCP_ROUNDS 10

enum tcp_kind { TCP_NONE, TCP_RENO, TCP_CUBIC, TCP_BBR };

/* Each packet is acknowledged separately. A loss is noticed when a later packet is acknowledged, and the data is sent
 * as a new packet. */
struct tcp {
	enum tcp_kind kind;
	uint64_t sent, acked, recover, heard_at, delivered, delivered_at; /* packets; ns */
	uint64_t rtt_min, rtt_min_at;
	uint32_t in_flight, window, threshold, grown;
	/* CUBIC: packets and seconds */
	double most, k, share;
	uint64_t epoch_at;
	/* BBR: packets per ns of the last rounds */
	double rate[TCP_ROUNDS], full_rate, gain, window_gain;
	uint64_t round_ends, pace_at, cycle_at, probe_until;
	uint32_t rounds, full_rounds, cycle;
	bool filled, drained;
	struct {
		uint64_t at, delivered, delivered_at;
	} of[TCP_RING];
};

void tcp_start(struct tcp *t, enum tcp_kind kind, uint64_t now);
/* True if a packet may be sent. It is number t->sent, and tcp_sending must follow. */
bool tcp_may_send(const struct tcp *t, uint64_t now);
void tcp_sending(struct tcp *t, uint64_t now);
void tcp_acknowledged(struct tcp *t, uint64_t number, uint64_t now);
void tcp_silent(struct tcp *t, uint64_t now); /* no acknowledgement for long */
/* When the next packet may be sent; 0: after an acknowledgement. */
uint64_t tcp_paced_until(const struct tcp *t);

#endif
