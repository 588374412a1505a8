// meet_test.c - attaching, meeting, users, and invalid messages to the broker
// see: src/broker/client/client.h, src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/proto/proto.h"

static struct vb_broker_report report;

static void programs_get_different_lanes(void)
{
	struct diary a, b, c;

	join_as(&a, 1);
	join_as(&b, 2);
	join_as(&c, 3);
	uint32_t la = vb_broker_lane_number(a.c), lb = vb_broker_lane_number(b.c), lc = vb_broker_lane_number(c.c);
	CHECK(la && lb && lc && la != lb && lb != lc && la != lc);
	CHECK(vb_broker_incarnation(a.c) && vb_broker_incarnation(a.c) != vb_broker_incarnation(b.c));
	CHECK(wait_lanes(3, LONG_MS));
	leave(&b);
	CHECK(wait_lanes(2, LONG_MS));
	join_as(&b, 2);
	CHECK(vb_broker_lane_number(b.c) != lb);
	leave(&a);
	leave(&b);
	leave(&c);
}

static bool same_file(int fd_a, int fd_b)
{
	struct stat a, b;

	CHECK(fstat(fd_a, &a) == 0 && fstat(fd_b, &b) == 0);
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void check_is(const struct vb_peer_info *p, const struct diary *d)
{
	SAME(p->lane, vb_broker_lane_number(d->c));
	CHECK(p->incarnation == vb_broker_incarnation(d->c));
	SAME(p->pid, getpid());
	SAME(p->uid, geteuid());
	CHECK(same_file(p->seg_fd, d->fds.seg_fd) && same_file(p->doorbell_fd, d->fds.doorbell_fd));
	uint64_t one = 1, got = 0;
	CHECK(write(p->wake_fd, &one, 8) == 8 && read(d->fds.wake_fd, &got, 8) == 8 && got == 1);
	CHECK(fcntl(p->pid_fd, F_GETFD) == FD_CLOEXEC);
}

static void two_programs_meet_and_each_has_the_other_s_descriptors(void)
{
	struct diary a, b;

	join_as(&a, 1);
	join_as(&b, 2);
	SAME(ask(&a, 77, vb_broker_lane_number(b.c), 2), 0);
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	SAME(a.tag, 77);
	check_is(&a.peer, &b);
	CHECK(wait_for(&b, &b.introductions, 1, LONG_MS));
	check_is(&b.peer, &a);
	/* peers read the segment and write the doorbell */
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, a.peer.seg_fd, 0) != MAP_FAILED);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a.peer.seg_fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a.peer.doorbell_fd, 0) != MAP_FAILED);
	/* again, and in the other direction */
	SAME(ask(&a, 78, vb_broker_lane_number(b.c), 2), 0);
	CHECK(wait_for(&a, &a.replies, 2, LONG_MS));
	CHECK(wait_for(&b, &b.introductions, 2, LONG_MS));
	SAME(ask(&b, 79, vb_broker_lane_number(a.c), 1), 0);
	CHECK(wait_for(&b, &b.replies, 1, LONG_MS));
	SAME(b.err, 0);
	CHECK(wait_for(&a, &a.introductions, 1, LONG_MS));
	leave(&a);
	leave(&b);
}

static int meet_err(struct diary *d, uint32_t lane, uint8_t gid)
{
	int before = d->replies;

	SAME(ask(d, 1, lane, gid), 0);
	CHECK(wait_for(d, &d->replies, before + 1, LONG_MS));
	return d->err;
}

