// rs_options.c - rsetsockopt and rgetsockopt
// follows: rsocket(7), socket(7), tcp(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <infiniband/sa.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Level and name of an option in one number. */
#define OPTION(level, name) ((uint64_t)(unsigned)(level) << 32 | (unsigned)(name))

static uint32_t clamp_option(int64_t v, int64_t min, int64_t max)
{
	return (uint32_t)(v < min ? min : v > max ? max : v);
}

static int set_id_option(struct rsocket *rs, int name, void *value, size_t len)
{
	if (!rs->id || !rdma_set_option(rs->id, RDMA_OPTION_ID, name, value, len))
		return 0;
	return errno == ENOSYS ? 0 : errno;
}

static int keep_idle(struct rsocket *rs)
{
	FILE *f;

	if (rs->keep_idle_s)
		return rs->keep_idle_s;
	f = fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re");
	if (!f || fscanf(f, "%d", &rs->keep_idle_s) != 1 || rs->keep_idle_s <= 0)
		rs->keep_idle_s = 7200;
	if (f)
		fclose(f);
	return rs->keep_idle_s;
}

static int set_route(struct rsocket *rs, const void *value, socklen_t len)
{
	void *copy = malloc(len ? len : 1);

	if (!copy)
		return ENOMEM;
	memcpy(copy, value, len);
	free(rs->route);
	rs->route = copy;
	rs->route_len = len;
	return 0;
}

static int set_rdma(struct rsocket *rs, int name, int v, const void *value, socklen_t len)
{
	if (rs->state > RS_LISTENING || (rs->dgram && rs_dgram_has_qp(rs)))
		return EINVAL;
	switch (name) {
	case RDMA_SQSIZE:
		rs->config.sq = clamp_option(v, RS_QP_MIN, RS_QP_MAX);
		return 0;
	case RDMA_RQSIZE:
		rs->config.rq = clamp_option(v, RS_QP_MIN, RS_QP_MAX);
		return 0;
	case RDMA_INLINE:
		rs->config.inline_size = clamp_option(v, 0, RS_QP_MAX);
		return 0;
	case RDMA_IOMAPSIZE:
		rs->config.iomap_size = rs_iomap_unscale(rs_iomap_scale(clamp_option(v, 0, 127 << 8)));
		return 0;
	case RDMA_ROUTE:
		return set_route(rs, value, len);
	default:
		return ENOPROTOOPT;
	}
}

static int set_int(struct rsocket *rs, int level, int name, int v)
{
	switch (OPTION(level, name)) {
	case OPTION(SOL_SOCKET, SO_REUSEADDR):
		rs->reuse_addr = v;
		return set_id_option(rs, RDMA_OPTION_ID_REUSEADDR, &v, sizeof(v));
	/* Returns twice the value, as Linux does for sockets. */
	case OPTION(SOL_SOCKET, SO_RCVBUF):
		if (!rs->recv_buf)
			rs->config.recv_size = 2 * clamp_option(v, RS_SEND_LOW, 1 << 28);
		return 0;
	case OPTION(SOL_SOCKET, SO_SNDBUF):
		if (!rs->send_buf)
			rs->config.send_size = 2 * clamp_option(v, RS_SEND_LOW, 1 << 28);
		return 0;
	case OPTION(SOL_SOCKET, SO_KEEPALIVE):
		rs->keep_alive = v;
		keep_idle(rs);
		return rs_keep_alive_set(rs);
	case OPTION(SOL_SOCKET, SO_OOBINLINE):
		rs->oob_inline = v;
		return 0;
	case OPTION(IPPROTO_IP, IP_TOS):
	case OPTION(IPPROTO_IPV6, IPV6_TCLASS): {
		uint8_t tos = (uint8_t)v;

		rs->tos = v;
		return set_id_option(rs, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
	}
	case OPTION(IPPROTO_IPV6, IPV6_V6ONLY):
		rs->v6_only = v;
		return set_id_option(rs, RDMA_OPTION_ID_AFONLY, &v, sizeof(v));
	case OPTION(IPPROTO_TCP, TCP_NODELAY):
		rs->no_delay = v;
		return 0;
	case OPTION(IPPROTO_TCP, TCP_KEEPIDLE):
		if (v <= 0)
			return EINVAL;
		rs->keep_idle_s = v;
		return rs_keep_alive_set(rs);
	/* These options have no effect here. Some are remembered. */
	case OPTION(IPPROTO_TCP, TCP_KEEPCNT):
		return v < 1 || v > 127 ? EINVAL : (rs->keep_count = v, 0);
	case OPTION(IPPROTO_TCP, TCP_KEEPINTVL):
		return v < 1 || v > 32767 ? EINVAL : (rs->keep_interval_s = v, 0);
	case OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT):
		return v < 0 ? EINVAL : (rs->user_timeout_ms = v, 0);
	case OPTION(SOL_SOCKET, SO_PRIORITY):
	case OPTION(SOL_SOCKET, SO_BROADCAST):
	case OPTION(IPPROTO_TCP, TCP_MAXSEG):
	case OPTION(IPPROTO_TCP, TCP_QUICKACK):
	case OPTION(IPPROTO_TCP, TCP_CORK):
		return 0;
	default:
		return ENOPROTOOPT;
	}
}

