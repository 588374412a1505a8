// member.h - hosts of a fabric for a test: each is a process that does what the test says, and answers
// follows: ibv_attach_mcast(3), umad_send(3); IBA volume 1, 15.2.5.17 (MCMemberRecord)
// SPDX-License-Identifier: MIT
#ifndef TESTS_FABRIC_MEMBER_H
#define TESTS_FABRIC_MEMBER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define TEXT_MAX 2048
#define QPS_MAX 16

enum op { JOIN, LEAVE, MAKE, ATTACH, DETACH, CONNECT, SEND, TAKE, PORT, END };

struct order {
	enum op op;
	union ibv_gid gid;   /* of the group; CONNECT: zeros */
	uint16_t lid;        /* MLID; CONNECT: of the peer */
	uint16_t pkey_index; /* MAKE */
	uint16_t pkey;       /* JOIN */
	uint8_t join_state;  /* JOIN, LEAVE: 1 full member, 4 it only sends */
	uint8_t path_bits;   /* CONNECT: of the own LID */
	unsigned qp;         /* as MAKE has returned it */
	uint32_t type;       /* MAKE: enum ibv_qp_type */
	uint32_t flags;      /* MAKE: enum ibv_qp_create_flags */
	uint32_t qkey, qpn;  /* qpn: CONNECT */
	uint32_t imm;        /* SEND: 0: without */
	uint32_t length;     /* SEND */
	uint32_t count;      /* SEND: so many */
	int wait_ms;         /* TAKE */
	char text[TEXT_MAX];
};

struct reply {
	int rc; /* an errno, or a status; TAKE: 0 if something came */
	uint16_t lid;
	unsigned qp;
	uint32_t qpn, violations;
	struct ibv_wc wc;
	uint8_t grh[40];
	char text[TEXT_MAX];
};

struct member {
	int fd;
	int pid;
};

/* A process on this host. */
struct member member_start(const char *node);
struct reply member_does(const struct member *m, const struct order *o);
void member_end(struct member *m);

#endif
