// packet_ring.c - the packets of an interface in memory that the kernel shares, so that a program polls without system calls
// follows: packet(7), PACKET_RX_RING (TPACKET_V2), PACKET_VNET_HDR; socket(7), SO_ATTACH_FILTER; IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "net/packet_ring.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "frame/fields.h"
#include "frame/packet.h"
#include "util/lane.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define FRAMES 2048u /* a power of 2 */
#define FRAME 512u   /* bytes; a short packet fits behind the kernel's headers and those of the link */
#define SHORT 320u   /* bytes of a short packet, IP header included */
#define BEGIN 64u    /* bytes of a long one that enter the ring */
#define RINGS_MAX 8u /* packet sockets on the interface: each packet is shown to all of them */
#define IPV4_LEN 20u
#define IPV6_LEN 40u
#define UDP_LEN 8u

struct vb_packet_ring {
	int fd;
	uint32_t ifindex, lane;
	uint32_t at; /* the first frame */
	uint8_t *frames;
};

/* --- the filters --- */

#define NET(at) ((unsigned)SKF_NET_OFF + (at))
#define AD(what) ((unsigned)SKF_AD_OFF + (what))
#define QPN_AT 4u /* in the BTH: the word whose low 24 bits are the destination QP */
#define CODE_MAX 48u

struct code {
	unsigned n;
	struct sock_filter f[CODE_MAX];
};

static void code_load(struct code *c, unsigned size, unsigned at)
{
	c->f[c->n++] = (struct sock_filter)BPF_STMT((uint16_t)(BPF_LD | BPF_ABS | size), at);
}

/* Leaves to the end of the code if A is not the value. */
static void code_only(struct code *c, uint32_t value)
{
	c->f[c->n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, UINT8_MAX);
}

static void code_mask(struct code *c, uint32_t bits)
{
	c->f[c->n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits);
}

static void code_answer(struct code *c, uint32_t value)
{
	c->f[c->n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value);
}

/* A packet of the lane. Then its length decides. */
static void of_lane(struct code *c, uint32_t lane, unsigned ip_len, unsigned length_at, uint32_t length_max,
                    uint32_t is_short, uint32_t is_long)
{
	code_load(c, BPF_H, NET(ip_len + 2));
	code_only(c, VB_ROCE_PORT);
	code_load(c, BPF_W, NET(ip_len + UDP_LEN + QPN_AT));
	code_mask(c, (VB_LANE_COUNT - 1) << VB_LANE_SHIFT);
	code_only(c, lane << VB_LANE_SHIFT);
	code_load(c, BPF_H, NET(length_at));
	c->f[c->n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, length_max, 1, 0);
	code_answer(c, is_short);
	code_answer(c, is_long);
}

/*
 * The ring's filter and the socket's are one program with other answers, so that each packet is in one of them. It names
 * what a ring can show: packets to this host without options or fragments, on its interface, for its lane.
 */
static int attach(int fd, const struct vb_packet_ring *r, uint32_t is_short, uint32_t is_long, uint32_t others)
{
	struct code c = {0};
	unsigned by_version;

	code_load(&c, BPF_W, AD(SKF_AD_IFINDEX));
	code_only(&c, r->ifindex);
	code_load(&c, BPF_W, AD(SKF_AD_PKTTYPE));
	code_only(&c, PACKET_HOST);
	code_load(&c, BPF_W, AD(SKF_AD_PROTOCOL));
	by_version = c.n;
	c.f[c.n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 0);
	code_load(&c, BPF_B, NET(0)); /* version, header length */
	code_only(&c, 0x45);
	code_load(&c, BPF_H, NET(6)); /* more fragments, offset */
	code_mask(&c, 0x3fff);
	code_only(&c, 0);
	code_load(&c, BPF_B, NET(9));
	code_only(&c, IPPROTO_UDP);
	of_lane(&c, r->lane, IPV4_LEN, 2, SHORT, is_short, is_long);
	c.f[by_version].jf = (uint8_t)(c.n - by_version - 1);
	code_only(&c, ETH_P_IPV6);
	code_load(&c, BPF_B, NET(6));
	code_only(&c, IPPROTO_UDP);
	of_lane(&c, r->lane, IPV6_LEN, 4, SHORT - IPV6_LEN, is_short, is_long);
	for (unsigned i = 0; i < c.n; i++)
		if (BPF_CLASS(c.f[i].code) == BPF_JMP && c.f[i].jf == UINT8_MAX)
			c.f[i].jf = (uint8_t)(c.n - i - 1);
	code_answer(&c, others);
	struct sock_fprog p = {.len = (unsigned short)c.n, .filter = c.f};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p));
}

