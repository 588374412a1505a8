// event_fd.h - the descriptor on which a program waits for events: an epoll descriptor around a counting eventfd
// follows: eventfd(2), epoll(7); ibv_get_cq_event(3), ibv_get_async_event(3) (O_NONBLOCK)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_EVENT_FD_H
#define VB_CORE_EVENT_FD_H

struct vb_node;

/* Both close-on-exec. The program holds epfd; one unit in evfd stands for one queued event. 0 or errno. */
int vb_event_fd_open(int *epfd, int *evfd);
void vb_event_fd_close(int epfd, int evfd);

/* Adds one unit. Any thread, under any lock. Keeps errno. */
void vb_event_fd_add(int evfd);
/* Removes up to n units of events that were delivered otherwise or dropped; stops when there are none. Never waits. Called
 * under the lock of the queue of events. Keeps errno. */
void vb_event_fd_remove(int evfd, unsigned n);

/*
 * Takes one unit and returns 0. Waits for one, unless the program has set O_NONBLOCK on epfd (then EAGAIN). Before it
 * sleeps it makes the progress thread the owner of progress. EINTR as from read(2): not with SA_RESTART.
 */
int vb_event_fd_take(struct vb_node *node, int epfd, int evfd);

#endif
