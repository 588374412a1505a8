// stats.h - counters of an iWARP stream
// follows: RFC 5040, 4.8; RFC 5041, 7; RFC 5044, 8 (errors)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_IWARP_STATS_H
#define VB_ENGINE_IWARP_STATS_H

#include <stdint.h>

/* X(name, text) */
#define VB_IW_COUNTERS(X)                                                    \
	X(sent_fpdus, "FPDUs sent")                                          \
	X(rcvd_fpdus, "FPDUs received")                                      \
	X(sent_bytes, "payload bytes sent")                                  \
	X(rcvd_bytes, "payload bytes received")                              \
	X(bytes_direct_out, "of those sent, in place")                       \
	X(bytes_copied_out, "of those sent, copied")                         \
	X(bytes_direct_in, "of those received, in place")                    \
	X(bytes_copied_in, "of those received, copied")                      \
	X(bytes_moved, "bytes moved within the stage")                       \
	X(reads_sent, "reads and atomics sent")                              \
	X(reads_rcvd, "reads and atomics received")                          \
	X(ord_waits, "reads and atomics held back: ORD")                     \
	X(crc_errors, "refused: CRC")                                        \
	X(marker_errors, "refused: marker and FPDU length do not match")     \
	X(refused_length, "refused: FPDU length")                            \
	X(refused_version, "refused: DDP or RDMAP version")                  \
	X(refused_opcode, "refused: opcode")                                 \
	X(refused_queue, "refused: queue number")                            \
	X(refused_msn, "refused: message sequence number")                   \
	X(refused_offset, "refused: message offset")                         \
	X(starved, "messages that waited for a receive")                     \
	X(refused_no_receive, "refused: no receive")                         \
	X(refused_too_long, "refused: message too long")                     \
	X(refused_stag, "refused: STag")                                     \
	X(refused_stranger, "refused: STag of another protection domain")    \
	X(refused_bounds, "refused: bounds")                                 \
	X(refused_access, "refused: access")                                 \
	X(refused_wrap, "refused: tagged offset wraps")                      \
	X(refused_response, "refused: response that does not fit a request") \
	X(refused_ird, "refused: more reads and atomics than agreed")        \
	X(refused_invalidate, "refused: STag that cannot be invalidated")    \
	X(refused_atomic, "refused: atomic")                                 \
	X(local_faults, "local errors: memory not mapped")                   \
	X(terminates_sent, "Terminate messages sent")                        \
	X(terminates_rcvd, "Terminate messages received")

struct vb_iw_stats {
#define X(name, text) uint64_t name;
	VB_IW_COUNTERS(X)
#undef X
};

#endif
