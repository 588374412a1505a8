// windows.c - memory windows between two processes with an iWARP connection
// follows: RFC 5040, 8.1 (access); IBA volume 1, 10.6 (memory windows)
// SPDX-License-Identifier: MIT
#include "../local/window_cases.h"
#include "stream.h"

int main(int argc, char **argv)
{
	way = (struct way){open_iwarp, stream_open, true};
	return run_tests(argc, argv, window_cases, window_cases_n);
}
