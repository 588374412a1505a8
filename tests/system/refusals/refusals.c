// refusals.c - does everything wrong that can be done wrong with a queue pair, and prints what becomes of it: a line a case
// follows: IBA volume 1, 9.9.2, 9.9.3, 10.10.2, 11.6.2, 11.6.3; public verbs only, so that it runs on any adapter
// SPDX-License-Identifier: MIT
//
// usage: refusals [-d DEVICE | -a ADDRESS] [-c HOST:PORT] [-e NAME=VALUE] [-q QUIET_MS] [-x TEXT]... [CASE]...
//        refusals -d DEVICE -l PORT
//
//   -d DEVICE     queue pairs of this device, connected over a socket (roce_lo)
//   -a ADDRESS    queue pairs connected by rdma_cm over this address
//   -c HOST:PORT  the responder waits there, on another host (-l); without the cases that end its program
//   -l PORT       waits at this port, for one requester, and is its responder
//   -e NAME=VALUE  in the environment of the responders (VERBENA_NODE=host2)
//   -q QUIET_MS   how long nothing must happen before the outcome counts (40)
//   -x TEXT       without the cases that have this text in their names
//   CASE          only these cases, by the part of their lines before the colon
//   -n            prints the names of all statuses and events
//
// Two processes, one at each end. Without -c the responders are forked before a device is open.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "outcome.h"
#include "request.h"
#include "windows.h"

#define RESPONDERS 12    /* one of them ends for each case of PEER_EXIT */
#define ANSWER_MS 15000u /* within which a request completes on a busy machine */
#define SILENT_MS 300u   /* the same if it should not complete */
#define STARVED_MS 7000u /* iWARP: longer than a message waits for a receive */
#define NAME_BYTES 80

static const char *device_name = "roce_lo", *address, *distant, *serves_at;
static char *responders_environment;
static unsigned quiet_ms = 40;
#define EXCLUDED_MAX 16
static const char *excluded[EXCLUDED_MAX];
static int excluded_n;

/* --- the responder --- */

struct responder {
	struct device d;
	struct memory m;
	struct end e;
	int fd;
	uint16_t port;
};

static void fill_receives(void *own)
{
	struct responder *r = own;

	request_post_receives(&r->e, &r->m);
}

/* What the case wants to be wrong with this end when the request arrives. */
static void go_wrong(struct responder *r, const struct plan *p)
{
	memory_take_away(&r->m, p);
	if (p->wrong == WRONG_PEER_RESET)
		end_to(&r->e, IBV_QPS_RESET);
	if (p->wrong == WRONG_PEER_ERR || p->wrong == WRONG_SRQ_ERR)
		end_to(&r->e, IBV_QPS_ERR);
	if (p->wrong == WRONG_PEER_DESTROYED) {
		end_destroy(&r->e);
		r->e = (struct end){.d = &r->d, .p = p};
	}
}

static void report_responder(struct responder *r, const struct plan *p)
{
	struct outcome o = {0};
	uint32_t quiet;

	hear(r->fd, &quiet, sizeof(quiet));
	if (r->e.qp)
		outcome_observe(&r->e, 0, quiet, &o);
	o.change = memory_changed(&r->m, p);
	tell(r->fd, &o, sizeof(o));
}

static void respond_once(struct responder *r, const struct plan *p)
{
	struct hello mine = {.port = r->port, .gid = r->d.gid, .lid = r->d.lid}, it;
	uint32_t key = 0; /* of a window, which cannot be bound before */
	char ready;

	memory_of_responder(&r->m, &r->d, p, &mine);
	end_make(&r->e, &r->d, p, false);
	mine.qpn = r->e.qp ? r->e.qp->qp_num : 0;
	mine.srqn = end_srq_number(&r->e);
	tell(r->fd, &mine, sizeof(mine));
	hear(r->fd, &it, sizeof(it));
	end_connect(&r->e, &it, fill_receives, r);
	hear(r->fd, &ready, 1);
	go_wrong(r, p);
	if (plan_is_window(p) && p->operation != OP_INV)
		key = window_open(&r->e, r->m.data.mr);
	tell(r->fd, &key, sizeof(key));
	if (p->wrong == WRONG_PEER_EXIT)
		_exit(0);
	report_responder(r, p);
	window_close(&r->e);
	if (r->e.cq)
		end_destroy(&r->e);
	memory_forget(&r->m);
	tell(r->fd, &ready, 1);
}

