// harness.c - shared by the broker's tests
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "../../support/leave_network.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

void sleep_ms(int ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&ts, NULL);
}

int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void skip(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	exit(SKIPPED);
}

/* ---- running ---- */

static void default_broker(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	if (n <= 0 || getenv("VERBENA_BROKER"))
		return;
	path[n] = 0;
	strcpy(strrchr(path, '/'), "/verbena-broker");
	setenv("VERBENA_BROKER", path, 1);
}

static void print_file(const char *path)
{
	char buf[4096];
	int fd = open(path, O_RDONLY);
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stderr);
	if (fd >= 0)
		close(fd);
}

/* Only the lock and the files of a killed broker may remain. */
static void remove_dir(const char *dir)
{
	char path[512];
	DIR *d = opendir(dir);

	for (struct dirent *e; d && (e = readdir(d));) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_name[0] != '.' && unlink(path) && errno == EISDIR)
			remove_dir(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static int run_one(const struct test *t)
{
	char dir[] = "/tmp/vb-test-XXXXXX", log[64];
	int status;

	if (!mkdtemp(dir))
		return 1;
	chmod(dir, 0755);
	setenv("VERBENA_RUNTIME", dir, 1);
	snprintf(log, sizeof(log), "%s/log", dir);
	setenv("VERBENA_BROKER_LOG", log, 1);
	pid_t pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		alarm(100);
		t->run();
		exit(0);
	}
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL); /* programs of the test */
	if (!wait_gone(LONG_MS)) {
		pid_t broker = broker_pid();
		fprintf(stderr, "a broker runs on\n");
		if (broker > 0)
			kill(broker, SIGKILL);
		status = 1;
	}
	print_file(log);
	struct stat st;
	if (!stat(log, &st) && st.st_size > 0 && !WIFEXITED(status))
		status = 1;
	if (!stat(log, &st) && st.st_size > 0)
		status = 1 << 8; /* a sanitizer report or an error of the broker */
	remove_dir(dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_tests(int argc, char **argv, const struct test *tests, size_t n)
{
	int failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	default_broker();
	for (size_t i = 0; i < n; i++) {
		if (argc > 1 && !strstr(tests[i].sentence, argv[1]))
			continue;
		int64_t start = now_ms();
		int rc = run_one(&tests[i]);
		printf("%s %s (%d ms)\n",
		       rc == 0         ? "ok  "
		       : rc == SKIPPED ? "skip"
		                       : "FAIL",
		       tests[i].sentence, (int)(now_ms() - start));
		failed += rc != 0 && rc != SKIPPED;
	}
	return failed != 0;
}

/* ---- clients ---- */

static int sealed_memfd(const char *name, off_t size, int seals)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, size) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

