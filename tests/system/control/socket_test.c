// socket_test.c - the control socket of a program: who may ask, what hostile and slow clients get
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../support/check.h"

static char runtime[64], dir[128], socket_path[512];
static struct ibv_context *ctx;

/* The only socket in the directory; false if there is none. */
static bool find_socket(void)
{
	DIR *d = opendir(dir);
	bool found = false;

	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.' && e->d_type == DT_SOCK) {
			snprintf(socket_path, sizeof(socket_path), "%s/%s", dir, e->d_name);
			found = true;
		}
	if (d)
		closedir(d);
	return found;
}

static int dial(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(strlen(socket_path) < sizeof(sun.sun_path));
	strcpy(sun.sun_path, socket_path);
	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&sun, sizeof(sun)));
	return fd;
}

/* Reads up to the end of the stream, which must come. */
static size_t hear_all(int fd, char *buf, size_t size)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	size_t len = 0;

	for (;;) {
		CHECK(poll(&pfd, 1, LONG_MS) == 1);
		ssize_t n = recv(fd, buf + len, size - 1 - len, 0);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	buf[len] = '\0';
	close(fd);
	return len;
}

static size_t ask(const char *request, char *buf, size_t size)
{
	int fd = dial();

	CHECK(send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request));
	return hear_all(fd, buf, size);
}

static char answer[1 << 20];

static void the_socket_is_private(void)
{
	struct stat st;

	CHECK(!stat(dir, &st) && (st.st_mode & 07777) == 0700);
	CHECK(!stat(socket_path, &st) && S_ISSOCK(st.st_mode) && (st.st_mode & 07777) == 0600);
}

static void make_name(const char *name, time_t age, bool listening)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct timespec times[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK((size_t)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s", dir, name) < sizeof(sun.sun_path));
	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&sun, sizeof(sun)) && (!listening || !listen(fd, 1)));
	CHECK(!utimensat(AT_FDCWD, sun.sun_path, times, 0));
	if (!listening)
		close(fd);
}

static bool has_name(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !access(path, F_OK);
}

/* Another program's start sweeps. */
static void a_start_removes_names_of_ended_programs_only(void)
{
	static const char *const names[] = {"1-1-0000000000000001", ".1-1-0000000000000002", ".1-1-0000000000000003",
	                                    "1-1-0000000000000004"};
	int status;

	make_name(names[0], 0, false);
	make_name(names[1], 0, false); /* bound, and about to listen */
	make_name(names[2], 1000, false);
	make_name(names[3], 0, true);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		execl("/proc/self/exe", "control_socket", "start", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!has_name(names[0]) && has_name(names[1]) && !has_name(names[2]) && has_name(names[3]));
	for (int i = 1; i < 4; i += 2) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		CHECK(!unlink(path));
	}
}

static void a_program_says_who_it_is(void)
{
	char pid[32];

	ask("about\n", answer, sizeof(answer));
	snprintf(pid, sizeof(pid), "\"pid\": %d", getpid());
	CHECK(strstr(answer, pid) && strstr(answer, "\"uid\":"));
}

static void an_unknown_verb_gets_an_error(void)
{
	static const char *const requests[] = {
	        "\n",          "nonsense\n",     "   \n", "qps from=x\n", "qps from=99999999999\n", "qps from=-1\n",
	        "cqs from=\n", "mrs from=1x\r\n"};

	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		ask(requests[i], answer, sizeof(answer));
		CHECK(strstr(answer, "\"error\"") && strstr(answer, "\"errno\""));
	}
}

static void a_request_may_come_byte_by_byte(void)
{
	int fd = dial();

	for (const char *c = "about from=1 x=y\r\n"; *c; c++)
		CHECK(send(fd, c, 1, MSG_NOSIGNAL) == 1);
	CHECK(hear_all(fd, answer, sizeof(answer)) && strstr(answer, "\"lane\""));
}

static void a_request_without_end_is_cut_off(void)
{
	char junk[8192];
	int fd = dial();

	memset(junk, 'x', sizeof(junk));
	(void)!send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
	SAME(hear_all(fd, answer, sizeof(answer)), 0);
}

static void a_client_that_says_nothing_keeps_no_place(void)
{
	int fds[24];

	for (int i = 0; i < 24; i++)
		fds[i] = i < 8 ? dial() : -1;
	/* all places are taken, until the program drops those clients */
	CHECK(ask("about\n", answer, sizeof(answer)) && strstr(answer, "\"lane\""));
	for (int i = 0; i < 8; i++)
		SAME(hear_all(fds[i], answer, sizeof(answer)), 0);
}

static unsigned count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Sends a request with n descriptors. */
static void send_descriptors(int fd, const char *request, int n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)request, strlen(request)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = &control,
	                     .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
	struct cmsghdr *m = CMSG_FIRSTHDR(&msg);

	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	for (int i = 0; i < n; i++)
		memcpy(CMSG_DATA(m) + (size_t)i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
	CHECK(sendmsg(fd, &msg, MSG_NOSIGNAL) == (ssize_t)iov.iov_len);
}

static void descriptors_that_nobody_wants_are_closed(void)
{
	unsigned before = count_descriptors();

	for (int i = 1; i <= 16; i++) {
		int fd = dial();

		send_descriptors(fd, "abo", i);
		send_descriptors(fd, "ut\n", 1);
		CHECK(hear_all(fd, answer, sizeof(answer)) && strstr(answer, "\"lane\""));
	}
	/* the program may close the last client's descriptors a moment after its answer */
	for (int i = 0; i < 200 && count_descriptors() != before; i++)
		usleep(50000);
	SAME(count_descriptors(), before);
}

