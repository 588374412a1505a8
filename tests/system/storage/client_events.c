// client_events.c - events on a medium while a disk is open: resized, inaccessible, removed, full, truncated
// follows: verbena_nvme.h; NVM Express Base 1.4, 5.2 and 8.20
// SPDX-License-Identifier: MIT
// usage: client_events TARGET SCHEME
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client_load.h"

#define NQN "nqn.2026-01.test:events"
#define SIZE (1u << 20)

static const char *program, *scheme, *kind = "file", *threads;
static char dir[] = "/tmp/verbena-events.XXXXXX", image[100], config[100], url[300], port[16] = "0";
static pid_t target;
static uint8_t b[4096];
static unsigned queues = 8, others; /* others: subsystems beside ours */

static void configure(unsigned nsid)
{
	FILE *f = fopen(config, "w");

	CHECK(f);
	fprintf(f,
	        "{\"queues\": %u, \"listen\": [{\"transport\": \"%s\", \"address\": \"127.0.0.1\", \"port\": %s}], \"subsystems\": [{\"nqn\": \"" NQN
	        "\", \"allow_any_host\": true,"
	        " \"cntlid\": [500, 599], \"namespaces\": [{\"nsid\": %u, \"backend\": \"%s\", \"path\": \"%s\", \"buffered\": true}]}",
	        queues, scheme, port, nsid, kind, image);
	for (unsigned i = 0; i < others; i++)
		fprintf(f, ", {\"nqn\": \"" NQN "%u\", \"allow_any_host\": true}", i);
	fprintf(f, "]}\n");
	CHECK(!fclose(f));
}