static void a_meet_with_nobody_or_oneself_is_refused(void)
{
	struct diary a, b;

	join_as(&a, 1);
	join_as(&b, 2);
	uint32_t lb = vb_broker_lane_number(b.c);
	SAME(meet_err(&a, lb, 3), ENOENT);
	SAME(meet_err(&a, lb % 1000 + 20, 2), ENOENT);
	SAME(meet_err(&a, 0, 2), ENOENT);
	SAME(meet_err(&a, vb_broker_lane_number(a.c), 1), EINVAL);
	union ibv_gid gids[256];
	for (int i = 0; i < 256; i++)
		gids[i] = gid_of((uint8_t)i);
	SAME(vb_broker_set_gids(b.c, gids, 256), 0);
	SAME(vb_broker_set_gids(b.c, gids, 257), EINVAL);
	while (meet_err(&a, lb, 255) == ENOENT) /* two sockets: b's message may come after a's */
		sleep_ms(1);
	SAME(a.err, 0);
	SAME(vb_broker_set_gids(b.c, NULL, 0), 0);
	while (meet_err(&a, lb, 255) == 0)
		sleep_ms(1);
	SAME(a.err, ENOENT);
	leave(&b);
	leave(&a);
}

static void root_s_broker_serves_everybody_and_keeps_users_apart(void)
{
	struct program nobody, other;
	struct diary root;

	if (geteuid() != 0)
		skip("needs root to be several users");
	join_as(&root, 1);
	start_program(&nobody, 2, 65534);
	start_program(&other, 3, 65533);
	SAME(meet_err(&root, nobody.lane, 2), EACCES);
	SAME(meet_err(&root, other.lane, 3), EACCES);
	SAME(news_of(&nobody).introductions, 0);
	CHECK(wait_lanes(3, LONG_MS));
	end_program(&nobody, 0);
	end_program(&other, 0);
	leave(&root);
}

static void a_user_sees_only_own_lanes_in_a_report(void)
{
	struct diary root;
	int status;

	if (geteuid() != 0)
		skip("needs root to be two users");
	join_as(&root, 1);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		SAME(status_of(&report), 0);
		SAME(report.nlanes, 0);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	SAME(status, 0);
	SAME(status_of(&report), 0);
	SAME(report.nlanes, 1);
	SAME(report.lanes[0].pid, getpid());
	SAME(report.lanes[0].ngids, 1);
	CHECK(report.lanes[0].comm[0] != 0);
	leave(&root);
}

static int raw_error(int sock)
{
	struct vb_msg_error m;
	ssize_t n = recv(sock, &m, sizeof(m), 0);

	if (n < 0 && errno == ECONNRESET)
		n = recv(sock, &m, sizeof(m), 0);
	return n == sizeof(m) && m.head.type == VB_MSG_ERROR ? m.err : -1;
}

static void a_user_s_broker_refuses_others_and_is_refused_by_them(void)
{
	struct vb_broker_client *c;
	struct vb_attach_fds fds;
	struct program nobody;

	if (geteuid() != 0)
		skip("needs root to be two users");
	CHECK(chown(getenv("VERBENA_RUNTIME"), 65534, 65534) == 0);
	start_program(&nobody, 1, 65534);
	make_fds(&fds);
	SAME(connect_with(&fds, &c), EACCES);
	int sock = raw_connect(); /* root may open any socket: then the broker checks */
	SAME(raw_error(sock), EACCES);
	end_program(&nobody, 0);
}

static void send_raw(int sock, const void *msg, size_t len, const int *fds, int nfds)
{
	char control[CMSG_SPACE(sizeof(int) * 16)] = {0};
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		mh.msg_control = control;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	CHECK(sendmsg(sock, &mh, MSG_NOSIGNAL) == (ssize_t)len);
}

static int answer_to(const void *msg, size_t len, const int *fds, int nfds)
{
	int sock = raw_connect();

	send_raw(sock, msg, len, fds, nfds);
	int err = raw_error(sock);
	if (err > 0) {
		char byte;
		CHECK(recv(sock, &byte, 1, 0) <= 0); /* and the connection has ended */
	}
	close(sock);
	return err;
}

static struct vb_msg_attach attach_msg(void)
{
	return (struct vb_msg_attach){
	        .head = {.type = VB_MSG_ATTACH, .version = VB_PROTO_VERSION, .len = sizeof(struct vb_msg_attach)}};
}

