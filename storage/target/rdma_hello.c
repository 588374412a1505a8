// rdma_hello.c - private data of a connection between host and controller
// follows: NVMe over Fabrics 1.1, 7.3.6.2 to 7.3.6.4
// SPDX-License-Identifier: MIT
#include "target/rdma_hello.h"

#include "nvme/le.h"
#include "target/target.h"

enum { AT_RECFMT = 0, AT_QID = 2, AT_HRQSIZE = 4, AT_HSQSIZE = 6, AT_CNTLID = 8, AT_CRQSIZE = 2, AT_STATUS = 2 };

enum nt_rdma_reason nt_rdma_hello_decode(const uint8_t *data, size_t len, struct nt_rdma_hello *out)
{
	if (!data || len < NT_RDMA_HELLO_LEN)
		return NT_RDMA_INVALID_LENGTH;
	struct nt_rdma_hello h = {.recfmt = nv_get16(data + AT_RECFMT),
	                          .qid = nv_get16(data + AT_QID),
	                          .hrqsize = nv_get16(data + AT_HRQSIZE),
	                          .hsqsize = nv_get16(data + AT_HSQSIZE),
	                          .cntlid = nv_get16(data + AT_CNTLID)};

	if (h.recfmt)
		return NT_RDMA_INVALID_FORMAT;
	if (h.qid > NT_QUEUES_MAX)
		return NT_RDMA_INVALID_QID;
	if (!h.hsqsize || h.hsqsize >= (h.qid ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES))
		return NT_RDMA_INVALID_HSQSIZE;
	if (!h.hrqsize)
		return NT_RDMA_INVALID_HRQSIZE;
	*out = h;
	return 0;
}

void nt_rdma_hello_encode(const struct nt_rdma_hello *h, uint8_t out[NT_RDMA_HELLO_LEN])
{
	memset(out, 0, NT_RDMA_HELLO_LEN);
	nv_put16(out + AT_RECFMT, h->recfmt);
	nv_put16(out + AT_QID, h->qid);
	nv_put16(out + AT_HRQSIZE, h->hrqsize);
	nv_put16(out + AT_HSQSIZE, h->hsqsize);
	nv_put16(out + AT_CNTLID, h->cntlid);
}

void nt_rdma_accept_encode(uint16_t crqsize, uint8_t out[NT_RDMA_HELLO_LEN])
{
	memset(out, 0, NT_RDMA_HELLO_LEN);
	nv_put16(out + AT_CRQSIZE, crqsize);
}

void nt_rdma_reject_encode(enum nt_rdma_reason why, uint8_t out[NT_RDMA_REJECT_LEN])
{
	memset(out, 0, NT_RDMA_REJECT_LEN);
	nv_put16(out + AT_STATUS, (uint16_t)why);
}
