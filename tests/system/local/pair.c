// pair.c - two or more connected processes of one host: the helpers of the same-host tests
// follows: ibv_* man pages; seccomp(2)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

unsigned long test_count;
static int why_fd = -1;
static bool verbose;

/* --- the runner --- */

void fail(const char *file, int line, const char *fmt, ...)
{
	char text[600];
	const char *base = strrchr(file, '/');
	va_list ap;
	int n = snprintf(text, sizeof(text), "%s:%d: ", base ? base + 1 : file, line);

	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	if (write(why_fd, text, strlen(text) + 1) < 0)
		perror("fail");
	_exit(1);
}

void skip(const char *fmt, ...)
{
	char text[300] = "skipped: ";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + 9, sizeof(text) - 9, fmt, ap);
	va_end(ap);
	if (write(why_fd, text, strlen(text) + 1) < 0)
		perror("skip");
	_exit(77);
}

unsigned long count_or(unsigned long preset)
{
	const char *s = getenv("VERBENA_TEST_COUNT");

	return test_count ? test_count : s && *s ? strtoul(s, NULL, 0) : preset;
}

bool under_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

/* All processes of the test end with it. */
static void reap_group(pid_t pid)
{
	kill(-pid, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static int run_one(const struct test *t)
{
	int why[2], status = 0, seconds = t->seconds ? t->seconds : 100;
	char text[600] = "";
	uint64_t start_ms = now_ms();
	pid_t pid;

	if (pipe2(why, O_CLOEXEC | O_NONBLOCK))
		return 1;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		why_fd = why[1];
		t->fn();
		_exit(0);
	}
	setpgid(pid, pid);
	uint64_t until = now_ms() + (uint64_t)seconds * 1000 * (under_sanitizer() ? 4 : 1);
	pid_t got = 0;

	while (now_ms() < until && !(got = waitpid(pid, &status, WNOHANG)) && read(why[0], text, sizeof(text) - 1) <= 0)
		sleep_ms(1);
	if (!got && text[0]) { /* a peer has failed: that is the reason, whatever the others report */
		reap_group(pid);
		waitpid(pid, &status, 0);
	} else if (!got) {
		snprintf(text, sizeof(text), "not done after %d s", seconds);
		if (getenv("VERBENA_TEST_HANG")) {
			fprintf(stderr, "%s: hangs, process group %d\n", t->name, pid);
			pause();
		}
		reap_group(pid);
		waitpid(pid, &status, 0);
		status = 1 << 8;
	} else {
		if (read(why[0], text, sizeof(text) - 1) < 0)
			text[0] = text[0];
		reap_group(pid);
	}
	close(why[0]);
	close(why[1]);
	if (!strncmp(text, "skipped", 7)) {
		printf("ok %s # %s\n", t->name, text);
		return 0;
	}
	if (text[0] || status) {
		if (!text[0] && WIFSIGNALED(status))
			snprintf(text, sizeof(text), "killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
		printf("not ok %s: %s\n", t->name, text[0] ? text : "no reason given");
		return 1;
	}
	printf("ok %s", t->name);
	if (verbose)
		printf(" (%llu ms)", (unsigned long long)(now_ms() - start_ms));
	printf("\n");
	return 0;
}

static bool wanted(int argc, char **argv, int first, const char *name)
{
	for (int i = first; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return first >= argc;
}

int run_tests(int argc, char **argv, const struct test *tests, size_t n)
{
	const char *tmp = getenv("TMPDIR");
	char dir[200], command[300];
	int first = 1, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	while (first < argc && argv[first][0] == '-') {
		if (!strcmp(argv[first], "-n") && first + 1 < argc)
			test_count = strtoul(argv[++first], NULL, 0);
		else if (!strcmp(argv[first], "-v"))
			verbose = true;
		first++;
	}
	if (!getenv("VERBENA_TEST_RUNTIME")) {
		snprintf(dir, sizeof(dir), "%s/verbena-path-XXXXXX", tmp && strlen(tmp) < 150 ? tmp : "/tmp");
		if (!mkdtemp(dir))
			return 1;
		setenv("VERBENA_RUNTIME", dir, 1);
	}
	setenv("VERBENA_BROKER_LINGER", "200", 0);
	for (size_t i = 0; i < n; i++)
		if (wanted(argc, argv, first, tests[i].name))
			bad += run_one(&tests[i]);
	/* the broker ends by itself; then its directory can be removed */
	if (!getenv("VERBENA_TEST_RUNTIME")) {
		snprintf(command, sizeof(command), "%s/broker.sock", dir);
		for (uint64_t until = now_ms() + 10000; !access(command, F_OK) && now_ms() < until;)
			sleep_ms(10);
		snprintf(command, sizeof(command), "rm -rf %s", dir);
		if (system(command))
			bad++;
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return bad != 0;
}

/* --- processes --- */

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void sleep_ms(unsigned ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

struct peer start(peer_fn *fn, void *arg)
{
	struct peer p;
	int fds[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	fflush(NULL);
	p.pid = fork();
	CHECK(p.pid >= 0);
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		fn(fds[1], arg);
		_exit(0);
	}
	close(fds[1]);
	p.fd = fds[0];
	return p;
}

void finish(struct peer *p)
{
	uint64_t until = now_ms() + PATIENCE;
	int status;
	pid_t got;

	while (!(got = waitpid(p->pid, &status, WNOHANG)) && now_ms() < until)
		sleep_ms(1);
	CHECK(got == p->pid);
	if (WIFSIGNALED(status))
		fail(__FILE__, __LINE__, "the peer was killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
	if (WEXITSTATUS(status) == 1) /* its reason was reported already */
		_exit(1);
	SAME(WEXITSTATUS(status), 0);
	close(p->fd);
}

unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

void kill_peer(struct peer *p)
{
	kill(p->pid, SIGKILL);
	CHECK(waitpid(p->pid, NULL, 0) == p->pid);
}

void stop_peer(struct peer *p)
{
	int status;

	kill(p->pid, SIGSTOP);
	CHECK(waitpid(p->pid, &status, WUNTRACED) == p->pid && WIFSTOPPED(status));
}

void cont_peer(struct peer *p)
{
	kill(p->pid, SIGCONT);
}

void tell(int fd, const void *data, size_t n)
{
	while (n) {
		ssize_t k = write(fd, data, n);

		if (k < 0)
			fail(__FILE__, __LINE__, "the other side is gone: %s", strerror(errno));
		data = (const char *)data + k;
		n -= (size_t)k;
	}
}

bool heard(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

void hear(int fd, void *data, size_t n)
{
	while (n) {
		if (!heard(fd, PATIENCE))
			fail(__FILE__, __LINE__, "the other side says nothing");
		ssize_t k = read(fd, data, n);

		if (k <= 0)
			fail(__FILE__, __LINE__, "the other side is gone");
		data = (char *)data + k;
		n -= (size_t)k;
	}
}

void meet_up(int fd)
{
	char c = 'm';

	tell(fd, &c, 1);
	hear(fd, &c, 1);
}

/* --- verbs --- */

static bool is_v4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(g->raw, prefix, 12);
}

void dev_open(struct dev *d)
{
	struct ibv_device **list;
	struct ibv_device *chosen = NULL;
	int n = 0;

	memset(d, 0, sizeof(*d));
	list = ibv_get_device_list(&n);
	CHECK(list && n > 0);
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			chosen = list[i];
	d->ctx = ibv_open_device(chosen ? chosen : list[0]);
	CHECK(d->ctx);
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->ctx);
	CHECK(d->pd);
	CHECK(!ibv_query_port(d->ctx, 1, &d->port));
	CHECK(!ibv_query_gid(d->ctx, 1, 0, &d->gid));
	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		union ibv_gid g;

		if (!ibv_query_gid(d->ctx, 1, i, &g) && is_v4(&g)) {
			d->gid = g;
			d->gid_index = i;
			break;
		}
	}
}

void dev_close(struct dev *d)
{
	CHECK(!ibv_dealloc_pd(d->pd));
	CHECK(!ibv_close_device(d->ctx));
}

static int or (int value, int preset)
{
	return value < 0 ? 0 : value ? value : preset;
}

static void make_ex(struct link *l, struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {
	        .send_cq = a->send_cq,
	        .recv_cq = a->recv_cq,
	        .srq = a->srq,
	        .cap = a->cap,
	        .qp_type = a->qp_type,
	        .sq_sig_all = a->sq_sig_all,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	        .pd = l->c.pd ? l->c.pd : l->d->pd,
	        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};

	if (a->qp_type == IBV_QPT_RC)
		x.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
		                    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (l->c.ops)
		x.send_ops_flags = l->c.ops;
	l->qp = ibv_create_qp_ex(l->d->ctx, &x);
}

void link_make(struct link *l, struct dev *d, const struct conf *c)
{
	struct conf *k = &l->c;

	memset(l, 0, sizeof(*l));
	l->d = d;
	*k = *c;
	k->type = k->type ? k->type : IBV_QPT_RC;
	k->depth = k->depth ? k->depth : 64;
	k->rdepth = k->rdepth ? k->rdepth : k->depth;
	k->sge = k->sge ? k->sge : 4;
	k->access = k->no_access ? 0
	            : k->access  ? k->access
	                         : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	k->cqe = k->cqe ? k->cqe : 2 * (k->depth + k->rdepth) + 16;
	l->scq = k->scq ? k->scq : ibv_create_cq(d->ctx, (int)k->cqe, NULL, NULL, 0);
	l->rcq = k->rcq ? k->rcq : ibv_create_cq(d->ctx, (int)k->cqe, NULL, k->channel, 0);
	CHECK(l->scq && l->rcq);
	struct ibv_qp_init_attr a = {
	        .send_cq = l->scq,
	        .recv_cq = l->rcq,
	        .srq = k->srq,
	        .cap = {.max_send_wr = k->no_sends ? 0 : k->depth,
	                .max_recv_wr = k->rdepth,
	                .max_send_sge = k->sge,
	                .max_recv_sge = k->sge,
	                .max_inline_data = k->inline_max},
	        .qp_type = k->type,
	        .sq_sig_all = k->sig_all,
	};
	if (k->ex)
		make_ex(l, &a);
	else
		l->qp = ibv_create_qp(k->pd ? k->pd : d->pd, &a);
	CHECK(l->qp);
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = k->access, .qkey = QKEY};

	SAME(ibv_modify_qp(l->qp, &q,
	                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                           (k->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
	l->me = (struct addr){l->qp->qp_num, k->psn ? k->psn : l->qp->qp_num & 0xffffff, d->gid};
}

void link_rtr(struct link *l, const struct addr *it)
{
	struct conf *k = &l->c;
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = it->qpn,
	        .rq_psn = it->psn,
	        .max_dest_rd_atomic = (uint8_t) or (k->rd, 16),
	        .min_rnr_timer = (uint8_t) or (k->rnr_timer, 1),
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .static_rate = k->static_rate,
	                    .grh = {.dgid = it->gid, .sgid_index = (uint8_t)l->d->gid_index, .hop_limit = 64}},
	};
	int mask = IBV_QP_STATE;

	l->it = *it;
	if (k->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (k->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	SAME(ibv_modify_qp(l->qp, &a, mask), 0);
}

void link_rts(struct link *l)
{
	struct conf *k = &l->c;
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTS,
	        .sq_psn = l->me.psn,
	        .timeout = (uint8_t) or (k->timeout, 20),
	        .retry_cnt = (uint8_t) or (k->retry, 7),
	        .rnr_retry = (uint8_t) or (k->rnr_retry, 7),
	        .max_rd_atomic = (uint8_t) or (k->rd, 16),
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (k->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	SAME(ibv_modify_qp(l->qp, &a, mask), 0);
}

void link_to(struct link *l, const struct addr *it)
{
	link_rtr(l, it);
	link_rts(l);
}

void link_join(struct link *l, int fd)
{
	struct addr it;

	tell(fd, &l->me, sizeof(l->me));
	hear(fd, &it, sizeof(it));
	link_to(l, &it);
	meet_up(fd);
}

void link_open(struct link *l, struct dev *d, const struct conf *c, int fd)
{
	link_make(l, d, c);
	link_join(l, fd);
}

void link_end(struct link *l)
{
	SAME(ibv_destroy_qp(l->qp), 0);
	if (!l->c.scq)
		SAME(ibv_destroy_cq(l->scq), 0);
	if (!l->c.rcq)
		SAME(ibv_destroy_cq(l->rcq), 0);
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;

	CHECK(!ibv_query_qp(qp, &a, IBV_QP_STATE, &i));
	return a.qp_state;
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state s)
{
	struct ibv_qp_attr a = {.qp_state = s};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

void mem_reg(struct mem *m, struct dev *d, unsigned access)
{
	m->mr = ibv_reg_mr(d->pd, m->p, m->n, (int)access);
	CHECK(m->mr);
}

void mem_make(struct mem *m, struct dev *d, size_t n)
{
	m->n = n;
	m->p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m->p != MAP_FAILED);
	mem_reg(m, d, ALL_ACCESS);
}

void mem_make_apart(struct mem *m, struct dev *d, size_t n)
{
	static uintptr_t next = FAR_AWAY;

	m->n = n;
	m->p = mmap((void *)next, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(m->p == (void *)next);
	next += 1ull << 32;
	mem_reg(m, d, ALL_ACCESS);
}

void mem_make_shared(struct mem *m, struct dev *d, size_t n)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)n));
	m->n = n;
	m->p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m->p != MAP_FAILED); /* the descriptor stays open, because the peer finds the memory by it */
	mem_reg(m, d, ALL_ACCESS);
}

void mem_end(struct mem *m)
{
	if (m->mr)
		SAME(ibv_dereg_mr(m->mr), 0);
	munmap(m->p, m->n);
	m->mr = NULL;
}

void mem_tell(const struct mem *m, int fd)
{
	struct far f = {(uintptr_t)m->p, m->mr->rkey, 0};

	tell(fd, &f, sizeof(f));
}

struct far far_hear(int fd)
{
	struct far f;

	hear(fd, &f, sizeof(f));
	return f;
}

int try_post(struct link *l, const struct wr *w)
{
	struct ibv_sge sge = {
	        .addr = w->m ? (uintptr_t)w->m->p + w->off : (uintptr_t)w->p,
	        .length = w->len,
	        .lkey = w->m ? w->m->mr->lkey : w->lkey,
	};
	struct ibv_send_wr wr = {
	        .wr_id = w->id,
	        .sg_list = &sge,
	        .num_sge = w->len ? 1 : 0,
	        .opcode = w->op,
	        .send_flags = w->flags | (w->quiet ? 0 : IBV_SEND_SIGNALED),
	        .imm_data = w->imm,
	};
	struct ibv_send_wr *bad = NULL;

	if (w->op == IBV_WR_ATOMIC_CMP_AND_SWP || w->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = w->far.addr + w->far_off;
		wr.wr.atomic.rkey = w->far.rkey;
		wr.wr.atomic.compare_add = w->compare_add;
		wr.wr.atomic.swap = w->swap;
	} else if (l->c.type == IBV_QPT_UD) {
		wr.wr.ud.ah = w->ah;
		wr.wr.ud.remote_qpn = w->qpn;
		wr.wr.ud.remote_qkey = w->qkey;
	} else {
		wr.wr.rdma.remote_addr = w->far.addr + w->far_off;
		wr.wr.rdma.rkey = w->far.rkey;
	}
	int err = ibv_post_send(l->qp, &wr, &bad);

	if (err)
		CHECK(bad == &wr);
	return err;
}

void post(struct link *l, const struct wr *w)
{
	SAME(try_post(l, w), 0);
}

void post_recv(struct link *l, uint64_t id, struct mem *m, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = {.addr = m ? (uintptr_t)m->p + off : 0, .length = len, .lkey = m ? m->mr->lkey : 0};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0}, *bad;

	SAME(l->c.srq ? ibv_post_srq_recv(l->c.srq, &wr, &bad) : ibv_post_recv(l->qp, &wr, &bad), 0);
}

bool wait_wc_ms(struct ibv_cq *cq, struct ibv_wc *wc, unsigned ms)
{
	uint64_t until = 0;

	for (unsigned i = 1;; i++) {
		int n = ibv_poll_cq(cq, 1, wc);

		if (n < 0)
			fail(__FILE__, __LINE__, "ibv_poll_cq: %d", n);
		if (n)
			return true;
		if (i % 64)
			continue;
		if (!until)
			until = now_ms() + ms;
		else if (now_ms() >= until)
			return false;
		if (i > 2000)
			sched_yield();
	}
}

struct ibv_wc wait_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (!wait_wc_ms(cq, &wc, PATIENCE))
		fail(__FILE__, __LINE__, "no completion");
	return wc;
}

struct ibv_wc expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!wait_wc_ms(cq, &wc, PATIENCE))
		fail(file, line, "request %llu does not complete", (unsigned long long)id);
	if (wc.wr_id != id || wc.status != status)
		fail(file, line, "request %llu completes: %s; expected %llu: %s", (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status), (unsigned long long)id, ibv_wc_status_str(status));
	if (status != IBV_WC_SUCCESS && wc.byte_len) /* undefined by the specification; the same on all paths */
		fail(file, line, "request %llu has failed and moved %u bytes", (unsigned long long)id, wc.byte_len);
	return wc;
}

