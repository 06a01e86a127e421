"""A user of a Kubernetes cluster of one node in the lab's machine: a RuntimeClass, and two pods that measure with
perftest what goes between them. A device plug-in, which is in this program too, gives both the same device, raw, as
shared device plug-ins do; the handler of the RuntimeClass puts Verbgate between.

    kubernetes.py NODE IMAGE SECONDS TOKEN SERVER... -- CLIENT...    two commands, the first with its port last
    kubernetes.py - IMAGE SECONDS TOKEN -- COMMAND...                one pod, without RDMA
"""

import glob
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import cri

API = "https://192.0.2.10:6443"
PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
# By which pods ask for the device; a name of k8s-rdma-shared-dev-plugin's.
RESOURCE = "rdma/hca_shared_devices_a"
SHARES = 10
PLUGINS = "/var/lib/kubelet/device-plugins"
# `:status: 200` and `content-type: application/grpc`; `grpc-status: 0` (RFC 7541).
BEGINS = b"\x88\x0f\x10\x10application/grpc"
ENDS = b"\x00\x0bgrpc-status\x010"

node, image, seconds, token = sys.argv[1:5]
split = sys.argv.index("--")
server, client = sys.argv[5:split], sys.argv[split + 1 :]
deadline = time.monotonic() + float(seconds)


def serve(kubelet):
    """The frames that a kubelet needs. Headers of requests are not read: a request without fields asks for the list
    of devices, which never changes, so that call never ends; one with fields asks for a device for each field."""
    cri.exactly(kubelet, len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    cri.frame(kubelet, cri.SETTINGS, 0, 0, b"")
    requests = {}
    while True:
        head = cri.exactly(kubelet, 9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        body = cri.exactly(kubelet, int.from_bytes(head[:3], "big"))
        if kind == cri.SETTINGS and not flags & cri.ACK:
            cri.frame(kubelet, cri.SETTINGS, cri.ACK, 0, b"")
        elif kind == cri.PING and not flags & cri.ACK:
            cri.frame(kubelet, cri.PING, cri.ACK, 0, body)
        elif kind == cri.DATA:
            requests[stream] = requests.get(stream, b"") + body
            if flags & cri.END_STREAM:
                asked = list(cri.fields(requests.pop(stream)[5:]))
                answer(kubelet, stream, given(len(asked)) if asked else listed(), bool(asked))


def answer(kubelet, stream, message, last):
    cri.frame(kubelet, cri.HEADERS, cri.END_HEADERS, stream, BEGINS)
    cri.frame(kubelet, cri.DATA, 0, stream, cri.grpc(message))
    if last:
        cri.frame(kubelet, cri.HEADERS, cri.END_HEADERS | cri.END_STREAM, stream, ENDS)


def listed():
    """`ListAndWatchResponse` of the kubelet's deviceplugin/v1beta1/api.proto."""
    return cri.message(*((1, cri.message((1, str(n)), (2, "Healthy"))) for n in range(SHARES)))


def given(containers):
    """`AllocateResponse`, of the nodes that perftest opens."""
    nodes = (cri.message((1, path), (2, path), (3, "rwm")) for path in (node, "/dev/infiniband/rdma_cm"))
    one = cri.message(*((3, of) for of in nodes))
    return cri.message(*((1, one) for _ in range(containers)))


def plug_in():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{PLUGINS}/rdma.sock")
    listener.listen()

    def take():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()
    own = cri.message((1, "v1beta1"), (2, "rdma.sock"), (3, RESOURCE))
    cri.ask("Register", own, f"{PLUGINS}/kubelet.sock", "v1beta1.Registration")


def ask(method, path, body=None):
    request = urllib.request.Request(API + path, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    # Its certificate is of this minute, and nobody else is in this machine.
    context = ssl._create_unverified_context()
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(request, data, timeout=60, context=context) as answer:
        return json.load(answer)


def until(what, attempt):
    """The first answer of an attempt that neither fails nor is empty."""
    why = "no answer"
    while time.monotonic() < deadline:
        try:
            found = attempt()
            if found:
                return found
            why = "not yet so"
        except OSError as error:
            body = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
            why = f"{error} {body}"
        time.sleep(1)
    print(f"waited in vain for {what}: {why}", flush=True)
    events = ask("GET", "/api/v1/namespaces/default/events")["items"]
    raise SystemExit("\n".join(one["message"] for one in events))


def the_node():
    return ask("GET", "/api/v1/nodes/node1")["status"]


def pod(name, words, rdma):
    container = {"name": "one", "image": image, "imagePullPolicy": "Never", "command": words}
    spec = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if rdma:
        spec["runtimeClassName"] = "verbgate"
        container["resources"] = {"limits": {RESOURCE: "1"}}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    # The account that pods run as is made by a controller, after the first requests.
    until(f"pod {name} to be taken", lambda: ask("POST", PODS, made))


def phase(name):
    return ask("GET", f"{PODS}/{name}")["status"].get("phase")


def ended(name):
    """Waits for the end of a pod's command, and shows what the pod has said."""
    until(f"pod {name} to end", lambda: phase(name) in ("Succeeded", "Failed"))
    said = "".join(open(log).read() for log in glob.glob(f"/var/log/pods/default_{name}_*/one/*.log"))
    if phase(name) != "Succeeded":
        raise SystemExit(f"pod {name} failed:\n{said}\n{ask('GET', PODS + '/' + name)['status']}")
    return said


def removed(name):
    ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 1})

    def gone():
        try:
            ask("GET", f"{PODS}/{name}")
        except urllib.error.HTTPError as error:
            return error.code == 404

    until(f"pod {name} to be gone", gone)


def listens(port):
    # State 0A, and the port in capital hexadecimal digits.
    lines = "".join(open(f"/proc/net/{table}").read() for table in ("tcp", "tcp6"))
    return any(f":{port:04X} " in line and " 0A " in line for line in lines.splitlines())


def main():
    ready = lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in the_node()["conditions"])
    until("the node to be ready", ready)
    print(f"ok: kubernetes: node ready, kubelet {the_node()['nodeInfo']['kubeletVersion']}", flush=True)
    if not server:
        # After Verbgate is taken away: a node as any other.
        pod("plain", client, False)
        ended("plain")
        return removed("plain")
    handler = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "verbgate"},
        "handler": "verbgate",
    }
    until("the RuntimeClass", lambda: ask("POST", CLASSES, handler))
    until("the kubelet's socket", lambda: os.path.exists(f"{PLUGINS}/kubelet.sock"))
    plug_in()
    until("the device plug-in", lambda: the_node()["allocatable"].get(RESOURCE) == str(SHARES))
    pod("server", server, True)
    until("the server to listen", lambda: listens(int(server[-1])) or phase("server") == "Failed")
    if phase("server") == "Failed":
        ended("server")
    supervised = json.loads(subprocess.check_output(["verbgate", "ps", "--json"]))
    if [one.get("pod", {}).get("name") for one in supervised] != ["server"]:
        raise SystemExit(f"not the server alone is supervised: {supervised}")
    pod("client", client, True)
    said = ended("client")
    ended("server")
    if "BW average" not in said:
        raise SystemExit(f"the client measured nothing:\n{said}")
    print(f"ok: kubernetes: two pods by a device plug-in and a RuntimeClass: {' '.join(client)}")
    for name in ("client", "server"):
        removed(name)
    ask("DELETE", f"{CLASSES}/verbgate")


main()
