// collect.c - the programs that are captured: takes the frames from their rings, and orders them by time
// follows: unix(7), memfd_create(2), eventfd(2); docs/capture.md
// SPDX-License-Identifier: MIT
#include "tools/collect.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tools/progress.h"
#include "tools/verbena.h"
#include "util/runtime.h"

#define BACKLOG 4096
#define SOURCES_MAX 4096u
#define HOLD 100000000u                /* ns: a frame waits this long for earlier ones of other programs */
#define PENDING_MAX ((size_t)64 << 20) /* bytes of waiting frames */
#define TURN_MAX (4u << 20)            /* bytes that are taken from one ring at a time */
#define DESCRIPTORS_MAX 253            /* of a message: SCM_MAX_FD of the kernel */
#define EMIT_EVERY 20000000u           /* ns */

/* A program. ring is NULL until its greeting has come. */
struct source {
	int sock, event;
	int pid;
	struct vb_capture_ring *ring;
	uint64_t head, dropped;
	char comm[16];
};

struct cap_collector {
	const struct cap_options *o;
	struct cap_files *files;
	int listener;
	char dir[96], path[104];
	struct source *sources;
	size_t n;
	struct pollfd *fds;
	struct cap_frame **pending;
	size_t n_pending, room, pending_bytes;
	uint64_t turns, emitted_at;
	bool over;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal)
{
	stopped = 1;
}

void cap_catch_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL);
}

bool cap_is_stopped(void)
{
	return stopped;
}

static uint64_t time_now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- frames --- */

static bool keep_frame(struct cap_collector *c, const struct source *s, const struct vb_capture_record *rec,
                       const uint8_t *bytes)
{
	struct cap_frame *frame = malloc(sizeof(*frame) + rec->captured);

	if (frame && c->n_pending == c->room) {
		size_t room = c->room ? 2 * c->room : 4096;
		struct cap_frame **more = realloc(c->pending, room * sizeof(struct cap_frame *));

		if (!more) {
			free(frame);
			return false;
		}
		c->pending = more;
		c->room = room;
	}
	if (!frame)
		return false;
	*frame = (struct cap_frame){.rec = *rec, .turn = c->turns++, .pid = s->pid};
	memcpy(frame->comm, s->comm, sizeof(frame->comm));
	memcpy(frame->bytes, bytes, rec->captured);
	c->pending[c->n_pending++] = frame;
	c->pending_bytes += sizeof(*frame) + rec->captured;
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct cap_frame *p = *(struct cap_frame *const *)a, *q = *(struct cap_frame *const *)b;

	if (p->rec.time != q->rec.time)
		return p->rec.time < q->rec.time ? -1 : 1;
	return p->turn < q->turn ? -1 : p->turn > q->turn;
}

/* Passes on the frames up to this time; and others, if too many wait. */
static void emit_frames(struct cap_collector *c, uint64_t until)
{
	size_t done = 0;

	if (c->n_pending)
		qsort(c->pending, c->n_pending, sizeof(c->pending[0]), by_time);
	for (; done < c->n_pending; done++) {
		struct cap_frame *frame = c->pending[done];

		if (frame->rec.time > until && c->pending_bytes <= PENDING_MAX / 2)
			break;
		if (!c->over && !cap_files_put(c->files, frame))
			c->over = true;
		c->pending_bytes -= sizeof(*frame) + frame->rec.captured;
		free(frame);
	}
	c->n_pending -= done;
	if (c->n_pending)
		memmove(c->pending, c->pending + done, c->n_pending * sizeof(c->pending[0]));
	if (done && !cap_files_flush(c->files))
		c->over = true;
}

/* --- rings --- */

static bool is_record(const struct vb_capture_record *rec, uint64_t left)
{
	if (rec->size < sizeof(*rec) || rec->size % VB_CAPTURE_ALIGN || rec->size > left)
		return false;
	return rec->kind == VB_CAPTURE_PAD ||
	       (rec->kind < VB_CAPTURE_KINDS && rec->captured <= rec->size - sizeof(*rec) &&
	        rec->captured <= rec->length && rec->length <= VB_CAPTURE_FRAME_MAX &&
	        (rec->direction == VB_CAPTURE_IN || rec->direction == VB_CAPTURE_OUT));
}

