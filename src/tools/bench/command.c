// command.c - verbena bench: plans the measurements, runs them in processes of their own, prints them and a verdict
// follows: verbena-bench(1)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"
#include "tools/stat_options.h"
#include "tools/verbena.h"
#include "util/env.h"

enum { GOOD, FAILED, USAGE };

struct bench_options {
	bool json, serve, hardware;
	double seconds;
	unsigned size, port;
	const char *host;
};

enum { ROW_SHARED, ROW_ROCE, ROW_IWARP, ROW_TCP, ROW_UDP, ROWS };

/* What a row measures. wire and devices: of both ends here, NULL: as the caller's environment says. */
static const struct {
	const char *name, *key, *wire, *devices;
	int (*measure)(const struct bench_plan *p);
	unsigned parts; /* of the time: measurements of one size, and of each size */
	unsigned each;
} rows[ROWS] = {
        {"RDMA, same host", "same-host", "auto", "roce:lo", bench_measure_rdma, 2, 3},
        {"RDMA, RoCE", "roce", "always", "roce:lo", bench_measure_rdma, 2, 3},
        {"RDMA, iWARP", "iwarp", "always", "iwarp:lo", bench_measure_rdma, 2, 3},
        {"TCP", "tcp", NULL, NULL, bench_measure_tcp, 2, 0},
        {"UDP", "udp", NULL, NULL, bench_measure_udp, 1, 0},
};

struct job {
	struct bench_plan plan;
	int row;
	bool local;
	int listener; /* of a server on this host, or -1 */
	bool hardware;
};

static void choose_adapters(const struct job *j)
{
	if (j->local && rows[j->row].wire) {
		setenv("VERBENA_WIRE", rows[j->row].wire, 1);
		setenv("VERBENA_DEVICES", rows[j->row].devices, 1);
	}
}

static int run_server(int out, void *arg)
{
	struct job *j = arg;

	choose_adapters(j);
	return bench_serve(j->listener, 0, j->hardware);
}

static int run_client(int out, void *arg)
{
	struct job *j = arg;

	choose_adapters(j);
	return rows[j->row].measure(&j->plan);
}

/* Measures one row in two processes, or one if the other end is another host. */
static bool run_row(struct job *j, const char **why, struct doc_child c[2])
{
	uint16_t port = 0;
	int limit = (int)(j->plan.each_us / 1000 * (rows[j->row].parts + rows[j->row].each * j->plan.n_sizes)) + 15000;

	*why = "no process can be started";
	j->listener = -1;
	c[0] = c[1] = (struct doc_child){.status = -1, .out = -1, .err = -1};
	if (j->local) {
		j->listener = bench_listen("127.0.0.1", &port);
		if (j->listener < 0)
			return *why = strerror(errno), false;
		bench_set_port(&j->plan.to, port);
		if (!doc_child_start(&c[1], run_server, j))
			return close(j->listener), false;
		close(j->listener);
	}
	if (doc_child_start(&c[0], run_client, j))
		doc_children_end(c, 1, limit, rows[j->row].name);
	if (j->local)
		doc_children_end(c + 1, 1, 0, NULL);
	*why = doc_child_complaint(&c[0]);
	if (!**why)
		*why = doc_child_complaint(&c[1]);
	if (!**why)
		*why = c[0].status < 0 ? "it did not end in time" : "the program that measures was killed";
	return !c[0].status && j->plan.out->done;
}

/* --- output --- */

static double best_mbps(const struct bench_result *r)
{
	double best = 0;

	for (int w = 0; w < BENCH_WAYS; w++)
		for (int i = 0; i < BENCH_SIZES; i++)
			best = r->mbps[w][i] > best ? r->mbps[w][i] : best;
	return best;
}

static void print_rows(int row, const struct bench_plan *p, const struct bench_result *r)
{
	printf("%-16s latency %.1f us (median), %.1f us (99 %%)", rows[row].name, r->median_us, r->p99_us);
	if (r->rate > 0)
		printf("; %.0f messages/s", r->rate);
	if (row == ROW_TCP)
		printf("; bandwidth %.0f MB/s", r->mbps[BENCH_SEND][0]);
	putchar('\n');
	for (unsigned i = 0; row < ROW_TCP && i < p->n_sizes; i++)
		printf("%16s %8u bytes: send %.0f, write %.0f, read %.0f MB/s\n", "", p->sizes[i],
		       r->mbps[BENCH_SEND][i], r->mbps[BENCH_WRITE][i], r->mbps[BENCH_READ][i]);
	fflush(stdout);
}