void make_fds(struct vb_attach_fds *fds)
{
	fds->seg_fd = sealed_memfd("seg", 65536, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	fds->doorbell_fd = sealed_memfd("doorbell", 4096, F_SEAL_SHRINK | F_SEAL_GROW);
	fds->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	CHECK(fds->wake_fd >= 0);
}

union ibv_gid gid_of(uint8_t byte)
{
	union ibv_gid gid;

	memset(&gid, byte, sizeof(gid));
	return gid;
}

int connect_with(const struct vb_attach_fds *fds, struct vb_broker_client **out)
{
	int64_t until = now_ms() + LONG_MS;
	int err;

	do
		err = vb_broker_connect(fds, out);
	while (err == ETIMEDOUT && now_ms() < until);
	return err;
}

static void close_peer(struct diary *d)
{
	const int fds[] = {d->peer.seg_fd, d->peer.doorbell_fd, d->peer.wake_fd, d->peer.pid_fd};

	for (int i = 0; i < 4; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	d->peer.seg_fd = d->peer.doorbell_fd = d->peer.wake_fd = d->peer.pid_fd = -1;
}

static void close_lane(struct diary *d)
{
	if (d->lane_fd >= 0)
		close(d->lane_fd);
	if (d->lifeline_fd >= 0)
		close(d->lifeline_fd);
	d->lane_fd = d->lifeline_fd = -1;
}

void leave(struct diary *d)
{
	close_peer(d);
	close_lane(d);
	vb_broker_disconnect(d->c);
	close(d->fds.seg_fd);
	close(d->fds.doorbell_fd);
	close(d->fds.wake_fd);
	d->c = NULL;
}

static void take_peer(struct diary *d, const struct vb_peer_info *info)
{
	if (!info)
		return;
	close_peer(d);
	d->peer = *info;
}

static void on_reply(void *arg, uint64_t tag, int err, const struct vb_peer_info *info)
{
	struct diary *d = arg;

	d->replies++;
	d->tag = tag;
	d->err = err;
	CHECK((err == 0) == (info != NULL));
	take_peer(d, info);
}

static void on_introduced(void *arg, const struct vb_peer_info *info)
{
	struct diary *d = arg;

	d->introductions++;
	take_peer(d, info);
}

static void on_reattached(void *arg)
{
	((struct diary *)arg)->reattached++;
}

static void on_wire(void *arg, const struct vb_roce_grant *g)
{
	struct diary *d = arg;

	CHECK((g->err == 0) == (g->lane_fd >= 0) && (g->err == 0 && !g->relayed) == (g->lifeline_fd >= 0) &&
	      (g->err == 0) == (g->nlanes > 0));
	close_lane(d);
	d->wires++;
	d->wire_err = g->err;
	d->lane_fd = g->lane_fd;
	d->lifeline_fd = g->lifeline_fd;
	d->nlanes = g->nlanes;
	d->relayed = g->relayed;
	d->holder_known = g->holder_known;
	d->holder_uid = g->holder_uid;
}

static const struct vb_broker_ops ops = {on_reply, on_introduced, on_reattached, on_wire};

int ask(struct diary *d, uint64_t tag, uint32_t lane, uint8_t gid)
{
	union ibv_gid g = gid_of(gid);

	return vb_broker_meet(d->c, tag, lane << VB_LANE_SHIFT | 5, &g);
}

static void dispatch_once(struct diary *d, int ms, int other_fd)
{
	struct pollfd p[2] = {{.fd = vb_broker_pollfd(d->c), .events = POLLIN}, {.fd = other_fd, .events = POLLIN}};
	int want = vb_broker_timeout_ms(d->c);

	poll(p, 2, want >= 0 && (ms < 0 || want < ms) ? want : ms);
	vb_broker_dispatch(d->c, &ops, d);
}

bool wait_for(struct diary *d, const int *counter, int want, int ms)
{
	int64_t until = now_ms() + ms;

	while (*counter < want && now_ms() < until)
		dispatch_once(d, (int)(until - now_ms()), -1);
	return *counter >= want;
}

/* An answer on the same connection comes after the GIDs; another broker got them with ATTACH. */
static void await_gids(struct diary *d, uint8_t gid)
{
	int64_t until = now_ms() + LONG_MS;

	SAME(ask(d, 0, vb_broker_lane_number(d->c), gid), 0);
	while (!d->replies && !d->reattached && now_ms() < until)
		dispatch_once(d, (int)(until - now_ms()), -1);
	CHECK(d->replies || d->reattached);
	d->replies = d->reattached = d->err = 0;
}

void join_as(struct diary *d, uint8_t gid)
{
	union ibv_gid g = gid_of(gid);

	memset(d, 0, sizeof(*d));
	d->peer.seg_fd = d->peer.doorbell_fd = d->peer.wake_fd = d->peer.pid_fd = -1;
	d->lane_fd = d->lifeline_fd = -1;
	make_fds(&d->fds);
	SAME(connect_with(&d->fds, &d->c), 0);
	SAME(vb_broker_set_gids(d->c, &g, 1), 0);
	await_gids(d, gid);
}

int wire_once(struct diary *d)
{
	int before = d->wires;

	SAME(vb_broker_roce(d->c), 0);
	CHECK(wait_for(d, &d->wires, before + 1, LONG_MS));
	return d->wire_err;
}

int wire(struct diary *d)
{
	int64_t until = now_ms() + LONG_MS;
	int err;

	do
		err = wire_once(d);
	while (err == ETIMEDOUT && now_ms() < until);
	return err;
}

/* ---- the broker, seen from outside ---- */

int raw_connect(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval tv = {.tv_sec = LONG_MS / 1000};

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	CHECK(connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0);
	return fd;
}

int status_of(struct vb_broker_report *r)
{
	int64_t until = now_ms() + LONG_MS;
	int err;

	do
		err = vb_broker_status(r);
	while ((err == ETIMEDOUT || err == EAGAIN) && now_ms() < until);
	return err;
}

pid_t broker_pid(void)
{
	static struct vb_broker_report r;

	return status_of(&r) ? 0 : r.broker_pid;
}

/* Checks that the socket is gone, because a request to the broker would keep it running. */
bool wait_gone(int ms)
{
	int64_t until = now_ms() + ms;
	char path[256];

	snprintf(path, sizeof(path), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
	while (!access(path, F_OK)) {
		if (now_ms() >= until)
			return broker_pid() == 0;
		sleep_ms(10);
	}
	return true;
}

uint32_t lanes_held(void)
{
	static struct vb_broker_report r;
	uint32_t n = 0;

	if (status_of(&r))
		return 0;
	for (size_t i = 0; i < r.nlanes; i++)
		n += !r.lanes[i].reserved;
	return n;
}

bool wait_lanes(uint32_t n, int ms)
{
	int64_t until = now_ms() + ms;

	while (lanes_held() != n && now_ms() < until)
		sleep_ms(5);
	return lanes_held() == n;
}

int count_fds(pid_t pid)
{
	char path[64];
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

bool wait_fds(pid_t pid, int most)
{
	int64_t until = now_ms() + LONG_MS;

	while (count_fds(pid) > most && now_ms() < until)
		sleep_ms(5);
	return count_fds(pid) <= most;
}

static void read_schedstat(pid_t pid, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	FILE *f = fopen(path, "re");
	CHECK(f && fgets(text, (int)size, f));
	fclose(f);
}

bool wait_idle(pid_t pid)
{
	char before[64], after[64];

	for (int i = 0; i < LONG_MS / 500; i++) {
		read_schedstat(pid, before, sizeof(before));
		sleep_ms(500);
		read_schedstat(pid, after, sizeof(after));
		if (!strcmp(before, after))
			return true;
	}
	return false;
}

/* ---- networks and their keepers ---- */

void own_network(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

	if (!leave_network())
		skip("no network namespaces here");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &ifr) == 0);
	close(fd);
}

static bool is_our_keeper(const char *pid)
{
	char path[300], comm[32] = "";
	struct stat ours, its;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(comm, sizeof(comm), f))
		comm[0] = 0;
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid); /* a zombie has no executable */
	return !strcmp(comm, "verbena-keeper\n") && !stat(path, &its) && !stat("/proc/self/ns/net", &ours) &&
	       its.st_ino == ours.st_ino;
}

