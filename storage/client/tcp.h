// tcp.h - a queue over TCP: shared by its files
// follows: NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#ifndef VN_TCP_H
#define VN_TCP_H

#include <sys/types.h>
#include <sys/uio.h>

#include "client/client.h"
#include "nvme/tcp_pdu.h"
#ifdef VN_HAVE_TLS
#include "nvme/tls.h"
#endif

enum vn_rx { VN_RX_HEAD, VN_RX_DATA, VN_RX_DIGEST };

struct vn_tcp_queue {
	struct vn_queue q; /* must be the first member */
	int fd;
	struct nv_tls *tls; /* NULL: none */
	uint8_t digests, cpda;
	uint32_t h2c_max;
	unsigned large; /* number of outstanding reads whose data should bypass in[] */
	bool blocked;   /* the socket is full */
	bool cut;
	/* commands to be sent, in order */
	struct vn_cmd *out, **out_end;
	/* input */
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

/* tcp_tls.c: like recvmsg and sendmsg, with or without TLS. */
int vn_tcp_wrap(struct vn_link *l, struct vn_tcp_queue *t); /* starts TLS if it is used. 0, or -errno and why */
ssize_t vn_tcp_read(struct vn_tcp_queue *t, struct iovec *v, int n);
ssize_t vn_tcp_write(struct vn_tcp_queue *t, struct iovec *v, int n);
bool vn_tcp_unread(const struct vn_tcp_queue *t);
bool vn_tcp_unsent(const struct vn_tcp_queue *t);
void vn_tcp_unwrap(struct vn_tcp_queue *t); /* before its descriptor is closed */
int vn_tcp_wait(const struct vn_link *l, int fd, short events);

void vn_tcp_submit(struct vn_queue *q, struct vn_cmd *c);
void vn_tcp_push(struct vn_queue *q);
void vn_tcp_requested(struct vn_tcp_queue *t, struct vn_cmd *c); /* an R2T has arrived: tcp.ttag, tcp.h2c_end */
void vn_tcp_receive(struct vn_tcp_queue *t);

#endif
