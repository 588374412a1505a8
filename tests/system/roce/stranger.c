// stranger.c - a peer without Verbena: a socket, and packets forged byte by byte
// follows: IBA volume 1, 9.2 to 9.7; annex A17 (RoCEv2); raw(7), udp(7), ipv6(7)
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <arpa/inet.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "../../unit/frame/reference.h"
#include "../../support/leave_network.h"
#include "frame/net.h"
#include "path/roce/roce.h"

#define HERE4 "127.0.0.1"
#define ALSO4 "127.0.0.9"
#define THERE4 "127.0.0.77"
#define SPOOF4 "127.0.0.78"
#define HERE6 "fd00::1"
#define THERE6 "fd00::77"

/* --- the network --- */

static bool add_address6(const char *text)
{
	struct in6_ifreq r = {.ifr6_prefixlen = 128, .ifr6_ifindex = 1};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET6, text, &r.ifr6_addr);
	bool done = fd >= 0 && !ioctl(fd, SIOCSIFADDR, &r);

	if (fd >= 0)
		close(fd);
	return done;
}

bool stranger_network(void)
{
	struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

	if (!leave_network())
		return false;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool done = fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &up);

	if (fd >= 0)
		close(fd);
	return done && add_address6(HERE6) && add_address6(THERE6);
}

static void address(uint8_t gid[16], const char *text)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(gid, mapped, 12);
	if (inet_pton(AF_INET, text, gid + 12) != 1)
		CHECK(inet_pton(AF_INET6, text, gid) == 1);
}

static void set(int fd, int level, int name, int value)
{
	CHECK(!setsockopt(fd, level, name, &value, sizeof(value)));
}

/* --- the pair --- */

static void open_device(struct dev *d, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(d, 0, sizeof(*d));
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			d->ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(d->ctx && (d->pd = ibv_alloc_pd(d->ctx)));
	CHECK(!ibv_query_port(d->ctx, 1, &d->port));
}

static void use_gid(struct dev *d, const uint8_t gid[16])
{
	union ibv_gid g;

	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		if (!ibv_query_gid(d->ctx, 1, i, &g) && !memcmp(g.raw, gid, 16)) {
			d->gid = g;
			d->gid_index = i;
			return;
		}
	}
	fail(__FILE__, __LINE__, "the address is no GID of the device");
}

