// capture.c - records the frames that this program sends and receives, while somebody captures them
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#include "capture/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "capture/frames.h"
#include "frame/ethernet.h"
#include "frame/icrc.h"
#include "util/guard.h"
#include "util/lock.h"

struct vb_capture_ring *_Atomic vb_capture_ring;

/* Guards the ring's writing side, and the two below. No lock is taken inside it. */
static struct vb_lock the_lock = VB_LOCK_INITIALIZER(VB_RANK_CAPTURE);
static uint64_t written; /* the program's own copy of tail, which the collector could change */
static int event_fd = -1;

#define RING_MASK (VB_CAPTURE_BYTES - 1u)

uint64_t vb_capture_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- records: under the_lock --- */

static struct vb_capture_record *record_at(struct vb_capture_ring *ring, uint64_t pos)
{
	return (struct vb_capture_record *)((uint8_t *)ring + VB_CAPTURE_HEAD + (pos & RING_MASK));
}

/* How much of a frame is wanted. */
static uint32_t wanted_part(struct vb_capture_ring *ring, uint32_t length, uint32_t headers)
{
	uint32_t snaplen = atomic_load_explicit(&ring->snaplen, memory_order_relaxed);
	uint32_t part = atomic_load_explicit(&ring->no_payload, memory_order_relaxed) ? headers : length;

	return snaplen && snaplen < part ? snaplen : part;
}

static void count_dropped(struct vb_capture_ring *ring, uint64_t n)
{
	atomic_store_explicit(&ring->dropped, atomic_load_explicit(&ring->dropped, memory_order_relaxed) + n,
	                      memory_order_relaxed);
}

/* Returns room for a record, contiguous; or NULL if the ring is full. */
static struct vb_capture_record *make_room(struct vb_capture_ring *ring, uint32_t size)
{
	uint64_t taken = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint32_t left = VB_CAPTURE_BYTES - (uint32_t)(written & RING_MASK);
	uint64_t need = size + (size > left ? left : 0);

	if (written - taken > VB_CAPTURE_BYTES) /* a position that cannot be: the collector is broken */
		return NULL;
	if (written - taken + need > VB_CAPTURE_BYTES)
		return NULL;
	if (size > left) {
		*record_at(ring, written) = (struct vb_capture_record){.size = left, .kind = VB_CAPTURE_PAD};
		written += left;
	}
	return record_at(ring, written);
}

static void publish_record(struct vb_capture_ring *ring, uint32_t size)
{
	const uint64_t one = 1;

	written += size;
	atomic_store(&ring->tail, written);
	if (atomic_load(&ring->sleeps) && atomic_exchange(&ring->sleeps, 0))
		(void)!write(event_fd, &one, sizeof(one)); /* it does not block, and a lost event costs a moment */
}

/* A frame to record: its headers, then payload, then a tail that is all zeros but for the ICRC. */
struct shape {
	const uint8_t *head;
	uint32_t head_len;
	const struct iovec *iov;
	int n;
	size_t off;
	uint32_t len, pad;
	enum vb_capture_kind kind;
	uint32_t headers; /* bytes before the payload of the message */
	/* an ICRC is appended for this flow and identification */
	const struct vb_flow *sealed;
	uint16_t id;
};

/* Copies bytes of the pieces. Where memory is not mapped, zeros appear. */
static void copy_pieces(uint8_t *to, const struct iovec *iov, int n, size_t off, size_t len)
{
	for (int i = 0; i < n && len; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		size_t part = iov[i].iov_len - off < len ? iov[i].iov_len - off : len;

		if (!vb_guard_copy(to, (const uint8_t *)iov[i].iov_base + off, part))
			memset(to, 0, part);
		to += part;
		len -= part;
		off = 0;
	}
	memset(to, 0, len);
}

static uint32_t part_of(uint32_t all, uint32_t from, uint32_t len)
{
	return all <= from ? 0 : all - from < len ? all - from : len;
}

static void fill_frame(uint8_t *to, const struct shape *s, uint32_t captured, uint32_t length)
{
	uint32_t at = s->head_len, n = part_of(captured, 0, s->head_len);
	size_t link = VB_ETHERNET_LEN + (s->head[12] == 0x08 ? VB_IPV4_LEN : VB_IPV6_LEN) + VB_UDP_LEN;

	memcpy(to, s->head, n);
	copy_pieces(to + at, s->iov, s->n, s->off, part_of(captured, at, s->len));
	at += s->len;
	memset(to + at, 0, part_of(captured, at, s->pad));
	if (captured < length)
		return;
	at += s->pad;
	if (s->sealed) {
		uint32_t crc = vb_icrc_start(s->sealed, s->id, to + link, s->head_len - link, length - link);

		vb_icrc_encode(to + at, vb_crc32(crc, to + s->head_len, s->len + s->pad));
	}
	vb_frame_finish(to, length, s->head); /* the collector can change what is in the ring */
}

