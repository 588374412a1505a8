// control.c - the control sockets of running programs: finds them, asks them
// follows: docs/control.md, unix(7)
// SPDX-License-Identifier: MIT
#include "tools/control.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/control_dir.h"
#include "util/tally.h"
#include "util/env.h"
#include "util/runtime.h"

#define PROGRAMS_MAX 4096u
#define DIR_PROGRAMS_MAX 512u /* so that a user with very many sockets does not hide the programs of others */
#define DIR_NAMES_MAX 4096u   /* connected to in one directory */
#define ENDED_MAX 256         /* network namespaces of a user whose ended programs are read */
#define DESCRIPTORS ((rlim_t)2 * PROGRAMS_MAX)
#define DIRS_MAX 1024

/* --- the directories --- */

static int add_dir(struct ctl_list *list, int fd, uid_t user)
{
	int *dirs = realloc(list->dirs, (size_t)(list->n_dirs + 1) * sizeof(*dirs));

	if (dirs)
		list->dirs = dirs;
	uid_t *users = realloc(list->dir_users, (size_t)(list->n_dirs + 1) * sizeof(*users));
	if (users)
		list->dir_users = users;
	int64_t *ms = realloc(list->dir_ms, (size_t)(list->n_dirs + 1) * sizeof(*ms));
	if (ms)
		list->dir_ms = ms;
	if (!dirs || !users || !ms || list->n_dirs >= DIRS_MAX) {
		close(fd);
		return ENOMEM;
	}
	list->dirs[list->n_dirs] = fd;
	list->dir_ms[list->n_dirs] = 0;
	list->dir_users[list->n_dirs++] = user;
	return 0;
}

/* Adds the directories of other users in dir, whose entries are named "prefixUID": runtime directories, or (inside:
 * false) control directories. Anybody can put something there, so owners are checked. */
static void add_users(struct ctl_list *list, const char *dir, const char *prefix, const char *below)
{
	char path[PATH_MAX], *end;
	DIR *d = opendir(dir);
	int fd;

	for (struct dirent *e; d && (e = readdir(d));) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		const char *digits = e->d_name + strlen(prefix);
		unsigned long user = strtoul(digits, &end, 10);

		if (end == digits || *end || user == geteuid() || user > UINT32_MAX)
			continue;
		snprintf(path, sizeof(path), "%s/%s%s", dir, below ? e->d_name : "", below ? below : "");
		if (!vb_control_dir_open_at(path, !below, (uid_t)user, &fd))
			add_dir(list, fd, (uid_t)user);
	}
	if (d)
		closedir(d);
}

static bool names_runtime(void)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	return dir && *dir;
}

static int find_dirs(struct ctl_list *list)
{
	char runtime[PATH_MAX];
	int fd, err = vb_control_dir_open(false, &fd);

	if (!err)
		err = add_dir(list, fd, geteuid());
	if (err && err != ENOENT)
		return err;
	if (geteuid() != 0)
		return 0;
	if (names_runtime()) {
		if (!vb_runtime_path(runtime, sizeof(runtime)))
			add_users(list, runtime, "control-", NULL);
		return 0;
	}
	add_users(list, "/run/user", "", "/verbena");
	add_users(list, "/tmp", "verbena-", "");
	return 0;
}

/* --- the programs --- */

static void add_program(struct ctl_list *list, const struct ctl_program *p)
{
	struct ctl_program *more = realloc(list->programs, (list->n + 1) * sizeof(*more));

	if (!more)
		return;
	list->programs = more;
	list->programs[list->n++] = *p;
}

/* Connects for the next question. The kernel's pid of the listener is preferred to the name's, which is the program's
 * own view. */
static int connect_program(struct ctl_list *list, struct ctl_program *p)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int dir = list->dirs[p->dir_fd], err = vb_control_dir_connect(dir, p->name, p->user, &p->sock);

	if (err == ECONNREFUSED)
		vb_tally_end(dir, p->name);
	if (err)
		return err == ECONNREFUSED || err == ENOENT ? ESRCH : err;
	if (!getsockopt(p->sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid > 0)
		p->pid = cred.pid;
	return 0;
}

static void end_question(struct ctl_program *p, int err)
{
	if (p->sock >= 0)
		close(p->sock);
	p->sock = -1;
	p->err = err;
}