static void print_json_row(bool first, int row, const struct bench_plan *p, const struct bench_result *r,
                           const char *why)
{
	printf("%s{\"path\": \"%s\", \"ok\": %s", first ? "" : ",\n ", rows[row].key, why ? "false" : "true");
	if (why) {
		fputs(", \"error\": ", stdout);
		cmd_print_json_string(why);
	} else {
		printf(", \"latency_median_us\": %.2f, \"latency_p99_us\": %.2f", r->median_us, r->p99_us);
		if (r->rate > 0)
			printf(", \"messages_per_second\": %.0f", r->rate);
		if (row == ROW_TCP)
			printf(", \"mbytes_per_second\": %.1f", r->mbps[BENCH_SEND][0]);
	}
	if (!why && row < ROW_TCP) {
		fputs(", \"bandwidth\": [", stdout);
		for (unsigned i = 0; i < p->n_sizes; i++)
			printf("%s{\"bytes\": %u, \"send\": %.1f, \"write\": %.1f, \"read\": %.1f}", i ? ", " : "",
			       p->sizes[i], r->mbps[BENCH_SEND][i], r->mbps[BENCH_WRITE][i], r->mbps[BENCH_READ][i]);
		putchar(']');
	}
	putchar('}');
}

/* The verdict on an RDMA row beside TCP. */
static void judge_row(const struct bench_result *r, const struct bench_result *tcp, const char *name, char text[256])
{
	double bandwidth = tcp->done && best_mbps(tcp) > 0 ? best_mbps(r) / best_mbps(tcp) : 0;
	double latency = tcp->done && r->median_us > 0 ? tcp->median_us / r->median_us : 0;
	const char *limit = "";

	if (bandwidth > 0 && bandwidth < 0.8)
		limit = r->mbps[BENCH_WRITE][0] > 0 && latency >= 1
		                ? "; the processors limit it, because they make each packet: a larger MTU helps"
		                : "; a loss of packets or too few processors may limit it: verbena doctor";
	if (!bandwidth)
		snprintf(text, 256, "%s works; it was not compared with TCP", name);
	else
		snprintf(text, 256, "%s works: %.1f times TCP's bandwidth, latency %.1f us where TCP has %.1f%s", name,
		         bandwidth, r->median_us, tcp->median_us, limit);
}

static int finish_report(const struct bench_options *o, const struct bench_result *results, const bool *wanted)
{
	bool failed = false, rdma = false;
	char text[256];

	if (o->json)
		fputs("], \"verdict\": [", stdout);
	for (int i = 0; i < ROWS; i++) {
		if (!wanted[i])
			continue;
		failed |= !results[i].done;
		if (i >= ROW_TCP)
			continue;
		if (results[i].done)
			judge_row(&results[i], &results[ROW_TCP], rows[i].name, text);
		else
			snprintf(text, sizeof(text), "%s does not work: verbena doctor%s%.100s says why", rows[i].name,
			         o->host ? " " : "", o->host ? o->host : "");
		if (o->json) {
			fputs(rdma ? ", " : "", stdout);
			cmd_print_json_string(text);
		} else {
			printf("%s%s\n", rdma ? "" : "\n", text);
		}
		rdma = true;
	}
	if (o->json)
		printf("], \"status\": \"%s\"}\n", failed ? "failed" : "ok");
	return failed ? FAILED : GOOD;
}

/* --- the command --- */

