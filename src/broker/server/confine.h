// confine.h - broker and keeper drop the privileges that they do not need
// follows: capabilities(7), seccomp(2), prctl(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_CONFINE_H
#define VB_BROKER_SERVER_CONFINE_H

#include <stdbool.h>

/*
 * Drops the process's capabilities, and limits it to the system calls that it needs: others fail with EPERM. The
 * process gains no privileges by exec and leaves no core file. Parts that the kernel does not support are skipped.
 * The process must have no other threads.
 * Both keep CAP_NET_ADMIN if they have it: the keeper sets large socket buffers. A broker also keeps CAP_SYS_NICE for
 * the keeper's priority. A keeper can make no sockets but socket pairs.
 * foreign_dir: the runtime directory is another user's, who has named it. Root's broker then keeps CAP_DAC_OVERRIDE
 * to write there.
 */
void vb_confine_broker(bool foreign_dir);
void vb_confine_keeper(void);

#endif
