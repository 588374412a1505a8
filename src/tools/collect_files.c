// collect_files.c - chooses frames, and writes them to a capture file, or to several in turn
// follows: verbena-capture(1)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frame/opcode.h"
#include "tools/collect.h"
#include "tools/collect_known.h"
#include "tools/pcapng.h"
#include "tools/progress.h"
#include "tools/verbena.h"

#define INTERFACES_MAX 64u
#define NAME_MAX_LEN 32

#define STREAM_END 18u /* an address and a port */

struct cap_files {
	const struct cap_options *o;
	struct cap_filter *filter; /* or NULL */
	struct cap_known known;
	struct pcapng out;
	bool failed;
	unsigned number;  /* of the file */
	uint64_t start;   /* ns: of the capture */
	uint64_t in_file; /* frames in the present file */
	uint64_t frames, bytes, dropped, file_dropped;
	struct ifaddrs *addresses;
	time_t listed; /* when */
	unsigned n;
	struct {
		char name[NAME_MAX_LEN];
		uint64_t frames; /* in the present file */
	} interfaces[INTERFACES_MAX];
	uint8_t flow[2][STREAM_END]; /* the iWARP stream of --qp: the ends of the queue pair and of its peer */
	uint64_t opcodes[257], opcode_bytes[257]; /* the last: no BTH */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- the name of an adapter --- */

static void list_addresses(struct cap_files *f)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	if (f->addresses && ts.tv_sec == f->listed)
		return;
	f->listed = ts.tv_sec;
	if (f->addresses)
		freeifaddrs(f->addresses);
	if (getifaddrs(&f->addresses))
		f->addresses = NULL;
}

static const char *find_address(const struct cap_files *f, const uint8_t *addr, uint32_t len)
{
	if (len == 4 && addr[0] == IN_LOOPBACKNET)
		return "lo";
	for (const struct ifaddrs *a = f->addresses; a; a = a->ifa_next) {
		if (!a->ifa_addr)
			continue;
		if (len == 4 && a->ifa_addr->sa_family == AF_INET &&
		    !memcmp(&((const struct sockaddr_in *)a->ifa_addr)->sin_addr, addr, len))
			return a->ifa_name;
		if (len == 16 && a->ifa_addr->sa_family == AF_INET6 &&
		    !memcmp(&((const struct sockaddr_in6 *)a->ifa_addr)->sin6_addr, addr, len))
			return a->ifa_name;
	}
	return NULL;
}

/* The adapter is that of the frame's address on this host. In another network namespace it is not known. */
static void name_adapter(struct cap_files *f, const struct cap_frame *frame, char name[NAME_MAX_LEN])
{
	const char *interface = NULL;
	uint32_t addrs, len, body;

	if (cap_ip_layout(frame, &addrs, &len, &body)) {
		const uint8_t *own = frame->bytes + addrs + (frame->rec.direction == VB_CAPTURE_OUT ? 0 : len);

		interface = find_address(f, own, len);
		if (!interface) {
			list_addresses(f);
			interface = find_address(f, own, len);
		}
	}
	if (!interface && frame->rec.kind == VB_CAPTURE_LOCAL)
		interface = "lo";
	snprintf(name, NAME_MAX_LEN, "%s_%.20s", frame->rec.kind == VB_CAPTURE_IWARP ? "iwarp" : "roce",
	         interface ? interface : "unknown");
}

/* Returns its index in the present file. */
static unsigned interface_of(struct cap_files *f, const char *name)
{
	unsigned i = 0;

	while (i < f->n && strcmp(f->interfaces[i].name, name) != 0)
		i++;
	if (i == f->n && i == INTERFACES_MAX)
		return 0;
	if (i == f->n) {
		snprintf(f->interfaces[i].name, NAME_MAX_LEN, "%s", name);
		f->n++;
		if (f->o->file)
			pcapng_interface(&f->out, name, f->o->snaplen);
	}
	return i;
}

/* --- files --- */

/* The file's name: out.pcapng, out-1.pcapng, ... */
static void name_file(const struct cap_files *f, unsigned number, char path[PATH_MAX])
{
	const char *slash = strrchr(f->o->file, '/'), *dot = strrchr(f->o->file, '.');
	const char *base = slash ? slash + 1 : f->o->file;
	size_t stem = dot && dot > base ? (size_t)(dot - f->o->file) : strlen(f->o->file);

	if (!number)
		snprintf(path, PATH_MAX, "%s", f->o->file);
	else
		snprintf(path, PATH_MAX, "%.*s-%u%s", (int)stem, f->o->file, number, f->o->file + stem);
}

static void report_failure(struct cap_files *f, int err)
{
	if (!f->failed && err != EPIPE)
		cmd_complain(f->o->command, "%s: %s; what was captured before is in the file",
		             strcmp(f->o->file, "-") != 0 ? f->o->file : "standard output", strerror(err));
	f->failed = true;
}

