// rule.h - a rule of fault injection: what it matches, and what it does
// see: man/verbena-fault.1, docs/faults.md
// SPDX-License-Identifier: MIT
#ifndef VB_FAULT_RULE_H
#define VB_FAULT_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, text, class). The class says which keys a rule may have, and which hook asks for it. */
#define VB_FAULT_ACTIONS(X)                 \
	X(DROP, "drop", WIRE)               \
	X(DUPLICATE, "duplicate", WIRE)     \
	X(REORDER, "reorder", WIRE)         \
	X(CORRUPT, "corrupt", WIRE)         \
	X(DELAY, "delay", WIRE)             \
	X(RATE, "rate", WIRE)               \
	X(CUT, "cut", WIRE)                 \
	X(WC, "wc", WORK)                   \
	X(CQ_OVERFLOW, "cq_overflow", WORK) \
	X(QP_FATAL, "qp_fatal", WORK)       \
	X(PORT, "port", STATE)              \
	X(DEVICE, "device", STATE)          \
	X(CM, "cm", CM)                     \
	X(REG, "reg", VERB)                 \
	X(ALLOC_PD, "alloc_pd", VERB)       \
	X(CREATE_CQ, "create_cq", VERB)     \
	X(CREATE_SRQ, "create_srq", VERB)   \
	X(CREATE_QP, "create_qp", VERB)     \
	X(CREATE_AH, "create_ah", VERB)     \
	X(MODIFY_QP, "modify_qp", VERB)     \
	X(POST_SEND, "post_send", VERB)     \
	X(POST_RECV, "post_recv", VERB)

enum vb_fault_action {
#define X(name, text, class) VB_FAULT_##name,
	VB_FAULT_ACTIONS(X)
#undef X
	        VB_FAULT_ACTION_COUNT
};

enum vb_fault_class {
	VB_FAULT_CLASS_WIRE,  /* a packet, an FPDU, or a request or datagram on one host */
	VB_FAULT_CLASS_WORK,  /* a posted work request */
	VB_FAULT_CLASS_STATE, /* a port or a device, at a time */
	VB_FAULT_CLASS_CM,    /* a connection request that has arrived */
	VB_FAULT_CLASS_VERB,  /* a call */
};

/* LOCAL: requests of connected queue pairs on one host. DATAGRAM: datagrams there. A rule names both by path=local. */
enum vb_fault_path { VB_FAULT_ROCE = 1, VB_FAULT_IWARP = 2, VB_FAULT_LOCAL = 4, VB_FAULT_DATAGRAM = 8 };
#define VB_FAULT_HERE (VB_FAULT_LOCAL | VB_FAULT_DATAGRAM)
enum vb_fault_dir { VB_FAULT_TX = 1, VB_FAULT_RX = 2 };

/* Families of opcodes, for all paths and for work requests. */
#define VB_FAULT_KINDS(X)  \
	X(SEND)            \
	X(WRITE)           \
	X(READ)            \
	X(READ_RESPONSE)   \
	X(ATOMIC)          \
	X(ATOMIC_RESPONSE) \
	X(ACK)             \
	X(CNP)             \
	X(TERMINATE)       \
	X(LOCAL_INV)       \
	X(RECV)

enum vb_fault_kind {
#define X(name) VB_FAULT_KIND_##name,
	VB_FAULT_KINDS(X)
#undef X
	        VB_FAULT_KIND_COUNT
};

#define VB_FAULT_DEVICE_LEN 64
#define VB_FAULT_TEXT_LEN 256
#define VB_FAULT_RECENT 16
#define VB_FAULT_CM_IGNORE UINT64_MAX
#define VB_FAULT_ALWAYS UINT64_MAX