/* Opens the device when the first case is there. */
static void respond(int fd)
{
	static struct responder r;
	struct plan p;

	r.fd = fd;
	CHECK(!responders_environment || !putenv(responders_environment));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (bool open = false;; open = true) {
		if (read(fd, &p, sizeof(p)) != sizeof(p))
			exit(0);
		if (!open) {
			device_open(&r.d, device_name, address);
			memory_map(&r.m);
			r.port = address ? listen_here(&r.d) : 0;
		}
		respond_once(&r, &p);
	}
}

/* --- the requester --- */

struct requester {
	struct device d;
	struct memory m;
	int fd[RESPONDERS];
	pid_t pid[RESPONDERS];
	unsigned current; /* the responder */
};

static void fork_responders(struct requester *q)
{
	for (int i = 0; i < RESPONDERS; i++) {
		int fds[2];

		CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
		q->pid[i] = fork();
		CHECK(q->pid[i] >= 0);
		if (!q->pid[i]) {
			for (int k = 0; k < i; k++)
				close(q->fd[k]);
			close(fds[0]);
			respond(fds[1]);
		}
		close(fds[1]);
		q->fd[i] = fds[0];
	}
}

/* --- a responder on another host --- */

static struct sockaddr_in place_of(const char *host, const char *port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};

	CHECK(inet_pton(AF_INET, host, &sin.sin_addr) == 1);
	return sin;
}

static int at_once(int fd)
{
	CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
	return fd;
}

