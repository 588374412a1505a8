// stats.h - counters of a RoCE queue pair
// follows: IBA volume 1, 9.6 to 9.9; the names of Linux's rxe counters where there is one
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_STATS_H
#define VB_ENGINE_ROCE_STATS_H

#include <stdint.h>

/* X(name, text) */
#define VB_ROCE_COUNTERS(X)                                                                                     \
	X(sent_pkts, "packets sent")                                                                            \
	X(rcvd_pkts, "packets received")                                                                        \
	X(sent_bytes, "payload bytes sent")                                                                     \
	X(rcvd_bytes, "payload bytes received")                                                                 \
	X(bytes_copied_out, "payload bytes copied before sending")                                              \
	X(bytes_in_place, "payload bytes sent in place")                                                        \
	X(bytes_copied_in, "payload bytes copied after receiving")                                              \
	X(resent_pkts, "request packets retransmitted")                                                         \
	X(acks_sent, "acknowledgements sent")                                                                   \
	X(acks_rcvd, "acknowledgements received")                                                               \
	X(out_of_seq_request, "requests ahead of the expected PSN")                                             \
	X(kept_pkts, "of those, kept until the missing one arrived")                                            \
	X(disputed_pkts, "of those, two different packets with one PSN: neither was executed")                  \
	X(drop_port, "dropped: such requests from another source port than the peer's")                         \
	X(drop_far, "dropped: requests further ahead than a peer has in flight")                                \
	X(duplicate_request, "duplicate requests")                                                              \
	X(seq_naks_sent, "NAKs sent: PSN sequence")                                                             \
	X(seq_naks_rcvd, "NAKs received: PSN sequence")                                                         \
	X(rnr_naks_sent, "NAKs sent: receiver not ready")                                                       \
	X(rnr_naks_rcvd, "NAKs received: receiver not ready")                                                   \
	X(error_naks_sent, "NAKs sent: errors")                                                                 \
	X(error_naks_rcvd, "NAKs received: errors")                                                             \
	X(lost_responses, "responses missing when a later one arrived")                                         \
	X(duplicate_response, "duplicate responses and acknowledgements")                                       \
	X(timeouts, "retries after a timeout")                                                                  \
	X(probes, "early retries, not counted against retry_cnt")                                               \
	X(rnr_waits, "waits after RNR NAKs")                                                                    \
	X(credit_waits, "sends held back: no credits")                                                          \
	X(cnp_sent, "congestion notifications sent")                                                            \
	X(cnp_rcvd, "congestion notifications received")                                                        \
	X(drop_type, "dropped: opcode of another transport")                                                    \
	X(drop_qpn, "dropped: for another QP")                                                                  \
	X(drop_pkey, "dropped: partition key")                                                                  \
	X(drop_qkey, "dropped: queue key")                                                                      \
	X(drop_state, "dropped: the QP is not in a state for it")                                               \
	X(drop_ghost, "dropped: answers to packets never sent")                                                 \
	X(drop_response, "dropped: responses without a request")                                                \
	X(drop_replay, "dropped: repeated reads and atomics that are unknown, or whose memory is deregistered") \
	X(drop_sequence, "dropped: UC, parts of a broken message")                                              \
	X(drop_stranger, "dropped: UC, PSN or source port are not the peer's")                                  \
	X(drop_no_receive, "dropped: UC and UD, no receive")                                                    \
	X(drop_length, "dropped: UC and UD, length")                                                            \
	X(drop_access, "dropped: UC, no access")

struct vb_roce_stats {
#define X(name, text) uint64_t name;
	VB_ROCE_COUNTERS(X)
#undef X
};

#endif
