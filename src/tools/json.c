// json.c - a string as JSON, and JSON as UTF-8
// follows: RFC 8259, sections 7 and 8.1; RFC 3629 (UTF-8)
// SPDX-License-Identifier: MIT
#include <stddef.h>
#include <stdio.h>

#include "tools/verbena.h"

/* The length of the character of UTF-8 at s, or 0 if it is none. An overlong form, a surrogate and what is above
 * U+10FFFF are none. */
static size_t utf8_length(const unsigned char *s)
{
	size_t n = s[0] < 0x80                   ? 1
	           : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
	           : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
	           : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
	                                         : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

/* A control character of 8 bits, which terminals obey. */
static bool is_control(const char *s, size_t n)
{
	return n == 2 && (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] < 0xa0;
}

void cmd_print_utf8(FILE *f, const char *s)
{
	while (*s) {
		size_t n = utf8_length((const unsigned char *)s);

		if (!n || is_control(s, n))
			fputc('?', f);
		else
			fwrite(s, 1, n, f);
		s += n ? n : 1;
	}
}

void cmd_print_json_string(const char *s)
{
	putchar('"');
	while (*s) {
		size_t n = utf8_length((const unsigned char *)s);

		if (!n)
			putchar('?');
		else if ((unsigned char)*s < 0x20 || *s == 0x7f)
			printf("\\u%04x", *s);
		else if (is_control(s, n))
			printf("\\u%04x", (unsigned char)s[1]);
		else
			printf("%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", (int)n, s);
		s += n ? n : 1;
	}
	putchar('"');
}