static void end_file(struct cap_files *f)
{
	for (unsigned i = 0; i < f->n; i++) {
		const struct pcapng_statistics s = {.interface = i,
		                                    .time = now_ns(),
		                                    .start = f->start,
		                                    .received = f->interfaces[i].frames,
		                                    /* a program does not know which adapter a lost frame was for */
		                                    .dropped = i ? 0 : f->file_dropped};

		pcapng_statistics(&f->out, &s);
	}
	int err = pcapng_close(&f->out);
	if (err)
		report_failure(f, err);
	f->file_dropped = 0;
}

static bool begin_file(struct cap_files *f, unsigned number)
{
	char path[PATH_MAX];
	int err;

	name_file(f, number, path);
	err = pcapng_open(&f->out, path);
	if (err) {
		cmd_complain(f->o->command, "%s: %s", path,
		             err == ELOOP   ? "this is a symbolic link: name the file itself"
		             : err == EPERM ? "this file is another user's: name another one"
		             : err == EBUSY ? "another capture writes this file: name another one"
		                            : strerror(err));
		f->failed = true;
		return false;
	}
	f->number = number;
	f->n = 0;
	f->in_file = 0;
	memset(f->interfaces, 0, sizeof(f->interfaces));
	if (f->o->rotate_files && number >= f->o->rotate_files) {
		name_file(f, number - f->o->rotate_files, path);
		unlink(path);
	}
	return true;
}

/* --- frames --- */

/* The BTH's offset, or 0 if the frame has none. */
static uint32_t bth_of(const struct cap_frame *frame)
{
	uint32_t addrs, len, body;

	if (frame->rec.kind == VB_CAPTURE_IWARP || !cap_ip_layout(frame, &addrs, &len, &body))
		return 0;
	return frame->rec.captured >= body + 8 + VB_BTH_LEN ? body + 8 : 0;
}

static void stream_ends(const struct cap_frame *frame, uint8_t ends[2][STREAM_END])
{
	uint32_t addrs, len, body;

	memset(ends, 0, 2 * sizeof(ends[0]));
	if (!cap_ip_layout(frame, &addrs, &len, &body) || len > STREAM_END - 2 || frame->rec.captured < body + 4)
		return;
	for (unsigned i = 0; i < 2; i++) {
		memcpy(ends[i], frame->bytes + addrs + (size_t)i * len, len);
		memcpy(ends[i] + STREAM_END - 2, frame->bytes + body + (size_t)i * 2, 2);
	}
}

/* The two programs of a stream on one host know their own queue pair only. */
static bool is_of_stream(struct cap_files *f, const struct cap_frame *frame)
{
	static const uint8_t none[STREAM_END];
	uint8_t ends[2][STREAM_END];

	stream_ends(frame, ends);
	if (frame->rec.qpn == f->o->qpn) {
		bool out = frame->rec.direction == VB_CAPTURE_OUT;

		memcpy(f->flow[0], ends[!out], STREAM_END);
		memcpy(f->flow[1], ends[out], STREAM_END);
		return true;
	}
	return memcmp(f->flow[0], none, STREAM_END) != 0 && !memcmp(f->flow[0], ends[1], STREAM_END) &&
	       !memcmp(f->flow[1], ends[0], STREAM_END);
}

static bool is_of_queue_pair(struct cap_files *f, const struct cap_frame *frame, uint32_t bth)
{
	if (frame->rec.kind == VB_CAPTURE_IWARP)
		return is_of_stream(f, frame);
	return f->o->qpn == frame->rec.qpn || (bth && f->o->qpn == vb_bth_dest_qpn(frame->bytes + bth));
}

static bool is_chosen(struct cap_files *f, const struct cap_frame *frame, const char *adapter)
{
	uint32_t bth = bth_of(frame);

	if (f->o->device && strcmp(f->o->device, adapter) != 0)
		return false;
	if (f->o->qpn && !is_of_queue_pair(f, frame, bth))
		return false;
	return !f->filter || cap_filter_match(f->filter, frame->bytes, frame->rec.captured, frame->rec.length);
}

static void count_frame(struct cap_files *f, const struct cap_frame *frame)
{
	uint32_t bth = bth_of(frame);
	unsigned i = bth ? frame->bytes[bth] : 256;

	f->frames++;
	f->bytes += frame->rec.length;
	f->opcodes[i]++;
	f->opcode_bytes[i] += frame->rec.length;
}

