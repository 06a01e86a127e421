#!/bin/busybox sh
# Process 1 of the initial root: finds the disks and the control share, and goes on with the
# control share's init in the real root.
/bin/busybox mkdir -p /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

die() {
    echo "lab: $*" >/dev/console
    poweroff -f
}

for module in /modules/*.ko; do
    [ -e "$module" ] || continue
    insmod "$module" || echo "lab: cannot load $module" >/dev/console
done

# The value of a word NAME=VALUE of the kernel's command line.
word() {
    for w in $(cat /proc/cmdline); do
        case $w in "$1"=*) echo "${w#*=}" ;; esac
    done
}

# The disk with this serial number, as soon as it is there.
disk() {
    for try in 1 2 3 4 5 6 7 8 9 10; do
        for d in /sys/block/vd*; do
            [ "$(cat "$d/serial" 2>/dev/null)" = "$1" ] && echo "/dev/${d##*/}" && return
        done
        sleep 0.2
    done
    die "there is no disk $1"
}

if [ "$(word lab.vmm)" = uml ]; then
    mount -t ext4 /dev/ubda /new || die "cannot mount the root image"
else
    mount -t ext4 "$(disk lab-root)" /new || die "cannot mount the root image"
    mount -t ext4 -o ro "$(disk lab-modules)" /new/lib/modules || die "cannot mount the image of modules"
fi
mount -t tmpfs -o mode=755 run /new/run
mkdir /new/run/lab
if [ "$(word lab.vmm)" = uml ]; then
    mount -t hostfs -o "$(word lab.control)" none /new/run/lab || die "cannot mount the control share"
else
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 lab-control /new/run/lab || die "cannot mount the control share"
fi
cp /bin/busybox /new/run/busybox
umount /proc
umount /sys
umount /dev
exec switch_root /new /bin/sh /run/lab/init.sh
