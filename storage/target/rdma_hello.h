// rdma_hello.h - private data that host and controller exchange while they connect
// follows: NVMe over Fabrics 1.1, 7.3.6.2 to 7.3.6.4 (RDMA_CM_REQUEST, _ACCEPT, _REJECT private data)
// SPDX-License-Identifier: MIT
#ifndef NT_RDMA_HELLO_H
#define NT_RDMA_HELLO_H

#include <stddef.h>
#include <stdint.h>

#define NT_RDMA_HELLO_LEN 32
#define NT_RDMA_REJECT_LEN 4

enum nt_rdma_reason {
	NT_RDMA_INVALID_LENGTH = 1,
	NT_RDMA_INVALID_FORMAT = 2,
	NT_RDMA_INVALID_QID = 3,
	NT_RDMA_INVALID_HSQSIZE = 4,
	NT_RDMA_INVALID_HRQSIZE = 5,
	NT_RDMA_NO_RESOURCES = 6,
	NT_RDMA_INVALID_IRD = 7,
	NT_RDMA_INVALID_ORD = 8,
	NT_RDMA_INVALID_CNTLID = 9,
};

struct nt_rdma_hello {
	uint16_t recfmt, qid;
	uint16_t hrqsize; /* number of the host's receives */
	uint16_t hsqsize; /* largest number of outstanding commands, minus 1 */
	uint16_t cntlid;  /* for an I/O queue, if the host sends it */
};

/* Returns 0 and fills *out, or returns the reason for a rejection. Longer data is accepted, because the connection
 * manager of InfiniBand pads it. */
enum nt_rdma_reason nt_rdma_hello_decode(const uint8_t *data, size_t len, struct nt_rdma_hello *out);
void nt_rdma_hello_encode(const struct nt_rdma_hello *h, uint8_t out[NT_RDMA_HELLO_LEN]);
void nt_rdma_accept_encode(uint16_t crqsize, uint8_t out[NT_RDMA_HELLO_LEN]);
void nt_rdma_reject_encode(enum nt_rdma_reason why, uint8_t out[NT_RDMA_REJECT_LEN]);

#endif