/* Takes frames up to this tail. Returns false if the ring's contents are not valid. */
static bool take_frames(struct cap_collector *c, struct source *s, uint64_t tail)
{
	const uint8_t *base = (const uint8_t *)s->ring + VB_CAPTURE_HEAD;
	uint64_t begin = s->head;

	if (tail - s->head > VB_CAPTURE_BYTES || tail % VB_CAPTURE_ALIGN)
		return false;
	while (s->head != tail && s->head - begin < TURN_MAX) {
		uint32_t at = (uint32_t)s->head & (VB_CAPTURE_BYTES - 1);
		uint64_t left = tail - s->head < VB_CAPTURE_BYTES - at ? tail - s->head : VB_CAPTURE_BYTES - at;
		struct vb_capture_record rec;

		memcpy(&rec, base + at, sizeof(rec)); /* once: the program can change it */
		if (!is_record(&rec, left))
			return false;
		if (rec.kind != VB_CAPTURE_PAD && !keep_frame(c, s, &rec, base + at + sizeof(rec)))
			cap_files_dropped(c->files, 1);
		s->head += rec.size;
	}
	atomic_store_explicit(&s->ring->head, s->head, memory_order_release);
	uint64_t dropped = atomic_load_explicit(&s->ring->dropped, memory_order_relaxed);
	if (dropped > s->dropped)
		cap_files_dropped(c->files, dropped - s->dropped);
	s->dropped = dropped;
	return true;
}

static bool has_frames(const struct source *s)
{
	return s->ring && atomic_load(&s->ring->tail) != s->head;
}

static void close_source(struct source *s)
{
	if (s->ring)
		munmap(s->ring, VB_CAPTURE_MAP);
	if (s->event >= 0)
		close(s->event);
	close(s->sock);
}

static void drop_source(struct cap_collector *c, size_t i)
{
	close_source(&c->sources[i]);
	c->sources[i] = c->sources[--c->n];
}

/* --- greetings --- */

/* A ring that could become smaller would end this process with SIGBUS. */
static struct vb_capture_ring *map_ring(int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)VB_CAPTURE_MAP)
		return NULL;
	struct vb_capture_ring *ring = mmap(NULL, VB_CAPTURE_MAP, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return ring == MAP_FAILED ? NULL : ring;
}

static void take_name(struct source *s)
{
	memcpy(s->comm, s->ring->comm, sizeof(s->comm));
	s->comm[sizeof(s->comm) - 1] = '\0';
	for (char *p = s->comm; *p; p++)
		if (!isprint((unsigned char)*p))
			*p = '?';
}

/* Is this an eventfd(2)? read() and close() of anything else may wait for whoever serves it. */
static bool is_event(int fd)
{
	static const char kind[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(kind) + 1];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target));
	return n == (ssize_t)strlen(kind) && !memcmp(target, kind, strlen(kind));
}

static void *close_stranger(void *arg)
{
	close((int)(intptr_t)arg);
	return NULL;
}

/* Closes a descriptor of unknown kind in a thread of its own, which alone waits if close() does. Without a thread it
 * stays open. */
static void discard_descriptor(int fd)
{
	pthread_t thread;

	if (fd >= 0 && !pthread_create(&thread, NULL, close_stranger, (void *)(intptr_t)fd))
		pthread_detach(thread);
}

/* Resets the event descriptor. It does not wait, even if the program makes the descriptor a blocking one again. */
static void read_event(int fd)
{
	uint64_t count;
	const struct iovec iov = {&count, sizeof(count)};

	(void)!preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
}

static void take_descriptors(struct cmsghdr *m, int fds[2])
{
	size_t n = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(m) + i * sizeof(fd), sizeof(fd));
		if (i < 2)
			fds[i] = fd;
		else
			discard_descriptor(fd);
	}
}

/* Returns 0, EAGAIN, or an errno value. fds: received, or -1. */
static int receive_hello(int sock, struct vb_capture_hello *hello, int fds[2])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))]; /* the kernel would close the rest here */
	} control;
	struct iovec iov = {hello, sizeof(*hello)};
	struct msghdr msg = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	fds[0] = fds[1] = -1;
	if (n < 0)
		return errno == EINTR ? EAGAIN : errno;
	for (struct cmsghdr *m = CMSG_FIRSTHDR(&msg); m; m = CMSG_NXTHDR(&msg, m))
		if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS)
			take_descriptors(m, fds);
	return n == (ssize_t)sizeof(*hello) && fds[1] >= 0 ? 0 : n ? EPROTO : ECONNRESET;
}

