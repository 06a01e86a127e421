"""Registers memory of several kinds with an RDMA device, as programs do, and says what became of each.

    memory.py DEVICE                 all kinds
    memory.py DEVICE holds           makes a dma-buf, says the process and the descriptor, and waits
    memory.py DEVICE takes PID FD    tries to register the dma-buf that another process holds
"""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys

MIB = 1 << 20
LOCAL_WRITE, REMOTE_READ = 1, 1 << 2
UDMABUF_CREATE = 0x40187542
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
MFD_ALLOW_SEALING = 2
MAP_HUGETLB = 0x40000
# The same for all processors.
PIDFD_GETFD = 438
# Descriptors have small numbers.
NUMBERS = 256

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
libc = ctypes.CDLL(None, use_errno=True)
pointer, size, number, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64
verbs.ibv_get_device_list.restype = ctypes.POINTER(pointer)
for name, result, arguments in [
    ("ibv_get_device_name", ctypes.c_char_p, [pointer]),
    ("ibv_open_device", pointer, [pointer]),
    ("ibv_alloc_pd", pointer, [pointer]),
    ("ibv_reg_mr", pointer, [pointer, pointer, size, number]),
    ("ibv_reg_mr_iova", pointer, [pointer, pointer, size, word, number]),
    ("ibv_reg_dmabuf_mr", pointer, [pointer, word, size, word, number, number]),
    ("ibv_dereg_mr", number, [pointer]),
    ("ibv_dealloc_pd", number, [pointer]),
    ("ibv_close_device", number, [pointer]),
    ("ibv_fork_init", number, []),
]:
    function = getattr(verbs, name)
    function.restype, function.argtypes = result, arguments


def said(what, region):
    """What became of a registration, which is undone."""
    error = ctypes.get_errno()
    if not region:
        print(what, os.strerror(error))
        return
    ended = verbs.ibv_dereg_mr(region)
    print(what, "registered", "and ended" if ended == 0 else os.strerror(ended))


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def anonymous(pd, length):
    memory = mmap.mmap(-1, length)
    memory[:8] = b"anything"
    return verbs.ibv_reg_mr(pd, address_of(memory), length, LOCAL_WRITE | REMOTE_READ)


def huge(pd):
    with open("/proc/sys/vm/nr_hugepages", "w") as file:
        file.write("16")
    memory = mmap.mmap(-1, 4 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
    return verbs.ibv_reg_mr(pd, address_of(memory), 4 * MIB, LOCAL_WRITE)


def made_dmabuf():
    memory = libc.memfd_create(b"memory", MFD_ALLOW_SEALING)
    os.ftruncate(memory, MIB)
    fcntl.fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK)
    maker = os.open("/dev/udmabuf", os.O_RDWR)
    wanted = struct.pack("IIQQ", memory, 0, 0, MIB)
    # Not fcntl.ioctl: that gives the bytes back, and not the result.
    return libc.ioctl(maker, ctypes.c_ulong(UDMABUF_CREATE), wanted)


def dmabuf(pd, made):
    return verbs.ibv_reg_dmabuf_mr(pd, 4096, MIB - 4096, 0x7000_0000_1000, made, LOCAL_WRITE)


def takes(pd, process, descriptor):
    """Both ways to a dma-buf: from the process that holds one, and by all numbers that it may have."""
    try:
        holder = os.pidfd_open(process)
        taken = libc.syscall(PIDFD_GETFD, holder, descriptor, 0)
        error = os.strerror(ctypes.get_errno())
        print("by its holder:", "taken" if taken >= 0 and dmabuf(pd, taken) else error)
    except OSError as error:
        print("by its holder:", error.strerror)
    taken = sum(1 for number in range(NUMBERS) if dmabuf(pd, number))
    print("by number:", taken)


def main(wanted, role="all", *numbers):
    if role == "holds":
        print("holds", os.getpid(), made_dmabuf(), flush=True)
        signal.pause()
    print("fork_init", verbs.ibv_fork_init())
    devices = verbs.ibv_get_device_list(None)
    device = next(d for d in devices if verbs.ibv_get_device_name(d).decode() == wanted)
    context = verbs.ibv_open_device(device)
    pd = verbs.ibv_alloc_pd(context)
    if role == "takes":
        takes(pd, *map(int, numbers))
        return
    said("4 KiB", anonymous(pd, 4096))
    said("64 MiB", anonymous(pd, 64 * MIB))
    said("huge pages", huge(pd))
    if os.path.exists("/dev/udmabuf"):
        said("dma-buf", dmabuf(pd, made_dmabuf()))
    memory = mmap.mmap(-1, MIB)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    said("after a fork", verbs.ibv_reg_mr(pd, address_of(memory), MIB, LOCAL_WRITE))
    said("no memory", verbs.ibv_reg_mr(pd, 0x1000, 4096, LOCAL_WRITE))
    said("not a dma-buf", verbs.ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, LOCAL_WRITE))
    print("ends", verbs.ibv_dealloc_pd(pd), verbs.ibv_close_device(context))


main(*sys.argv[1:])