/* A socket outside the group, with its own address, which the kernel prefers for that address. */
static void listen_there(struct stranger *s)
{
	static int open[2];
	struct sockaddr_storage sa;
	socklen_t len = vb_gid_to_sockaddr(&sa, s->there, VB_ROCE_PORT, 0);

	s->raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	CHECK(s->raw >= 0);
	if (open[s->v6]) {
		s->fd = open[s->v6];
		return;
	}
	s->fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(s->fd >= 0);
	set(s->fd, SOL_SOCKET, SO_REUSEPORT, 1);
	set(s->fd, SOL_SOCKET, SO_RCVBUF, 4 << 20);
	if (s->v6) {
		set(s->fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
		set(s->fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	} else {
		set(s->fd, IPPROTO_IP, IP_RECVTOS, 1);
		set(s->fd, IPPROTO_IP, IP_RECVTTL, 1);
	}
	CHECK(!bind(s->fd, (struct sockaddr *)&sa, len));
	open[s->v6] = s->fd;
}

void stranger_meet(struct stranger *s, const struct conf *c, bool v6)
{
	stranger_meet_at(s, c, "roce_lo", v6 ? HERE6 : HERE4);
}

void stranger_meet_at(struct stranger *s, const struct conf *c, const char *device, const char *here)
{
	memset(s, 0, sizeof(*s));
	s->v6 = strchr(here, ':');
	address(s->here, here);
	address(s->there, s->v6 ? THERE6 : THERE4);
	open_device(&s->d, device);
	use_gid(&s->d, s->here);
	mem_make(&s->m, &s->d, 1 << 20);
	link_make(&s->l, &s->d, c);
	struct addr it = {.qpn = STRANGER_QPN, .psn = s->l.c.psn ? s->l.c.psn : 1000};

	memcpy(it.gid.raw, s->there, 16);
	link_to(&s->l, &it);
	/* the broker may be silent for long on a busy machine; then path/unresolved.c continues looking */
	WAIT_FOR(*(struct vb_roce_path *volatile *)&vb_qp(s->l.qp)->roce);
	listen_there(s);
}

struct vb_packet stranger_packet(const struct stranger *s, uint8_t opcode, uint32_t psn, uint32_t len)
{
	return (struct vb_packet){
	        .bth = {.opcode = opcode,
	                .migreq = true,
	                .pkey = 0xffff,
	                .dest_qpn = s->l.qp->qp_num,
	                .psn = vb_psn(psn),
	                .pad = -len & 3,
	                .ack_req = true},
	        .info = vb_opcode_info(opcode),
	        .deth = {.qkey = QKEY, .src_qpn = STRANGER_QPN},
	        .reth = {.va = (uintptr_t)s->m.p, .rkey = s->m.mr->rkey, .length = len},
	        .atomic = {.va = (uintptr_t)s->m.p, .rkey = s->m.mr->rkey, .swap_add = 1},
	        .aeth = {.value = VB_CREDITS_UNLIMITED},
	        .payload_len = len,
	};
}

/* --- sending --- */

static uint16_t ip_sum(const uint8_t *p, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* Writes IP and UDP headers before the payload. Returns their length. */
static size_t headers(const struct stranger *s, uint8_t *ip, size_t len, const struct how *how)
{
	uint8_t from[16], to[16];
	size_t ip_len = s->v6 ? 40 : 20;
	uint8_t *udp = ip + ip_len;

	memcpy(from, s->there, 16);
	memcpy(to, s->here, 16);
	if (how->spoofed)
		address(from, SPOOF4);
	if (how->astray)
		address(to, ALSO4);
	memset(ip, 0, ip_len + 8);
	if (s->v6) {
		ip[0] = 0x60;
		put16(ip + 4, (unsigned)(8 + len));
		ip[6] = IPPROTO_UDP;
		memcpy(ip + 8, from, 16);
		memcpy(ip + 24, to, 16);
	} else {
		ip[0] = 0x45;
		ip[1] = how->tos;
		put16(ip + 2, (unsigned)(28 + len));
		put16(ip + 4, how->id);
		put16(ip + 6, 0x4000);
		ip[8] = how->hops ? how->hops : 64;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, from + 12, 4);
		memcpy(ip + 16, to + 12, 4);
		put16(ip + 10, ip_sum(ip, 20));
	}
	put16(udp, how->sport ? how->sport : VB_ROCE_PORT);
	put16(udp + 2, VB_ROCE_PORT);
	put16(udp + 4, (unsigned)(8 + len));
	return ip_len + 8;
}

static void send_raw(struct stranger *s, const uint8_t *ip, size_t len)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	memcpy(&to.sin_addr, ip + 16, 4);
	SAME(sendto(s->raw, ip, len, 0, (struct sockaddr *)&to, sizeof(to)), len);
}

static void send_fragments(struct stranger *s, const uint8_t *ip, size_t len, const struct how *how)
{
	uint8_t part[8192];

	for (size_t off = 0; off < len - 20; off += how->fragment) {
		size_t n = len - 20 - off < how->fragment ? len - 20 - off : how->fragment;
		bool last = off + n == len - 20;

		memcpy(part, ip, 20);
		memcpy(part + 20, ip + 20 + off, n);
		put16(part + 2, (unsigned)(20 + n));
		put16(part + 4, how->id ? how->id : 1);
		put16(part + 6, (unsigned)(off / 8 | (last ? 0 : 0x2000)));
		put16(part + 10, 0);
		put16(part + 10, ip_sum(part, 20));
		send_raw(s, part, 20 + n);
		if (how->only_first)
			return;
	}
}

/* A NOP, and the end of the option list. */
static void send_with_option(struct stranger *s, const uint8_t *ip, size_t len)
{
	uint8_t with[8192];

	memcpy(with, ip, 20);
	memcpy(with + 20, "\1\0\0\0", 4);
	memcpy(with + 24, ip + 20, len - 20);
	with[0] = 0x46;
	put16(with + 2, (unsigned)(len + 4));
	put16(with + 10, 0);
	put16(with + 10, ip_sum(with, 24));
	send_raw(s, with, len + 4);
}

/* Source port 4791, as the socket has it. */
static void send_v6(struct stranger *s, const uint8_t *udp_payload, size_t len, const struct how *how)
{
	struct sockaddr_storage sa;
	socklen_t sa_len = vb_gid_to_sockaddr(&sa, s->here, VB_ROCE_PORT, 0);

	((struct sockaddr_in6 *)&sa)->sin6_flowinfo = htonl(how->flow_label);
	set(s->fd, IPPROTO_IPV6, IPV6_TCLASS, how->tos);
	set(s->fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, how->hops ? how->hops : 64);
	set(s->fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, how->flow_label != 0);
	set(s->fd, SOL_UDP, UDP_NO_CHECK6_TX, how->no_checksum);
	SAME(sendto(s->fd, udp_payload, len, 0, (struct sockaddr *)&sa, sa_len), len);
}

void stranger_bytes(struct stranger *s, const uint8_t *bytes, size_t len, const struct how *how)
{
	static const struct how right;
	uint8_t all[8192];

	if (!how)
		how = &right;
	size_t head = headers(s, all, len + VB_ICRC_LEN, how), total = head + len + VB_ICRC_LEN;

	memcpy(all + head, bytes, len);
	if (len >= VB_BTH_LEN)
		ref_icrc(all, total, all + total - VB_ICRC_LEN);
	all[total - 1] ^= how->bad_icrc;
	all[total - 2] ^= how->bad_icrc; /* with a single bit, another identification could fit */
	all[total - 3] ^= how->bad_icrc;
	all[total - 4] ^= how->bad_icrc;
	if (s->v6)
		send_v6(s, all + head, len + VB_ICRC_LEN, how);
	else if (how->fragment)
		send_fragments(s, all, total, how);
	else if (how->option)
		send_with_option(s, all, total);
	else
		send_raw(s, all, total);
}

void stranger_say(struct stranger *s, const struct vb_packet *p, const struct how *how)
{
	struct vb_packet q = *p;
	uint8_t bytes[8192] = {0};
	struct vb_writer w = vb_writer(bytes, sizeof(bytes));

	q.bth.migreq = !how || !how->no_migreq;
	vb_packet_encode(&w, &q);
	CHECK(!w.failed);
	memset(bytes + w.pos, (int)(p->bth.psn.v & 0xff), p->payload_len);
	stranger_bytes(s, bytes, w.pos + p->payload_len + p->bth.pad + (how ? how->more : 0) - (how ? how->cut : 0),
	               how);
}

void stranger_request(struct stranger *s, uint8_t opcode, uint32_t n, uint32_t len)
{
	struct vb_packet p = stranger_packet(s, opcode, s->l.it.psn + n, len);

	stranger_say(s, &p, NULL);
}

/* --- receiving --- */

static void read_control(struct msghdr *mh, struct came *c)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(mh); h; h = CMSG_NXTHDR(mh, h)) {
		int type = h->cmsg_type;

		if (h->cmsg_level == IPPROTO_IP)
			*(type == IP_TTL ? &c->hops : &c->tos) = CMSG_DATA(h)[0];
		else if (h->cmsg_level == IPPROTO_IPV6)
			*(type == IPV6_HOPLIMIT ? &c->hops : &c->tos) = CMSG_DATA(h)[0];
	}
}

