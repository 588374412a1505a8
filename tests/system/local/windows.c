// windows.c - memory windows between two processes of one host, by shared memory or by RoCE
// follows: IBA volume 1, 10.6 (memory windows)
// SPDX-License-Identifier: MIT
#include "window_cases.h"

int main(int argc, char **argv)
{
	way = (struct way){dev_open, link_open, false};
	return run_tests(argc, argv, window_cases, window_cases_n);
}
