// pcapng.c - writes capture files
// follows: draft-ietf-opsawg-pcapng
// SPDX-License-Identifier: MIT
#include "tools/pcapng.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_STATISTICS = 5,
	BLOCK_PACKET = 6,
	BYTE_ORDER_MARK = 0x1a2b3c4d,
	LINK_ETHERNET = 1,
	OPT_END = 0,
	OPT_COMMENT = 1,
	OPT_SHB_USERAPPL = 4,
	OPT_IF_NAME = 2,
	OPT_IF_TSRESOL = 9,
	OPT_EPB_FLAGS = 2,
	OPT_ISB_START = 2,
	OPT_ISB_END = 3,
	OPT_ISB_RECEIVED = 4,
	OPT_ISB_DROPPED = 5,
	FLAG_INBOUND = 1,
	FLAG_OUTBOUND = 2,
	NANOSECONDS = 9,
};

#define BLOCK_REST 512u /* bytes of a block beside its packet: fields, and options, whose texts are cut */
#define TEXT_MAX 200u

/* --- bytes, in this machine's order, as the section says --- */

static void put_bytes(struct pcapng *p, const void *bytes, size_t n)
{
	static const uint8_t zeros[4];

	if (n)
		memcpy(p->buffer + p->used, bytes, n);
	p->used += n;
	memcpy(p->buffer + p->used, zeros, -n & 3);
	p->used += -n & 3;
}

static void put32(struct pcapng *p, uint32_t v)
{
	put_bytes(p, &v, sizeof(v));
}

/* Times and 64-bit numbers have their high half first in blocks, and this machine's order in counters. */
static void put_time(struct pcapng *p, uint64_t time)
{
	put32(p, (uint32_t)(time >> 32));
	put32(p, (uint32_t)time);
}

static void put_option(struct pcapng *p, uint16_t code, const void *value, size_t len)
{
	const uint16_t head[2] = {code, (uint16_t)len};

	put_bytes(p, head, sizeof(head));
	put_bytes(p, value, len);
}

static void put_text(struct pcapng *p, uint16_t code, const char *text)
{
	size_t len = strlen(text);

	put_option(p, code, text, len < TEXT_MAX ? len : TEXT_MAX);
}

static void put_time_option(struct pcapng *p, uint16_t code, uint64_t time)
{
	const uint32_t halves[2] = {(uint32_t)(time >> 32), (uint32_t)time};

	put_option(p, code, halves, sizeof(halves));
}

/* --- blocks --- */

/* Returns where the block begins in the buffer; or -1 if nothing can be written any more. payload: bytes of a packet. */
static long begin_block(struct pcapng *p, uint32_t type, size_t payload)
{
	if (!p->err && p->used + payload + BLOCK_REST > sizeof(p->buffer))
		pcapng_flush(p);
	if (p->err)
		return -1;
	long at = (long)p->used;
	put32(p, type);
	put32(p, 0);
	return at;
}

static void end_block(struct pcapng *p, long at)
{
	uint32_t len = (uint32_t)(p->used - (size_t)at + sizeof(len));

	memcpy(p->buffer + at + sizeof(len), &len, sizeof(len));
	put32(p, len);
	p->written += len;
}

static void begin_section(struct pcapng *p)
{
	const uint16_t version[2] = {1, 0};
	const uint64_t unknown = UINT64_MAX;
	long at = begin_block(p, BLOCK_SECTION, 0);

	if (at < 0)
		return;
	put32(p, BYTE_ORDER_MARK);
	put_bytes(p, version, sizeof(version));
	put_bytes(p, &unknown, sizeof(unknown));
	put_text(p, OPT_SHB_USERAPPL, "verbena " VB_VERSION);
	put_option(p, OPT_END, NULL, 0);
	end_block(p, at);
}

void pcapng_interface(struct pcapng *p, const char *name, uint32_t snaplen)
{
	const uint16_t link[2] = {LINK_ETHERNET, 0};
	const uint8_t resolution = NANOSECONDS;
	long at = begin_block(p, BLOCK_INTERFACE, 0);

	if (at < 0)
		return;
	put_bytes(p, link, sizeof(link));
	put32(p, snaplen);
	put_text(p, OPT_IF_NAME, name);
	put_option(p, OPT_IF_TSRESOL, &resolution, sizeof(resolution));
	put_option(p, OPT_END, NULL, 0);
	end_block(p, at);
}

