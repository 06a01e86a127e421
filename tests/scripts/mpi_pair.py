"""Two ranks of MPI send each other messages of all sizes, and compare every byte."""
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, peer = world.Get_rank(), 1 - world.Get_rank()
for number in range(int(sys.argv[1])):
    for power in range(0, 21, 2):
        length = 1 << power
        pattern = bytes((at * 31 + number) & 0xFF for at in range(min(length, 4096)))
        pattern = bytearray((pattern * (length // len(pattern) + 1))[:length])
        got = bytearray(length)
        if rank == 0:
            world.Send(pattern, peer)
            world.Recv(got, peer)
        else:
            world.Recv(got, peer)
            world.Send(got, peer)
        if got != pattern:
            sys.exit(f"rank {rank}: a message of {length} bytes came as another")
world.Barrier()
print(f"rank {rank}: every byte compared")
