"""One of two programs that drive the transport of NCCL for InfiniBand and RoCE on host memory, without a GPU. The
receiver of a message compares every byte.

    nccl_net.py server|client PORT LIBNCCL CONNECTIONS ROUNDS SIZE...

The programs meet at a TCP port of the loopback interface, where the listener of each connection hands NCCL's handle
to the connector. The first connection carries messages to the server, the second to the client, and so on.

The transport is the object `ncclNetIb` of the library, which exports no name for it: its place is looked up in
the library's table of symbols. Its functions are those of NCCL's interface for network plug-ins
(ext-net/example/nccl in NCCL's sources).
"""
import ctypes as c
import os
import socket
import struct
import sys

HOST = 1  # NCCL_PTR_HOST
HANDLE = 256
# What a program tells the other one when it has compared all that it received.
COMPARED = b"compared"


def symbol(path, wanted):
    """The address of a symbol in an ELF file, from its first byte on."""
    with open(path, "rb") as file:
        header = file.read(64)
        sections, = struct.unpack_from("<Q", header, 40)
        size, count = struct.unpack_from("<HH", header, 58)
        file.seek(sections)
        table = file.read(size * count)
        entries = [struct.unpack_from("<IIQQQQII", table, size * at) for at in range(count)]
        for _, kind, _, _, offset, length, link, _ in entries:
            if kind != 2:  # SHT_SYMTAB
                continue
            file.seek(entries[link][4])
            names = file.read(entries[link][5])
            # A name may be the end of another's.
            name, places, at = wanted.encode() + b"\0", set(), -1
            while (at := names.find(name, at + 1)) >= 0:
                places.add(at)
            file.seek(offset)
            symbols = file.read(length)
            for place in range(0, length, 24):
                own, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", symbols, place)
                if own in places and section:
                    return value
    sys.exit(f"{path} has no symbol {wanted}")


P, Out = c.c_void_p, c.POINTER(c.c_void_p)
Log = c.CFUNCTYPE(None, c.c_int, c.c_ulong, c.c_char_p, c.c_int, c.c_char_p)


def function(*arguments):
    return c.CFUNCTYPE(c.c_int, *arguments)


class Net(c.Structure):
    """`ncclNet_v11_t`, as far as host memory needs it."""
    _fields_ = [
        ("name", c.c_char_p),
        ("init", function(Out, c.c_uint64, P, Log, P)),
        ("devices", function(c.POINTER(c.c_int))),
        ("properties", P),
        ("listen", function(P, c.c_int, P, Out)),
        ("connect", function(P, c.c_int, P, Out, Out)),
        ("accept", function(P, Out, Out)),
        ("register", function(P, P, c.c_size_t, c.c_int, Out)),
        ("register_dma_buf", P),
        ("deregister", function(P, P)),
        ("send", function(P, P, c.c_size_t, c.c_int, P, P, Out)),
        ("receive", function(P, c.c_int, Out, c.POINTER(c.c_size_t), c.POINTER(c.c_int), Out, Out, Out)),
        ("flush", P),
        ("test", function(P, c.POINTER(c.c_int), c.POINTER(c.c_int))),
        ("close_send", function(P)),
        ("close_receive", function(P)),
        ("close_listen", function(P)),
    ]


def done(what, result):
    if result:
        sys.exit(f"{what}: NCCL's result {result}")


def until(step):
    """Calls a function of NCCL's, none of which waits, until it has succeeded."""
    while not step():
        # As NCCL's own thread does: the other program may wait for this processor.
        os.sched_yield()