/* Identification 0, or that of a segment of one send. */
static bool icrc_right(const struct stranger *s, const uint8_t *bytes, size_t len, uint16_t sport)
{
	uint8_t all[8192];
	struct stranger back = *s;

	memcpy(back.there, s->here, 16);
	memcpy(back.here, s->there, 16);
	for (uint16_t id = 0; id < 64; id++) {
		size_t head = headers(&back, all, len, &(struct how){.id = id, .sport = sport});

		memcpy(all + head, bytes, len);
		if (ref_icrc_ok(all, head + len))
			return true;
		if (s->v6)
			break;
	}
	return false;
}

bool stranger_take(struct stranger *s, struct came *c, int ms)
{
	_Alignas(struct cmsghdr) char control[256];
	uint8_t bytes[8192];
	struct sockaddr_storage from;
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr mh = {.msg_name = &from,
	                    .msg_namelen = sizeof(from),
	                    .msg_iov = &iov,
	                    .msg_iovlen = 1,
	                    .msg_control = control,
	                    .msg_controllen = sizeof(control)};
	uint8_t gid[16];

	if (!heard(s->fd, ms))
		return false;
	ssize_t n = recvmsg(s->fd, &mh, 0);

	CHECK(n > 0 && vb_gid_of_sockaddr(gid, (struct sockaddr *)&from));
	CHECK(!memcmp(gid, s->here, 16));
	c->right = icrc_right(s, bytes, (size_t)n, ntohs(((struct sockaddr_in *)&from)->sin_port));
	CHECK(c->right || s->any_icrc);
	SAME(vb_packet_decode(&c->p, bytes, (size_t)n), VB_PACKET_OK);
	CHECK(c->p.bth.migreq && c->p.bth.pkey == 0xffff && c->p.bth.dest_qpn == STRANGER_QPN);
	memcpy(c->payload, bytes + c->p.payload_at, c->p.payload_len);
	read_control(&mh, c);
	return true;
}

/* On a busy machine our acknowledgement comes late, and the program may have asked for it meanwhile. */
static bool sent_again(const struct came *c, uint8_t opcode, uint32_t psn)
{
	if (!(c->p.info->flags & VB_REQUEST))
		return false;
	return !(vb_opcode_info(opcode)->flags & VB_REQUEST) || vb_psn_diff(c->p.bth.psn, vb_psn(psn)) < 0;
}

void stranger_expect(struct stranger *s, struct came *c, uint8_t opcode, uint32_t psn)
{
	do
		CHECK(stranger_take(s, c, PATIENCE));
	while (sent_again(c, opcode, psn));
	SAME(c->p.bth.opcode, opcode);
	SAME(c->p.bth.psn.v, psn & 0xffffff);
}

void stranger_silence(struct stranger *s, int ms)
{
	struct came c;

	if (stranger_take(s, &c, ms))
		fail(__FILE__, __LINE__, "opcode 0x%x, PSN 0x%x comes", c.p.bth.opcode, c.p.bth.psn.v);
}

uint64_t stranger_stat(struct stranger *s, size_t offset)
{
	struct vb_qp *qp = vb_qp(s->l.qp);
	uint64_t n;

	vb_lock(&qp->sq_lock);
	memcpy(&n, (uint8_t *)&qp->roce->q.stats + offset, sizeof(n));
	vb_unlock(&qp->sq_lock);
	return n;
}
