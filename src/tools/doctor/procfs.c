// procfs.c - what the kernel says in files: single values, the UDP sockets, and which process has them open
// follows: proc(5)
// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

bool doc_read_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	bool done = f && fgets(buf, (int)size, f);

	if (f)
		fclose(f);
	if (done)
		buf[strcspn(buf, "\n")] = '\0';
	return done;
}

bool doc_read_number(const char *path, long long *value)
{
	char text[64], *end;

	if (!doc_read_line(path, text, sizeof(text)))
		return false;
	*value = strtoll(text, &end, 10);
	return end != text;
}

bool doc_read_field(const char *path, const char *key, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = strlen(key);
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, n) != 0 || line[n] != ':')
			continue;
		char *value = line + n + 1;

		value += strspn(value, " \t");
		value[strcspn(value, "\n")] = '\0';
		snprintf(buf, size, "%s", value);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

/* Adds the sockets of one table: "  sl  local_address rem_address st … uid timeout inode …". */
static int read_socket_table(const char *path, uint16_t port, bool v6, struct doc_socket *list, int n, int max)
{
	char line[512];
	FILE *f = fopen(path, "re");

	if (!f)
		return -1;
	while (n < max && fgets(line, sizeof(line), f)) {
		unsigned local, uid;
		unsigned long long inode;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %*x %*x:%*x %*x:%*x %*x %u %*d %llu", &local,
		           &uid, &inode) != 3 ||
		    local != port)
			continue;
		list[n++] = (struct doc_socket){.inode = inode, .uid = uid, .v6 = v6};
	}
	fclose(f);
	return n;
}

int doc_udp_sockets(uint16_t port, struct doc_socket *list, int max)
{
	int v4 = read_socket_table("/proc/self/net/udp", port, false, list, 0, max);
	int both = read_socket_table("/proc/self/net/udp6", port, true, list, v4 < 0 ? 0 : v4, max);

	return both < 0 ? v4 : both;
}

static bool names_socket(const char *path, const struct doc_socket *list, int n)
{
	unsigned long long inode;
	char link[64];
	ssize_t len = readlink(path, link, sizeof(link) - 1);

	if (len <= 0)
		return false;
	link[len] = '\0';
	if (sscanf(link, "socket:[%llu]", &inode) != 1)
		return false;
	for (int i = 0; i < n; i++)
		if (list[i].inode == inode)
			return true;
	return false;
}

static bool process_has_socket(const char *pid, const struct doc_socket *list, int n)
{
	char path[600];
	struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *dir = opendir(path);
	while (dir && !found && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, e->d_name);
		found = names_socket(path, list, n);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* The keeper, a broker, or a program on Verbena, which has its segment mapped. */
static bool is_ours(const char *pid, const char *comm)
{
	char path[300], line[512];
	bool found = !strcmp(comm, "verbena-keeper") || !strcmp(comm, "verbena-broker");

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	FILE *f = found ? NULL : fopen(path, "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/memfd:verbena-segment") != NULL;
	if (f)
		fclose(f);
	return found;
}

bool doc_find_owner(const struct doc_socket *list, int n, struct doc_owner *owner)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	char path[300];
	bool found = false;

	owner->ours = false;
	while (proc && !owner->ours && (e = readdir(proc))) {
		if (!isdigit((unsigned char)e->d_name[0]) || !process_has_socket(e->d_name, list, n))
			continue;
		found = true;
		owner->pid = atoi(e->d_name);
		snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
		if (!doc_read_line(path, owner->comm, sizeof(owner->comm)))
			snprintf(owner->comm, sizeof(owner->comm), "a process");
		owner->ours = is_ours(e->d_name, owner->comm);
	}
	if (proc)
		closedir(proc);
	return found;
}
