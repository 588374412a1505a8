// tcp_conn.h - a connection: its input and its output
// follows: NVMe/TCP transport specification 1.0, 3.3 to 3.5
// SPDX-License-Identifier: MIT
#ifndef NT_TCP_CONN_H
#define NT_TCP_CONN_H

#include "nvme/tcp_pdu.h"
#ifdef NT_HAVE_TLS
#include "nvme/tls.h"
#endif
#include "target/tcp.h"

#define NT_TCP_INLINE 16384u /* data in a capsule; at least 8192. NVMe/TCP 1.0, 3.3.2 */
#define NT_TCP_H2C_MAX NT_TRANSFER_MAX
#define NT_TCP_CPDA 0u

enum nt_rx {
	NT_RX_HEAD,  /* gathers a PDU's header, with digest and padding */
	NT_RX_DATA,  /* reads data into a request's memory */
	NT_RX_DRAIN, /* discards data that is not needed */
	NT_RX_DIGEST,
	NT_RX_PAUSED, /* a capsule's data waits for memory */
	NT_RX_OFF,    /* reading has ended */
};

struct nt_conn {
	struct nt_queue q;
	struct nt_watch watch;
	struct nt_tcp *tcp;
	struct nv_tls *tls;   /* NULL: none */
	struct nv_secret key; /* of tls */
	bool looked;          /* it is known whether TLS is used */
	struct nt_conn *next, *prev, *next_dirty;
	bool dirty;   /* has output, or must end */
	bool greeted; /* ICReq has arrived */
	bool ending;  /* to be ended after the remaining output */
	bool mute;    /* its last message was sent */
	bool failed;  /* ends at once */
	bool closed;  /* the core knows of the end */
	uint64_t began, ending_at;
	uint8_t digests, hpda;

	/* input */
	enum nt_rx rx;
	uint8_t in[16384];
	uint32_t in_at, in_len;
	uint8_t head[256];
	uint32_t head_len;
	struct nv_tcp_common pdu;
	struct nt_request *rx_request; /* the request whose data is being received */
	uint8_t *rx_at;
	uint32_t rx_left, rx_drain; /* rx_drain: bytes after it to discard */
	uint32_t rx_crc;
	uint8_t rx_digest[4];
	uint32_t rx_digest_len;
	uint64_t rx_since; /* when the incoming PDU began; 0: none */
	uint32_t fetching; /* R2Ts not answered completely */

	/* output: a few bytes of the connection itself, then requests in turn */
	uint8_t own[NV_TCP_TERM_MAX];
	uint32_t own_len, own_at;
	struct nt_request *tx_first, **tx_end;
	uint64_t tx_at;    /* bytes of the first request that were sent */
	uint64_t tx_since; /* since when the first request is first; 0: nothing to send */
};

struct nt_tcp {
	struct nt_loop *loop;
	struct nt_target *target;
	struct nt_watch watch;
	struct nt_port port;
	struct nt_tcp_limits limits;
	enum nt_tls security;
	struct nt_conn *conns, *dirty;
	uint32_t count;
	uint64_t swept, accept_again, copied;
	bool stopped;
};

/* The transport's part of a request, in its priv words. */
struct nt_tcp_item {
	struct nt_request *next;
	uint64_t since; /* when the R2T was sent */
	uint32_t want;  /* offset of the next data to arrive */
	bool r2t, r2t_sent, digest_failed;
	uint8_t head_len, tail_len, pad;
	uint8_t head[NV_TCP_DATA_LEN + NV_TCP_DIGEST_LEN];     /* R2T, response, or header of the data … */
	uint8_t tail[NV_TCP_RESPONSE_LEN + NV_TCP_DIGEST_LEN]; /* … and the response after the data */
	uint8_t digest[NV_TCP_DIGEST_LEN];
};

static inline struct nt_tcp_item *nt_item(struct nt_request *r)
{
	_Static_assert(sizeof(struct nt_tcp_item) <= sizeof(r->priv), "the item fits");
	return (struct nt_tcp_item *)(void *)r->priv;
}

static inline struct nt_conn *nt_conn_of(struct nt_queue *q)
{
	return (struct nt_conn *)(void *)((uint8_t *)q - offsetof(struct nt_conn, q));
}

/* tcp.c */
void nt_conn_dirty(struct nt_conn *c);
void nt_conn_fail(struct nt_conn *c); /* ends the connection in this iteration, without a message */
void nt_conn_end(struct nt_conn *c);  /* ends the connection when everything is sent */

/* tcp_tls.c: like recvmsg and sendmsg, with or without TLS. */
ssize_t nt_conn_read(struct nt_conn *c, struct iovec *v, int n);
ssize_t nt_conn_write(struct nt_conn *c, struct iovec *v, int n);
bool nt_conn_unread(const struct nt_conn *c);
bool nt_conn_unsent(const struct nt_conn *c);
void nt_conn_unwrap(struct nt_conn *c); /* before its descriptor is closed */

/* tcp_receive.c */
void nt_conn_receive(struct nt_conn *c);
void nt_conn_fetch(struct nt_request *r);    /* called by the core */
void nt_conn_answered(struct nt_request *r); /* the response is ready: data of the request is no longer needed */

/* tcp_send.c */
void nt_conn_send_own(struct nt_conn *c, const uint8_t *bytes, uint32_t len);
void nt_conn_terminate(struct nt_conn *c, uint16_t fes, uint32_t fei); /* a fatal error of the host */
void nt_conn_r2t(struct nt_request *r);
void nt_conn_respond(struct nt_request *r);
void nt_conn_flush(struct nt_conn *c);

#endif