static void a_client_is_served_when_there_are_descriptors_again(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct rlimit old, none;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(fd);

	CHECK(fd >= 0 && next >= 0 && !close(next) && !getrlimit(RLIMIT_NOFILE, &old));
	strcpy(sun.sun_path, socket_path);
	none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max};
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(!connect(fd, (struct sockaddr *)&sun, sizeof(sun)));
	usleep(300000); /* it cannot be accepted */
	CHECK(!setrlimit(RLIMIT_NOFILE, &old));
	CHECK(send(fd, "about\n", 6, MSG_NOSIGNAL) == 6);
	CHECK(hear_all(fd, answer, sizeof(answer)) && strstr(answer, "\"lane\""));
	CHECK(ask("about\n", answer, sizeof(answer)) && strstr(answer, "\"lane\""));
}

static void a_client_that_reads_nothing_does_no_harm(void)
{
	int deaf = dial();

	CHECK(send(deaf, "devices\n", 8, MSG_NOSIGNAL) == 8);
	CHECK(ask("about\n", answer, sizeof(answer)));
	close(deaf);
	CHECK(ask("about\n", answer, sizeof(answer)));
}

#define QPS 600

static unsigned count_of(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text++)
		n++;
	return n;
}

/* Asks until the list is at its end. */
static unsigned count_rows(const char *verb, const char *member)
{
	char request[64];
	unsigned rows = 0;
	unsigned long from = 0;

	for (int page = 0; page < 100; page++) {
		snprintf(request, sizeof(request), "%s from=%lu\n", verb, from);
		ask(request, answer, sizeof(answer));
		unsigned n = count_of(answer, member);
		CHECK(n <= 256);
		rows += n;
		const char *next = strstr(answer, "\"next\": ");
		if (!next)
			return rows;
		CHECK(strtoul(next + 8, NULL, 10) > from);
		from = strtoul(next + 8, NULL, 10);
	}
	CHECK(!"the list has an end");
	return 0;
}

static void long_lists_come_in_parts(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	static struct ibv_qp *qp[QPS];
	static struct ibv_mr *mr[QPS];
	static struct ibv_cq *cqs[QPS];
	static char memory[4096];

	CHECK(pd && cq);
	for (int i = 0; i < QPS; i++) {
		qp[i] = ibv_create_qp(
		        pd, &(struct ibv_qp_init_attr){
		                    .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UC, .cap = {1, 1, 1, 1}});
		mr[i] = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		cqs[i] = ibv_create_cq(ctx, 1, NULL, NULL, 0);
		CHECK(qp[i] && mr[i] && cqs[i]);
	}
	SAME(count_rows("qps", "\"qpn\":"), QPS);
	SAME(count_rows("mrs", "\"key\":"), QPS);
	SAME(count_rows("cqs", "\"cqn\":"), QPS + 1);
	for (int i = 0; i < QPS; i++)
		CHECK(!ibv_destroy_qp(qp[i]) && !ibv_dereg_mr(mr[i]) && !ibv_destroy_cq(cqs[i]));
	SAME(count_rows("qps", "\"qpn\":"), 0);
	SAME(count_rows("mrs", "\"key\":"), 0);
	SAME(count_rows("cqs", "\"cqn\":"), 1);
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

static void a_child_of_fork_does_not_keep_the_socket(void)
{
	int to[2];
	char c;

	CHECK(!pipe(to));
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		close(to[1]);
		_exit(read(to[0], &c, 1) ? 1 : 0);
	}
	close(to[0]);
	CHECK(!ibv_close_device(ctx));
	CHECK(!find_socket());
	close(to[1]);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Opens an adapter and ends. */
static int start_once(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (list)
		ibv_free_device_list(list);
	return !opened || ibv_close_device(opened);
}

int main(int argc, char *argv[])
{
	struct ibv_device **list;

	if (argc > 1)
		return start_once();
	snprintf(runtime, sizeof(runtime), "/tmp/verbena-control.XXXXXX");
	CHECK(mkdtemp(runtime));
	setenv("VERBENA_RUNTIME", runtime, 1);
	snprintf(dir, sizeof(dir), "%s/control-%u", runtime, (unsigned)geteuid());
	list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		SKIP("no adapter");
	mode_t mask = umask(0777); /* of which the socket is independent */
	ctx = ibv_open_device(list[0]);
	umask(mask);
	CHECK(ctx && find_socket());
	ibv_free_device_list(list);
	RUN(the_socket_is_private);
	RUN(a_start_removes_names_of_ended_programs_only);
	RUN(a_program_says_who_it_is);
	RUN(an_unknown_verb_gets_an_error);
	RUN(a_request_may_come_byte_by_byte);
	RUN(a_request_without_end_is_cut_off);
	RUN(descriptors_that_nobody_wants_are_closed);
	RUN(a_client_is_served_when_there_are_descriptors_again);
	RUN(a_client_that_reads_nothing_does_no_harm);
	RUN(long_lists_come_in_parts);
	RUN(a_client_that_says_nothing_keeps_no_place);
	RUN(a_child_of_fork_does_not_keep_the_socket);
	return 0;
}
