// confine.h - broker and keeper give up what they do not need
// follows: capabilities(7), seccomp(2), prctl(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_CONFINE_H
#define VB_BROKER_SERVER_CONFINE_H

#include <stdbool.h>

/*
 * From here on the process gains no privileges by exec, has no capabilities, leaves no core file, and can make only the
 * system calls that it needs. What is refused fails with EPERM. Whatever part of this the kernel does not have is left out.
 * Both keep CAP_NET_ADMIN, if they have it: the keeper makes large buffers. A broker keeps CAP_SYS_NICE, too, for the keeper's priority. It can make no sockets but pairs. foreign_dir: the runtime
 * directory is another user's, who has named it: what gets a broker of root's into it (CAP_DAC_OVERRIDE) is kept, too. The
 * process has no other threads.
 */
void vb_confine_broker(bool foreign_dir);
void vb_confine_keeper(void);

#endif
