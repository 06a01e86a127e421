#!/bin/sh
# Runs in the lab's machine: real RDMA between containers of Docker, and between pods of containerd by the
# CRI, with the configuration that Debian ships and that `verbgate runtime configure` makes of it, the engines'
# default seccomp profiles, and devices by CDI. /lab holds the engines' programs, verbgate and this.
set -eu
image=docker.io/library/rdma:latest
device=rxe0
gid=1
address=10.99.0.1
wanted=$1
token=of-the-cluster

failed() {
    echo "FAILED: $*"
    for log in containerd dockerd; do
        [ ! -e "/run/$log.log" ] || { echo "--- $log"; tail -n 25 "/run/$log.log"; }
    done
    for log in server client; do
        [ ! -e "/run/$log.log" ] || { echo "--- $log"; cat "/run/$log.log"; }
    done
    exit 1
}

# Until a command succeeds.
await() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || failed "waited in vain for: $*"
        sleep 0.5
    done
}

# Whether somebody listens on a TCP port.
listens() {
    # State 0A, and the port in capital hexadecimal digits.
    grep -q ":$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6
}

# Whether no container is supervised.
nothing_is_left() {
    [ "$(verbgate ps --json | tr -d ' \n')" = "[]" ]
}

# An image of this very system's programs, under the two names that engines will ask for.
make_image() {
    pause=$1 root=/tmp/image/rootfs
    mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/proc" \
        "$root/sys" "$root/dev" "$root/tmp" "$root/etc"
    for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
    providers=$(ls /usr/lib/*/libibverbs/librxe*)
    # pthread_exit(3), by which rping ends, loads libgcc.
    set -- /usr/bin/sh /usr/lib/*/libgcc_s.so.1
    for name in cat ls grep sleep ib_write_bw rping ibv_devinfo; do set -- "$@" "/usr/bin/$name"; done
    # shellcheck disable=SC2046,SC2086 # Lists of files without spaces.
    cp -L --parents "$@" $providers $(ldd "$@" $providers | sed -n 's|.*[[:space:]]\(/[^ ]*\) (0x.*|\1|p' | sort -u) "$root"
    cp --parents /etc/libibverbs.d/rxe.driver "$root"
    tar -C "$root" -cf /tmp/image/layer.tar .
    sum=$(sha256sum /tmp/image/layer.tar | cut -d' ' -f1)
    cat >/tmp/image/config.json <<END
{"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/usr/bin/sleep", "100000"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
END
    cat >/tmp/image/manifest.json <<END
[{"Config": "config.json", "RepoTags": ["$image", "$pause"], "Layers": ["layer.tar"]}]
END
    tar -C /tmp/image -cf /tmp/image.tar manifest.json config.json layer.tar
}

# Both ends of one exchange, each run by `$runs END COMMAND...`; the port where the server listens comes first.
pair() {
    port=$1 server=$2 client=$3
    # shellcheck disable=SC2086 # Words of a command.
    $runs server $server >/run/server.log 2>&1 &
    job=$!
    if [ "$port" != 0 ]; then await listens "$port"; else sleep 5; fi
    # shellcheck disable=SC2086
    $runs client $client >/run/client.log 2>&1 || failed "the client: $client"
    wait "$job" || failed "the server: $server"
}

# Whether no object is left; a supervisor closes soon, and not before a program has ended.
is_as_before() {
    [ "$(rdma -j resource show)" = "$before" ]
}

exchange() {
    before=$(rdma -j resource show)
    perftest="ib_write_bw -d $device -x $gid -F -s 65536 -n 100 -p 18600"
    pair 18600 "$perftest" "$perftest 127.0.0.1"
    # No figure: under emulation perftest measures anything.
    echo "ok: $1: $perftest"
    # The connection manager listens where no table of TCP shows it.
    pair 0 "rping -s -v -C 5 -a $address" "rping -c -v -C 5 -a $address"
    echo "ok: $1: rping -C 5: $(grep -c 'ping data' /run/client.log) answers"
    await is_as_before
}

by_docker() {
    end=$1
    shift
    docker run --rm --name "$end" --runtime verbgate --network host \
        --device "verbgate.org/rdma=$device" $image "$@"
}

by_cri() {
    end=$1
    shift
    python3 /lab/cri.py exec "$(cat "/run/$end.id")" "$@"
}

docker_case() {
    dockerd --bridge=none --iptables=false --ip6tables=false >/run/dockerd.log 2>&1 &
    await docker version
    echo "docker $(docker version -f '{{.Server.Version}}'), $(docker info -f '{{.SecurityOptions}}')"
    docker load -q -i /tmp/image.tar
    by_docker shown sh -c 'grep -E "^Seccomp:" /proc/self/status; grep " /sys " /proc/self/mounts
        cat /proc/self/attr/current; ls /dev/infiniband; ibv_devinfo' >/run/client.log 2>&1 ||
        failed "a container does not run"
    cat /run/client.log
    grep -q 'Seccomp:.*2' /run/client.log || failed "no seccomp profile"
    grep -q '^docker-default (enforce)$' /run/client.log || failed "no AppArmor profile"
    grep -q ' /sys fuse' /run/client.log || failed "the container sees the host's /sys"
    ! by_docker raw sh -c "exec 3<>/dev/infiniband/uverbs0; : <&3; cat <&3" 2>/dev/null ||
        failed "the device can be read"
    runs=by_docker
    exchange docker
    await nothing_is_left
}

cri_case() {
    containerd --version
    ctr -n k8s.io images import /tmp/image.tar
    for end in server client; do
        python3 /lab/cri.py run "$end" $image "verbgate.org/rdma=$device" >"/run/$end.id" || failed "no pod"
    done
    by_cri client sh -c 'grep -E "^Seccomp:" /proc/1/status; grep " /sys " /proc/self/mounts
        cat /proc/self/attr/current; ls /dev/infiniband; ibv_devinfo' >/run/client.log 2>&1 ||
        failed "a container does not run"
    cat /run/client.log
    grep -q 'Seccomp:.*2' /run/client.log || failed "no seccomp profile"
    grep -q '^cri-containerd.apparmor.d (enforce)$' /run/client.log || failed "no AppArmor profile"
    grep -q ' /sys fuse' /run/client.log || failed "the container sees the host's /sys"
    runs=by_cri
    exchange cri
    python3 /lab/cri.py clean || failed "the pods stay"
    await nothing_is_left
}

# A cluster of one node, whose kubelet takes containerd as the case before does.
kubernetes_case() {
    mkdir -p /var/lib/kubelet /etc/cni/net.d
    echo '{"cniVersion": "0.3.1", "name": "none", "type": "none"}' >/etc/cni/net.d/10-none.conf
    # A kubelet without it has no file to make a pod's of.
    : >/etc/resolv.conf
    ctr -n k8s.io images import /tmp/image.tar
    sh /lab/cluster.sh /lab/cluster $token >/run/cluster.log 2>&1 &
    cluster=$!
    perftest="ib_write_bw -d $device -x $gid -F -s 65536 -n 100 -p 18600"
    before=$(rdma -j resource show)
    # shellcheck disable=SC2086 # Words of commands.
    python3 /lab/kubernetes.py /dev/infiniband/uverbs0 $image 1200 $token \
        $perftest -- $perftest 127.0.0.1 || kubernetes_failed "two pods"
    await nothing_is_left
    await is_as_before
    verbgate runtime unconfigure
    cmp /lab/config.toml /etc/containerd/config.toml || failed "containerd's configuration is not as it was"
    kill "$containerd"
    wait "$containerd" || true
    containerd >/run/containerd.log 2>&1 &
    await ctr version
    python3 /lab/kubernetes.py - $image 600 $token -- ls || kubernetes_failed "a pod after Verbgate"
    echo "ok: kubernetes: the node is as it was"
    kill "$cluster"
}

kubernetes_failed() {
    for log in kubelet kube-apiserver kube-controller-manager kube-scheduler etcd; do
        echo "--- $log"
        grep -E '^[EF]|panic|"error' "/tmp/$log.log" | tail -n 12 | cut -c1-300
    done
    failed "$1"
}

cp /lab/bin/* /usr/bin/
ln -sf verbgate /usr/bin/verbgate-oci-runc
ln -sf tini-static /usr/bin/docker-init
# Where engines look for it; they take AppArmor to be off without securityfs.
mv /usr/bin/apparmor_parser /usr/sbin/
[ -d /sys/kernel/security/apparmor ] || mount -t securityfs securityfs /sys/kernel/security
mkdir -p /etc/containerd /etc/cdi
cp /lab/config.toml /etc/containerd/config.toml
echo "kernel $(uname -r), $(runc --version | head -n 1), apparmor $(cat /sys/module/apparmor/parameters/enabled || true)"
verbgate runtime configure --runtime=containerd --cdi
verbgate runtime configure --runtime=docker --cdi
verbgate cdi generate -o /etc/cdi/verbgate.json
containerd >/run/containerd.log 2>&1 &
containerd=$!
await ctr version
make_image "$(containerd config dump | sed -n "s/^ *sandbox\(_image\)\? = ['\"]\(.*\)['\"]/\2/p" | head -n 1)"
for case in $wanted; do "${case}_case"; done
echo "engines: ok"