class Connection:
    """The end of a connection that carries messages in one direction."""

    def __init__(self, net, context, peer, receives, longest):
        self.net, self.receives = net, receives
        self.listener, self.end, self.region, nothing = P(), P(), P(), P()
        if receives:
            handle = c.create_string_buffer(HANDLE)
            done("listen", net.listen(context, 0, handle, c.byref(self.listener)))
            peer.sendall(handle.raw)
        else:
            handle = c.create_string_buffer(told(peer, HANDLE), HANDLE)

        def met():
            if receives:
                done("accept", net.accept(self.listener, c.byref(self.end), c.byref(nothing)))
            else:
                done("connect", net.connect(context, 0, handle, c.byref(self.end), c.byref(nothing)))
            return self.end

        until(met)
        self.memory = c.create_string_buffer(longest)
        done("register", net.register(self.end, self.memory, longest, HOST, c.byref(self.region)))

    def carry(self, length, seed):
        """Sends a message, or receives it and compares every byte."""
        net, request, ended, got = self.net, P(), c.c_int(0), (c.c_int * 8)()
        pattern = bytes((at * 31 + seed) & 0xFF for at in range(min(length, 4096)))
        pattern = (pattern * (length // len(pattern) + 1))[:length]
        # No byte is right before the message has come.
        before = pattern if not self.receives else bytes(255 - byte for byte in pattern[:4096]) * (length // 4096 + 1)
        c.memmove(self.memory, before, length)
        buffers, sizes = (P * 1)(c.addressof(self.memory)), (c.c_size_t * 1)(length)
        tags, regions, nothing = (c.c_int * 1)(7), (P * 1)(self.region.value), (P * 1)(None)

        def posted():
            if self.receives:
                arguments = (self.end, 1, buffers, sizes, tags, regions, nothing, c.byref(request))
                done("receive", net.receive(*arguments))
            else:
                done("send", net.send(self.end, self.memory, length, 7, self.region, None, c.byref(request)))
            return request

        def tested():
            done("test", net.test(request, c.byref(ended), got))
            return ended.value

        until(posted)
        until(tested)
        if self.receives and (got[0] != length or self.memory.raw[:length] != pattern):
            sys.exit(f"a message of {length} bytes came as another, of {got[0]}")

    def close(self):
        done("deregister", self.net.deregister(self.end, self.region))
        if self.receives:
            done("close", self.net.close_receive(self.end))
            done("close", self.net.close_listen(self.listener))
        else:
            done("close", self.net.close_send(self.end))


def told(peer, length):
    """So many bytes from the other program."""
    text = b""
    while len(text) < length:
        more = peer.recv(length - len(text))
        if not more:
            sys.exit("the other program has ended")
        text += more
    return text


def meet(role, port):
    """A connection with the other program."""
    if role == "client":
        return socket.create_connection(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as listener:
        return listener.accept()[0]


def main(role, port, path, connections, rounds, *sizes):
    library = c.CDLL(path, mode=c.RTLD_LOCAL)
    version = c.c_int()
    done("version", library.ncclGetVersion(c.byref(version)))
    known = c.cast(library.ncclGetVersion, P).value - symbol(path, "ncclGetVersion")
    net = Net.from_address(known + symbol(path, "ncclNetIb"))
    log = Log(lambda level, flags, file, line, text: None)
    context, config, devices = P(), (c.c_int * 4)(-1, -1, -1, -1), c.c_int()
    done("init", net.init(c.byref(context), 1, config, log, None))
    done("devices", net.devices(c.byref(devices)))
    if not devices.value:
        sys.exit("NCCL finds no device")
    lengths = [int(size) for size in sizes]
    with meet(role, int(port)) as peer:
        all_of_them = []
        for number in range(int(connections)):
            receives = (number % 2 == 0) == (role == "server")
            all_of_them.append(Connection(net, context, peer, receives, max(lengths)))
        for number in range(int(rounds)):
            for length in lengths:
                for connection in all_of_them:
                    connection.carry(length, number)
        peer.sendall(COMPARED)
        told(peer, len(COMPARED))
        for connection in all_of_them:
            connection.close()
    print(f"NCCL {version.value}: {len(all_of_them)} connections, messages of {lengths}, every byte compared")


main(*sys.argv[1:])
