# Process 1 of a run: sets the guest up, runs one command, reports its status, powers off.
# The control share is mounted at /run/lab; settings.sh, environment.sh and command.sh in it are
# written by the host.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8
control=/run/lab
cd /
. $control/settings.sh

power_off() {
    sync
    /run/busybox poweroff -f
    # It does not return; if it does, nothing but the limit ends the run.
    sleep 1000
}

# The status in its final form at once, so that the host never reads half of it.
report() {
    echo "$1" >$control/status.new
    mv $control/status.new $control/status
}

# Says what of the lab itself did not work, and ends the run.
fail() {
    echo "$*" >$control/failure
    echo "lab: $*" >/dev/console
    power_off
}

mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sys /sys
mount -t devtmpfs -o nosuid dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev shm /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /tmp
mount -t securityfs securityfs /sys/kernel/security 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for pair in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    [ -e "/dev/${pair%%:*}" ] || ln -s "/proc/self/${pair#*:}" "/dev/${pair%%:*}"
done
hostname lab

if [ "$lab_vmm" = uml ]; then
    # perftest asks for the clock rate, which User-Mode Linux does not tell.
    { cat /proc/cpuinfo; echo "cpu MHz : $lab_mhz"; } >/run/cpuinfo
    mount --bind /run/cpuinfo /proc/cpuinfo
fi

# Built in, or there as a module; what is neither shows later, where it is used.
modprobe -a -q configfs fuse overlay veth ib_uverbs rdma_ucm ib_umad rdma_rxe
mount -t configfs configfs /sys/kernel/config 2>/dev/null

if [ "$lab_share" = yes ]; then
    if [ "$lab_vmm" = uml ]; then
        # By the old call, which takes a bare path; util-linux's takes only names and values.
        /run/busybox mount -t hostfs -o "$lab_share_path" none /lab || fail "cannot mount the shared folder"
    else
        mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap lab-share /lab || fail "cannot mount the shared folder"
    fi
fi

ip link set lo up

# Whether rxe0 has an active port and the RoCE v2 GID of 10.99.0.1.
rxe_ready() {
    port=/sys/class/infiniband/rxe0/ports/1
    case "$(cat $port/state 2>/dev/null)" in *ACTIVE*) ;; *) return 1 ;; esac
    for gid in $port/gids/*; do
        [ "$(cat "$gid" 2>/dev/null)" = 0000:0000:0000:0000:0000:ffff:0a63:0001 ] || continue
        [ "$(cat "$port/gid_attrs/types/${gid##*/}" 2>/dev/null)" = "RoCE v2" ] && return 0
    done
    return 1
}

if [ "$lab_rdma" = yes ]; then
    ip link add v0 mtu 4200 type veth peer name v1 mtu 4200 || fail "cannot make the veth pair"
    ip addr add 10.99.0.1/24 dev v0
    ip link set v0 up
    ip link set v1 up
    rdma link add rxe0 type rxe netdev v0 || fail "cannot make the Soft-RoCE device"
    tries=0
    until rxe_ready; do
        tries=$((tries + 1))
        [ $tries -le 1000 ] || fail "rxe0 did not become active with the GID of 10.99.0.1"
        sleep 0.1
    done
    # udev would make these; programs that look under /dev/infiniband find them there anyway.
    chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm 2>/dev/null
fi

