#!/bin/sh
# api.sh - runs api_test with its own runtime directory
# SPDX-License-Identifier: MIT
# api.sh PROGRAM ADDRESS
VERBENA_RUNTIME=$(mktemp -d) || exit 1
export VERBENA_RUNTIME
trap 'rm -rf "$VERBENA_RUNTIME"' EXIT
"$@"
