// rbd_library.h - the calls of librados and librbd, which are loaded when the first image is opened
// follows: dlopen(3); the interfaces of librados and librbd in Ceph 16
// SPDX-License-Identifier: MIT
#ifndef NB_RBD_LIBRARY_H
#define NB_RBD_LIBRARY_H

#include <rados/librados.h>
#include <rbd/librbd.h>

#define NB_RBD_CALLS(X)                  \
	X(rados_create)                  \
	X(rados_conf_set)                \
	X(rados_conf_read_file)          \
	X(rados_conf_parse_env)          \
	X(rados_connect)                 \
	X(rados_shutdown)                \
	X(rados_mon_command)             \
	X(rados_cluster_fsid)            \
	X(rados_ioctx_create)            \
	X(rados_ioctx_destroy)           \
	X(rados_ioctx_set_namespace)     \
	X(rados_ioctx_get_id)            \
	X(rbd_open)                      \
	X(rbd_open_read_only)            \
	X(rbd_close)                     \
	X(rbd_stat)                      \
	X(rbd_get_size)                  \
	X(rbd_get_features)              \
	X(rbd_get_id)                    \
	X(rbd_get_stripe_unit)           \
	X(rbd_snap_get_id)               \
	X(rbd_config_image_list)         \
	X(rbd_config_image_list_cleanup) \
	X(rbd_update_watch)              \
	X(rbd_update_unwatch)            \
	X(rbd_aio_create_completion)     \
	X(rbd_aio_get_return_value)      \
	X(rbd_aio_release)               \
	X(rbd_aio_read)                  \
	X(rbd_aio_write)                 \
	X(rbd_aio_write_zeroes)          \
	X(rbd_aio_compare_and_write)     \
	X(rados_getaddrs)                \
	X(rados_buffer_free)             \
	X(rados_read)                    \
	X(rados_get_last_version)        \
	X(rados_create_write_op)         \
	X(rados_release_write_op)        \
	X(rados_write_op_assert_version) \
	X(rados_write_op_create)         \
	X(rados_write_op_write_full)     \
	X(rados_write_op_operate)        \
	X(rados_aio_create_completion2)  \
	X(rados_aio_is_complete)         \
	X(rados_aio_get_return_value)    \
	X(rados_aio_release)             \
	X(rados_aio_watch2)              \
	X(rados_aio_unwatch)             \
	X(rados_watch_flush)             \
	X(rados_notify2)                 \
	X(rados_notify_ack)              \
	X(rados_blocklist_add)           \
	X(rados_wait_for_latest_osdmap)  \
	X(rados_list_lockers)            \
	X(rados_break_lock)              \
	X(rados_set_pool_full_try)

struct nb_rbd_library {
#define NB_RBD_FIELD(name) __typeof__(&name) name;
	NB_RBD_CALLS(NB_RBD_FIELD)
#undef NB_RBD_FIELD
};

/* Loads the libraries with the first call. NULL with a message in why (NB_WHY bytes): they are missing or too old. */
const struct nb_rbd_library *nb_rbd_load(char *why);

#endif
