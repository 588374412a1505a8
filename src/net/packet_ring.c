// packet_ring.c - the packets of an interface in memory that the kernel shares, so that a program polls without system calls
// follows: packet(7), PACKET_RX_RING (TPACKET_V2), PACKET_VNET_HDR; socket(7), SO_ATTACH_FILTER; IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "net/packet_ring.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "frame/ethernet.h"
#include "frame/fields.h"
#include "frame/packet.h"
#include "frame/vlan.h"
#include "net/netdev.h"
#include "util/lane.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define FRAMES 2048u /* a power of 2 */
#define FRAME 512u   /* bytes; a short packet fits behind the kernel's headers and those of the link and IP */
#define SHORT 280u   /* bytes of a short packet, UDP's header included */
#define BEGIN 160u   /* bytes of a long one that enter the ring: at least to the end of the BTH */
#define BEFORE 256u  /* so many given back are remembered */
#define RINGS_MAX 8u /* packet sockets on the interface: each packet is shown to all of them */

struct vb_packet_ring {
	int fd;
	uint32_t ifindex, lane;
	uint32_t at; /* counts the packets that were given back: the first frame */
	bool is_lo;
	uint8_t *frames;
};

/* --- the filters --- */

#define AD(what) ((unsigned)SKF_AD_OFF + (what))
/* from UDP's header on */
#define PORT_AT 2u
#define LENGTH_AT 4u
#define QPN_AT (VB_UDP_LEN + 4u) /* the word whose low 24 bits are the destination QP */
#define CODE_MAX 48u

struct code {
	unsigned n;
	struct sock_filter f[CODE_MAX];
};

static void code_add(struct code *c, unsigned code, uint32_t k)
{
	c->f[c->n++] = (struct sock_filter)BPF_STMT((uint16_t)code, k);
}

/* Leaves to the end of the code if A is not the value. */
static void code_only(struct code *c, uint32_t value)
{
	c->f[c->n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, UINT8_MAX);
}

/* Jumps over what follows, up to code_here, if A is not the value. */
static unsigned code_unless(struct code *c, uint32_t value)
{
	c->f[c->n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0);
	return c->n++;
}

static void code_here(struct code *c, unsigned jump)
{
	c->f[jump].jf = (uint8_t)(c->n - jump - 1);
}

/* RoCE's port, and the lane. Then the length decides. mode: of loads, from UDP's header on, which is at `at`. */
static void code_udp(struct code *c, unsigned mode, unsigned at, uint32_t lane, uint32_t is_short, uint32_t is_long)
{
	code_add(c, BPF_LD | BPF_H | mode, at + PORT_AT);
	code_only(c, VB_ROCE_PORT);
	code_add(c, BPF_LD | BPF_W | mode, at + QPN_AT);
	code_add(c, BPF_ALU | BPF_AND | BPF_K, (VB_LANE_COUNT - 1) << VB_LANE_SHIFT);
	code_only(c, lane << VB_LANE_SHIFT);
	code_add(c, BPF_LD | BPF_H | mode, at + LENGTH_AT);
	c->f[c->n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SHORT, 1, 0);
	code_add(c, BPF_RET | BPF_K, is_short);
	code_add(c, BPF_RET | BPF_K, is_long);
}

static void code_begin(struct code *c, const struct vb_packet_ring *r)
{
	code_add(c, BPF_LD | BPF_W | BPF_ABS, AD(SKF_AD_IFINDEX));
	code_only(c, r->ifindex);
	code_add(c, BPF_LD | BPF_W | BPF_ABS, AD(SKF_AD_PKTTYPE));
	code_only(c, PACKET_HOST);
}

static int code_attach(struct code *c, int fd, uint32_t others)
{
	for (unsigned i = 0; i < c->n; i++)
		if (BPF_CLASS(c->f[i].code) == BPF_JMP && c->f[i].jf == UINT8_MAX)
			c->f[i].jf = (uint8_t)(c->n - i - 1);
	code_add(c, BPF_RET | BPF_K, others);
	struct sock_fprog p = {.len = (unsigned short)c->n, .filter = c->f};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p));
}

/* What a ring shows: packets to this host, without fragments, on its interface and no VLAN of it. Their bytes may be in
 * fragments of the kernel's, so loads count from the beginning of the packet. */
