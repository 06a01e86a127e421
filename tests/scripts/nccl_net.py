"""Drives the transport of NCCL for InfiniBand and RoCE on host memory, without a GPU: every byte is compared.

    nccl_net.py LIBNCCL CONNECTIONS ROUNDS SIZE...

The transport is the object `ncclNetIb` of the library, which exports no name for it: its place is looked up in
the library's table of symbols. Its functions are those of NCCL's interface for network plug-ins
(ext-net/example/nccl in NCCL's sources).
"""
import ctypes as c
import struct
import sys

HOST = 1  # NCCL_PTR_HOST
HANDLE = 256


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


class Connection:
    def __init__(self, net, context, device, longest):
        self.net = net
        handle, self.listener = c.create_string_buffer(HANDLE), P()
        self.ends = [P(), P()]
        nothing = [P(), P()]
        done("listen", net.listen(context, device, handle, c.byref(self.listener)))
        while not all(self.ends):
            if not self.ends[0]:
                done("connect", net.connect(context, device, handle, c.byref(self.ends[0]), c.byref(nothing[0])))
            if not self.ends[1]:
                done("accept", net.accept(self.listener, c.byref(self.ends[1]), c.byref(nothing[1])))
        self.memory = [c.create_string_buffer(longest) for _ in range(2)]
        self.regions = [P(), P()]
        for end, memory, region in zip(self.ends, self.memory, self.regions):
            done("register", net.register(end, memory, longest, HOST, c.byref(region)))

    def exchange(self, length, seed):
        net, (there, here) = self.net, self.ends
        pattern = bytes((at * 31 + seed) & 0xFF for at in range(min(length, 4096)))
        pattern = (pattern * (length // len(pattern) + 1))[:length]
        c.memmove(self.memory[0], pattern, length)
        c.memset(self.memory[1], 0, length)
        buffers, sizes = (P * 1)(c.addressof(self.memory[1])), (c.c_size_t * 1)(length)
        tags, regions, nothing = (c.c_int * 1)(7), (P * 1)(self.regions[1].value), (P * 1)(None)
        sent, received = P(), P()
        while not received:
            done("receive", net.receive(here, 1, buffers, sizes, tags, regions, nothing, c.byref(received)))
        while not sent:
            done("send", net.send(there, self.memory[0], length, 7, self.regions[0], None, c.byref(sent)))
        ends, got = [c.c_int(0), c.c_int(0)], (c.c_int * 8)()
        while not all(end.value for end in ends):
            for request, end in zip((sent, received), ends):
                if not end.value:
                    done("test", net.test(request, c.byref(end), got))
        if self.memory[1].raw[:length] != pattern:
            sys.exit(f"a message of {length} bytes came as another")

    def close(self):
        for end, region in zip(self.ends, self.regions):
            done("deregister", self.net.deregister(end, region))
        done("close", self.net.close_send(self.ends[0]))
        done("close", self.net.close_receive(self.ends[1]))
        done("close", self.net.close_listen(self.listener))


def main(path, connections, rounds, *sizes):
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
    all_of_them = [Connection(net, context, 0, max(lengths)) for _ in range(int(connections))]
    for number in range(int(rounds)):
        for length in lengths:
            for connection in all_of_them:
                connection.exchange(length, number)
    for connection in all_of_them:
        connection.close()
    print(f"NCCL {version.value}: {len(all_of_them)} connections, messages of {lengths}, every byte compared")


main(*sys.argv[1:])
