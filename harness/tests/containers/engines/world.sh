#!/bin/sh
# Makes a world for a container engine, and becomes its first process: control groups, mounts, processes
# and network of its own, a root file system of which the engine's packages are the lower part, and a
# stand-in for an RDMA device.
#
#   world.sh outside NAME ROOT DIR PROGRAM   (on the host; unshares, and goes on as `inside`)
#
# DIR/groups is a list of the control groups made; an empty PROGRAM leaves verbgate out.
set -eu
stage=$1 name=$2 lower=$3 dir=$4 program=$5

# Every hierarchy of control groups that this process is in, as "controllers:path".
hierarchies() {
    cut -d: -f2- /proc/self/cgroup
}

if [ "$stage" = outside ]; then
    hierarchies | while IFS=: read -r controllers path; do
        if [ -z "$controllers" ]; then
            at=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
        else
            at=$(findmnt -n -o TARGET -t cgroup -O "${controllers#name=}" | head -n 1)
            [ -n "$at" ] || at=$(findmnt -n -o TARGET -t cgroup -O "$controllers" | head -n 1)
        fi
        [ -n "$at" ] || continue
        group="$at$path/$name"
        mkdir -p "$group"
        echo "$group" >>"$dir/groups"
        # A set of processors has none at first, and then takes no process.
        for one in cpuset.cpus cpuset.mems; do
            [ ! -e "$group/$one" ] || [ -n "$(cat "$group/$one")" ] ||
                cat "$at$path/$one" >"$group/$one"
        done
        echo $$ >"$group/cgroup.procs" || true
    done
    exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child --propagation private \
        sh "$0" inside "$name" "$lower" "$dir" "$program"
fi

root=$dir/root
mkdir -p "$root" "$dir/layers"
mount -t tmpfs -o mode=755 tmpfs "$dir/layers"
mkdir "$dir/layers/upper" "$dir/layers/work"
mount -t overlay -o "lowerdir=$lower,upperdir=$dir/layers/upper,workdir=$dir/layers/work" overlay "$root"
# As base-files' script makes it.
[ -L "$root/var/run" ] || { rm -rf "$root/var/run" && ln -s /run "$root/var/run"; }
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/var/lib"
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
: >"$root/var/lib/dpkg/status"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue" "$root/dev/infiniband"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
    # shellcheck disable=SC2086 # Three words.
    set -- $node
    mknod -m 666 "$root/dev/$1" c "$2" "$3"
done
ln -s /proc/self/fd "$root/dev/fd"

# The stand-in: a device with one InfiniBand port. Its node is that of FUSE, which answers every request
# of RDMA with ENOTTY.
mount -t sysfs sysfs "$root/sys"
classes=$root/sys/class
mkdir "$dir/class"
# Links alone: to read some attributes is to change something (zram-control/hot_add).
for class in "$classes"/*/; do
    class=$(basename "$class")
    mkdir "$dir/class/$class"
    find "$classes/$class" -maxdepth 1 -type l -exec cp -P {} "$dir/class/$class/" \;
done
mount -t tmpfs -o mode=755 tmpfs "$classes"
cp -rP "$dir/class/." "$classes/"
device=$classes/infiniband/mlx5_0
verbs=$classes/infiniband_verbs/uverbs0
mkdir -p "$device/ports/1/gids" "$verbs"
echo "1: CA" >"$device/node_type"
echo 0000:5e00:5300:0001 >"$device/node_guid"
echo InfiniBand >"$device/ports/1/link_layer"
echo "4: ACTIVE" >"$device/ports/1/state"
echo fe80:0000:0000:0000:0000:5e00:5300:0001 >"$device/ports/1/gids/0"
echo mlx5_0 >"$verbs/ibdev"
echo 1 >"$verbs/abi_version"
echo 10:229 >"$verbs/dev"
echo 6 >"$classes/infiniband_verbs/abi_version"
# A grant is known by what its number leads to.
mount -t tmpfs -o mode=755 tmpfs "$root/sys/dev/char"
ln -s ../../class/infiniband_verbs/uverbs0 "$root/sys/dev/char/10:229"
mknod -m 666 "$root/dev/infiniband/uverbs0" c 10 229

mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
hierarchies | while IFS=: read -r controllers _; do
    if [ -n "$controllers" ]; then
        at=$root/sys/fs/cgroup/${controllers#name=}
        mkdir "$at"
        mount -t cgroup -o "$controllers" cgroup "$at"
    elif [ "$(hierarchies | wc -l)" = 1 ]; then
        # Without controllers: a group that hands them down could have no process itself.
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    fi
done

ip link set lo up
if [ -n "$program" ]; then
    cp "$program" "$root/usr/bin/verbgate"
    ln -s verbgate "$root/usr/bin/verbgate-oci-runc"
    # As on a node of one tenant: containers name the device by an annotation.
    mkdir -p "$root/etc/verbgate"
    echo 'annotations = "grant"' > "$root/etc/verbgate/config.toml"
fi
# A file system of its own at the root, which runc wants to pivot from.
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
exec tini -s -- sleep 100000
