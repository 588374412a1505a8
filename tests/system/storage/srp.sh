#!/bin/bash
# srp.sh - runs srp_system_test on Verbena
# see: tests/system/storage/srp_system_test.c
# SPDX-License-Identifier: MIT
# usage: srp.sh PROGRAM TARGET
HERE=$(cd "$(dirname "$0")" && pwd)
source "$HERE/../../support/lib.sh"
limit=$((60 * SLOW))
check "an initiator and the target on one host" timeout -k 2 $limit "${run[@]}" "$@"
check "… by iWARP" env VERBENA_DEVICES=iwarp:lo timeout -k 2 $limit "${run[@]}" "$@"
exit $((failed > 0))