static void find_in(struct ctl_list *list, int dir_index, int pid, bool everywhere)
{
	struct vb_control_name name;
	int copy = openat(list->dirs[dir_index], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	uint64_t ours = vb_control_netns();
	size_t names = 0, most = list->n + DIR_PROGRAMS_MAX < PROGRAMS_MAX ? list->n + DIR_PROGRAMS_MAX : PROGRAMS_MAX;

	if (!dir && copy >= 0)
		close(copy);
	for (struct dirent *e; dir && list->n < most && names < DIR_NAMES_MAX && (e = readdir(dir));) {
		if (!vb_control_name_read(e->d_name, &name))
			continue;
		names++;
		struct ctl_program p = {.pid = name.pid,
		                        .user = list->dir_users[dir_index],
		                        .netns = name.netns,
		                        .sock = -1,
		                        .dir_fd = dir_index};

		snprintf(p.name, sizeof(p.name), "%.63s", e->d_name);
		/* the question connects again, because there may be more programs than descriptors */
		end_question(&p, connect_program(list, &p));
		bool wanted = (!pid || p.pid == pid) && (everywhere || names_runtime() || p.netns == ours);
		if (p.err != ESRCH && wanted)
			add_program(list, &p);
	}
	if (dir)
		closedir(dir);
}

/* All programs are asked at once. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= DESCRIPTORS)
		return;
	limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int by_pid(const void *a, const void *b)
{
	const struct ctl_program *p = a, *q = b;

	return p->pid != q->pid ? (p->pid < q->pid ? -1 : 1) : strcmp(p->name, q->name);
}

int ctl_find(struct ctl_list *list, int pid, bool everywhere)
{
	*list = (struct ctl_list){0};
	raise_descriptors();
	int err = find_dirs(list);

	for (int i = 0; i < list->n_dirs; i++)
		find_in(list, i, pid, everywhere);
	if (list->n)
		qsort(list->programs, list->n, sizeof(*list->programs), by_pid);
	return err;
}

/* Is this the name of a file of ended programs, as it is written? */
static bool read_ended_name(const char *text, uint64_t *netns)
{
	char again[48];

	if (sscanf(text, "ended-%" SCNu64, netns) != 1)
		return false;
	snprintf(again, sizeof(again), "ended-%" PRIu64, *netns);
	return !strcmp(again, text);
}

/* Calls fn with each name in a directory. It returns true if it has used the name: `most` are used. */
static void each_name(int fd, unsigned most, bool (*fn)(void *arg, const char *name), void *arg)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir && copy >= 0)
		close(copy);
	for (struct dirent *e; dir && most && (e = readdir(dir));)
		most -= fn(arg, e->d_name);
	if (dir)
		closedir(dir);
}

struct reading {
	const struct ctl_list *list;
	int dir;
	char *text;
	ctl_take *take;
	void *arg;
};

static bool is_our_netns(uint64_t netns)
{
	return names_runtime() || netns == vb_control_netns();
}

static bool read_sums(void *arg, const char *name)
{
	struct reading *r = arg;
	uint64_t netns;

	if (!read_ended_name(name, &netns))
		return false;
	size_t len = is_our_netns(netns) ? vb_tally_read(r->list->dirs[r->dir], netns, r->text, VB_TALLY_MAX) : 0;

	if (len)
		r->take(r->arg, r->list->dir_users[r->dir], NULL, r->text, len);
	return true;
}

static bool read_shown(void *arg, const char *file)
{
	struct vb_control_name parsed;
	struct reading *r = arg;
	char name[VB_CONTROL_NAME];

	if (!vb_tally_shown_name(file, name) || !vb_control_name_read(name, &parsed) || !is_our_netns(parsed.netns))
		return false;
	size_t len = vb_tally_shown(r->list->dirs[r->dir], name, r->text, VB_TALLY_MAX);

	if (len)
		r->take(r->arg, r->list->dir_users[r->dir], name, r->text, len);
	return true;
}

static void read_all(const struct ctl_list *list, bool (*fn)(void *arg, const char *name), unsigned most,
                     ctl_take *take, void *arg)
{
	char *text = malloc(VB_TALLY_MAX);

	for (int i = 0; text && i < list->n_dirs; i++) {
		struct reading r = {list, i, text, take, arg};

		each_name(list->dirs[i], most, fn, &r);
	}
	free(text);
}