static void record_frame(const struct vb_capture_of *of, const struct shape *s)
{
	uint32_t length = s->head_len + s->len + s->pad + (s->sealed ? VB_ICRC_LEN : 0);

	vb_lock(&the_lock);
	struct vb_capture_ring *ring = atomic_load_explicit(&vb_capture_ring, memory_order_relaxed);
	if (ring) {
		uint32_t captured = wanted_part(ring, length, s->headers);
		uint32_t size = (uint32_t)sizeof(struct vb_capture_record) + captured;

		size = (size + VB_CAPTURE_ALIGN - 1) & ~(VB_CAPTURE_ALIGN - 1);
		struct vb_capture_record *rec = make_room(ring, size);

		if (rec) {
			*rec = (struct vb_capture_record){.size = size,
			                                  .captured = captured,
			                                  .length = length,
			                                  .headers = (uint16_t)s->headers,
			                                  .direction = (uint8_t)of->direction,
			                                  .kind = (uint8_t)s->kind,
			                                  .time = of->time,
			                                  .qpn = of->qpn,
			                                  .flags = of->flags};
			fill_frame((uint8_t *)(rec + 1), s, captured, length);
			publish_record(ring, size);
		} else {
			count_dropped(ring, 1);
		}
	}
	vb_unlock(&the_lock);
}

/* --- frames --- */

/* The bytes of headers at the start of a packet, BTH to ICRC. */
static uint32_t headers_of(const struct iovec *iov, int n, size_t off, size_t len)
{
	uint8_t opcode;

	if (len < VB_BTH_LEN + VB_ICRC_LEN)
		return (uint32_t)len;
	copy_pieces(&opcode, iov, n, off, 1);
	const struct vb_opcode_info *info = vb_opcode_info(opcode);
	uint32_t headers = info ? info->header_len : VB_BTH_LEN;

	return headers < len ? headers : (uint32_t)len;
}

void vb_capture_roce(const struct vb_capture_of *of, const struct vb_flow *flow, const struct vb_ip_fields *ip,
                     const struct iovec *iov, int n, size_t off, size_t len)
{
	uint8_t head[VB_FRAME_HEAD_MAX];

	if (!len || len > VB_CAPTURE_FRAME_MAX - VB_FRAME_HEAD_MAX)
		return;
	uint32_t head_len = (uint32_t)vb_frame_udp(head, flow, ip, len);
	const struct shape s = {.head = head,
	                        .head_len = head_len,
	                        .iov = iov,
	                        .n = n,
	                        .off = off,
	                        .len = (uint32_t)len,
	                        .kind = VB_CAPTURE_ROCE,
	                        .headers = head_len + headers_of(iov, n, off, len)};

	record_frame(of, &s);
}

/* One packet of a message. False if the message is not one of RoCE's. */
static bool show_packet(const struct vb_capture_of *of, const struct vb_flow *flow, const struct vb_ip_fields *ip,
                        const struct vb_message *m, uint32_t i, const struct iovec *iov, int n,
                        enum vb_capture_kind kind)
{
	uint8_t head[VB_FRAME_HEAD_MAX + VB_MESSAGE_HEAD_MAX], message_head[VB_MESSAGE_HEAD_MAX], pad;
	uint32_t offset, len;
	size_t own = vb_message_head(m, i, message_head, &offset, &len, &pad);

	if (!own)
		return false;
	size_t at = vb_frame_udp(head, flow, ip, own + len + pad + VB_ICRC_LEN);
	memcpy(head + at, message_head, own);
	const struct shape s = {.head = head,
	                        .head_len = (uint32_t)(at + own),
	                        .iov = iov,
	                        .n = n,
	                        .off = offset,
	                        .len = len,
	                        .pad = pad,
	                        .kind = kind,
	                        .headers = (uint32_t)(at + own),
	                        .sealed = flow,
	                        .id = ip->id};

	record_frame(of, &s);
	return true;
}

void vb_capture_message(const struct vb_capture_of *of, const struct vb_flow *flow, const struct vb_ip_fields *ip,
                        const struct vb_message *m, const struct iovec *iov, int n)
{
	uint32_t packets = vb_message_packets(m);

	for (uint32_t i = 0; i < packets && vb_capturing(); i++)
		if (!show_packet(of, flow, ip, m, i, iov, n, VB_CAPTURE_LOCAL))
			return;
}