# Network interfaces of NICs: 10.98.0.N is at the MAC address that ends with N. All are on one network
# and in one kernel, which would carry what is between its own addresses itself: who binds to the address of one
# interface and talks to another's has it go over the network, as between machines.
if [ "$lab_nics" -gt 0 ]; then
    modprobe -q virtio_net
    ip rule add pref 100 lookup local
    for interface in /sys/class/net/*; do
        name=${interface##*/} mac=$(cat "$interface/address")
        case $mac in 02:00:00:98:00:*) number=$((0x${mac##*:})) ;; *) continue ;; esac
        sysctl -q -w "net.ipv4.conf.$name.accept_local=1" "net.ipv4.conf.$name.rp_filter=0" \
            "net.ipv4.conf.$name.arp_ignore=1" "net.ipv4.conf.$name.arp_announce=2" \
            "net.ipv6.conf.$name.accept_dad=0"
        ip addr add "10.98.0.$number/24" dev "$name"
        ip link set "$name" up || fail "cannot bring $name up"
        # Only what this kernel sends itself, and to others of the network.
        ip route add 10.98.0.0/24 dev "$name" table $((1000 + number))
        ip route add throw "10.98.0.$number" table $((1000 + number))
        ip rule add pref $((10 + number)) iif lo from "10.98.0.$number" to 10.98.0.0/24 \
            lookup $((1000 + number))
    done
    sysctl -q -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.accept_local=1
    ip rule del pref 0
fi

# The drivers of NICs that the kernel's packages leave out.
for module in $control/modules/*.ko; do
    [ -e "$module" ] || continue
    # Soft-RoCE makes no device by itself: whoever wants one loads it.
    case $module in */rdma_rxe.ko) continue ;; esac
    insmod "$module" || fail "cannot load $module"
done
# A ConnectX has its driver among the kernel's own modules.
if [ "$lab_nics" -gt 0 ] && grep -qs 0x15b3 /sys/bus/pci/devices/*/vendor; then
    modprobe mlx5_ib || fail "cannot load mlx5_ib"
fi
# Not every driver gives its RDMA device a parent (erdma does not), so these are counted by name.
nics_ready() {
    [ "$(ls /sys/class/infiniband | grep -vc '^rxe')" -ge "$lab_nics" ]
}
if [ "$lab_nics" -gt 0 ]; then
    tries=0
    until nics_ready; do
        tries=$((tries + 1))
        if [ $tries -gt 3000 ]; then
            {
                dmesg | tail -n 40
                ls -l /sys/class/infiniband /sys/bus/pci/drivers/*/0000*
            } >/dev/console 2>&1
            fail "not all of the $lab_nics NICs have a driver; the kernel's last words are on the console"
        fi
        sleep 0.1
    done
    chmod 666 /dev/infiniband/uverbs*
    # With the first region of memory of a program, a ConnectX's driver makes queues of its own, and keeps them.
    for device in /sys/class/infiniband/mlx5_*; do
        [ -e "$device" ] || continue
        ibv_rc_pingpong -d "${device##*/}" >/dev/null 2>&1 &
        tries=0
        until [ -n "$(rdma resource show mr dev "${device##*/}")" ] || [ $tries -gt 100 ]; do
            tries=$((tries + 1))
            sleep 0.1
        done
        kill $!
        wait $! || true
    done
    [ ! -e /dev/infiniband/rdma_cm ] || chmod 666 /dev/infiniband/rdma_cm
fi

# Where programs make requests about NICs.
export LAB_CONTROL=$control
. $control/environment.sh
cd "$lab_cwd" || fail "there is no folder $lab_cwd in the guest"
: >$control/ready

if [ "$lab_terminal" = caller ]; then
    tty=/dev/hvc0
    [ "$lab_vmm" = uml ] && tty=/dev/tty1
    # The size is lost when the last user closes the terminal: set it in the session itself.
    setsid -c -w sh -c 'stty sane rows "${LINES:-24}" cols "${COLUMNS:-80}"; . "$0"' \
        $control/command.sh <$tty >$tty 2>&1
    report $?
    power_off
fi

if [ "$lab_vmm" = uml ]; then
    output=/dev/tty1
else
    output=
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name" 2>/dev/null)" = lab.output ] && output=/dev/${port##*/}
    done
    [ -n "$output" ] || fail "there is no output port"
fi
# Output goes through a pipe, because the port can be opened only once, and programs reopen /dev/stdout.
mkfifo /run/output
exec 3<>$output
# Behind the line above: a terminal that nobody has open any more forgets its input.
[ "$lab_vmm" != uml ] || stty raw -echo <&3
cat /run/output >&3 &
copier=$!
if [ "$lab_terminal" = lines ]; then
    sh $control/command.sh <&3 3>&- >/run/output 2>&1
else
    sh $control/command.sh </dev/null 3>&- >/run/output 2>&1
fi
status=$?
# A process left in the background may hold the pipe: what it has said by now is enough.
tries=0
while kill -0 $copier 2>/dev/null && [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
report $status
power_off
