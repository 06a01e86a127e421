"""Memory that a thread registers comes from the memory node of the thread's processor, whoever opened the device.

`numa.py DEVICE`: opens the device and registers memory by a thread of processor 0, then registers memory that nobody has
touched by a thread of each other processor. Prints a line for each: the processor, and the nodes of its pages."""

import ctypes
import os
import re
import sys
import threading

LENGTH = 1 << 20

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
libc = ctypes.CDLL(None, use_errno=True)
for function in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr"):
    getattr(verbs, function).restype = ctypes.c_void_p
verbs.ibv_get_device_name.restype = ctypes.c_char_p
libc.mmap.restype = ctypes.c_void_p


def must(result, what):
    if result in (None, ctypes.c_void_p(-1).value):
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
    return ctypes.c_void_p(result)


def opened(name):
    count = ctypes.c_int()
    devices = must(verbs.ibv_get_device_list(ctypes.byref(count)), "ibv_get_device_list")
    for device in ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[: count.value]:
        if verbs.ibv_get_device_name(ctypes.c_void_p(device)).decode() == name:
            context = must(verbs.ibv_open_device(ctypes.c_void_p(device)), "ibv_open_device")
            return must(verbs.ibv_alloc_pd(context), "ibv_alloc_pd")
    sys.exit(f"there is no device {name}")


def nodes(at):
    with open("/proc/thread-self/numa_maps") as maps:
        for line in maps:
            if int(line.split()[0], 16) == at:
                return sorted(re.findall(r"\bN\d+=\d+", line))
    return []


def registered(domain, cpu):
    os.sched_setaffinity(0, {cpu})
    # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS; between pages of its own, so that it stays one mapping.
    room = must(libc.mmap(None, ctypes.c_size_t(3 * LENGTH), 0, 0x22, -1, ctypes.c_long(0)), "mmap")
    at = ctypes.c_void_p(room.value + LENGTH)
    if libc.mprotect(at, ctypes.c_size_t(LENGTH), 3):
        sys.exit("mprotect")
    must(verbs.ibv_reg_mr(domain, at, ctypes.c_size_t(LENGTH), 1), "ibv_reg_mr")
    print(cpu, *nodes(at.value), flush=True)


cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpus[0]})
domain = opened(sys.argv[1])
for cpu in cpus:
    thread = threading.Thread(target=registered, args=(domain, cpu))
    thread.start()
    thread.join()
