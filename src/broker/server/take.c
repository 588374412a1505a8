// take.c - receives a message with descriptors from a program of another user, in a thread of its own
// follows: unix(7), SCM_RIGHTS; close(2), unshare(2), close_range(2)
// SPDX-License-Identifier: MIT
#include "broker/server/take.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/server/discard.h"
#include "broker/server/session.h"
#include "util/lock.h"

struct taker {
	uid_t uid;
	int sock, to; /* the program's socket; the socket for the descriptors that pass the check */
	void *msg;    /* valid until done is posted */
	size_t size, len;
	int err;
	const char *wrong;
	sem_t done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place {
	bool used;
	uid_t uid;
} places[VB_TAKERS]; /* one for each thread; guarded by lock */

static struct place *free_place(uid_t uid)
{
	struct place *free_one = NULL;
	int own = 0;

	for (int i = 0; i < VB_TAKERS; i++) {
		own += places[i].used && places[i].uid == uid;
		if (!places[i].used && !free_one)
			free_one = &places[i];
	}
	return own < VB_TAKERS_EACH ? free_one : NULL;
}

/* ---- the thread ---- */

/* A thread that may block keeps no descriptor of the broker's. */
static void close_all_but(int a, int b)
{
	unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);

	if (low)
		syscall(SYS_close_range, 0, low - 1, 0);
	if (high > low + 1)
		syscall(SYS_close_range, low + 1, high - 1, 0);
	syscall(SYS_close_range, high + 1, ~0U, 0);
}

static void pass_on(int to, const int fds[3])
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 3)];
		struct cmsghdr align;
	} control = {0};
	char byte = 1;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * 3);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * 3);
	sendmsg(to, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_message(struct taker *t)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * VB_FDS_PER_MESSAGE)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = t->msg, .iov_len = t->size};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
	int fds[3];

	ssize_t n = recvmsg(t->sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n <= 0 || (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		t->err = EBADMSG;
		return;
	}
	t->len = (size_t)n;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(fds))) {
		t->err = EBADMSG;
		return;
	}
	memcpy(fds, CMSG_DATA(c), sizeof(fds));
	t->wrong = vb_attach_wrong(fds);
	if (!t->wrong)
		pass_on(t->to, fds);
}

static void *taker_thread(void *arg)
{
	struct taker *t = arg;
	struct place *place;

	if (unshare(CLONE_FILES)) {
		t->err = EAGAIN;
		sem_post(&t->done);
		return NULL;
	}
	close_all_but(t->sock, t->to);
	vb_mutex_lock(&lock, VB_RANK_TAKERS);
	place = free_place(t->uid);
	if (place)
		*place = (struct place){.used = true, .uid = t->uid};
	vb_mutex_unlock(&lock);
	if (place)
		take_message(t);
	else
		t->err = EAGAIN;
	close(t->sock);
	close(t->to);
	sem_post(&t->done); /* t is gone after this */
	if (!place)
		return NULL;
	syscall(SYS_close_range, 0, ~0U, 0); /* this may block forever, and keep the place */
	vb_mutex_lock(&lock, VB_RANK_TAKERS);
	place->used = false;
	vb_mutex_unlock(&lock);
	return NULL;
}

/* ---- the broker ---- */

static int receive_fds(int from, int fds[3])
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 3)];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};

	if (recvmsg(from, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return EAGAIN;
	const struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	if (!c || c->cmsg_len != CMSG_LEN(sizeof(int) * 3)) {
		/* we are out of descriptors; those that arrived are of the right kinds */
		if (c && c->cmsg_len > CMSG_LEN(0))
			vb_discard((const int *)CMSG_DATA(c), (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)));
		return EAGAIN;
	}
	memcpy(fds, CMSG_DATA(c), sizeof(int) * 3);
	return 0;
}

int vb_take_attach(uid_t uid, int sock, void *msg, size_t size, size_t *len, int fds[3], const char **wrong)
{
	struct taker t = {.uid = uid, .sock = sock, .msg = msg, .size = size};
	int pair[2], err = 0;

	vb_mutex_lock(&lock, VB_RANK_TAKERS);
	bool room = free_place(uid);

	vb_mutex_unlock(&lock);
	if (!room || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
		return EAGAIN;
	t.to = pair[1];
	if (sem_init(&t.done, 0, 0) || !vb_thread_start(taker_thread, &t)) {
		err = EAGAIN;
	} else {
		VB_MAY_WAIT();
		while (sem_wait(&t.done))
			;
		err = t.err;
	}
	if (!err && !t.wrong)
		err = receive_fds(pair[0], fds);
	close(pair[0]);
	close(pair[1]);
	*len = t.len;
	*wrong = t.wrong;
	return err;
}
