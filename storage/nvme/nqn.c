// nqn.c - NVMe qualified names and UUIDs
// follows: NVM Express Base 1.4, 7.9; RFC 4122, 3; RFC 9562, 5.8
// SPDX-License-Identifier: MIT
#include "nvme/nqn.h"

#include <stdio.h>
#include <string.h>

#include "nvme/nvme.h"

static bool all_digits(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return true;
}

/* The length of the UTF-8 character at s, at most n bytes (RFC 3629, 4). 0: invalid, or a control character. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
	size_t len = *s < 0x80                 ? 1
	             : *s >= 0xc2 && *s < 0xe0 ? 2
	             : *s >= 0xe0 && *s < 0xf0 ? 3
	             : *s >= 0xf0 && *s < 0xf5 ? 4
	                                       : 0;

	if (!len || len > n || *s <= ' ' || *s == 0x7f)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((*s == 0xc2 && s[1] < 0xa0) || (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] >= 0xa0) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] >= 0x90))
		return 0;
	return len;
}

/* Strict, because names from unknown hosts appear in status output and messages. */
bool nv_nqn_valid(const char *field, size_t size)
{
	size_t len = strnlen(field, size);

	if (len == size || len > NV_NQN_MAX || len < sizeof("nqn.2014-08.x") - 1)
		return false;
	if (memcmp(field, "nqn.", 4) || !all_digits(field + 4, 4) || field[8] != '-' || !all_digits(field + 9, 2) ||
	    field[11] != '.')
		return false;
	for (size_t i = 0, n; i < len; i += n)
		if (!(n = utf8_length((const unsigned char *)field + i, len - i)))
			return false;
	return true;
}

void nv_uuid_format(const uint8_t uuid[16], char text[NV_UUID_TEXT])
{
	char *at = text;

	for (int i = 0; i < 16; i++) {
		at += sprintf(at, "%02x", uuid[i]);
		if (i == 3 || i == 5 || i == 7 || i == 9)
			*at++ = '-';
	}
	*at = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool nv_uuid_parse(const char *text, uint8_t uuid[16])
{
	uint8_t out[16];

	for (int i = 0; i < 16; i++) {
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text == '-')
			text++;
		int high = hex_digit(text[0]), low = high < 0 ? -1 : hex_digit(text[1]);

		if (low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	if (*text)
		return false;
	memcpy(uuid, out, 16);
	return true;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < len; i++)
		h = (h ^ at[i]) * 0x100000001b3u;
	h ^= h >> 32; /* mixes the bits of short names */
	h *= 0xd6e8feb86659fd93u;
	return h ^ h >> 32;
}

void nv_uuid_from(const char *name, uint64_t number, uint8_t uuid[16])
{
	uint8_t n[8];
	uint64_t half[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};

	nv_put64(n, number);
	for (int i = 0; i < 2; i++) {
		half[i] = hash_bytes(hash_bytes(half[i], name, strlen(name)), n, sizeof(n));
		nv_put64(uuid + 8 * i, half[i]);
	}
	uuid[6] = (uuid[6] & 0x0f) | 0x80;
	uuid[8] = (uuid[8] & 0x3f) | 0x80;
}
