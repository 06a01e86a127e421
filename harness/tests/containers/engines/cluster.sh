#!/bin/sh
# Runs in a world: a cluster of one node, whose programs are in DIR, until one of them ends. Its API server listens at
# 192.0.2.10:6443.
#
#   cluster.sh DIR TOKEN
set -eu
dir=$1 token=$2
state=/var/lib/cluster
mkdir -p "$state" /var/log/pods

# A kubelet sets these for the machine, unless they are as it wants them; this machine is not the cluster's.
settle() {
    echo "$2" >"$state/settled-$(basename "$1")"
    mount --bind "$state/settled-$(basename "$1")" "/proc/sys/$1"
}
settle vm/overcommit_memory 1
settle vm/panic_on_oom 0
settle kernel/panic 10
settle kernel/panic_on_oops 1
settle kernel/keys/root_maxkeys 1000000
settle kernel/keys/root_maxbytes 25000000
# A kubelet looks for processes that were ended for want of memory; the messages are the machine's.
[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 3
# Pods and API server want an address that is not the loopback device's own.
ip address add 192.0.2.10/32 dev lo

echo "$token,admin,admin,system:masters" >"$state/tokens"
cat >"$state/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: one, cluster: {server: "https://192.0.2.10:6443", certificate-authority: "$state/certificates/apiserver.crt"}}]
users: [{name: admin, user: {token: "$token"}}]
contexts: [{name: one, context: {cluster: one, user: admin}}]
current-context: one
END

start() {
    name=$1
    shift
    "$dir/$name" "$@" >"/tmp/$name.log" 2>&1 &
}

# Starts a program that gives up when the API server takes more than ten seconds to be healthy, as on a busy machine.
# The program is started again then, as a service would be.
keep() {
    name=$1
    shift
    until "$dir/$name" "$@"; do
        echo "$name ended with $?, and is started again"
        sleep 1
    done >"/tmp/$name.log" 2>&1 &
}

echo "127.0.0.1 localhost" >/etc/hosts
start etcd --data-dir "$state/etcd" --unsafe-no-fsync --listen-client-urls=http://127.0.0.1:2379 \
    --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380
start kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir="$state/certificates" \
    --bind-address=192.0.2.10 --advertise-address=192.0.2.10 --endpoint-reconciler-type=none --secure-port=6443 \
    --service-cluster-ip-range=198.51.100.0/24 --token-auth-file="$state/tokens" --authorization-mode=RBAC,Node \
    --allow-privileged=true --service-account-key-file="$dir/account.key" \
    --service-account-signing-key-file="$dir/account.key" --service-account-issuer=https://cluster.invalid
# The port in hexadecimal digits, listening.
until grep -q ":192B 00000000:0000 0A" /proc/net/tcp; do sleep 1; done
keep kube-controller-manager --kubeconfig="$state/kubeconfig" --leader-elect=false --port=0 \
    --service-account-private-key-file="$dir/account.key" --use-service-account-credentials=true \
    --root-ca-file="$state/certificates/apiserver.crt"
keep kube-scheduler --kubeconfig="$state/kubeconfig" --leader-elect=false --port=0
cat >"$state/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"}
imageGCHighThresholdPercent: 100
# Others may be had by privilege alone.
oomScoreAdj: 1000
resolvConf: /etc/resolv.conf
syncFrequency: 2s
nodeStatusUpdateFrequency: 2s
END
start kubelet --config="$state/kubelet.yaml" --kubeconfig="$state/kubeconfig" --hostname-override=node1 --node-ip=192.0.2.10 \
    --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=2
wait
