"""A kubelet's part in making pods, for the lab's machine, which has neither crictl nor curl: requests of the
Container Runtime Interface, as gRPC by HTTP/2 (RFC 9113) on containerd's socket.

    cri.py run NAME IMAGE CDI-DEVICE    a pod in the host's network and a container in it; prints its id
    cri.py exec ID COMMAND...           runs a command in a container, prints its output, ends with its status
    cri.py clean                        removes all pods

kubernetes.py takes the requests to register a device plug-in, and the frames to be one.
"""

import socket
import struct
import sys

SOCKET = "/run/containerd/containerd.sock"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
HOST_NETWORK = 2


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def message(*fields):
    """A message of protocol buffers: pairs of tag and number, text, or message."""
    out = b""
    for tag, value in fields:
        if isinstance(value, int):
            out += varint(tag << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(tag << 3 | 2) + varint(len(data)) + data
    return out


def fields(data):
    """The fields of a message: pairs of tag and number or bytes."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        elif key & 7 == 2:
            size = number()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise SystemExit(f"an answer has a field of wire type {key & 7}, which the CRI does not use")


def first(data, tag, default=b""):
    return next((value for known, value in fields(data) if known == tag), default)


def frame(peer, kind, flags, stream, body):
    head = struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    peer.sendall(head + body)


def exactly(peer, size):
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise SystemExit("the other side has closed the connection")
        data += more
    return data


def grpc(body):
    """A message that is not compressed, with its length."""
    return b"\0" + struct.pack(">I", len(body)) + body


def ask(method, request, path=SOCKET, service="runtime.v1.RuntimeService"):
    """One request; the answer. An answer without a message is an error, which containerd's log tells."""
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(240)
    peer.connect(path)
    peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    frame(peer, SETTINGS, 0, 0, b"")
    head = b""
    for name, value in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/{service}/{method}"),
        (":authority", "cri"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]:
        # A literal that is not indexed, with a new name (RFC 7541, 6.2.2).
        head += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    frame(peer, HEADERS, END_HEADERS, 1, head)
    frame(peer, DATA, END_STREAM, 1, grpc(request))
    answer = b""
    while True:
        head = exactly(peer, 9)
        kind, flags = head[3], head[4]
        body = exactly(peer, int.from_bytes(head[:3], "big"))
        if kind == SETTINGS and not flags & ACK:
            frame(peer, SETTINGS, ACK, 0, b"")
        elif kind == PING and not flags & ACK:
            frame(peer, PING, ACK, 0, body)
        elif kind == DATA:
            answer += body
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            break
    peer.close()
    if len(answer) < 5:
        raise SystemExit(f"{method} failed: containerd's log says why")
    return answer[5:]


def run(name, image, device):
    network = message((1, HOST_NETWORK))
    security = message((1, network), (9, b""))
    pod = message(
        (1, message((1, name), (2, f"uid-of-{name}"), (3, "default"))),
        (3, "/tmp/pods"),
        (8, message((2, security))),
    )
    sandbox = first(ask("RunPodSandbox", message((1, pod), (2, "verbgate"))), 1)
    container = message(
        (1, message((1, name))),
        (2, message((1, image))),
        (11, f"{name}.log"),
        # The runtime's own profiles of seccomp and AppArmor, as a pod with RuntimeDefault has them.
        (15, message((2, message((3, network), (15, b""), (16, b""))))),
        (17, message((1, device))),
    )
    created = ask("CreateContainer", message((1, sandbox), (2, container), (3, pod)))
    ask("StartContainer", created)
    print(first(created, 1).decode())


def execute(container, words):
    request = [(1, container)] + [(2, word) for word in words] + [(3, 200)]
    answer = ask("ExecSync", message(*request))
    sys.stdout.write(first(answer, 1).decode())
    sys.stderr.write(first(answer, 2).decode())
    return first(answer, 3, 0)


def clean():
    for tag, item in fields(ask("ListPodSandbox", b"")):
        pod = message((1, first(item, 1)))
        ask("StopPodSandbox", pod)
        ask("RemovePodSandbox", pod)
    if ask("ListContainers", b""):
        raise SystemExit("containers are left")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "run":
        run(*arguments)
    elif command == "exec":
        sys.exit(execute(arguments[0], arguments[1:]))
    elif command == "clean":
        clean()
    else:
        raise SystemExit(f"{command}: use run, exec or clean")


if __name__ == "__main__":
    main()