static int set_other(struct rsocket *rs, int level, int name, const void *value, socklen_t len, bool *known)
{
	const struct linger *l = value;

	*known = true;
	switch (OPTION(level, name)) {
	case OPTION(SOL_SOCKET, SO_LINGER):
		if (len < sizeof(*l))
			return EINVAL;
		rs->linger_on = l->l_onoff;
		rs->linger_s = l->l_linger;
		return 0;
	case OPTION(SOL_SOCKET, SO_RCVTIMEO):
	case OPTION(SOL_SOCKET, SO_SNDTIMEO):
		if (len < sizeof(struct timeval))
			return EINVAL;
		memcpy(name == SO_RCVTIMEO ? &rs->recv_timeout : &rs->send_timeout, value, sizeof(struct timeval));
		return 0;
	case OPTION(IPPROTO_TCP, TCP_CONGESTION):
		return 0;
	default:
		*known = false;
		return 0;
	}
}

static int set_rs_option(struct rsocket *rs, int level, int name, const void *value, socklen_t len)
{
	bool known;
	int v = 0, err;

	if (!value)
		return EFAULT;
	err = set_other(rs, level, name, value, len, &known);
	if (known)
		return err;
	if (level != SOL_RDMA || name != RDMA_ROUTE) {
		if (len < sizeof(v))
			return EINVAL;
		memcpy(&v, value, sizeof(v));
	}
	if (level == SOL_RDMA)
		return set_rdma(rs, name, v, value, len);
	return set_int(rs, level, name, v);
}

RS_EXPORT int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	struct rsocket *rs = rs_get(socket);
	int err;

	if (!rs)
		return -1;
	rs_firm();
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = set_rs_option(rs, level, optname, optval, optlen);
	/* Other options are set on the UDP socket. If it accepts them, the call succeeds. */
	if (rs->dgram && level != SOL_RDMA && !setsockopt(rs->fd, level, optname, optval, optlen) && err == ENOPROTOOPT)
		err = 0;
	vb_mutex_unlock(&rs->lock);
	rs_put(rs);
	rs_soft();
	return err ? rs_fail(err) : 0;
}

static int take_error(struct rsocket *rs)
{
	int err = rs->err;

	rs->err = 0;
	return err;
}

static int max_segment(struct rsocket *rs)
{
	const struct rdma_route *r = rs->id ? &rs->id->route : NULL;

	/* the program may have set the record */
	return r && r->num_paths && r->path_rec && r->path_rec->mtu <= IBV_MTU_4096 ? 1 << (7 + r->path_rec->mtu)
	                                                                            : 2048;
}

static int get_int(struct rsocket *rs, int level, int name, int *v)
{
	switch (OPTION(level, name)) {
	case OPTION(SOL_SOCKET, SO_REUSEADDR):
		return *v = rs->reuse_addr, 0;
	case OPTION(SOL_SOCKET, SO_KEEPALIVE):
		return *v = rs->keep_alive, 0;
	case OPTION(SOL_SOCKET, SO_OOBINLINE):
		return *v = rs->oob_inline, 0;
	case OPTION(SOL_SOCKET, SO_RCVBUF):
		return *v = (int)rs->config.recv_size, 0;
	case OPTION(SOL_SOCKET, SO_SNDBUF):
		return *v = (int)rs->config.send_size, 0;
	case OPTION(SOL_SOCKET, SO_ERROR):
		return *v = take_error(rs), 0;
	case OPTION(SOL_SOCKET, SO_TYPE):
		return *v = rs->type, 0;
	case OPTION(SOL_SOCKET, SO_DOMAIN):
		return *v = rs->domain, 0;
	case OPTION(SOL_SOCKET, SO_PROTOCOL):
		return *v = rs->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP, 0;
	case OPTION(SOL_SOCKET, SO_ACCEPTCONN):
		return *v = rs->state == RS_LISTENING, 0;
	case OPTION(SOL_SOCKET, SO_BROADCAST):
	case OPTION(SOL_SOCKET, SO_PRIORITY):
		return *v = 0, 0;
	case OPTION(IPPROTO_IP, IP_TOS):
	case OPTION(IPPROTO_IPV6, IPV6_TCLASS):
		return *v = rs->tos, 0;
	case OPTION(IPPROTO_IPV6, IPV6_V6ONLY):
		return *v = rs->v6_only, 0;
	case OPTION(IPPROTO_TCP, TCP_NODELAY):
		return *v = rs->no_delay, 0;
	case OPTION(IPPROTO_TCP, TCP_KEEPIDLE):
		return *v = keep_idle(rs), 0;
	case OPTION(IPPROTO_TCP, TCP_KEEPCNT):
		return *v = rs->keep_count ? rs->keep_count : 1, 0;
	case OPTION(IPPROTO_TCP, TCP_KEEPINTVL):
		return *v = rs->keep_interval_s ? rs->keep_interval_s : 1, 0;
	case OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT):
		return *v = rs->user_timeout_ms, 0;
	case OPTION(IPPROTO_TCP, TCP_MAXSEG):
		return *v = max_segment(rs), 0;
	case OPTION(SOL_RDMA, RDMA_SQSIZE):
		return *v = (int)rs->config.sq, 0;
	case OPTION(SOL_RDMA, RDMA_RQSIZE):
		return *v = (int)rs->config.rq, 0;
	case OPTION(SOL_RDMA, RDMA_INLINE):
		return *v = (int)rs->config.inline_size, 0;
	case OPTION(SOL_RDMA, RDMA_IOMAPSIZE):
		return *v = (int)rs->config.iomap_size, 0;
	default:
		return ENOPROTOOPT;
	}
}