void ctl_ended(const struct ctl_list *list, ctl_take *take, void *arg)
{
	read_all(list, read_sums, ENDED_MAX, take, arg);
}

void ctl_shown(const struct ctl_list *list, ctl_take *take, void *arg)
{
	read_all(list, read_shown, DIR_PROGRAMS_MAX, take, arg);
}

void ctl_free(struct ctl_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		end_question(&list->programs[i], 0);
		free(list->programs[i].text);
	}
	for (int i = 0; i < list->n_dirs; i++)
		close(list->dirs[i]);
	free(list->programs);
	free(list->dirs);
	free(list->dir_users);
	free(list->dir_ms);
	*list = (struct ctl_list){0};
}

/* --- questions --- */

int64_t ctl_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* A request fits in an empty socket buffer at once. */
static int send_request(int sock, const char *request, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov[2] = {{(void *)request, strlen(request)}, {(void *)"\n", 1}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		struct cmsghdr *m = CMSG_FIRSTHDR(&msg);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &fd, sizeof(fd));
	}
	ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n == (ssize_t)strlen(request) + 1)
		return 0;
	return n >= 0 ? EMSGSIZE : errno == EPIPE || errno == ECONNRESET ? ESRCH : errno;
}

void ctl_forget(struct ctl_program *p)
{
	free(p->text);
	p->text = NULL;
	p->len = 0;
}

static void begin_question(struct ctl_list *list, struct ctl_program *p, const char *request, int fd)
{
	ctl_forget(p);
	if (p->err)
		return;
	if (p->sock < 0)
		p->err = connect_program(list, p);
	if (!p->err)
		p->err = send_request(p->sock, request, fd);
	if (p->err)
		end_question(p, p->err);
}

/* Reads what has come. */
static void read_answer(struct ctl_program *p)
{
	char buf[16384];
	ssize_t n = recv(p->sock, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 || (!n && !p->len)) {
		end_question(p, n < 0 && errno != ECONNRESET ? errno : ESRCH);
		return;
	}
	if (!n) {
		end_question(p, 0);
		return;
	}
	char *more = p->len + (size_t)n > CTL_ANSWER_MAX ? NULL : realloc(p->text, p->len + (size_t)n + 1);
	if (!more) {
		end_question(p, EPROTO);
		return;
	}
	p->text = more;
	memcpy(p->text + p->len, buf, (size_t)n);
	p->len += (size_t)n;
	p->text[p->len] = '\0';
}

static void ask_some(struct ctl_list *list, struct ctl_program *first, size_t n, const char *request, int fd,
                     int timeout_ms)
{
	struct pollfd *pfd = calloc(n + 1, sizeof(*pfd));
	int64_t until = ctl_now_ms() + timeout_ms, left = timeout_ms;
	size_t open = pfd ? 1 : 0;

	for (size_t i = 0; i < n; i++) {
		begin_question(list, &first[i], request, fd);
		if (!pfd)
			end_question(&first[i], ENOMEM);
	}
	while (open && left > 0) {
		open = 0;
		for (size_t i = 0; i < n; i++) {
			pfd[i] = (struct pollfd){.fd = first[i].sock, .events = POLLIN};
			open += first[i].sock >= 0;
		}
		if (open && poll(pfd, n, (int)left) > 0)
			for (size_t i = 0; i < n; i++)
				if (pfd[i].revents)
					read_answer(&first[i]);
		left = until - ctl_now_ms();
	}
	for (size_t i = 0; i < n; i++)
		if (first[i].sock >= 0)
			end_question(&first[i], ETIMEDOUT);
	free(pfd);
}

void ctl_ask(struct ctl_list *list, const char *request, int fd, int timeout_ms)
{
	ask_some(list, list->programs, list->n, request, fd, timeout_ms);
}

int ctl_ask_one(struct ctl_list *list, struct ctl_program *program, const char *request, int fd, int timeout_ms)
{
	int64_t *waited = &list->dir_ms[program->dir_fd], left = CTL_USER_MS - *waited, begin = ctl_now_ms();

	if (left < timeout_ms)
		timeout_ms = left > 0 ? (int)left : 0;
	ask_some(list, program, 1, request, fd, timeout_ms);
	*waited += ctl_now_ms() - begin;
	return program->err;
}
