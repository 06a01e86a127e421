#!/bin/sh
# Keeps a node of a cluster ready for pods with RDMA, or takes the node back to what it was. The chart in ../helm
# runs this in a privileged pod with the host's process ids.
#
#   NODE=NAME ENGINE=containerd RUNTIME=verbgate RESTART=no DRA=no KUBELET=/var/lib/kubelet verbgate-node run|uninstall
set -eu

bin=/usr/local/bin
label=verbgate.org/runtime
account=/var/run/secrets/kubernetes.io/serviceaccount

say() {
    echo "verbgate-node: $*" >&2
}

# Runs a command of the host, where the host's files are.
host() {
    nsenter --target 1 --mount -- "$@"
}

# Sets the node's label, or removes the label with null.
set_label() {
    # The token by a pipe: every user of the host can read a program's arguments. printf is the shell's own.
    printf 'header = "Authorization: Bearer %s"\n' "$(cat "$account/token")" | curl --config - \
        --silent --show-error --fail --output /dev/null --max-time 30 --cacert "$account/ca.crt" \
        --header "Content-Type: application/merge-patch+json" --request PATCH \
        --data "{\"metadata\": {\"labels\": {\"$label\": $1}}}" \
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/nodes/$NODE"
}

install_program() {
    cmp -s /usr/bin/verbgate "/host$bin/verbgate" && return
    # A program that runs cannot be written to, and can be replaced.
    install -D -m 0755 /usr/bin/verbgate "/host$bin/verbgate.new"
    mv "/host$bin/verbgate.new" "/host$bin/verbgate"
    for wrapped in runc crun; do
        ln -sf verbgate "/host$bin/verbgate-oci-$wrapped"
    done
    say "installed $bin/verbgate"
}

ask_doctor() {
    told=$(host "$bin/verbgate" doctor --for node-label --runtime="$ENGINE")
}

# The GPU operator's toolkit may come after this pod, and writes its file anew at each start. The doctor names the remedy.
repair_toolkit() {
    case $told in
    *--runtime=nvidia*)
        host "$bin/verbgate" runtime configure --runtime=nvidia >&2 && say "NVIDIA's runtime now calls verbgate"
        ;;
    *) false ;;
    esac
}

run() {
    install_program
    host "$bin/verbgate" runtime configure --runtime="$ENGINE" --name="$RUNTIME" --cdi
    if [ "$RESTART" = yes ] && ! host "$bin/verbgate" runtime status --runtime="$ENGINE"; then
        say "restarting $ENGINE"
        host systemctl restart "$ENGINE"
    fi
    labelled=
    before=
    while true; do
        # Devices come and go: drivers are loaded late, virtual functions are made.
        host "$bin/verbgate" cdi refresh || true
        if ask_doctor || { repair_toolkit && ask_doctor; }; then
            ready='"true"'
        else
            ready=null
        fi
        [ "$told" = "$before" ] || echo "$told" >&2
        before=$told
        if [ "$ready" != "$labelled" ]; then
            set_label "$ready" && labelled=$ready
        fi || say "cannot label the node"
        sleep 60 &
        wait $!
    done
}

uninstall() {
    set_label null
    if [ "${DRA:-no}" != no ]; then
        verbgate dra --node "$NODE" --withdraw
        rmdir "/proc/1/root$KUBELET/plugins/verbgate.org" 2>/dev/null || true
    fi
    if [ -x "/host$bin/verbgate" ]; then
        # The package's own script: it refuses while containers run that only verbgate can end, and takes back what
        # was configured.
        install -m 0755 /usr/libexec/verbgate/prerm "/host$bin/verbgate-uninstall"
        host env PATH="$bin:/usr/sbin:/usr/bin:/sbin:/bin" sh "$bin/verbgate-uninstall" remove
        rm -f "/host$bin/verbgate" "/host$bin/verbgate-oci-runc" "/host$bin/verbgate-oci-crun" \
            "/host$bin/verbgate-uninstall"
    fi
    # Locks of connections, of which none is held any more.
    host rm -f /run/verbgate/connections /run/verbgate/config.toml
    for dir in /run/verbgate/oci /run/verbgate /var/lib/verbgate; do
        host rmdir "$dir" 2>/dev/null || true
    done
    if [ "$RESTART" = yes ]; then
        host systemctl restart "$ENGINE"
    fi
    say "this node is as it was; when all nodes say so: helm uninstall"
    sleep infinity &
    wait $!
}

trap 'exit 0' TERM INT
case ${1:-} in
run) run ;;
uninstall) uninstall ;;
*)
    say "say run or uninstall"
    exit 2
    ;;
esac
