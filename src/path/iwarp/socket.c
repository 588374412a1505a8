// socket.c - options of a stream's socket
// follows: tcp(7), socket(7); RFC 5044, 5 (MPA on TCP); VERBENA_CONGESTION in man/verbena.7
// SPDX-License-Identifier: MIT
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "path/iwarp/path.h"

/* seconds: a connection ends after about a minute in which the peer does not answer, or does not accept data */
#define KEEP_IDLE 20
#define KEEP_INTERVAL 5
#define KEEP_COUNT 8
#define USER_TIMEOUT (KEEP_IDLE + KEEP_INTERVAL * KEEP_COUNT)
#define SHORT_WAY 1000u /* us: the longest round trip of a short path */

static void set_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value)); /* the kernel may not support the option */
}

static bool set_congestion_control(int fd, const char *name)
{
	return !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

/* Replaces BBR on short paths, where its pacing reaches half the speed, or less if there are few cores. Keeps BBR on
 * long paths, and any other choice of the administrator. */
static void choose_congestion_control(int fd, const char *wish)
{
	struct tcp_info info = {0};
	char is[16] = "";
	socklen_t is_len = sizeof(is) - 1, len = sizeof(info);

	if (*wish) {
		/* the system's choice stays if the kernel does not provide it (vb_settings_check names it) */
		if (strcmp(wish, "system") != 0)
			set_congestion_control(fd, wish);
		return;
	}
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, is, &is_len) || strncmp(is, "bbr", 3) != 0)
		return;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) || info.tcpi_rtt > SHORT_WAY)
		return;
	if (!set_congestion_control(fd, "cubic"))
		set_congestion_control(fd, "reno");
}

void vb_iwarp_prepare_socket(int fd, const char *congestion)
{
	choose_congestion_control(fd, congestion);
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT * 1000);
}

/* TCP's own pace, which the kernel keeps: SO_MAX_PACING_RATE of socket(7). */
void vb_iwarp_limit_socket(int fd, uint32_t kbps)
{
	unsigned long rate = kbps ? kbps * 125ul : ~0ul; /* bytes a second */
	uint32_t narrow = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;

	if (setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)))
		setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &narrow, sizeof(narrow)); /* Linux before 4.20 */
}