static bool try_to_start(void)
{
	char line[300] = "", *at = NULL;
	int pipes[2];

	CHECK(!pipe2(pipes, O_CLOEXEC));
	target = fork();
	if (!target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		execl(program, program, "--config", config, threads, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	FILE *f = fdopen(pipes[0], "r");

	CHECK(f);
	if (fgets(line, sizeof(line), f))
		at = strstr(line, "127.0.0.1:");
	fclose(f);
	if (!at) {
		waitpid(target, NULL, 0);
		return false;
	}
	snprintf(port, sizeof(port), "%u", (unsigned)atoi(at + 10));
	snprintf(url, sizeof(url), "nvme+%s://127.0.0.1:%s/" NQN, scheme, port);
	return true;
}

/* A killed target may still hold the image. */
static void start(void)
{
	unsigned tries = 0;

	while (!try_to_start()) {
		CHECK(++tries < 3000);
		usleep(20000);
	}
}

static void end_target(void)
{
	kill(target, SIGKILL);
	waitpid(target, NULL, 0);
	target = 0;
}

static void tell(const char *state)
{
	int status;
	pid_t p = fork();

	if (!p) {
		(void)!freopen("/dev/null", "w", stdout);
		execl(program, program, "ana", NQN, "1", state, "--port", port, (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(p, &status, 0) == p && !status);
}

static struct vn_disk *open_it(unsigned reconnect_ms)
{
	struct vn_options o;
	struct vn_disk *d;
	char why[200] = "";

	vn_options_init(&o);
	o.numeric = 1;
	o.reconnect_ms = reconnect_ms;
	if (vn_open(url, &o, &d, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", url, why);
		exit(1);
	}
	return d;
}

static uint64_t size_of(struct vn_disk *d)
{
	return __atomic_load_n(&vn_info(d)->size, __ATOMIC_RELAXED);
}

static void resize(struct vn_disk *d, uint64_t size)
{
	SAME(truncate(image, (off_t)size), 0);
	SAME(kill(target, SIGHUP), 0);
	for (unsigned i = 0; i < 2000 && size_of(d) != size; i++)
		usleep(10000);
	SAME(size_of(d), size);
}

static void a_disk_that_is_resized_has_its_new_size(void)
{
	struct vn_disk *d = open_it(60000);
	struct vn_statistics s;

	CHECK(vn_info(d)->controller >= 500 && vn_info(d)->controller <= 599);
	for (uint64_t size = SIZE; size < 4 * SIZE; size += SIZE) { /* reported again each time */
		SAME(vn_write_wait(d, b, sizeof(b), size, 0), (unsigned long long)-EINVAL);
		resize(d, size + SIZE);
		memset(b, (int)(size >> 20), sizeof(b));
		SAME(vn_write_wait(d, b, sizeof(b), size, 0), 0);
		SAME(vn_compare_wait(d, b, sizeof(b), size), 0);
	}
	resize(d, SIZE);
	SAME(vn_read_wait(d, b, sizeof(b), SIZE), (unsigned long long)-EINVAL);
	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	vn_statistics(d, &s);
	SAME(s.reconnects, 0);
	vn_close(d);
}

static void a_disk_that_is_resized_while_nobody_is_connected_has_its_new_size(void)
{
	struct vn_disk *d = open_it(60000);

	end_target();
	SAME(truncate(image, 2 * SIZE), 0);
	start();
	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	SAME(size_of(d), 2 * SIZE);
	SAME(vn_read_wait(d, b, sizeof(b), SIZE), 0);
	vn_close(d);
}

static void note(void *arg, int error)
{
	*(int *)arg = error;
}

static void requests_wait_until_the_namespace_can_be_reached(void)
{
	struct vn_disk *d = open_it(600000);
	struct vn_statistics s;
	int said = 1;

	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	tell("inaccessible");
	SAME(vn_read(d, b, sizeof(b), 0, 0, note, &said), 0);
	do { /* more often than a failed command is retried */
		vn_poll(d, 20);
		vn_statistics(d, &s);
	} while (s.retries < 8);
	SAME(said, 1);
	tell("change");
	vn_poll(d, 100);
	SAME(said, 1);
	tell("optimized");
	while (said == 1)
		vn_poll(d, 1000);
	SAME(said, 0);
	vn_statistics(d, &s);
	SAME(s.reconnects, 0);
	vn_close(d);
}

static void requests_end_where_access_does_not_come_back(void)
{
	struct vn_disk *d = open_it(200);
	struct vn_statistics before, s;

	tell("inaccessible");
	SAME(vn_read_wait(d, b, sizeof(b), 0), (unsigned long long)-EIO);
	tell("persistent-loss");
	vn_statistics(d, &before);
	SAME(vn_read_wait(d, b, sizeof(b), 0), (unsigned long long)-EIO);
	vn_statistics(d, &s);
	SAME(s.retries, before.retries);
	tell("optimized");
	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	vn_close(d);
}

static void a_namespace_that_is_gone_says_so(void)
{
	struct vn_disk *d = open_it(60000);
	int e = 0;

	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	configure(2);
	SAME(kill(target, SIGHUP), 0);
	for (unsigned i = 0; i < 2000 && !e; i++, usleep(10000))
		e = vn_read_wait(d, b, sizeof(b), 0);
	SAME(e, (unsigned long long)-ENODEV);
	configure(1);
	for (unsigned i = 0; i < 2000 && e; i++, usleep(10000)) {
		SAME(kill(target, SIGHUP), 0); /* the image is released when the last request has ended */
		e = vn_read_wait(d, b, sizeof(b), 0);
	}
	SAME(e, 0);
	vn_close(d);
}

/* A file system of a few megabytes. */
static bool small_file_system(void)
{
	return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("none", dir, "tmpfs", 0, "size=4m,mode=0700");
}

/* blktests nvme/048 */
static void a_target_that_comes_back_with_other_queues_is_used_with_those(void)
{
	struct vn_options o;
	struct vn_disk *d;
	struct vn_statistics s;

	vn_options_init(&o);
	o.numeric = 1;
	o.queues = 6;
	SAME(vn_open(url, &o, &d, NULL, 0), 0);
	SAME(vn_info(d)->queues, 6);
	for (unsigned i = 1; i <= 2; i++) {
		struct load l = {.disk = d, .depth = 16, .largest = 16384, .seed = i};

		load_begin(&l);
		load_run(&l, 200);
		end_target();
		queues = i == 1 ? 2 : 8;
		configure(1);
		start();
		load_run(&l, 200);
		load_end(&l);
		vn_statistics(d, &s);
		CHECK(s.reconnects >= i);
	}
	vn_close(d);
}

static size_t found(void)
{
	struct vn_options o;
	struct vn_found *f;
	char at[100], why[200] = "";
	size_t n;

	vn_options_init(&o);
	o.numeric = 1;
	o.connect_ms = 60000;
	snprintf(at, sizeof(at), "nvme+%s://127.0.0.1:%s", scheme, port);
	int e = vn_discover(at, &o, &f, &n, why, sizeof(why));

	if (e == -EAGAIN) /* the log changes meanwhile */
		return 0;
	if (e) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	free(f);
	return n;
}

/* blktests nvme/002, nvme/030 */
static void a_thousand_subsystems_come_and_go_in_the_discovery_log(void)
{
	size_t few = found();

	for (unsigned i = 0; i < 2; i++) {
		others = i ? 0 : 1000;
		configure(1);
		SAME(kill(target, SIGHUP), 0);
		for (unsigned tries = 0; tries < 1200 && found() != few + others; tries++)
			usleep(50000);
		SAME(found(), few + others);
	}
}

static void a_full_disk_says_so_and_goes_on_when_there_is_room(void)
{
	struct vn_disk *d = open_it(60000);
	uint64_t at = 0;
	int e = 0;

	resize(d, 16 * SIZE);
	memset(b, 7, sizeof(b));
	for (; !e && at < 16 * SIZE; at += sizeof(b))
		e = vn_write_wait(d, b, sizeof(b), at, 0);
	SAME(e, (unsigned long long)-ENOSPC);
	SAME(vn_compare_wait(d, b, sizeof(b), 0), 0);
	SAME(vn_write_wait(d, b, sizeof(b), 0, 0), 0); /* where data exists already */
	SAME(vn_discard_wait(d, SIZE, 0), 0);
	SAME(vn_write_wait(d, b, sizeof(b), 6 * SIZE, 0), 0);
	resize(d, SIZE);
	vn_close(d);
}

static void a_file_that_may_not_be_that_large_gives_errors(void)
{
	struct vn_disk *d = open_it(60000);

	end_target();
	threads = "--threads"; /* a signal together with the error goes to the writer */
	start();
	/* not earlier, because the adapter's shared memory is a larger file */
	SAME(prlimit(target, RLIMIT_FSIZE, &(struct rlimit){8 * SIZE, RLIM_INFINITY}, NULL), 0);
	resize(d, 16 * SIZE);
	SAME(vn_write_wait(d, b, sizeof(b), 12 * SIZE, 0), (unsigned long long)-EIO);
	SAME(vn_write_wait(d, b, sizeof(b), 0, 0), 0);
	SAME(waitpid(target, NULL, WNOHANG), 0);
	resize(d, SIZE);
	vn_close(d);
}

static void a_file_cut_short_under_a_map_gives_errors_and_is_read_again_when_it_is_whole(void)
{
	end_target();
	SAME(truncate(image, SIZE), 0);
	kind = "mapped";
	configure(1);
	start();
	struct vn_disk *d = open_it(60000);
	struct vn_statistics s;

	memset(b, 9, sizeof(b));
	SAME(vn_write_wait(d, b, sizeof(b), SIZE / 2, 0), 0);
	SAME(vn_compare_wait(d, b, sizeof(b), SIZE / 2), 0);
	SAME(vn_read_wait(d, b, sizeof(b), SIZE / 2), 0);
	SAME(truncate(image, 4096), 0);
	SAME(vn_read_wait(d, b, sizeof(b), SIZE / 2), (unsigned long long)-EIO);
	SAME(vn_read_wait(d, b, sizeof(b), 0), 0);
	vn_statistics(d, &s);
	CHECK(s.reconnects <= 1);
	SAME(waitpid(target, NULL, WNOHANG), 0);
	SAME(truncate(image, SIZE), 0);
	SAME(vn_read_wait(d, b, sizeof(b), SIZE / 2), 0);
	CHECK(b[0] == 0 && b[4095] == 0);
	vn_close(d);
}

static void clean_up(void)
{
	if (target > 0)
		kill(target, SIGTERM);
	if (target > 0)
		waitpid(target, NULL, 0);
	unlink(image);
	unlink(config);
	umount(dir);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(argc == 3 && mkdtemp(dir));
	program = argv[1];
	scheme = argv[2];
	bool small = small_file_system();

	setenv("VERBENA_RUNTIME", dir, strcmp(scheme, "tcp") == 0);
	snprintf(image, sizeof(image), "%s/image", dir);
	snprintf(config, sizeof(config), "%s/config", dir);
	int fd = open(image, O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0 && !ftruncate(fd, SIZE));
	configure(1);
	atexit(clean_up);
	start();
	end_target();
	configure(1); /* uses this port from now on */
	start();
	RUN(a_disk_that_is_resized_has_its_new_size);
	RUN(a_disk_that_is_resized_while_nobody_is_connected_has_its_new_size);
	RUN(requests_wait_until_the_namespace_can_be_reached);
	RUN(requests_end_where_access_does_not_come_back);
	RUN(a_namespace_that_is_gone_says_so);
	RUN(a_target_that_comes_back_with_other_queues_is_used_with_those);
	RUN(a_thousand_subsystems_come_and_go_in_the_discovery_log);
	if (small)
		RUN(a_full_disk_says_so_and_goes_on_when_there_is_room);
	else
		puts("skip a_full_disk_says_so_and_goes_on_when_there_is_room: only root mounts");
	RUN(a_file_that_may_not_be_that_large_gives_errors);
	RUN(a_file_cut_short_under_a_map_gives_errors_and_is_read_again_when_it_is_whole);
	return 0;
}