static void nonsense_is_answered_with_an_error_and_counted(void)
{
	static char big[65536];
	struct vb_msg_attach m = attach_msg();
	struct vb_msg_meet meet = {.head = {.type = VB_MSG_MEET, .version = VB_PROTO_VERSION, .len = sizeof(meet)}};
	struct vb_msg_head head = {.type = 0x7f, .version = VB_PROTO_VERSION, .len = sizeof(head)};
	struct diary a;
	int many[16];

	join_as(&a, 1);
	pid_t broker = broker_pid();
	int before = count_fds(broker);
	for (int i = 0; i < 16; i++)
		many[i] = 0;
	SAME(answer_to("x", 1, NULL, 0), EBADMSG);
	SAME(answer_to(big, sizeof(big), NULL, 0), EBADMSG);
	SAME(answer_to(&head, sizeof(head), NULL, 0), EBADMSG);
	head.len = 1000;
	SAME(answer_to(&head, sizeof(head), NULL, 0), EBADMSG);
	head.len = sizeof(head);
	head.version = VB_PROTO_VERSION + 1;
	SAME(answer_to(&head, sizeof(head), NULL, 0), EPROTONOSUPPORT);
	SAME(answer_to(&m, sizeof(m), NULL, 0), EBADMSG);
	SAME(answer_to(&m, sizeof(m), many, 2), EBADMSG);
	SAME(answer_to(&m, sizeof(m), many, 16), EBADMSG);
	SAME(answer_to(&m, sizeof(m), many, 3), EBADF);
	SAME(answer_to(&meet, sizeof(meet), NULL, 0), EBADMSG);
	SAME(answer_to(&meet, sizeof(meet), many, 1), EBADMSG);
	m.ngids = 300;
	SAME(answer_to(&m, sizeof(m), many, 3), EBADMSG);
	SAME(status_of(&report), 0);
	SAME(report.counters.bad_messages, 10);
	SAME(report.counters.refused, 2);
	SAME(report.nlanes, 1);
	CHECK(wait_fds(broker, before));
	SAME(broker_pid(), broker);
	leave(&a);
}

static int attach_err(const struct vb_attach_fds *fds)
{
	struct vb_broker_client *c = NULL;
	int err = connect_with(fds, &c);

	vb_broker_disconnect(c);
	return err;
}

