#!/bin/sh
# api.sh - api_test with a runtime directory of its own
# SPDX-License-Identifier: MIT
# api.sh PROGRAM ADDRESS
VERBENA_RUNTIME=$(mktemp -d) || exit 1
export VERBENA_RUNTIME
trap 'rm -rf "$VERBENA_RUNTIME"' EXIT
"$@"
