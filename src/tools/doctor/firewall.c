// firewall.c - does this host's firewall drop UDP port 4791: asks nftables and iptables, and sends a datagram
// follows: nft(8), iptables-save(8); IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/fields.h"
#include "net/netdev.h"
#include "tools/doctor/doctor.h"

#define PROBE_MS 300

static const char *const nft[] = {"/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft", NULL};
static const char *const nft_args[] = {"nft", "list", "ruleset", NULL};
static const char *const iptables[] = {"/usr/sbin/iptables-save", "/sbin/iptables-save", NULL};
static const char *const iptables_args[] = {"iptables-save", NULL};

/* Finds a line that names the port and ends packets. A copy of it goes to rule. */
static bool find_rule(const char *rules, char *rule, size_t size)
{
	for (const char *line = rules; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t n = strcspn(line, "\n");

		snprintf(rule, size, "%.*s", (int)(n < 200 ? n : 200), line + strspn(line, " \t"));
		rule[strcspn(rule, "\n")] = '\0';
		if (strstr(rule, "4791") &&
		    (strstr(rule, "drop") || strstr(rule, "reject") || strstr(rule, "DROP") || strstr(rule, "REJECT")))
			return true;
	}
	return false;
}

/* True if one of the programs could say something. */
static bool find_rules(const char *const paths[], const char *const args[], bool *drops)
{
	char rule[256], *rules = doc_output_of(paths, args);

	if (!rules)
		return false;
	*drops = find_rule(rules, rule, sizeof(rule));
	if (*drops) {
		doc_find(DOC_FAIL, "firewall",
		         paths == nft ? "nft list ruleset -a, then nft delete rule with the handle"
		                      : "iptables -D with the words of the rule",
		         "a rule of this host drops RoCE packets: %s", rule);
	} else if ((strstr(rules, "hook input") && strstr(rules, "policy drop") && !strstr(rules, "4791")) ||
	           (strstr(rules, ":INPUT DROP") && !strstr(rules, "4791"))) {
		*drops = true;
		doc_find(DOC_WARN, "firewall",
		         paths == nft ? "nft add rule inet filter input udp dport 4791 accept"
		                      : "iptables -I INPUT -p udp --dport 4791 -j ACCEPT",
		         "a chain of this host drops what no rule accepts, and no rule names UDP port 4791");
	}
	free(rules);
	return true;
}

/* Sends a datagram from one socket to the other by way of this address. 0; ETIMEDOUT: it did not arrive; or another
 * errno value. */
static int send_to_self(int receiver, const struct in_addr *addr)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = *addr, .sin_port = htons(VB_ROCE_PORT)};
	struct pollfd p = {.fd = receiver, .events = POLLIN};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	char byte = 0;

	if (fd < 0)
		return errno;
	if (sendto(fd, &byte, 1, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		err = errno;
	else if (poll(&p, 1, PROBE_MS) <= 0)
		err = ETIMEDOUT;
	else if (recv(receiver, &byte, 1, MSG_DONTWAIT) < 0)
		err = errno;
	close(fd);
	return err;
}

/* Returns whether all addresses were reached. */
static bool probe_addresses(int receiver)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct vb_netdev *list;
	bool good = true;
	size_t n;

	if (vb_netdev_scan(&list, &n))
		return true;
	for (size_t i = 0; i < n; i++) {
		struct in_addr addr;
		char text[INET_ADDRSTRLEN];

		if (!vb_netdev_is_adapter(&list[i]) || !vb_netdev_is_up(&list[i]) || !list[i].n_addrs ||
		    memcmp(list[i].addrs[0], mapped, 12) != 0)
			continue;
		memcpy(&addr, list[i].addrs[0] + 12, sizeof(addr));
		inet_ntop(AF_INET, &addr, text, sizeof(text));
		int err = send_to_self(receiver, &addr);

		if (!err)
			continue;
		good = false;
		doc_find(DOC_FAIL, "firewall",
		         "nft add rule inet filter input udp dport 4791 accept (and the same for output)",
		         "a datagram from %s to its own UDP port 4791 %s", text,
		         err == ETIMEDOUT ? "did not arrive: a firewall drops it"
		         : err == EPERM   ? "may not be sent: a firewall drops it"
		                          : strerror(err));
	}
	free(list);
	return good;
}

void doc_check_firewall(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};
	bool drops = false, more = false;
	bool asked = find_rules(nft, nft_args, &drops);

	if (!drops)
		asked |= find_rules(iptables, iptables_args, &more);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool probed = fd >= 0 && !bind(fd, (struct sockaddr *)&any, sizeof(any));
	bool arrives = !probed || probe_addresses(fd);

	if (fd >= 0)
		close(fd);
	if (drops || more || !arrives)
		return;
	if (!asked && !probed)
		doc_find(
		        DOC_OK, "firewall", NULL,
		        "its rules cannot be read by this user, and the port is in use: the test by RoCE below tells more");
	else
		doc_find(DOC_OK, "firewall", NULL, "%s%s%s",
		         asked ? "no rule of this host drops UDP port 4791"
		               : "the rules cannot be read (root can, with nft or iptables installed)",
		         probed ? "; datagrams to the addresses of this host arrive" : "", "");
}
