// tcp.h - a queue over TCP: what its files share
// follows: NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#ifndef VN_TCP_H
#define VN_TCP_H

#include "client/client.h"
#include "nvme/tcp_pdu.h"

enum vn_rx { VN_RX_HEAD, VN_RX_DATA, VN_RX_DIGEST };

struct vn_tcp_queue {
	struct vn_queue q; /* the first */
	int fd;
	uint8_t digests, cpda;
	uint32_t h2c_max;
	unsigned large; /* reads under way whose data should not pass through in[] */
	bool blocked;   /* the socket takes no more */
	bool cut;
	/* to be sent, in order */
	struct vn_cmd *out, **out_end;
	/* what comes in */
	enum vn_rx rx;
	struct nv_tcp_common pdu;
	uint8_t head[NV_TCP_PDO_MAX + 1];
	uint32_t head_len;
	struct vn_cmd *rx_cmd;
	uint32_t rx_left, rx_crc, rx_digest_len;
	uint8_t rx_digest[NV_TCP_DIGEST_LEN];
	uint32_t in_at, in_len;
	uint8_t in[16384];
};

static inline struct vn_tcp_queue *vn_tcp_of(struct vn_queue *q)
{
	return (struct vn_tcp_queue *)q;
}

void vn_tcp_submit(struct vn_queue *q, struct vn_cmd *c);
void vn_tcp_push(struct vn_queue *q);
void vn_tcp_requested(struct vn_tcp_queue *t, struct vn_cmd *c); /* an R2T has come: tcp.ttag, tcp.h2c_end */
void vn_tcp_receive(struct vn_tcp_queue *t);

#endif
