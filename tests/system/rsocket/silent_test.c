// silent_test.c - a server that accepts and then forks, and its clients: a normal one and a silent one
// follows: rsocket(7) ("Support for fork()")
// SPDX-License-Identifier: MIT
// silent_test serve|call|silent PORT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in at = {.sin_family = AF_INET};

static int serve(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, c;
	char byte;

	CHECK(l >= 0 && !setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!bind(l, (struct sockaddr *)&at, sizeof(at)) && !listen(l, 8));
	for (;;) {
		c = accept(l, NULL, NULL);
		CHECK(c >= 0);
		if (!fork()) {
			if (read(c, &byte, 1) == 1)
				(void)!write(c, &byte, 1);
			exit(0);
		}
		close(c);
	}
}

static int client(void)
{
	int s = -1;

	for (int ms = 0; ms < LONG_MS; ms += 50) {
		s = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(s >= 0);
		if (!connect(s, (struct sockaddr *)&at, sizeof(at)))
			return s;
		close(s);
		usleep(50000);
	}
	CHECK(!"connected");
	return -1;
}

int main(int argc, char **argv)
{
	char byte = 'x';
	int s;

	CHECK(argc == 3 && inet_pton(AF_INET, "127.0.0.1", &at.sin_addr) == 1);
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	if (!strcmp(argv[1], "serve"))
		return serve();
	s = client();
	if (!strcmp(argv[1], "silent")) {
		printf("connected\n");
		fflush(stdout);
		return pause();
	}
	alarm(LONG_MS / 1000);
	CHECK(write(s, &byte, 1) == 1 && read(s, &byte, 1) == 1 && byte == 'x');
	printf("ok a_client_that_says_nothing_keeps_no_other_from_the_server\n");
	return 0;
}
