// broker.c - the broker: does it run, whose is it, does it answer; and what dead brokers left behind
// follows: verbena-broker(8)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/client/client.h"
#include "broker/proto/runtime.h"
#include "tools/doctor/doctor.h"

static char broker_state(pid_t pid)
{
	char path[64], text[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return doc_read_field(path, "State", text, sizeof(text)) ? text[0] : '?';
}

/* The broker of a newer or older build, whose file was replaced, shows as deleted. */
static void find_executable(pid_t pid)
{
	char path[64], exe[512];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, exe, sizeof(exe) - 1);

	if (n <= 0)
		return;
	exe[n] = '\0';
	if (strstr(exe, " (deleted)"))
		doc_find(DOC_WARN, "broker", doc_mend("end all programs on Verbena, then kill %d", (int)pid),
		         "process %d runs %s: another version of Verbena was installed since", (int)pid, exe);
	else
		doc_find(DOC_OK, "broker", NULL, "process %d runs %s", (int)pid, exe);
}

static void find_stuck(pid_t pid)
{
	char state = broker_state(pid);

	if (state == 'T' || state == 't')
		doc_find(DOC_FAIL, "broker", doc_mend("kill -CONT %d", (int)pid),
		         "the broker (process %d) is stopped: programs wait for it", (int)pid);
	else
		doc_find(DOC_FAIL, "broker",
		         doc_mend("kill -9 %d (programs go on, and the next one starts another)", (int)pid),
		         "the broker (process %d, state %c) does not answer within two seconds", (int)pid, state);
}

static void find_answer(const struct vb_broker_report *r)
{
	unsigned reserved = 0;

	for (size_t i = 0; i < r->nlanes; i++)
		reserved += r->lanes[i].reserved;
	doc_find(DOC_OK, "broker", NULL, "process %d of user %u answers; it serves %zu programs that this user may see",
	         (int)r->broker_pid, (unsigned)r->broker_uid, r->nlanes - reserved);
	find_executable(r->broker_pid);
}

/* Is the name that of a broker's socket: "broker.sock" or "broker-NUMBER.sock"? */
static bool is_socket_name(const char *name)
{
	size_t n = strlen(name);

	return n >= 11 && n < sizeof(((struct vb_runtime *)0)->name) && !strncmp(name, "broker", 6) &&
	       !strcmp(name + n - 5, ".sock");
}

static void find_leftovers(const struct vb_runtime *rt)
{
	DIR *dir = opendir(rt->dir);
	struct dirent *e;
	int stale = 0, sock;

	while (dir && (e = readdir(dir))) {
		struct vb_runtime one = *rt;

		if (!is_socket_name(e->d_name))
			continue;
		snprintf(one.name, sizeof(one.name), "%.*s", (int)sizeof(one.name) - 1, e->d_name);
		int err = vb_runtime_connect(&one, &sock);

		if (!err)
			close(sock);
		stale += err == ENOENT;
	}
	if (dir)
		closedir(dir);
	if (stale)
		doc_find(
		        DOC_WARN, "runtime",
		        doc_mend(
		                "rm %s/broker*.sock once no program uses Verbena (or leave them: a new broker replaces its own)",
		                rt->dir),
		        "%s has %d sockets of brokers that have ended", rt->dir, stale);
}

/* The runtime directory is made, the folder above it is not. */
static bool can_be_made(const char *dir)
{
	char above[PATH_MAX];

	snprintf(above, sizeof(above), "%s", dir);
	char *slash = strrchr(above, '/');

	if (!slash)
		return true;
	slash[slash == above] = '\0';
	return !access(above, W_OK | X_OK);
}

/* In a container with a read-only root, /dev/shm is often the one place that can be written. */
static const char *mend_of_runtime(const struct vb_runtime *rt)
{
	if (!rt->explicit_dir && !access("/dev/shm", W_OK | X_OK))
		return doc_mend("export VERBENA_RUNTIME=/dev/shm/verbena-%u", (unsigned)geteuid());
	return "set VERBENA_RUNTIME to a directory of yours";
}

static bool check_runtime(const struct vb_runtime *rt)
{
	char why[PATH_MAX + 128];

	if (!rt->explicit_dir && vb_runtime_has_complaint(rt, why, sizeof(why))) {
		doc_find(DOC_FAIL, "runtime", "remove it, or set VERBENA_RUNTIME to a directory of yours", "%s", why);
		return false;
	}
	if (!access(rt->dir, F_OK) ? access(rt->dir, W_OK | X_OK) : !can_be_made(rt->dir)) {
		int err = errno;

		doc_find(DOC_FAIL, "runtime", mend_of_runtime(rt), "%s: %s", rt->dir,
		         err == ENOENT ? "the directory above it does not exist" : strerror(err));
		return false;
	}
	find_leftovers(rt);
	return true;
}

bool doc_check_broker(void)
{
	struct vb_broker_report *r = calloc(1, sizeof(*r));
	struct vb_runtime rt;
	int err = r ? vb_runtime_own(&rt) : ENOMEM;
	bool usable = !err && check_runtime(&rt);

	if (!err)
		err = vb_broker_status(r);
	if (!err)
		find_answer(r);
	else if (err == ENOENT && usable)
		doc_find(DOC_OK, "broker", NULL, "none runs; the first program starts one, in %s", rt.dir);
	else if (err == ENOENT)
		doc_find(DOC_FAIL, "broker", "see the finding about runtime", "none runs, and none can be started");
	else if (err == ETIMEDOUT || err == EAGAIN)
		find_stuck(r->broker_pid);
	else if (err == EPROTONOSUPPORT || err == EPROTO)
		doc_find(DOC_FAIL, "broker", doc_mend("end all programs on Verbena, then kill %d", (int)r->broker_pid),
		         "the broker (process %d) is of another version of Verbena", (int)r->broker_pid);
	else
		doc_find(DOC_FAIL, "broker", "set VERBENA_RUNTIME to a directory of yours", "it cannot be asked: %s",
		         strerror(err));
	free(r);
	return usable && (!err || err == ENOENT);
}