struct vb_fault_rule {
	/* as given */
	uint8_t action; /* enum vb_fault_action */
	uint8_t paths;  /* enum vb_fault_path, one bit or more */
	uint8_t dirs;   /* enum vb_fault_dir, one bit or more */
	bool icrc_right;
	uint16_t kinds; /* bits of enum vb_fault_kind; 0: all */
	int16_t opcode; /* a RoCE opcode; -1: all */
	int64_t qpn;    /* -1: all */
	bool has_peer, has_seed;
	uint8_t peer[16];                 /* an IPv6 address, or an IPv4 address mapped */
	char device[VB_FAULT_DEVICE_LEN]; /* "": all */
	uint64_t every, nth;              /* 0: not given */
	double p;                         /* negative: not given */
	uint64_t seed;
	uint64_t count;        /* at most so many hits */
	uint64_t after, lasts; /* ns; lasts: VB_FAULT_ALWAYS if not given */
	/* ns, bits per second, enum ibv_wc_status, errno, 1 for up, reason or VB_FAULT_CM_IGNORE */
	uint64_t value;
	char text[VB_FAULT_TEXT_LEN];

	/* as it goes */
	unsigned id;
	uint64_t start;      /* ns: when the rule was added */
	uint64_t seen, hits; /* what it matched before every, nth and p; what it acted on */
	uint64_t random;
	uint64_t free_at;                 /* rate: ns, when the next bit may go */
	uint64_t recent[VB_FAULT_RECENT]; /* the numbers (seen) of the last hits */
};

/* What a rule is asked about. */
struct vb_fault_subject {
	uint8_t path, dir;   /* one bit; 0 for calls and connection requests */
	uint8_t kind;        /* enum vb_fault_kind */
	int16_t opcode;      /* RoCE; -1: none */
	uint32_t qpn;        /* the queue pair of this process */
	const uint8_t *peer; /* 16 bytes, or NULL: not known */
	const char *device;  /* or NULL: not known */
	uint32_t len;        /* bytes, for rate */
	uint64_t later;      /* ns: the repetition of a lost request, which would happen so much later */
};

/* A complaint: what is wrong and what is allowed. */
struct vb_fault_error {
	size_t at; /* the position in the rule's text, from 0 */
	char text[400];
};

/* strtod(3) of the C locale: the point of a rule is a point, whatever locale the program has set. */
double vb_fault_strtod(const char *text, char **end);
/* Reads one rule of len bytes. Returns false and fills *err if the rule makes no sense. */
bool vb_fault_parse(const char *text, size_t len, struct vb_fault_rule *rule, struct vb_fault_error *err);
/* Starts the rule's clock, counters and random numbers. A rule without a seed gets this one. */
void vb_fault_begin(struct vb_fault_rule *rule, unsigned id, uint64_t now, uint64_t seed);
enum vb_fault_class vb_fault_class_of(const struct vb_fault_rule *rule);
/* Is the rule in force at this time? */
bool vb_fault_in_force(const struct vb_fault_rule *rule, uint64_t now);
/* Does the rule act on this subject? Counts it. */
bool vb_fault_hits(struct vb_fault_rule *rule, const struct vb_fault_subject *s, uint64_t now);
/* A rule of rate: how long the subject must wait, ns. Call it after a hit. */
uint64_t vb_fault_pace(struct vb_fault_rule *rule, uint32_t len, uint64_t now);
/* The rule's next random number. */
uint32_t vb_fault_draw(struct vb_fault_rule *rule);

/* Kinds of a RoCE opcode, an RDMAP opcode and an ibv_wr_opcode. */
enum vb_fault_kind vb_fault_kind_of_roce(uint8_t opcode);
enum vb_fault_kind vb_fault_kind_of_rdmap(uint8_t opcode);

/* names.c: -1 if there is no such name. */
int vb_fault_action_named(const char *name, size_t len);
int vb_fault_kind_named(const char *name, size_t len);
int vb_fault_opcode_named(const char *name, size_t len); /* RoCE */
int vb_fault_status_named(const char *name, size_t len);
int vb_fault_errno_named(const char *name, size_t len);
const char *vb_fault_action_name(unsigned action);
/* Lists the names that are allowed, with commas. */
const char *vb_fault_actions_listed(void);
const char *vb_fault_kinds_listed(void);
const char *vb_fault_statuses_listed(void);
const char *vb_fault_errnos_listed(void);
enum vb_fault_class vb_fault_class_named(unsigned action);

#endif
