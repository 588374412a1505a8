// srp_host.h - a SRP initiator on rdma_cm, for tests: it does one thing at a time, and can be rude
// follows: SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
#ifndef SRP_HOST_H
#define SRP_HOST_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "scsi/be.h"
#include "scsi/scsi.h"
#include "srp/srp.h"

#define HOST_DATA (4u << 20) /* bytes of data, which the target may read and write */
#define HOST_IU 8192u
#define HOST_IMMEDIATE 80u
#define HOST_RECEIVES 128u

struct host {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory, *data; /* data: the part for data */
	struct sp_login_rsp login;
	uint32_t credits;
	uint64_t tag;
	bool left; /* the target has disconnected */
};

/* How a command describes its data. */
struct how {
	enum sp_desc_format format;
	uint32_t parts, in_message; /* indirect */
};

/* port is the initiator's, flags those of the login. NULL: *reason says why it was rejected; 0: by no SRP target. */
struct host *host_login(const char *address, const char *service, const uint8_t target[SP_PORT_ID], uint8_t port,
                        uint8_t flags, uint32_t *reason);
struct host *host_login_as(const char *address, const char *service, const struct sp_login *l, uint32_t *reason);
void host_close(struct host *h);
bool host_send(struct host *h, const void *message, size_t len); /* false: the connection has ended */
/* Waits for a message. NULL: the connection has ended, or *late: nothing came within ms. */
const uint8_t *host_receive(struct host *h, size_t *len, int ms, bool *late);
bool host_response(struct host *h, struct sp_rsp *r);
size_t host_build(struct host *h, uint8_t *message, uint8_t lun, const uint8_t *cdb, size_t cdb_len, bool out,
                  uint32_t len, struct how how);
/* Carries a command out, whose data is at the begin of h->data. False: the connection has ended. */
bool host_command(struct host *h, uint8_t lun, const uint8_t *cdb, size_t cdb_len, bool out, uint32_t len,
                  struct how how, struct sp_rsp *r);

#define HOST_CDB(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})

#endif
