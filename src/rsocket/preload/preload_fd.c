// preload_fd.c - which descriptors of the program are rsockets, and the functions of libc
// follows: rsocket(7) ("preload library")
// SPDX-License-Identifier: MIT
#include "rsocket/preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/lock.h"

struct pre_real pre_real;

enum { PAGE = 1024, PAGES = 1024 };
static struct pre_sock *_Atomic *_Atomic pages[PAGES];
/* Guards the counts, and changes of the table. */
static struct vb_lock lock = VB_LOCK_INITIALIZER(VB_RANK_PRE_TABLE);
static atomic_int ours;
static pid_t owner; /* of the table: a child of vfork() shares its parent's memory, but has descriptors of its own */

static void load_libc(void)
{
#define LOAD(name) pre_real.name = (__typeof__(pre_real.name))dlsym(RTLD_NEXT, #name)
	LOAD(syscall);
	LOAD(sigaction);
	LOAD(socket);
	LOAD(bind);
	LOAD(listen);
	LOAD(accept4);
	LOAD(connect);
	LOAD(recv);
	LOAD(recvfrom);
	LOAD(recvmsg);
	LOAD(read);
	LOAD(readv);
	LOAD(send);
	LOAD(sendto);
	LOAD(sendmsg);
	LOAD(write);
	LOAD(writev);
	LOAD(recvmmsg);
	LOAD(sendmmsg);
	LOAD(splice);
	LOAD(sendfile);
	LOAD(poll);
	LOAD(ppoll);
	LOAD(select);
	LOAD(pselect);
	LOAD(epoll_ctl);
	LOAD(epoll_pwait);
	LOAD(shutdown);
	LOAD(getpeername);
	LOAD(getsockname);
	LOAD(setsockopt);
	LOAD(getsockopt);
	LOAD(fcntl);
	LOAD(ioctl);
	LOAD(fdopen);
	LOAD(vdprintf);
	LOAD(dup);
	LOAD(dup3);
	LOAD(close);
#undef LOAD
}

static void lock_table(void)
{
	pre_enter();
	vb_lock(&lock);
}

static void unlock_table(void)
{
	vb_unlock(&lock);
	pre_leave();
}

static void unlock_table_in_child(void)
{
	owner = getpid();
	unlock_table();
}

bool pre_borrowed(void)
{
	return getpid() != owner;
}

static void set_up_preload(void)
{
	load_libc();
	pre_read_config();
	owner = getpid();
	pthread_atfork(lock_table, unlock_table, unlock_table_in_child);
}

/* Constructors of other libraries may call us before this one runs. */
__attribute__((constructor)) void pre_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static __thread bool inside;

	if (inside)
		return;
	inside = true;
	pthread_once(&once, set_up_preload);
	inside = false;
}

bool pre_any(void)
{
	if (!pre_real.close)
		pre_init();
	return atomic_load_explicit(&ours, memory_order_relaxed);
}

static struct pre_sock *_Atomic *table_place(int fd, bool make)
{
	struct pre_sock *_Atomic *page;

	if (fd < 0 || fd >= PAGE * PAGES)
		return NULL;
	page = pages[fd / PAGE];
	if (!page && make) {
		page = mmap(NULL, PAGE * sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (page == MAP_FAILED)
			return NULL;
		pages[fd / PAGE] = page;
	}
	return page ? page + fd % PAGE : NULL;
}

struct pre_sock *pre_get(int fd)
{
	struct pre_sock *_Atomic *p;
	struct pre_sock *s;

	if (!pre_any())
		return NULL;
	p = table_place(fd, false);
	if (!p || !*p)
		return NULL;
	lock_table();
	s = *p;
	if (s) {
		s->refs++;
		pre_enter();
	}
	unlock_table();
	return s;
}

unsigned pre_list(bool (*wanted)(const struct pre_sock *), struct pre_sock **out, unsigned room)
{
	unsigned n = 0;

	lock_table();
	for (int i = 0; i < PAGES; i++) {
		for (int k = 0; pages[i] && k < PAGE && n < room; k++) {
			struct pre_sock *s = pages[i][k];

			if (!s || !wanted(s))
				continue;
			s->refs++;
			pre_enter();
			out[n++] = s;
		}
	}
	unlock_table();
	return n;
}

int pre_next(int fd, unsigned last)
{
	for (; fd < PAGE * PAGES && (unsigned)fd <= last; fd++) {
		if (!pages[fd / PAGE])
			fd |= PAGE - 1;
		else if (pages[fd / PAGE][fd % PAGE])
			return fd;
	}
	return -1;
}

struct pre_sock *pre_take(int fd)
{
	struct pre_sock *s = pre_get(fd);

	if (s && (s->fork == PRE_FORK_ACTIVE || s->fork == PRE_FORK_PASSIVE))
		pre_settle(s);
	return s;
}

/* For connections that a signal handler accepts: it may have interrupted the allocator. */
enum { RESERVE = 16 };
static struct pre_sock reserve[RESERVE];
static atomic_bool reserved[RESERVE];

static struct pre_sock *new_sock(void)
{
	if (!pre_is_fragile())
		return calloc(1, sizeof(struct pre_sock));
	for (int i = 0; i < RESERVE; i++)
		if (!atomic_exchange(&reserved[i], true))
			return &reserve[i];
	errno = ENOMEM;
	return NULL;
}

static void free_sock(struct pre_sock *s)
{
	if (s >= reserve && s < reserve + RESERVE)
		atomic_store(&reserved[s - reserve], false);
	else
		free(s);
}

static void end_sock(struct pre_late *l)
{
	struct pre_sock *s = (struct pre_sock *)((char *)l - offsetof(struct pre_sock, late));

	if (s->rs >= 0)
		rclose(s->rs);
	else if (s->plain >= 0)
		pre_real.close(s->plain);
	free_sock(s);
}

void pre_put(struct pre_sock *s)
{
	int saved = errno;
	bool last;

	lock_table();
	last = !--s->refs;
	unlock_table();
	if (last)
		pre_end(&s->late, end_sock);
	errno = saved;
	pre_leave();
}

int pre_alias(int fd, struct pre_sock *s)
{
	struct pre_sock *_Atomic *p;

	lock_table();
	p = table_place(fd, true);
	if (p) {
		*p = s;
		s->refs++;
		atomic_fetch_add(&ours, 1);
	}
	unlock_table();
	return p ? 0 : -1;
}

/* Opens a placeholder with nothing behind it yet. The caller gets a reference, too. */
int pre_open(struct pre_sock **out, int domain, int type)
{
	struct pre_sock *s;
	int fd;

	pre_start_closer();
	pre_enter();
	s = new_sock();
	fd = s ? pre_real.socket(domain, type, 0) : -1;

	if (fd < 0) {
		if (s)
			free_sock(s);
		pre_leave();
		return -1;
	}
	*s = (struct pre_sock){
	        .refs = 1, .domain = domain, .type = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), .rs = -1, .plain = -1};
	if (pre_alias(fd, s)) {
		pre_real.close(fd);
		free_sock(s);
		pre_leave();
		errno = EMFILE;
		return -1;
	}
	*out = s;
	return fd;
}

bool pre_drop(int fd)
{
	struct pre_sock *_Atomic *p;
	struct pre_sock *s;

	if (!pre_any())
		return false;
	lock_table();
	p = table_place(fd, false);
	s = p ? *p : NULL;
	if (s) {
		*p = NULL;
		atomic_fetch_sub(&ours, 1);
		pre_enter(); /* this thread takes over the table's reference */
	}
	unlock_table();
	if (s)
		pre_put(s);
	return s;
}