/* Reads a greeting. Returns false if the source must be dropped. */
static bool greet_source(struct cap_collector *c, struct source *s)
{
	struct vb_capture_hello hello = {0};
	int fds[2], err = receive_hello(s->sock, &hello, fds);

	if (err == EAGAIN)
		return true;
	if (!err && hello.magic == VB_CAPTURE_MAGIC && hello.version == VB_CAPTURE_VERSION)
		s->ring = map_ring(fds[0]);
	if (s->ring && !is_event(fds[1])) {
		munmap(s->ring, VB_CAPTURE_MAP);
		s->ring = NULL;
	}
	if (s->ring) {
		close(fds[0]);
		s->event = fds[1];
	} else {
		discard_descriptor(fds[0]);
		discard_descriptor(fds[1]);
		if (err != ECONNRESET)
			cmd_complain(c->o->command, "process %d offers something else than frames: it is not captured",
			             s->pid);
		return false;
	}
	take_name(s);
	if (!s->pid)
		s->pid = s->ring->pid;
	atomic_store(&s->ring->snaplen, c->o->snaplen);
	atomic_store(&s->ring->no_payload, c->o->no_payload);
	return true;
}

/* --- new programs --- */

void cap_add(struct cap_collector *c, int sock, int pid)
{
	struct source *more = c->n < SOURCES_MAX ? realloc(c->sources, (c->n + 1) * sizeof(*more)) : NULL;

	if (more)
		c->sources = more;
	struct pollfd *fds = more ? realloc(c->fds, (2 * (c->n + 1) + 1) * sizeof(*fds)) : NULL;
	if (fds)
		c->fds = fds;
	if (!fds) {
		cmd_complain(c->o->command, "process %d is not captured: too many programs", pid);
		close(sock);
		return;
	}
	c->sources[c->n++] = (struct source){.sock = sock, .event = -1, .pid = pid};
}

static bool accept_one(struct cap_collector *c)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int sock = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (sock < 0)
		return false;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) || (cred.uid != geteuid() && geteuid() != 0))
		close(sock);
	else
		cap_add(c, sock, cred.pid);
	return true;
}

static bool open_listener_at(struct cap_collector *c)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", c->path);
	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return c->listener >= 0 && !bind(c->listener, (struct sockaddr *)&sun, sizeof(sun)) &&
	       !listen(c->listener, BACKLOG);
}

/* Makes a directory of our own for the socket: in /tmp, or in the runtime directory where /tmp cannot be written, as in
 * a container. */
static bool make_dir(struct cap_collector *c)
{
	static const char name[] = "/verbena-capture-XXXXXX";
	char runtime[sizeof(c->dir) - sizeof(name) + 1];

	snprintf(c->dir, sizeof(c->dir), "/tmp%s", name);
	if (mkdtemp(c->dir))
		return true;
	int err = errno;

	if (!vb_runtime_dir(runtime, sizeof(runtime))) {
		snprintf(c->dir, sizeof(c->dir), "%s%s", runtime, name);
		if (mkdtemp(c->dir))
			return true;
	}
	cmd_complain(c->o->command, "/tmp: %s; set VERBENA_RUNTIME to a directory of yours with a short name",
	             strerror(err));
	c->dir[0] = '\0';
	return false;
}

const char *cap_listen(struct cap_collector *c)
{
	if (!make_dir(c))
		return NULL;
	snprintf(c->path, sizeof(c->path), "%s/socket", c->dir);
	if (open_listener_at(c))
		return c->path;
	cmd_complain(c->o->command, "%s: %s", c->path, strerror(errno));
	return NULL;
}

/* --- the loop --- */

struct cap_collector *cap_new(const struct cap_options *o)
{
	struct cap_collector *c = calloc(1, sizeof(*c));

	if (c)
		c->fds = calloc(1, sizeof(*c->fds));
	if (!c || !c->fds) {
		cmd_complain(o->command, "no memory");
		free(c);
		return NULL;
	}
	c->o = o;
	c->listener = -1;
	c->files = cap_files_open(o);
	if (c->files)
		return c;
	free(c->fds);
	free(c);
	return NULL;
}