static void unsealed_or_alien_descriptors_are_refused(void)
{
	struct vb_attach_fds good, bad;
	int pipe_fd[2], unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64];

	make_fds(&good);
	CHECK(pipe(pipe_fd) == 0 && ftruncate(unsealed, 4096) == 0);
	SAME(attach_err(&good), 0);
	bad = (struct vb_attach_fds){unsealed, good.doorbell_fd, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	bad = (struct vb_attach_fds){good.seg_fd, unsealed, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	bad = (struct vb_attach_fds){good.seg_fd, good.seg_fd, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	bad = (struct vb_attach_fds){good.seg_fd, good.doorbell_fd, pipe_fd[1]};
	SAME(attach_err(&bad), EBADF);
	bad = (struct vb_attach_fds){pipe_fd[0], good.doorbell_fd, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", good.doorbell_fd);
	bad = (struct vb_attach_fds){good.seg_fd, open(path, O_RDONLY | O_CLOEXEC), good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	bad = (struct vb_attach_fds){-1, good.doorbell_fd, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
	/* whose pages may be gone when somebody rings the doorbell, if the kernel supports this */
	int huge = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	struct stat st;

	if (huge < 0)
		return;
	CHECK(!fstat(huge, &st) && !ftruncate(huge, st.st_blksize) &&
	      !fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	bad = (struct vb_attach_fds){good.seg_fd, huge, good.wake_fd};
	SAME(attach_err(&bad), EBADF);
}

static void a_program_that_does_not_read_holds_up_nobody(void)
{
	struct diary deaf, a, b;

	join_as(&deaf, 1);
	join_as(&a, 2);
	uint32_t lane = vb_broker_lane_number(deaf.c);
	for (int i = 0; i < 500; i++)
		SAME(meet_err(&a, lane, 1), 0);
	join_as(&b, 3);
	SAME(meet_err(&b, lane, 1), 0);
	/* it sends requests and does not read the answers */
	for (int i = 0; i < 3000; i++)
		SAME(ask(&deaf, (uint64_t)i, vb_broker_lane_number(a.c), 2), 0);
	SAME(meet_err(&b, vb_broker_lane_number(a.c), 2), 0);
	SAME(meet_err(&b, lane, 1), 0);
	/* now it reads, and everything arrives */
	CHECK(wait_for(&deaf, &deaf.replies, 3000, LONG_MS));
	SAME(deaf.err, 0);
	CHECK(wait_for(&deaf, &deaf.introductions, 2, LONG_MS)); /* answers go first */
	CHECK(wait_for(&a, &a.introductions, 1, LONG_MS));
	SAME(status_of(&report), 0);
	SAME(report.nlanes, 3);
	leave(&deaf);
	leave(&a);
	leave(&b);
}

static void hundreds_of_programs_meet_one(void)
{
	enum { N = 150 };
	static struct diary many[N];
	struct diary hub;

	join_as(&hub, 1);
	for (int i = 0; i < N; i++)
		join_as(&many[i], 2);
	for (int i = 0; i < N; i++)
		SAME(ask(&many[i], 1, vb_broker_lane_number(hub.c), 1), 0);
	for (int i = 0; i < N; i++) {
		CHECK(wait_for(&many[i], &many[i].replies, 1, LONG_MS));
		SAME(many[i].err, 0);
	}
	CHECK(wait_for(&hub, &hub.introductions, N, LONG_MS));
	SAME(status_of(&report), 0);
	SAME(report.nlanes, N + 1);
	SAME(report.counters.meets, N);
	SAME(report.counters.introductions, N);
	for (int i = 0; i < N; i++)
		leave(&many[i]);
	leave(&hub);
}

static void connections_that_say_nothing_do_not_keep_others_out(void)
{
	struct diary a;

	join_as(&a, 1);
	for (int i = 0; i < 300; i++)
		raw_connect();
	CHECK(wait_lanes(1, LONG_MS));
	leave(&a);
}

static void no_descriptor_leaks_on_either_side(void)
{
	struct diary hub, d;

	join_as(&hub, 1);
	join_as(&d, 2);
	SAME(meet_err(&d, vb_broker_lane_number(hub.c), 1), 0);
	leave(&d);
	CHECK(wait_for(&hub, &hub.introductions, 1, LONG_MS));
	CHECK(wait_lanes(1, LONG_MS));
	pid_t broker = broker_pid();
	int own = count_fds(getpid()), its = count_fds(broker);
	for (int i = 0; i < 50; i++) {
		join_as(&d, 2);
		SAME(meet_err(&d, vb_broker_lane_number(hub.c), 1), 0);
		leave(&d);
		CHECK(wait_for(&hub, &hub.introductions, i + 2, LONG_MS));
	}
	CHECK(wait_lanes(1, LONG_MS));
	SAME(count_fds(getpid()), own);
	CHECK(wait_fds(broker, its));
	leave(&hub);
}

static const struct test tests[] = {
        {"programs get different lanes", programs_get_different_lanes},
        {"two programs meet, and each has the other's descriptors",
         two_programs_meet_and_each_has_the_other_s_descriptors},
        {"a meet with nobody or oneself is refused", a_meet_with_nobody_or_oneself_is_refused},
        {"root's broker serves everybody and keeps users apart", root_s_broker_serves_everybody_and_keeps_users_apart},
        {"a user sees only own lanes in a report", a_user_sees_only_own_lanes_in_a_report},
        {"a user's broker refuses others and is refused by them",
         a_user_s_broker_refuses_others_and_is_refused_by_them},
        {"nonsense is answered with an error and counted", nonsense_is_answered_with_an_error_and_counted},
        {"unsealed or alien descriptors are refused", unsealed_or_alien_descriptors_are_refused},
        {"a program that does not read holds up nobody", a_program_that_does_not_read_holds_up_nobody},
        {"hundreds of programs meet one", hundreds_of_programs_meet_one},
        {"connections that say nothing do not keep others out", connections_that_say_nothing_do_not_keep_others_out},
        {"no descriptor leaks on either side", no_descriptor_leaks_on_either_side},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
