// settings.c - a VERBENA_ variable with a value that is not allowed is named, once
// follows: verbena(7), ENVIRONMENT
// SPDX-License-Identifier: MIT
#include "util/settings.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/env.h"
#include "util/links.h"
#include "util/log.h"

/* VERBENA_FAULT is read by path/roce/fault.c, which names its wrong words. A wrong VERBENA_RUNTIME has no default in
 * its place: the program is refused, and the broker's client says why. VERBENA_TREE is written by the launcher. */

static bool is_one_of(const char *text, const char *const *names)
{
	while (*names && strcmp(text, *names) != 0)
		names++;
	return *names != NULL;
}

static bool is_log_level(const char *text)
{
	return is_one_of(text, (const char *const[]){"error", "warn", "info", "debug", NULL});
}

static bool is_memory(const char *text)
{
	return is_one_of(text, (const char *const[]){"pages", "off", NULL});
}

static bool is_rdma_way(const char *text)
{
	return is_one_of(text, (const char *const[]){"copy", "ring", "random", NULL});
}

static bool is_sends_way(const char *text)
{
	return is_one_of(text, (const char *const[]){"fetch", "ring", "random", NULL});
}

static bool is_wire_mode(const char *text)
{
	return is_one_of(text, (const char *const[]){"auto", "always", "never", NULL});
}

static bool is_hardware_way(const char *text)
{
	return is_one_of(text, (const char *const[]){"first", "only", "off", NULL});
}

static bool is_ring(const char *text)
{
	return is_one_of(text, (const char *const[]){"auto", "off", NULL});
}

static bool is_switch(const char *text)
{
	return is_one_of(text, (const char *const[]){"0", "1", NULL});
}

static bool settings_number(const char *text, long *value)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && !errno;
}

static bool is_lane_count(const char *text)
{
	long n;

	return settings_number(text, &n) && n >= 2 && n <= 1024 && !(n & (n - 1));
}

static bool is_linger(const char *text)
{
	long n;

	return settings_number(text, &n) && n <= 3600 * 1000;
}

static bool are_mpa_options(const char *text)
{
	for (; *text; text += *text == ',') {
		size_t n = strcspn(text, ",");
		char word[16];

		snprintf(word, sizeof(word), "%.*s", (int)(n < sizeof(word) ? n : sizeof(word) - 1), text);
		if (n && !is_one_of(word, (const char *const[]){"crc", "markers", "emss", NULL}))
			return false;
		text += n;
	}
	return true;
}

/* Asks the kernel. A process that gets no socket uses no iWARP either. */
static bool is_congestion_control(const char *text)
{
	int fd = strcmp(text, "system") != 0 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

	if (fd < 0)
		return true;
	bool known = !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, text, (socklen_t)strlen(text));

	close(fd);
	return known;
}

static bool is_executable(const char *text)
{
	struct stat st;

	return !stat(text, &st) && S_ISREG(st.st_mode) && !access(text, X_OK);
}

/* What broker/server/main.c accepts. A file that does not exist yet needs a directory. */
static bool is_log_file(const char *text)
{
	char dir[PATH_MAX];
	struct stat st;

	if (*text != '/')
		return false; /* the broker has another working directory */
	if (!lstat(text, &st))
		return S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
	if ((size_t)snprintf(dir, sizeof(dir), "%s", text) >= sizeof(dir))
		return false;
	*(strrchr(dir, '/') + 1) = '\0';
	return !access(dir, W_OK | X_OK);
}

/* An interface's name may contain a colon: such a word counts if there is an interface of that name now. */
static bool is_devices_word(const char *text, size_t n)
{
	char word[IF_NAMESIZE + 8];

	if (n >= sizeof(word))
		return false;
	memcpy(word, text, n);
	word[n] = '\0';
	if (!strncmp(word, "roce:", 5) || !strncmp(word, "iwarp:", 6))
		return strchr(word, ':')[1] != '\0';
	return !strchr(word, ':') || if_nametoindex(word);
}

