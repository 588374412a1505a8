// status.h - status codes: the code type in bits 10:8, the code in bits 7:0, "do not retry" in bit 14
// follows: NVM Express Base 1.4, 4.6.1 (Status Field Definition); NVMe over Fabrics 1.1, figure 13
// SPDX-License-Identifier: MIT
#ifndef NV_STATUS_H
#define NV_STATUS_H

#include <stdint.h>

/* name, value, text */
#define NV_STATUSES(X)                                                         \
	X(OK, 0x000, "successful completion")                                  \
	X(INVALID_OPCODE, 0x001, "invalid command opcode")                     \
	X(INVALID_FIELD, 0x002, "invalid field in command")                    \
	X(CID_CONFLICT, 0x003, "command id conflict")                          \
	X(DATA_TRANSFER, 0x004, "data transfer error")                         \
	X(INTERNAL, 0x006, "internal error")                                   \
	X(ABORT_REQUESTED, 0x007, "abort requested")                           \
	X(ABORT_SQ_DELETED, 0x008, "aborted: queue deleted")                   \
	X(FUSED_FAILED, 0x009, "aborted: the other fused command failed")      \
	X(FUSED_MISSING, 0x00a, "aborted: the other fused command is missing") \
	X(INVALID_NS, 0x00b, "invalid namespace or format")                    \
	X(SEQUENCE, 0x00c, "command sequence error")                           \
	X(SGL_LAST, 0x00d, "invalid SGL segment descriptor")                   \
	X(SGL_LENGTH, 0x00f, "data SGL length invalid")                        \
	X(SGL_TYPE, 0x011, "SGL descriptor type invalid")                      \
	X(SGL_OFFSET_INVALID, 0x016, "SGL offset invalid")                     \
	X(HOST_ID_FORMAT, 0x018, "host identifier inconsistent format")        \
	X(KEEP_ALIVE_EXPIRED, 0x019, "keep alive timer expired")               \
	X(KEEP_ALIVE_INVALID, 0x01a, "keep alive timeout invalid")             \
	X(WRITE_PROTECTED, 0x020, "namespace is write protected")              \
	X(TRANSIENT_TRANSPORT, 0x022, "transient transport error")             \
	X(LBA_RANGE, 0x080, "LBA out of range")                                \
	X(CAPACITY, 0x081, "capacity exceeded")                                \
	X(NS_NOT_READY, 0x082, "namespace not ready")                          \
	X(RESERVATION_CONFLICT, 0x083, "reservation conflict")                 \
	X(INVALID_QUEUE, 0x101, "invalid queue identifier")                    \
	X(ABORT_LIMIT, 0x103, "abort command limit exceeded")                  \
	X(AER_LIMIT, 0x105, "asynchronous event request limit exceeded")       \
	X(INVALID_LOG, 0x109, "invalid log page")                              \
	X(NOT_SAVEABLE, 0x10d, "feature identifier not saveable")              \
	X(NOT_CHANGEABLE, 0x10e, "feature not changeable")                     \
	X(NOT_PER_NS, 0x10f, "feature not namespace specific")                 \
	X(INVALID_CNTLID, 0x11f, "invalid controller identifier")              \
	X(CONNECT_FORMAT, 0x180, "connect: incompatible format")               \
	X(CONNECT_BUSY, 0x181, "connect: controller busy")                     \
	X(CONNECT_PARAMETER, 0x182, "connect: invalid parameters")             \
	X(CONNECT_RESTART, 0x183, "connect: restart discovery")                \
	X(CONNECT_HOST, 0x184, "connect: invalid host")                        \
	X(DISCONNECT_QUEUE, 0x185, "disconnect: invalid queue type")           \
	X(DISCOVER_RESTART, 0x190, "discover: restart")                        \
	X(AUTH_REQUIRED, 0x191, "authentication required")                     \
	X(WRITE_FAULT, 0x280, "write fault")                                   \
	X(READ_ERROR, 0x281, "unrecovered read error")                         \
	X(COMPARE_FAILED, 0x285, "compare failure")                            \
	X(INTERNAL_PATH, 0x300, "internal path error")                         \
	X(ANA_LOSS_PATH, 0x301, "asymmetric access persistent loss")           \
	X(ANA_INACCESSIBLE_PATH, 0x302, "asymmetric access inaccessible")      \
	X(ANA_TRANSITION_PATH, 0x303, "asymmetric access transition")          \
	X(PATH_ERROR, 0x360, "controller pathing error")

#define NV_STATUS_ENUM(name, value, text) NV_##name = (value),
enum nv_status { NV_STATUSES(NV_STATUS_ENUM) NV_DNR = 0x4000 };
#undef NV_STATUS_ENUM
#define NV_STATUS_MASK 0x7ffu /* type and code */

/* The text of a status. NV_DNR is ignored. */
const char *nv_status_text(uint16_t status);

#endif
