// json.c - a string as JSON
// follows: RFC 8259, section 7
// SPDX-License-Identifier: MIT
#include <stdio.h>

#include "tools/verbena.h"

void cmd_print_json_string(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		if ((unsigned char)*s < 0x20)
			printf("\\u%04x", *s);
		else
			putchar(*s);
	}
	putchar('"');
}
