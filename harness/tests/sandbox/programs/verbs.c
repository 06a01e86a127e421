/* One request to an RDMA device, which the null device answers with ENOTTY.

   As a program: the device is its argument, and threads and memory come before and after.
   As a library (-DLIBRARY) that is preloaded: when everything else is done, so that whatever the
   program maps is mapped. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>

/* struct ib_uverbs_attr and ib_uverbs_ioctl_hdr, include/uapi/rdma/rdma_user_ioctl_cmds.h */
struct attr {
    uint16_t id, len, flags, reserved;
    uint64_t data;
};
struct request {
    uint16_t length, object, method, count;
    uint64_t reserved1;
    uint32_t driver, reserved2;
    struct attr attrs[2];
};

static int ask(const char *device)
{
    uint64_t out[2] = {0, 0};
    struct request request = {
        .length = sizeof request, .method = 4 /* QUERY_CONTEXT */, .count = 2,
        .attrs = {{0, 4, 1, 0, (uintptr_t)&out[0]}, {1, 8, 1, 0, (uintptr_t)&out[1]}},
    };
#ifdef EXECUTABLE
    /* As in programs whose stack is executable on older kernels. */
    personality(READ_IMPLIES_EXEC);
#endif
    int fd = open(device, O_RDWR);
    if (fd < 0) {
        dprintf(1, "open: %s\n", strerror(errno));
        return 1;
    }
    int result = ioctl(fd, _IOWR(0x1b, 1, char[24]), &request);
    int well = result < 0 && errno == ENOTTY;
    dprintf(1, "%s\n", well ? "ENOTTY" : strerror(errno));
    return !well;
}

#ifdef LIBRARY
__attribute__((destructor)) static void last(void)
{
    ask("/dev/infiniband/uverbs9");
}
#else
static void *work(void *sum)
{
    unsigned char *heap = malloc(1 << 20);
    memset(heap, 1, 1 << 20);
    *(int *)sum += heap[77];
    free(heap);
    return NULL;
}

int main(int argc, char **argv)
{
    int sum = 0, failed = 1;
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &sum) || pthread_join(thread, NULL))
            return 2;
        if (round == 0)
            failed = ask(argc > 1 ? argv[1] : "");
    }
    return failed || sum != 2;
}
#endif