void expect_none_at(const char *file, int line, struct ibv_cq *cq, unsigned ms)
{
	struct ibv_wc wc;

	if (wait_wc_ms(cq, &wc, ms))
		fail(file, line, "unexpected: request %llu completes: %s", (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status));
}

int next_event(struct dev *d, unsigned ms)
{
	struct ibv_async_event ev;

	if (!heard(d->ctx->async_fd, (int)ms))
		return -1;
	CHECK(!ibv_get_async_event(d->ctx, &ev));
	ibv_ack_async_event(&ev);
	return (int)ev.event_type;
}

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (uint8_t)((i * 131 + (i >> 8) * 7 + seed * 29 + (seed >> 8)) ^ (seed >> 16));
}

void fill(void *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = pattern(i, seed);
}

bool holds(const void *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)p)[i] != pattern(i, seed))
			return false;
	return true;
}

uint32_t random_next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (uint32_t)(*s >> 16);
}

static bool forbid(long call, long other, int err)
{
	struct sock_filter code[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 1, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)other, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)err),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return false;
	/* all threads, including the adapter's */
	return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

bool forbid_process_vm(int err)
{
	return forbid(SYS_process_vm_readv, SYS_process_vm_writev, err);
}

bool forbid_preadv2(int err)
{
	return forbid(SYS_preadv2, SYS_preadv2, err);
}