static int fill_from(const struct vb_packet_ring *r)
{
	struct code c = {0};
	unsigned v6;

	code_begin(&c, r);
	code_add(&c, BPF_LD | BPF_W | BPF_ABS, AD(SKF_AD_VLAN_TAG));
	code_add(&c, BPF_ALU | BPF_AND | BPF_K, 0xfff);
	code_only(&c, 0);
	code_add(&c, BPF_LD | BPF_W | BPF_ABS, AD(SKF_AD_PROTOCOL));
	v6 = code_unless(&c, ETH_P_IP);
	code_add(&c, BPF_LD | BPF_H | BPF_ABS, VB_ETHERNET_LEN + 6); /* more fragments, offset */
	code_add(&c, BPF_ALU | BPF_AND | BPF_K, 0x3fff);
	code_only(&c, 0);
	code_add(&c, BPF_LD | BPF_B | BPF_ABS, VB_ETHERNET_LEN + 9);
	code_only(&c, IPPROTO_UDP);
	code_add(&c, BPF_LDX | BPF_B | BPF_MSH, VB_ETHERNET_LEN); /* the length of IP's header */
	code_udp(&c, BPF_IND, VB_ETHERNET_LEN, r->lane, UINT16_MAX, BEGIN);
	code_here(&c, v6);
	code_only(&c, ETH_P_IPV6);
	code_add(&c, BPF_LD | BPF_B | BPF_ABS, VB_ETHERNET_LEN + 6);
	code_only(&c, IPPROTO_UDP);
	code_udp(&c, BPF_ABS, VB_ETHERNET_LEN + VB_IPV6_LEN, r->lane, UINT16_MAX, BEGIN);
	return code_attach(&c, r->fd, 0);
}

/* The same for the lane's socket, where a packet begins with UDP's header. IP's is before it, in one piece. */
static int leave_to(const struct vb_packet_ring *r, int lane_fd)
{
	struct code c = {0};
	unsigned v4;

	code_begin(&c, r);
	code_add(&c, BPF_LD | BPF_W | BPF_ABS, AD(SKF_AD_PROTOCOL));
	v4 = code_unless(&c, ETH_P_IPV6);
	code_add(&c, BPF_LD | BPF_B | BPF_ABS, (unsigned)SKF_NET_OFF + 6);
	code_only(&c, IPPROTO_UDP);
	code_here(&c, v4);
	code_udp(&c, BPF_ABS, 0, r->lane, 0, UINT32_MAX);
	return code_attach(&c, lane_fd, UINT32_MAX);
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
	       !bind(r->fd, (struct sockaddr *)&to, sizeof(to));
}

struct vb_packet_ring *vb_packet_ring_new(uint32_t ifindex, uint32_t lane)
{
	struct vb_netdev nd;

	if (!kernel_tells_sizes() || vb_netdev_get((int)ifindex, &nd) || nd.master ||
	    (nd.arphrd != ARPHRD_ETHER && nd.arphrd != ARPHRD_LOOPBACK) || count_others(ifindex) >= RINGS_MAX)
		return NULL;
	struct vb_packet_ring *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->ifindex = ifindex;
	r->lane = lane;
	r->is_lo = nd.arphrd == ARPHRD_LOOPBACK;
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

bool vb_packet_ring_open(const struct vb_packet_ring *r)
{
	return !fill_from(r);
}

void vb_packet_ring_shut(const struct vb_packet_ring *r)
{
	shut(r->fd);
}

bool vb_packet_ring_claim(const struct vb_packet_ring *r, int lane_fd)
{
	return !leave_to(r, lane_fd);
}

void vb_packet_ring_forget(int lane_fd)
{
	int unused = 0;

	setsockopt(lane_fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
}

const char *vb_packet_ring_trouble(const struct vb_packet_ring *r)
{
	struct tpacket_stats stats = {0};
	struct vb_netdev nd;
	int error = 0;
	socklen_t len = sizeof(error), stats_len = sizeof(stats);

	if (getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &len) || error)
		return "the interface was down";
	if (vb_netdev_get((int)r->ifindex, &nd) || nd.master)
		return "the interface is another one's";
	if (!getsockopt(r->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &stats_len) && stats.tp_drops)
		return "packets found no room";
	return NULL;
}

bool vb_packet_ring_is_lo(const struct vb_packet_ring *r)
{
	return r->is_lo;
}

uint32_t vb_packet_ring_at(const struct vb_packet_ring *r)
{
	return r->at;
}

uint32_t vb_packet_ring_ifindex(const struct vb_packet_ring *r)
{
	return r->ifindex;
}

static struct tpacket2_hdr *frame_at(const struct vb_packet_ring *r, uint32_t i)
{
	return (struct tpacket2_hdr *)(void *)(r->frames + (size_t)(i % FRAMES) * FRAME);
}

static bool is_full(const struct tpacket2_hdr *h)
{
	return *(const volatile uint32_t *)&h->tp_status & TP_STATUS_USER;
}

/* A mark of ours in the frame, which the kernel clears with the next packet. */
static bool is_seen(const struct tpacket2_hdr *h)
{
	return h->tp_padding[0];
}

void vb_packet_ring_seen(struct vb_packet_ring *r, int at)
{
	frame_at(r, r->at + (uint32_t)at)->tp_padding[0] = 1;
}

bool vb_packet_ring_crowded(const struct vb_packet_ring *r)
{
	return is_full(frame_at(r, r->at + FRAMES / 4));
}

/* The fields of the IP header, whose length it returns. The filter has checked the rest. */
static __attribute__((hot)) size_t read_ip(const uint8_t *ip, struct vb_udp_arrival *a)
{
	static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

	if (ip[0] >> 4 == 4) {
		a->ip = (struct vb_ip_fields){.traffic_class = ip[1], .hop_limit = ip[8], .id = vb_load16(ip + 4)};
		memcpy(a->flow.src, v4_prefix, 12);
		memcpy(a->flow.dst, v4_prefix, 12);
		memcpy(a->flow.src + 12, ip + 12, 4);
		memcpy(a->flow.dst + 12, ip + 16, 4);
		return 4u * (ip[0] & 15);
	}
	uint32_t label = (uint32_t)vb_load16(ip) << 16 | vb_load16(ip + 2);

	a->ip = (struct vb_ip_fields){
	        .traffic_class = (uint8_t)(label >> 20), .hop_limit = ip[7], .flow_label = label & VB_FLOW_LABEL_MASK};
	memcpy(a->flow.src, ip + 8, VB_GID_LEN);
	memcpy(a->flow.dst, ip + 24, VB_GID_LEN);
	return VB_IPV6_LEN;
}

/* *len: as UDP says; *there: so many of these bytes are in the ring. False: they are none. */
static __attribute__((hot)) bool read_frame(const struct vb_packet_ring *r, struct tpacket2_hdr *h,
                                            struct vb_udp_arrival *a, uint8_t **bytes, size_t *len, size_t *there)
{
	uint8_t *ip = (uint8_t *)h + h->tp_net;
	struct virtio_net_hdr v;
	size_t head, whole = h->tp_snaplen - (size_t)(h->tp_net - h->tp_mac);