static int measure_all(const struct bench_options *o, struct sockaddr_storage *to)
{
	struct bench_result *results =
	        mmap(NULL, ROWS * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool wanted[ROWS] = {!o->host, true, !o->host, true, true}, first = true;
	struct bench_plan plan = {.to = *to, .sizes = {4096, 65536, 1048576}, .n_sizes = 3, .hardware = o->hardware};
	unsigned parts = 0;

	if (results == MAP_FAILED)
		return cmd_complain("bench", "no memory"), FAILED;
	if (o->size) {
		plan.sizes[0] = o->size;
		plan.n_sizes = 1;
	}
	for (int i = 0; i < ROWS; i++)
		parts += wanted[i] ? rows[i].parts + rows[i].each * plan.n_sizes : 0;
	plan.each_us = (int64_t)(o->seconds * 1e6 / parts);
	if (o->json)
		fputs("{\"results\": [", stdout);
	for (int i = 0; i < ROWS; i++) {
		struct job j = {.plan = plan, .row = i, .local = !o->host, .hardware = o->hardware};
		struct doc_child c[2];
		const char *why;

		if (!wanted[i])
			continue;
		j.plan.out = &results[i];
		bool done = run_row(&j, &why, c);

		results[i].done = done;
		if (o->json)
			print_json_row(first, i, &plan, &results[i], done ? NULL : why);
		else if (done)
			print_rows(i, &plan, &results[i]);
		if (!done)
			cmd_complain("bench", "%s: %s", rows[i].name, why);
		first = false;
	}
	return finish_report(o, results, wanted);
}

static int serve_forever(const struct bench_options *o)
{
	uint16_t port = (uint16_t)o->port;
	int fd = bench_listen(NULL, &port);

	if (fd < 0 && errno == EAFNOSUPPORT)
		fd = bench_listen("0.0.0.0", &port);
	if (fd < 0)
		return cmd_complain("bench", "TCP port %u cannot be used: %s", o->port, strerror(errno)), FAILED;
	fprintf(stderr, "verbena bench: waits on TCP port %u; on the other host: verbena bench THIS-HOST%s\n", port,
	        o->port == BENCH_PORT ? "" : " --port ...");
	return bench_serve(fd, 0, o->hardware);
}

static int resolve_and_measure(const struct bench_options *o)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	struct sockaddr_storage to = {0};
	char service[8];

	snprintf(service, sizeof(service), "%u", o->port);
	int rc = getaddrinfo(o->host ? o->host : "127.0.0.1", service, &hints, &list);

	if (rc)
		return cmd_complain("bench", "%s: %s", o->host, gai_strerror(rc)), FAILED;
	memcpy(&to, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return measure_all(o, &to);
}

static bool read_bench_number(const char *text, double least, double most, double *value)
{
	char *end;

	*value = text ? strtod(text, &end) : 0;
	return text && *text && !*end && *value >= least && *value <= most;
}

static int read_bench_options(int argc, char **argv, struct bench_options *o)
{
	double n = 0;

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *value;
		bool right = true;

		if (stat_option(argv, &i, "--seconds", &value))
			right = read_bench_number(value, 1, 60, &o->seconds);
		else if (stat_option(argv, &i, "--size", &value))
			right = read_bench_number(value, 1, BENCH_SIZE_MAX, &n) && (o->size = (unsigned)n) == n;
		else if (stat_option(argv, &i, "--port", &value))
			right = read_bench_number(value, 1, 65535, &n) && (o->port = (unsigned)n) == n;
		else if (!strcmp(a, "--json"))
			o->json = true;
		else if (!strcmp(a, "--serve"))
			o->serve = true;
		else if (!strcmp(a, "--hardware"))
			o->hardware = true;
		else if (*a == '-' || !*a || o->host)
			right = false;
		else
			o->host = a;
		if (!right) {
			cmd_complain("bench", "'%s%s%s' is wrong; 'verbena bench --help' shows the usage", a,
			             a != argv[i] ? " " : "", a != argv[i] ? argv[i] : "");
			return USAGE;
		}
	}
	if (o->serve && (o->host || o->json)) {
		cmd_complain("bench", "--serve takes neither a host nor --json");
		return USAGE;
	}
	if (o->hardware && !o->host && !o->serve) {
		cmd_complain("bench", "--hardware needs a host or --serve");
		return USAGE;
	}
	return GOOD;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_options o = {.seconds = 10, .port = BENCH_PORT};
	int status = read_bench_options(argc, argv, &o);

	if (status)
		return status;
	if (vb_env_is_hostile()) {
		cmd_complain("bench", "this program runs with more privileges than its caller: it does nothing");
		return USAGE;
	}
	return o.serve ? serve_forever(&o) : resolve_and_measure(&o);
}
