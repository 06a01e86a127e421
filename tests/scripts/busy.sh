#!/bin/sh
# Keeps a machine busy: six busy loops and a writer to the disk, until standard input ends or this is killed. A run of
# the tests beside it ends as any other run does, only later:
#
#   sleep 3600 | tests/scripts/busy.sh & cargo xtask test; kill $!
set -u
exec 3<&0
file=$(mktemp "${TMPDIR:-/var/tmp}/verbgate-busy.XXXXXX")
exec 4>"$file"
rm "$file"
pids=
finish() {
    trap - EXIT INT TERM HUP
    # shellcheck disable=SC2086 # One word for each.
    kill $pids 2>/dev/null
    wait
    exit 0
}
trap finish EXIT INT TERM HUP
for _ in 1 2 3 4 5 6; do
    while :; do :; done &
    pids="$pids $!"
done
# Each round 64 MB over the same file, which has no name any more.
while :; do dd if=/dev/zero of=/dev/fd/4 bs=1M count=64 conv=fsync,notrunc 2>/dev/null; done &
pids="$pids $!"
cat <&3 >/dev/null &
pids="$pids $!"
wait $!