	*a = (struct vb_udp_arrival){.flow.dport = VB_ROCE_PORT, .ifindex = r->ifindex};
	head = read_ip(ip, a) + VB_UDP_LEN;
	*len = *there = 0;
	if (head > whole)
		return false;
	a->flow.sport = vb_load16(ip + head - VB_UDP_LEN);
	memcpy(&v, (uint8_t *)h + h->tp_mac - sizeof(v), sizeof(v));
	a->seg = v.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 ? v.gso_size : 0;
	*bytes = ip + head;
	*len = vb_load16(ip + head - VB_UDP_LEN + LENGTH_AT);
	*len = *len < VB_UDP_LEN ? 0 : *len - VB_UDP_LEN;
	*there = *len < whole - head ? *len : whole - head; /* a link pads packets to its minimum */
	return true;
}

__attribute__((hot)) enum vb_ring_packet vb_packet_ring_first(struct vb_packet_ring *r, struct vb_udp_arrival *a,
                                                              uint8_t **bytes, size_t *len)
{
	struct tpacket2_hdr *h;
	size_t there;

	for (;; vb_packet_ring_next(r)) {
		h = frame_at(r, r->at);
		if (!is_full(h))
			return VB_RING_EMPTY;
		atomic_thread_fence(memory_order_acquire);
		if (__builtin_expect(!is_seen(h), 1))
			break;
	}
	if (read_frame(r, h, a, bytes, len, &there) && *len + VB_UDP_LEN > SHORT)
		return VB_RING_LONG;
	*len = there;
	return VB_RING_SHORT;
}

enum vb_ring_packet vb_packet_ring_kind(const struct vb_packet_ring *r, const struct vb_udp_arrival *a,
                                        const uint8_t *bytes, size_t len)
{
	if (a->ifindex != r->ifindex || len < VB_BTH_LEN || vb_bth_dest_qpn(bytes) >> VB_LANE_SHIFT != r->lane)
		return VB_RING_EMPTY;
	return len + VB_UDP_LEN > SHORT ? VB_RING_LONG : VB_RING_SHORT;
}

static bool is_this(const struct vb_packet_ring *r, struct tpacket2_hdr *h, const struct vb_udp_arrival *a,
                    const uint8_t *bytes, size_t len)
{
	struct vb_udp_arrival other;
	size_t other_len, there;
	uint8_t *begin;

	return read_frame(r, h, &other, &begin, &other_len, &there) && other_len == len && other.seg == a->seg &&
	       !memcmp(&other.flow, &a->flow, sizeof(a->flow)) && !memcmp(begin, bytes, there);
}

int vb_packet_ring_find(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                        size_t len)
{
	for (int i = 0; i < (int)FRAMES; i++) {
		struct tpacket2_hdr *h = frame_at(r, r->at + (uint32_t)i);

		if (!is_full(h))
			break;
		atomic_thread_fence(memory_order_acquire);
		if (!is_seen(h) && is_this(r, h, a, bytes, len))
			return i;
	}
	return -1;
}

bool vb_packet_ring_had(const struct vb_packet_ring *r, const struct vb_udp_arrival *a, const uint8_t *bytes,
                        size_t len)
{
	for (uint32_t i = 1; i <= BEFORE && i <= r->at; i++) {
		struct tpacket2_hdr *h = frame_at(r, r->at - i);

		if (!is_full(h) && is_this(r, h, a, bytes, len))
			return true;
	}
	return false;
}

__attribute__((hot)) void vb_packet_ring_next(struct vb_packet_ring *r)
{
	struct tpacket2_hdr *h = frame_at(r, r->at);

	atomic_thread_fence(memory_order_release);
	*(volatile uint32_t *)&h->tp_status = TP_STATUS_KERNEL;
	r->at++;
}