/* Asks all programs to wake us. Returns true if frames are there already. */
static bool go_to_sleep(struct cap_collector *c)
{
	bool work = false;

	for (size_t i = 0; i < c->n; i++) {
		if (!c->sources[i].ring)
			continue;
		atomic_store(&c->sources[i].ring->sleeps, 1);
		work |= has_frames(&c->sources[i]);
	}
	return work;
}

static void wait_for_events(struct cap_collector *c, int timeout_ms)
{
	nfds_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		c->fds[n++] = (struct pollfd){.fd = c->sources[i].sock, .events = POLLIN};
		c->fds[n++] = (struct pollfd){.fd = c->sources[i].event, .events = POLLIN};
	}
	c->fds[n++] = (struct pollfd){.fd = c->listener, .events = POLLIN};
	if (poll(c->fds, n, go_to_sleep(c) ? 0 : timeout_ms) <= 0)
		for (nfds_t i = 0; i < n; i++)
			c->fds[i].revents = 0;
}

/* spoke, rung: its socket, its event descriptor is readable. Returns false if the source must be dropped. */
static bool serve_source(struct cap_collector *c, struct source *s, bool spoke, bool rung)
{
	char byte;

	if (spoke && !s->ring && !greet_source(c, s))
		return false;
	if (!s->ring)
		return true;
	if (rung)
		read_event(s->event);
	/* first whether the program has ended, then the rest of its frames */
	ssize_t n = spoke ? recv(s->sock, &byte, 1, MSG_DONTWAIT) : -1;
	bool ended = n == 0 || (n < 0 && spoke && errno != EAGAIN && errno != EINTR);
	/* once: a program that has closed its socket, but runs on, could move it for ever */
	uint64_t tail = atomic_load_explicit(&s->ring->tail, memory_order_acquire);

	do {
		if (!take_frames(c, s, tail)) {
			cmd_complain(c->o->command, "%s (pid %d): its ring is not valid; it is not captured any more",
			             s->comm, s->pid);
			return false;
		}
		if (c->pending_bytes > PENDING_MAX)
			emit_frames(c, 0);
	} while (ended && s->head != tail && !c->over);
	return !ended;
}

bool cap_step(struct cap_collector *c, int timeout_ms)
{
	uint64_t now;

	wait_for_events(c, timeout_ms);
	for (size_t i = c->n; i-- > 0;)
		if (!serve_source(c, &c->sources[i], c->fds[2 * i].revents, c->fds[2 * i + 1].revents & POLLIN))
			drop_source(c, i);
	if (c->listener >= 0)
		while (accept_one(c))
			;
	now = time_now(CLOCK_MONOTONIC);
	if (now - c->emitted_at >= EMIT_EVERY) {
		c->emitted_at = now;
		emit_frames(c, time_now(CLOCK_REALTIME) - HOLD);
	}
	return !c->over;
}

void cap_show_progress(const struct cap_collector *c)
{
	uint64_t frames, dropped;

	cap_files_counts(c->files, &frames, &dropped);
	cmd_progress_show("... %zu programs, %" PRIu64 " frames captured, %" PRIu64 " dropped; Ctrl-C ends it", c->n,
	                  frames, dropped);
}

size_t cap_sources(const struct cap_collector *c)
{
	return c->n;
}

/* Takes what programs have recorded up to now, also of those that have just connected and ended. */
static void take_rest(struct cap_collector *c)
{
	size_t i;

	for (int round = 0; round < 64; round++) {
		bool more = false;

		cap_step(c, 0);
		for (i = 0; i < c->n; i++)
			more |= has_frames(&c->sources[i]) || !c->sources[i].ring;
		if (!more || c->over)
			break;
	}
}

bool cap_end(struct cap_collector *c)
{
	take_rest(c);
	emit_frames(c, UINT64_MAX);
	bool ok = cap_files_close(c->files);

	for (size_t i = 0; i < c->n; i++)
		close_source(&c->sources[i]);
	for (size_t i = 0; i < c->n_pending; i++)
		free(c->pending[i]);
	if (c->listener >= 0)
		close(c->listener);
	if (c->path[0])
		unlink(c->path);
	if (c->dir[0])
		rmdir(c->dir);
	free(c->pending);
	free(c->sources);
	free(c->fds);
	free(c);
	return ok;
}
