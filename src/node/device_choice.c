// device_choice.c - VERBENA_DEVICES: which interfaces become adapters
// follows: verbena(7)
// SPDX-License-Identifier: MIT
#include "node/device_choice.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool item_matches(const char *item, enum vb_device_kind kind, const char *ifname)
{
	enum vb_device_kind said = VB_DEVICE_ROCE;

	if (!strncmp(item, "roce:", 5)) {
		item += 5;
	} else if (!strncmp(item, "iwarp:", 6)) {
		item += 6;
		said = VB_DEVICE_IWARP;
	} else if (strchr(item, ':') && strcmp(item, ifname)) {
		/* Interface names may contain colons, but this is not the interface's name. */
		return false;
	}
	return said == kind && !fnmatch(item, ifname, 0);
}

bool vb_device_chosen(const char *spec, enum vb_device_kind kind, const char *ifname)
{
	if (!spec || !*spec)
		return kind == VB_DEVICE_ROCE;
	while (*spec) {
		size_t n = strcspn(spec, ",");
		char item[64];

		while (n && isspace((unsigned char)*spec)) {
			spec++;
			n--;
		}
		size_t m = n;
		while (m && isspace((unsigned char)spec[m - 1]))
			m--;
		if (m && m < sizeof(item)) {
			memcpy(item, spec, m);
			item[m] = '\0';
			if (item_matches(item, kind, ifname))
				return true;
		}
		spec += n;
		spec += *spec == ',';
	}
	return false;
}

void vb_device_name(char *buf, size_t size, enum vb_device_kind kind, const char *ifname)
{
	snprintf(buf, size, "%s_%s", kind == VB_DEVICE_IWARP ? "iwarp" : "roce", ifname);
	for (char *p = buf; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("_-.", *p))
			*p = '_';
}