static int shut(int fd)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog p = {.len = 1, .filter = &nothing};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p));
}

/* --- the ring --- */

/* Before 6.2 the kernel drops packets merged by UDP's GSO and GRO instead of telling the size of each. */
static bool kernel_tells_sizes(void)
{
	struct utsname u;
	unsigned major, minor;

	return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 2));
}

/* Packet sockets on the interface, or on all. Where /proc does not show them, none. */
static unsigned count_others(uint32_t ifindex)
{
	FILE *f = fopen("/proc/net/packet", "re");
	char line[256];
	unsigned n = 0, at;

	while (f && fgets(line, sizeof(line), f))
		n += sscanf(line, "%*s %*u %*u %*x %u", &at) == 1 && (at == ifindex || !at);
	if (f)
		fclose(f);
	return n;
}

static int set_packet(int fd, int option, int value)
{
	return setsockopt(fd, SOL_PACKET, option, &value, sizeof(value));
}

static bool map_ring(struct vb_packet_ring *r)
{
	struct tpacket_req req = {
	        .tp_block_size = 64 * FRAME, .tp_block_nr = FRAMES / 64, .tp_frame_size = FRAME, .tp_frame_nr = FRAMES};
	void *p;

	if (setsockopt(r->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)))
		return false;
	p = mmap(NULL, (size_t)FRAMES * FRAME, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (p == MAP_FAILED)
		return false;
	madvise(p, (size_t)FRAMES * FRAME, MADV_DONTFORK);
	r->frames = p;
	return true;
}

/* ETH_P_ALL: such sockets see a packet before IP does. Behind it IP would have to copy the packet's description. */
static bool open_ring(struct vb_packet_ring *r)
{
	struct sockaddr_ll to = {
	        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)r->ifindex};

	return !set_packet(r->fd, PACKET_VERSION, TPACKET_V2) && !set_packet(r->fd, PACKET_VNET_HDR, 1) &&
	       !set_packet(r->fd, PACKET_IGNORE_OUTGOING, 1) && !shut(r->fd) && map_ring(r) &&
	       !bind(r->fd, (struct sockaddr *)&to, sizeof(to)) && !attach(r->fd, r, UINT16_MAX, BEGIN, 0);
}

struct vb_packet_ring *vb_packet_ring_new(uint32_t ifindex, uint32_t lane)
{
	struct vb_packet_ring *r =
	        kernel_tells_sizes() && count_others(ifindex) < RINGS_MAX ? calloc(1, sizeof(*r)) : NULL;

	if (!r)
		return NULL;
	r->ifindex = ifindex;
	r->lane = lane;
	r->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->fd >= 0 && open_ring(r))
		return r;
	vb_packet_ring_free(r);
	return NULL;
}

void vb_packet_ring_free(struct vb_packet_ring *r)
{
	if (r->frames)
		munmap(r->frames, (size_t)FRAMES * FRAME);
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}

bool vb_packet_ring_claim(const struct vb_packet_ring *r, int lane_fd)
{
	return !attach(lane_fd, r, 0, UINT32_MAX, UINT32_MAX);
}

void vb_packet_ring_forget(int lane_fd)
{
	int unused = 0;

	setsockopt(lane_fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

int vb_packet_ring_fd(const struct vb_packet_ring *r)
{
	return r->fd;
}

bool vb_packet_ring_failed(const struct vb_packet_ring *r)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &len) || error;
}

static struct tpacket2_hdr *frame_at(const struct vb_packet_ring *r, uint32_t i)
{
	return (struct tpacket2_hdr *)(void *)(r->frames + (size_t)(i % FRAMES) * FRAME);
}

static bool is_full(const struct tpacket2_hdr *h)
{
	return *(const volatile uint32_t *)&h->tp_status & TP_STATUS_USER;
}

bool vb_packet_ring_crowded(const struct vb_packet_ring *r)
{
	return is_full(frame_at(r, r->at + FRAMES / 4));
}