const char *vb_settings_devices_word(const char *list, size_t *len)
{
	for (; list && *list; list += *list == ',') {
		size_t n = strcspn(list, ",");
		const char *next = list + n;

		while (n && isspace((unsigned char)*list)) {
			list++;
			n--;
		}
		while (n && isspace((unsigned char)list[n - 1]))
			n--;
		if (n && !is_devices_word(list, n)) {
			*len = n;
			return list;
		}
		list = next;
	}
	return NULL;
}

static bool are_devices(const char *text)
{
	size_t n;

	return !vb_settings_devices_word(text, &n);
}

static const struct {
	const char *name, *allowed, *instead;
	bool (*ok)(const char *text);
} settings[] = {
        {"VERBENA_BROKER", "the path of a program", "the broker runs inside the first program", is_executable},
        {"VERBENA_BROKER_LINGER", "a number of milliseconds from 0 to 3600000", "200 is used", is_linger},
        {"VERBENA_BROKER_LOG", "the absolute path of a regular file of yours, or of a new one where you can write",
         "the broker logs nothing", is_log_file},
        {"VERBENA_CONGESTION",
         "a congestion control of this kernel (sysctl net.ipv4.tcp_available_congestion_control) or system",
         "the default is used", is_congestion_control},
        {"VERBENA_DEVICES", "a list of INTERFACE, roce:INTERFACE and iwarp:INTERFACE, separated by commas",
         "words that are not are left out", are_devices},
        {"VERBENA_HARDWARE", "first, only or off", "first is used", is_hardware_way},
        {"VERBENA_LANES", "a power of two from 2 to 1024", "1024 is used", is_lane_count},
        {"VERBENA_LIDS", "1 or 0", "adapters get no LID", is_switch},
        {"VERBENA_LOG", "error, warn, info or debug", "error is used", is_log_level},
        {"VERBENA_MEMORY", "pages or off", "pages is used", is_memory},
        {"VERBENA_MPA", "a list of crc, markers and emss, separated by commas", "other words are left out",
         are_mpa_options},
        {"VERBENA_RDMA", "copy, ring or random", "each pair of programs measures", is_rdma_way},
        {"VERBENA_RING", "auto or off", "auto is used", is_ring},
        {"VERBENA_SENDS", "fetch, ring or random", "each pair of programs measures", is_sends_way},
        {"VERBENA_STATS", "1 or 0", "nothing is printed", is_switch},
        {"VERBENA_WIRE", "auto, always or never", "auto is used", is_wire_mode},
};

const char *vb_settings_refusal(const char *name, const char *value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (!strcmp(settings[i].name, name) && !settings[i].ok(value))
			return settings[i].allowed;
	return NULL;
}

static atomic_bool settings_checked;

void vb_settings_leave_to_program(void)
{
	atomic_store(&settings_checked, true);
}

const char *vb_settings_shown(const char *value, char *shown, size_t size)
{
	size_t n = 0;

	for (; value[n] && n < size - 1; n++)
		shown[n] = isprint((unsigned char)value[n]) ? value[n] : '?';
	shown[n] = '\0';
	return shown;
}

static void name_setting(const char *name, const char *value, const char *allowed, const char *instead)
{
	char shown[64];

	vb_settings_shown(value, shown, sizeof(shown));
	vb_log(VB_LOG_ERROR, "%s=\"%s\"%s is wrong: allowed is %s; %s", name, shown,
	       strlen(value) >= sizeof(shown) ? "..." : "", allowed, instead);
}

/* With VERBENA_DEVICES no file is read. */
static void name_link_lines(void)
{
	const char *devices = vb_env("VERBENA_DEVICES");
	struct vb_links *links = devices && *devices ? NULL : malloc(sizeof(*links));
	char path[VB_LINKS_ROOM];

	if (links)
		vb_links_load(links, path, true);
	free(links);
}

void vb_settings_check(void)
{
	int saved = errno;

	if (atomic_load_explicit(&settings_checked, memory_order_relaxed) || atomic_exchange(&settings_checked, true))
		return;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		const char *value = vb_env(settings[i].name);

		if (value && *value && !settings[i].ok(value))
			name_setting(settings[i].name, value, settings[i].allowed, settings[i].instead);
	}
	name_link_lines();
	errno = saved;
}
