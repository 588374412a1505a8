// counts.h - the counters of an adapter, with the names of Linux
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband; the counters of rxe and mlx5
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_COUNTS_H
#define VB_CORE_COUNTS_H

#include <stdint.h>

/* X(name, text). Data is counted in bytes here; Linux shows port_xmit_data and port_rcv_data in units of 4 bytes. */
#define VB_COUNTS(X) VB_COUNTS_DATA(X) VB_COUNTS_EVENTS(X)
#define VB_COUNTS_DATA(X)                 \
	X(port_xmit_data, "payload sent") \
	X(port_rcv_data, "payload received")
#define VB_COUNTS_EVENTS(X) VB_COUNTS_PACKETS(X) VB_COUNTS_TROUBLE(X)
#define VB_COUNTS_PACKETS(X)                                        \
	X(port_xmit_packets, "packets sent; on one host, messages") \
	X(port_rcv_packets, "packets received; on one host, messages")
#define VB_COUNTS_TROUBLE(X)                                                        \
	X(out_of_sequence, "requests ahead of the expected PSN")                    \
	X(packet_seq_err, "NAKs received: PSN sequence error")                      \
	X(implied_nak_seq_err, "responses that were missing when a later one came") \
	X(duplicate_request, "requests received again")                             \
	X(rnr_nak_retry_err, "NAKs received: the peer has posted no receive")       \
	X(out_of_buffer, "messages received without a posted receive")              \
	X(local_ack_timeout_err, "retries after a timeout")                         \
	X(rx_icrc_encapsulated, "packets with a wrong ICRC")                        \
	X(req_cqe_error, "requests that completed with an error")                   \
	X(resp_cqe_error, "receives that completed with an error")                  \
	X(req_cqe_flush_error, "requests that were flushed")                        \
	X(resp_cqe_flush_error, "receives that were flushed")                       \
	X(np_cnp_sent, "congestion notifications sent")                             \
	X(rp_cnp_handled, "congestion notifications received")                      \
	X(bad_pkey_cntr, "packets with another P_Key")                              \
	X(qkey_viol_cntr, "datagrams with another Q_Key")

struct vb_counts {
#define X(name, text) uint64_t name;
	VB_COUNTS(X)
#undef X
};

static inline void vb_counts_add(struct vb_counts *sum, const struct vb_counts *c)
{
#define X(name, text) sum->name += c->name;
	VB_COUNTS(X)
#undef X
}

/* A queue pair's messages on one host: those of the requester under sq_lock, those of the responder under progress. */
struct vb_local_sent {
	uint64_t messages; /* that were not in the ring of a connection: copied, datagrams */
	uint64_t rnr_naks, timeouts;
};
struct vb_local_received {
	uint64_t datagrams, ahead, duplicates, no_receive, wrong_qkey, wrong_pkey;
};

#endif