static uint32_t word_at(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return ntohl(word);
}

static uint16_t half_at(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* The fields of the IP header, whose length it returns. The filter has checked the rest. */
static __attribute__((hot)) size_t read_ip(const uint8_t *ip, struct vb_udp_arrival *a, size_t *ip_len)
{
	static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

	if (ip[0] >> 4 == 4) {
		a->ip = (struct vb_ip_fields){.traffic_class = ip[1], .hop_limit = ip[8], .id = half_at(ip + 4)};
		memcpy(a->flow.src, v4_prefix, 12);
		memcpy(a->flow.dst, v4_prefix, 12);
		memcpy(a->flow.src + 12, ip + 12, 4);
		memcpy(a->flow.dst + 12, ip + 16, 4);
		*ip_len = half_at(ip + 2);
		return IPV4_LEN;
	}
	a->ip = (struct vb_ip_fields){.traffic_class = (uint8_t)(word_at(ip) >> 20),
	                              .hop_limit = ip[7],
	                              .flow_label = word_at(ip) & VB_FLOW_LABEL_MASK};
	memcpy(a->flow.src, ip + 8, VB_GID_LEN);
	memcpy(a->flow.dst, ip + 24, VB_GID_LEN);
	*ip_len = IPV6_LEN + half_at(ip + 4);
	return IPV6_LEN;
}

__attribute__((hot)) enum vb_ring_packet vb_packet_ring_first(const struct vb_packet_ring *r, struct vb_udp_arrival *a,
                                                              uint8_t **bytes, size_t *len)
{
	struct tpacket2_hdr *h = frame_at(r, r->at);
	struct virtio_net_hdr v;
	size_t whole, head;

	if (!is_full(h))
		return VB_RING_EMPTY;
	atomic_thread_fence(memory_order_acquire);
	if (h->tp_snaplen != h->tp_len)
		return VB_RING_IN_SOCKET;
	uint8_t *ip = (uint8_t *)h + h->tp_net;

	*a = (struct vb_udp_arrival){.flow.dport = VB_ROCE_PORT, .ifindex = r->ifindex};
	head = read_ip(ip, a, &whole) + UDP_LEN;
	a->flow.sport = half_at(ip + head - UDP_LEN);
	memcpy(&v, (uint8_t *)h + h->tp_mac - sizeof(v), sizeof(v));
	a->seg = v.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 ? v.gso_size : 0;
	*bytes = ip + head;
	/* a link pads packets to its minimum, and UDP's length may be that of a part */
	size_t there = h->tp_snaplen - (size_t)(h->tp_net - h->tp_mac), udp_len = half_at(ip + head - UDP_LEN + 4);

	whole = whole < there ? whole : there;
	udp_len += head - UDP_LEN;
	whole = whole < udp_len ? whole : udp_len;
	*len = whole < head ? 0 : whole - head;
	return VB_RING_SHORT;
}

enum vb_ring_packet vb_packet_ring_has(const struct vb_packet_ring *r, const struct vb_udp_arrival *a,
                                       const uint8_t *bytes, size_t len)
{
	size_t head = (vb_gid_is_ipv4(a->flow.dst) ? IPV4_LEN : IPV6_LEN) + UDP_LEN;

	if (a->ifindex != r->ifindex || len < VB_BTH_LEN || vb_bth_dest_qpn(bytes) >> VB_LANE_SHIFT != r->lane)
		return VB_RING_EMPTY;
	return head + len > SHORT ? VB_RING_IN_SOCKET : VB_RING_SHORT;
}

bool vb_packet_ring_matches(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                            size_t len)
{
	struct vb_udp_arrival first;
	uint8_t *there;
	size_t there_len;

	return vb_packet_ring_first(r, &first, &there, &there_len) == VB_RING_SHORT && there_len == len &&
	       first.seg == a->seg && !memcmp(&first.flow, &a->flow, sizeof(a->flow)) && !memcmp(there, bytes, len);
}

__attribute__((hot)) void vb_packet_ring_next(struct vb_packet_ring *r)
{
	struct tpacket2_hdr *h = frame_at(r, r->at);

	atomic_thread_fence(memory_order_release);
	*(volatile uint32_t *)&h->tp_status = TP_STATUS_KERNEL;
	r->at = (r->at + 1) % FRAMES;
}