void vb_capture_mad(const struct vb_capture_of *of, const uint8_t src[VB_GID_LEN], const uint8_t dst[VB_GID_LEN],
                    const uint8_t *mad, size_t len)
{
	const struct iovec iov = {(void *)(uintptr_t)mad, len};
	const struct vb_ip_fields ip = {.hop_limit = 64};
	const struct vb_message m = {.service = VB_SVC_UD,
	                             .op = VB_OP_SEND,
	                             .length = (uint32_t)len,
	                             .mtu = VB_PAYLOAD_MAX,
	                             .dest_qpn = 1,
	                             .pkey = 0xffff,
	                             .deth = {.qkey = 0x80010000, .src_qpn = 1}};
	struct vb_flow flow = vb_roce_flow(src, dst, vb_flow_label_sport(vb_flow_label_of_qps(1, 1)));

	show_packet(of, &flow, &ip, &m, 0, &iov, 1, VB_CAPTURE_ROCE);
}

void vb_capture_segment(const struct vb_capture_of *of, const uint8_t *head, uint32_t head_len, const struct iovec *iov,
                        int n, size_t off, uint32_t len)
{
	const struct shape s = {.head = head,
	                        .head_len = head_len,
	                        .iov = iov,
	                        .n = n,
	                        .off = off,
	                        .len = len,
	                        .kind = VB_CAPTURE_IWARP,
	                        .headers = head_len};

	record_frame(of, &s);
}

/* --- the ring's start and end --- */

static void copy_comm(char comm[16])
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, comm, 15);

	if (fd >= 0)
		close(fd);
	comm[n > 0 ? n : 0] = '\0';
	comm[strcspn(comm, "\n")] = '\0';
}

static int send_ring(int sock, int ring_fd, int event)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct vb_capture_hello hello = {VB_CAPTURE_MAGIC, VB_CAPTURE_VERSION};
	struct iovec iov = {&hello, sizeof(hello)};
	struct msghdr msg = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *m = CMSG_FIRSTHDR(&msg);
	const int fds[2] = {ring_fd, event};

	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(m), fds, sizeof(fds));
	ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? errno : n == (ssize_t)sizeof(hello) ? 0 : EMSGSIZE;
}

/* Makes the memory. *fd is set in any case. */
static struct vb_capture_ring *make_ring(int *fd)
{
	*fd = memfd_create("verbena-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0 || ftruncate(*fd, (off_t)VB_CAPTURE_MAP) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return NULL;
	struct vb_capture_ring *ring = mmap(NULL, VB_CAPTURE_MAP, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (ring == MAP_FAILED)
		return NULL;
	madvise(ring, VB_CAPTURE_MAP, MADV_DONTFORK);
	ring->magic = VB_CAPTURE_MAGIC;
	ring->version = VB_CAPTURE_VERSION;
	ring->bytes = VB_CAPTURE_BYTES;
	ring->pid = (int32_t)getpid();
	copy_comm(ring->comm);
	return ring;
}

int vb_capture_attach(int sock)
{
	int fd, event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (event < 0)
		return errno;
	errno = 0;
	struct vb_capture_ring *ring = make_ring(&fd);
	int err = ring ? 0 : errno ? errno : ENOMEM;
	if (!err && vb_capturing())
		err = EBUSY;
	if (!err)
		err = send_ring(sock, fd, event);
	if (fd >= 0)
		close(fd);
	if (!err) {
		vb_lock(&the_lock);
		written = 0;
		event_fd = event;
		atomic_store(&vb_capture_ring, ring);
		vb_unlock(&the_lock);
		return 0;
	}
	if (ring)
		munmap(ring, VB_CAPTURE_MAP);
	close(event);
	return err;
}

void vb_capture_detach(void)
{
	vb_lock(&the_lock);
	struct vb_capture_ring *ring = atomic_exchange(&vb_capture_ring, NULL);
	int event = event_fd;

	event_fd = -1;
	vb_unlock(&the_lock);
	if (!ring)
		return;
	munmap(ring, VB_CAPTURE_MAP);
	close(event);
}

void vb_capture_in_child(void)
{
	bool was = atomic_exchange(&vb_capture_ring, NULL); /* it is not mapped here */

	vb_lock_reset(&the_lock);
	if (was)
		close(event_fd);
	event_fd = -1;
}