static void write_frame(struct cap_files *f, const struct cap_frame *frame, const char *adapter)
{
	unsigned i = interface_of(f, adapter);
	uint32_t captured = frame->rec.captured;
	char comment[160], qp[32] = "";

	if (f->o->no_payload && frame->rec.headers < captured)
		captured = frame->rec.headers;
	if (f->o->snaplen && f->o->snaplen < captured)
		captured = f->o->snaplen;
	if (frame->rec.qpn)
		snprintf(qp, sizeof(qp), ", queue pair %" PRIu32, frame->rec.qpn);
	snprintf(comment, sizeof(comment), "%s (pid %d)%s%s%s", frame->comm, frame->pid, qp,
	         frame->rec.kind == VB_CAPTURE_LOCAL ? ", same host" : "",
	         frame->rec.flags & VB_CAPTURE_BAD_ICRC ? ", wrong ICRC" : "");
	const struct pcapng_packet packet = {.interface = i,
	                                     .time = frame->rec.time,
	                                     .bytes = frame->bytes,
	                                     .captured = captured,
	                                     .length = frame->rec.length,
	                                     .inbound = frame->rec.direction == VB_CAPTURE_IN,
	                                     .comment = comment};

	pcapng_packet(&f->out, &packet);
	f->interfaces[i].frames++;
	f->in_file++;
}

bool cap_files_put(struct cap_files *f, const struct cap_frame *frame)
{
	char adapter[NAME_MAX_LEN];

	if (f->failed)
		return false;
	if (cap_known_test(&f->known, frame))
		return true;
	name_adapter(f, frame, adapter);
	if (!is_chosen(f, frame, adapter))
		return true;
	count_frame(f, frame);
	if (f->o->file) {
		if (f->o->rotate_size && f->in_file && f->out.written + frame->rec.captured > f->o->rotate_size) {
			end_file(f);
			if (f->failed || !begin_file(f, f->number + 1))
				return false;
		}
		write_frame(f, frame, adapter);
		if (f->out.err)
			report_failure(f, f->out.err);
	}
	return !f->failed && (!f->o->count || f->frames < f->o->count);
}

bool cap_files_flush(struct cap_files *f)
{
	if (f->o->file && !f->failed && pcapng_flush(&f->out))
		report_failure(f, f->out.err);
	return !f->failed;
}

void cap_files_dropped(struct cap_files *f, uint64_t n)
{
	f->dropped += n;
	f->file_dropped += n;
}

void cap_files_counts(const struct cap_files *f, uint64_t *frames, uint64_t *dropped)
{
	*frames = f->frames;
	*dropped = f->dropped;
}

/* --- start and end --- */

struct cap_files *cap_files_open(const struct cap_options *o)
{
	struct cap_files *f = calloc(1, sizeof(*f));

	if (!f) {
		cmd_complain(o->command, "no memory");
		return NULL;
	}
	f->o = o;
	f->out.fd = -1;
	f->start = now_ns();
	if (o->filter)
		f->filter = cap_filter_new(o->command, o->filter);
	if ((o->filter && !f->filter) || (o->file && !begin_file(f, 0))) {
		cap_filter_free(f->filter);
		free(f);
		return NULL;
	}
	return f;
}

static const char *opcode_text(unsigned i)
{
	const struct vb_opcode_info *info = i < 256 ? vb_opcode_info((uint8_t)i) : NULL;

	return info ? info->name : i < 256 ? "unknown" : "TCP segment";
}

static void print_stats(const struct cap_files *f)
{
	fprintf(stderr, "%-28s %12s %16s\n", "opcode", "frames", "bytes");
	for (unsigned i = 0; i < 257; i++)
		if (f->opcodes[i])
			fprintf(stderr, "%-28s %12" PRIu64 " %16" PRIu64 "\n", opcode_text(i), f->opcodes[i],
			        f->opcode_bytes[i]);
}

static void print_json_stats(const struct cap_files *f)
{
	const char *between = "";

	printf("{\"frames\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"dropped\": %" PRIu64
	       ", \"files\": %u, \"opcodes\": [",
	       f->frames, f->bytes, f->dropped, f->o->file ? f->number + 1 : 0);
	for (unsigned i = 0; i < 257; i++) {
		if (!f->opcodes[i])
			continue;
		printf("%s{\"opcode\": \"%s\", \"frames\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", between,
		       opcode_text(i), f->opcodes[i], f->opcode_bytes[i]);
		between = ",\n ";
	}
	puts("]}");
}

bool cap_files_close(struct cap_files *f)
{
	bool was_piped = f->o->file && !strcmp(f->o->file, "-");

	if (f->o->file && f->out.fd >= 0)
		end_file(f);
	cmd_progress_clear();
	if (f->o->json)
		print_json_stats(f);
	else if (f->o->stats && !f->o->quiet)
		print_stats(f);
	if (!f->o->quiet && !f->o->json)
		cmd_complain(f->o->command, "%" PRIu64 " frames captured, %" PRIu64 " dropped%s", f->frames, f->dropped,
		             f->number ? ", in several files" : "");
	bool ok = !f->failed || (was_piped && f->out.err == EPIPE);
	if (f->addresses)
		freeifaddrs(f->addresses);
	cap_filter_free(f->filter);
	free(f);
	return ok;
}