__attribute__((noreturn)) static void wait_for_requester(const char *port)
{
	struct sockaddr_in sin = place_of("0.0.0.0", port);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

	CHECK(listener >= 0 && !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
	CHECK(!bind(listener, (struct sockaddr *)&sin, sizeof(sin)) && !listen(listener, 1));
	CHECK((fd = accept(listener, NULL, NULL)) >= 0);
	close(listener);
	respond(at_once(fd));
	exit(0);
}

static void join_distant(struct requester *q)
{
	char host[64] = "";
	const char *port = strchr(distant, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && port && (size_t)(port - distant) < sizeof(host));
	memcpy(host, distant, (size_t)(port - distant));
	struct sockaddr_in sin = place_of(host, port + 1);

	CHECK(!connect(fd, (struct sockaddr *)&sin, sizeof(sin)));
	q->fd[0] = at_once(fd);
}

static void await_exit(struct requester *q)
{
	int status;

	CHECK(waitpid(q->pid[q->current], &status, 0) == q->pid[q->current] && !status);
	close(q->fd[q->current]);
	q->current++;
	CHECK(q->current < RESPONDERS);
}

static void join_responders(struct requester *q)
{
	if (distant) {
		close(q->fd[0]);
		return;
	}
	for (unsigned i = q->current; i < RESPONDERS; i++) {
		int status;

		close(q->fd[i]);
		CHECK(waitpid(q->pid[i], &status, 0) == q->pid[i]);
		SAME(status, 0);
	}
}

/* An iWARP stream notices the end of its peer. Waits for that, so that what is posted then does not depend on the time. */
static void await_end_of_peer(struct end *e)
{
	for (unsigned ms = 0; ms < LONG_MS && end_state(e) != IBV_QPS_ERR; ms++) {
		struct ibv_wc wc;

		CHECK(!ibv_poll_cq(e->cq, 1, &wc));
		usleep(1000);
	}
}

static void enter_state(struct end *e)
{
	if (address &&
	    ((e->p->wrong >= WRONG_PEER_RESET && e->p->wrong <= WRONG_PEER_EXIT) || e->p->wrong == WRONG_SRQ_ERR))
		await_end_of_peer(e);
	if (e->p->wrong == WRONG_IN_SQD || e->p->wrong == WRONG_SQD_EVENT)
		end_to(e, IBV_QPS_SQD);
	if (e->p->wrong == WRONG_IN_ERR || e->p->wrong == WRONG_CQ_FULL)
		end_to(e, IBV_QPS_ERR);
}

static unsigned patience_of(const struct plan *p, int err)
{
	return err                                                                                  ? 0
	       : p->wrong == WRONG_IN_SQD || p->wrong == WRONG_SQD_EVENT || p->wrong == WRONG_RNR_7 ? SILENT_MS
	                                                                                            : ANSWER_MS;
}

static unsigned quiet_of(const struct plan *p)
{
	return address && plan_receive(p) == WRONG_RNR_0 ? STARVED_MS : quiet_ms;
}

static void hear_responder(struct requester *q, const struct plan *p, unsigned quiet, struct outcome *o)
{
	*o = (struct outcome){0};
	if (p->wrong == WRONG_PEER_EXIT)
		return;
	tell(q->fd[q->current], &(uint32_t){quiet}, sizeof(uint32_t));
	hear(q->fd[q->current], o, sizeof(*o));
}

/* A message that is longer than its receive fills it or not: that depends on when its length is known. */
static const char *change_of(const struct plan *p, enum change change)
{
	static const char *const changes[] = {"none", "part", "whole", "outside"};

	return p->wrong == WRONG_RECV_SHORT && p->large && change <= CHANGE_PART ? "none-or-part" : changes[change];
}

static void print_case(const struct plan *p, const struct memory *m, const char *posted, const struct outcome *asked,
                       const struct outcome *answered)
{
	char name[NAME_BYTES];

	plan_name(p, name, sizeof(name));
	fputs(name, stdout);
	outcome_print(posted, asked, answered, p->wrong == WRONG_PEER_EXIT ? "-" : change_of(p, answered->change),
	              plan_is_answered(p) ? change_of(p, memory_answered(m, p)) : NULL);
}

static void run_case(struct requester *q, const struct plan *p)
{
	struct hello it, mine = {.gid = q->d.gid, .lid = q->d.lid};
	struct outcome asked, answered;
	unsigned quiet = quiet_of(p);
	int fd = q->fd[q->current];
	uint32_t key;
	struct end e;
	char ready, posted[40];

	tell(fd, p, sizeof(*p));
	hear(fd, &it, sizeof(it));
	memory_of_requester(&q->m, &q->d, p);
	end_make(&e, &q->d, p, true);
	mine.qpn = e.qp ? e.qp->qp_num : 0;
	tell(fd, &mine, sizeof(mine));
	end_connect(&e, &it, NULL, NULL);
	tell(fd, "r", 1);
	hear(fd, &key, sizeof(key));
	if (plan_is_window(p) && p->operation == OP_INV)
		q->m.spare_key = window_open(&e, q->m.spare.mr);
	else if (plan_is_window(p))
		it.rkey = it.spare_key = key;
	if (p->wrong == WRONG_PEER_EXIT)
		await_exit(q);
	enter_state(&e);
	bool named = false;
	int err = request_post(&e, &q->m, &it, &named);

	snprintf(posted, sizeof(posted), "%s%s", err < 0 ? "unregistered" : outcome_errno(err),
	         err > 0 && !named ? "/bad_wr-not-set" : "");
	outcome_observe(&e, patience_of(p, err), quiet, &asked);
	hear_responder(q, p, quiet, &answered);
	print_case(p, &q->m, posted, &asked, &answered);
	window_close(&e);
	end_destroy(&e);
	memory_forget(&q->m);
	if (p->wrong != WRONG_PEER_EXIT)
		hear(fd, &ready, 1);
}

/* --- the command line --- */

static bool is_wanted(const struct plan *p, int n, char **names)
{
	char name[NAME_BYTES];

	if (distant && p->wrong == WRONG_PEER_EXIT)
		return false;
	plan_name(p, name, sizeof(name));
	for (int i = 0; i < excluded_n; i++)
		if (strstr(name, excluded[i]))
			return false;
	for (int i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return true;
	return !n;
}

static void read_options(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "d:a:c:e:l:q:x:n")) != -1;) {
		switch (c) {
		case 'd':
			device_name = optarg;
			break;
		case 'a':
			address = optarg;
			break;
		case 'c':
			distant = optarg;
			break;
		case 'e':
			responders_environment = optarg;
			break;
		case 'l':
			serves_at = optarg;
			break;
		case 'q':
			quiet_ms = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'x':
			CHECK(excluded_n < EXCLUDED_MAX);
			excluded[excluded_n++] = optarg;
			break;
		case 'n':
			outcome_print_names();
			exit(0);
		default:
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	static struct requester q;
	struct plan p = {0};

	read_options(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	if (serves_at)
		wait_for_requester(serves_at);
	if (distant)
		join_distant(&q);
	else
		fork_responders(&q);
	device_open(&q.d, device_name, address);
	memory_map(&q.m);
	while (plan_next(&p))
		if (end_supports(&q.d, &p) && is_wanted(&p, argc - optind, argv + optind))
			run_case(&q, &p);
	join_responders(&q);
	return 0;
}