void pcapng_packet(struct pcapng *p, const struct pcapng_packet *packet)
{
	uint32_t flags = packet->inbound ? FLAG_INBOUND : FLAG_OUTBOUND;
	long at = begin_block(p, BLOCK_PACKET, packet->captured);

	if (at < 0)
		return;
	put32(p, packet->interface);
	put_time(p, packet->time);
	put32(p, packet->captured);
	put32(p, packet->length);
	put_bytes(p, packet->bytes, packet->captured);
	put_option(p, OPT_EPB_FLAGS, &flags, sizeof(flags));
	if (packet->comment)
		put_text(p, OPT_COMMENT, packet->comment);
	put_option(p, OPT_END, NULL, 0);
	end_block(p, at);
}

void pcapng_statistics(struct pcapng *p, const struct pcapng_statistics *s)
{
	long at = begin_block(p, BLOCK_STATISTICS, 0);

	if (at < 0)
		return;
	put32(p, s->interface);
	put_time(p, s->time);
	put_time_option(p, OPT_ISB_START, s->start);
	put_time_option(p, OPT_ISB_END, s->time);
	put_option(p, OPT_ISB_RECEIVED, &s->received, sizeof(s->received));
	put_option(p, OPT_ISB_DROPPED, &s->dropped, sizeof(s->dropped));
	put_option(p, OPT_END, NULL, 0);
	end_block(p, at);
}

/* --- the file --- */

/* A file that is there already gets payload only if its contents are nobody else's to read. One that this command has
 * made may seem to be another user's, where the file system says whose all files are (vfat, NFS). */
static int claim_old_output(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	if ((S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) && st.st_uid != geteuid())
		return EPERM;
	return S_ISREG(st.st_mode) && fchmod(fd, 0600) ? errno : 0;
}

/* No other command writes the file: whoever does keeps a lock (EBUSY). */
static int lock_output(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return EBUSY;
	return ftruncate(fd, 0) ? errno : 0;
}

/* Returns a descriptor, or -1 with errno. In a directory that all may write, another user can have prepared the name. */
static int open_output(const char *path)
{
	int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
	int fd = open(path, flags | O_CREAT | O_EXCL, 0600);
	bool is_old = fd < 0 && errno == EEXIST;

	if (is_old)
		fd = open(path, flags);
	int err = fd < 0 ? errno : is_old ? claim_old_output(fd) : 0;

	if (!err)
		err = lock_output(fd);
	if (fd >= 0 && err)
		close(fd);
	errno = err;
	return err ? -1 : fd;
}

int pcapng_open(struct pcapng *p, const char *path)
{
	struct stat st;

	p->err = 0;
	p->written = p->flushed = 0;
	p->used = 0;
	p->fd = strcmp(path, "-") != 0 ? open_output(path) : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (p->fd < 0)
		return p->err = errno;
	p->is_file = strcmp(path, "-") != 0 && !fstat(p->fd, &st) && S_ISREG(st.st_mode);
	begin_section(p);
	return 0;
}

/* Removes the part of a block that was written before an error. */
static void cut_file(struct pcapng *p, size_t done)
{
	size_t whole = 0;
	uint32_t len;

	while (whole + 8 <= done) {
		memcpy(&len, p->buffer + whole + 4, sizeof(len));
		if (whole + len > done)
			break;
		whole += len;
	}
	if (p->is_file)
		(void)!ftruncate(p->fd, (off_t)(p->flushed + whole));
	p->written = p->flushed + whole;
}

int pcapng_flush(struct pcapng *p)
{
	size_t done = 0;

	while (!p->err && done < p->used) {
		ssize_t n = write(p->fd, p->buffer + done, p->used - done);

		if (n >= 0)
			done += (size_t)n;
		else if (errno != EINTR)
			p->err = errno;
	}
	if (p->err && p->used)
		cut_file(p, done);
	else
		p->flushed += p->used;
	p->used = 0;
	return p->err;
}

int pcapng_close(struct pcapng *p)
{
	if (p->fd < 0)
		return p->err;
	pcapng_flush(p);
	if (close(p->fd) && !p->err)
		p->err = errno;
	p->fd = -1;
	return p->err;
}
