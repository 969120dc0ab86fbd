#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of tiers on the fake device: tiers.list says which, and how.

exec "$(dirname "$0")/suites.sh" tiers
