// names.c - the names that rules of fault injection use: actions, opcodes, completion statuses, errors
// follows: IBA volume 1, 9.2.1 (opcodes), 11.6.2 (completion statuses); errno(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <strings.h>

#include "fault/rule.h"
#include "frame/opcode.h"
#include "frame/rdmap.h"

static const struct {
	const char *name;
	uint8_t class;
} actions[] = {
#define X(name, text, class) {text, VB_FAULT_CLASS_##class},
        VB_FAULT_ACTIONS(X)
#undef X
};

static const char *const kinds[] = {
#define X(name) #name,
        VB_FAULT_KINDS(X)
#undef X
};

/* All that ibv_wc_status has but SUCCESS, with the names of verbs.h. */
#define STATUSES(X)          \
	X(LOC_LEN_ERR)       \
	X(LOC_QP_OP_ERR)     \
	X(LOC_EEC_OP_ERR)    \
	X(LOC_PROT_ERR)      \
	X(WR_FLUSH_ERR)      \
	X(MW_BIND_ERR)       \
	X(BAD_RESP_ERR)      \
	X(LOC_ACCESS_ERR)    \
	X(REM_INV_REQ_ERR)   \
	X(REM_ACCESS_ERR)    \
	X(REM_OP_ERR)        \
	X(RETRY_EXC_ERR)     \
	X(RNR_RETRY_EXC_ERR) \
	X(REM_ABORT_ERR)     \
	X(FATAL_ERR)         \
	X(RESP_TIMEOUT_ERR)  \
	X(GENERAL_ERR)

static const struct {
	const char *name;
	int value;
} statuses[] = {
#define X(name) {#name, IBV_WC_##name},
        STATUSES(X)
#undef X
};

#define ERRNOS(X) \
	X(ENOMEM) X(EAGAIN) X(EINVAL) X(EPERM) X(EIO) X(ENOSPC) X(EBUSY) X(EFAULT) X(ENODEV) X(EOPNOTSUPP) X(ETIMEDOUT)

static const struct {
	const char *name;
	int value;
} errnos[] = {
#define X(name) {#name, name},
        ERRNOS(X)
#undef X
};

static bool word_is(const char *word, size_t len, const char *name)
{
	return strlen(name) == len && !strncasecmp(word, name, len);
}

int vb_fault_action_named(const char *name, size_t len)
{
	for (int i = 0; i < VB_FAULT_ACTION_COUNT; i++)
		if (word_is(name, len, actions[i].name))
			return i;
	return -1;
}

enum vb_fault_class vb_fault_class_named(unsigned action)
{
	return actions[action].class;
}

const char *vb_fault_action_name(unsigned action)
{
	return actions[action].name;
}

int vb_fault_kind_named(const char *name, size_t len)
{
	for (int i = 0; i < VB_FAULT_KIND_COUNT; i++)
		if (word_is(name, len, kinds[i]))
			return i;
	return -1;
}

int vb_fault_opcode_named(const char *name, size_t len)
{
	for (int i = 0; i < 256; i++)
		if (vb_opcode_table[i].name && word_is(name, len, vb_opcode_table[i].name))
			return i;
	return -1;
}

/* With or without the prefix of verbs.h. */
int vb_fault_status_named(const char *name, size_t len)
{
	if (len > 7 && !strncasecmp(name, "IBV_WC_", 7)) {
		name += 7;
		len -= 7;
	}
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (word_is(name, len, statuses[i].name))
			return statuses[i].value;
	return -1;
}

int vb_fault_errno_named(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (word_is(name, len, errnos[i].name))
			return errnos[i].value;
	return -1;
}

const char *vb_fault_actions_listed(void)
{
	return "drop, duplicate, reorder, corrupt, delay=TIME, rate=BITS, cut, wc=STATUS, cq_overflow, qp_fatal, "
	       "port=down|up, device=remove, cm=reject|ignore, reg=, alloc_pd=, create_cq=, create_srq=, create_qp=, "
	       "create_ah=, modify_qp=, post_send=, post_recv=ERRNO";
}

const char *vb_fault_kinds_listed(void)
{
	return "SEND, WRITE, READ, READ_RESPONSE, ATOMIC, ATOMIC_RESPONSE, ACK, CNP, TERMINATE";
}

const char *vb_fault_statuses_listed(void)
{
#define X(name) ", " #name
	return &STATUSES(X)[2];
#undef X
}

const char *vb_fault_errnos_listed(void)
{
#define X(name) ", " #name
	return &ERRNOS(X)[2];
#undef X
}

enum vb_fault_kind vb_fault_kind_of_roce(uint8_t opcode)
{
	static const uint8_t kind[] = {
	        [VB_OP_SEND] = VB_FAULT_KIND_SEND,
	        [VB_OP_WRITE] = VB_FAULT_KIND_WRITE,
	        [VB_OP_READ] = VB_FAULT_KIND_READ,
	        [VB_OP_READ_RESPONSE] = VB_FAULT_KIND_READ_RESPONSE,
	        [VB_OP_ACK] = VB_FAULT_KIND_ACK,
	        [VB_OP_ATOMIC_ACK] = VB_FAULT_KIND_ATOMIC_RESPONSE,
	        [VB_OP_CMP_SWAP] = VB_FAULT_KIND_ATOMIC,
	        [VB_OP_FETCH_ADD] = VB_FAULT_KIND_ATOMIC,
	        [VB_OP_CNP] = VB_FAULT_KIND_CNP,
	        [VB_OP_FLUSH] = VB_FAULT_KIND_COUNT,
	        [VB_OP_ATOMIC_WRITE] = VB_FAULT_KIND_ATOMIC,
	};
	const struct vb_opcode_info *info = vb_opcode_info(opcode);

	return info ? kind[info->op] : VB_FAULT_KIND_COUNT;
}

enum vb_fault_kind vb_fault_kind_of_rdmap(uint8_t opcode)
{
	static const uint8_t kind[16] = {
	        [VB_RDMAP_WRITE] = VB_FAULT_KIND_WRITE,
	        [VB_RDMAP_READ_REQUEST] = VB_FAULT_KIND_READ,
	        [VB_RDMAP_READ_RESPONSE] = VB_FAULT_KIND_READ_RESPONSE,
	        [VB_RDMAP_SEND] = VB_FAULT_KIND_SEND,
	        [VB_RDMAP_SEND_INVALIDATE] = VB_FAULT_KIND_SEND,
	        [VB_RDMAP_SEND_SE] = VB_FAULT_KIND_SEND,
	        [VB_RDMAP_SEND_SE_INVALIDATE] = VB_FAULT_KIND_SEND,
	        [VB_RDMAP_TERMINATE] = VB_FAULT_KIND_TERMINATE,
	        [VB_RDMAP_IMMEDIATE] = VB_FAULT_KIND_WRITE,
	        [VB_RDMAP_IMMEDIATE_SE] = VB_FAULT_KIND_WRITE,
	        [VB_RDMAP_ATOMIC_REQUEST] = VB_FAULT_KIND_ATOMIC,
	        [VB_RDMAP_ATOMIC_RESPONSE] = VB_FAULT_KIND_ATOMIC_RESPONSE,
	        [0xc] = VB_FAULT_KIND_COUNT,
	        [0xd] = VB_FAULT_KIND_COUNT,
	        [0xe] = VB_FAULT_KIND_COUNT,
	        [0xf] = VB_FAULT_KIND_COUNT,
	};

	return kind[opcode & 15];
}