pid_t keeper_pid(void)
{
	DIR *d = opendir("/proc");
	pid_t pid = 0;

	for (struct dirent *e; d && !pid && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_our_keeper(e->d_name))
			pid = atoi(e->d_name);
	if (d)
		closedir(d);
	return pid;
}

bool wait_no_keeper(int ms)
{
	int64_t until = now_ms() + ms;

	while (keeper_pid() && now_ms() < until)
		sleep_ms(5);
	return keeper_pid() == 0;
}

/* ---- programs ---- */

static void tell(int to, struct diary *d)
{
	struct program_news news = {
	        .lane = vb_broker_lane_number(d->c),
	        .reattached = d->reattached,
	        .introductions = d->introductions,
	        .wires = d->wires,
	        .wire_err = d->wire_err,
	};

	CHECK(write(to, &news, sizeof(news)) == sizeof(news));
}

static void be_program(uint8_t gid, uid_t uid, int from, int to)
{
	struct diary d;
	uint64_t incarnation;
	char command;

	if (uid && (setgid(uid) || setuid(uid)))
		_exit(9);
	join_as(&d, gid);
	incarnation = vb_broker_incarnation(d.c);
	CHECK(write(to, &incarnation, sizeof(incarnation)) == sizeof(incarnation));
	tell(to, &d);
	for (;;) {
		dispatch_once(&d, -1, from);
		ssize_t n = recv(from, &command, 1, MSG_DONTWAIT);
		if (n == 1 && command == 'n')
			tell(to, &d);
		else if (n == 1 && command == 'w')
			SAME(vb_broker_roce(d.c), 0);
		else if (n == 0 || (n == 1 && command == 'q'))
			break;
	}
	leave(&d);
	_exit(0);
}

static void read_all(int fd, void *buf, size_t len)
{
	CHECK(recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len);
}

void start_program(struct program *p, uint8_t gid, uid_t uid)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	p->pid = fork();
	if (p->pid == 0) {
		close(pair[0]);
		be_program(gid, uid, pair[1], pair[1]);
	}
	close(pair[1]);
	p->to = p->from = pair[0];
	struct program_news news;
	read_all(p->from, &p->incarnation, sizeof(p->incarnation));
	read_all(p->from, &news, sizeof(news));
	p->lane = news.lane;
}

struct program_news news_of(struct program *p)
{
	struct program_news news;

	CHECK(write(p->to, "n", 1) == 1);
	read_all(p->from, &news, sizeof(news));
	return news;
}

int wire_program(struct program *p)
{
	int64_t until = now_ms() + LONG_MS;
	struct program_news news;

	do {
		int before = news_of(p).wires;

		CHECK(write(p->to, "w", 1) == 1);
		while ((news = news_of(p)).wires == before)
			sleep_ms(2);
	} while (news.wire_err == ETIMEDOUT && now_ms() < until);
	return news.wire_err;
}

void end_program(struct program *p, int sig)
{
	int status;

	if (sig)
		kill(p->pid, sig);
	else
		CHECK(write(p->to, "q", 1) == 1);
	waitpid(p->pid, &status, 0);
	if (!sig)
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(p->to);
}