/* The reverse of setting RDMA_ROUTE. */
static void path_of(const struct ibv_sa_path_rec *p, struct ibv_path_data *out)
{
	const uint8_t exactly = 2 << 6;

	memset(out, 0, sizeof(*out));
	out->path.dgid = p->dgid;
	out->path.sgid = p->sgid;
	out->path.dlid = p->dlid;
	out->path.slid = p->slid;
	out->path.flowlabel_hoplimit = htonl(ntohl(p->flow_label) << 8 | p->hop_limit);
	out->path.tclass = p->traffic_class;
	out->path.reversible_numpath = (uint8_t)(p->reversible << 7 | 1);
	out->path.pkey = p->pkey;
	out->path.qosclass_sl = htons(p->sl);
	out->path.mtu = (uint8_t)(p->mtu | exactly);
	out->path.rate = (uint8_t)(p->rate | exactly);
	out->path.packetlifetime = (uint8_t)(p->packet_life_time | exactly);
	out->flags = p->preference;
}

static int get_route(struct rsocket *rs, void *value, socklen_t *len)
{
	const struct rdma_route *r = rs->id ? &rs->id->route : NULL;
	struct ibv_path_data path;
	socklen_t used = 0;

	if (rs->route) {
		if (*len < rs->route_len)
			return EINVAL;
		memcpy(value, rs->route, rs->route_len);
		*len = (socklen_t)rs->route_len;
		return 0;
	}
	if (*len < sizeof(path))
		return EINVAL;
	for (int i = 0; r && r->path_rec && i < r->num_paths && used + sizeof(path) <= *len; i++) {
		path_of(&r->path_rec[i], &path);
		memcpy((char *)value + used, &path, sizeof(path));
		used += (socklen_t)sizeof(path);
	}
	*len = used;
	return 0;
}

static int give_option(void *value, socklen_t *len, const void *from, size_t n)
{
	if (*len > n)
		*len = (socklen_t)n;
	memcpy(value, from, *len);
	return 0;
}

static int get_rs_option(struct rsocket *rs, int level, int name, void *value, socklen_t *len)
{
	struct linger l = {rs->linger_on, rs->linger_s};
	struct tcp_info info = {0};
	int v, err;

	if (!value || !len)
		return EFAULT;
	switch (OPTION(level, name)) {
	case OPTION(SOL_SOCKET, SO_LINGER):
		return give_option(value, len, &l, sizeof(l));
	case OPTION(SOL_SOCKET, SO_RCVTIMEO):
		return give_option(value, len, &rs->recv_timeout, sizeof(rs->recv_timeout));
	case OPTION(SOL_SOCKET, SO_SNDTIMEO):
		return give_option(value, len, &rs->send_timeout, sizeof(rs->send_timeout));
	case OPTION(IPPROTO_TCP, TCP_CONGESTION):
		return give_option(value, len, "rdma", sizeof("rdma"));
	case OPTION(IPPROTO_TCP, TCP_INFO):
		info.tcpi_state = rs->state == RS_CONNECTED ? TCP_ESTABLISHED : TCP_CLOSE;
		info.tcpi_snd_cwnd = rs->config.sq;
		info.tcpi_snd_mss = info.tcpi_rcv_mss = (uint32_t)max_segment(rs);
		return give_option(value, len, &info, sizeof(info));
	case OPTION(SOL_RDMA, RDMA_ROUTE):
		return get_route(rs, value, len);
	default:
		err = get_int(rs, level, name, &v);
		return err ? err : give_option(value, len, &v, sizeof(v));
	}
}

RS_EXPORT int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	struct rsocket *rs = rs_get(socket);
	int err;

	if (!rs)
		return -1;
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = get_rs_option(rs, level, optname, optval, optlen);
	if (err == ENOPROTOOPT && rs->dgram)
		err = getsockopt(rs->fd, level, optname, optval, optlen) ? errno : 0;
	vb_mutex_unlock(&rs->lock);
	rs_put(rs);
	return err ? rs_fail(err) : 0;
}
