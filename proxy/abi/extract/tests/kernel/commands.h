#include <linux/types.h>
#include <linux/ioctl.h>
struct ib_uverbs_attr { __aligned_u64 words[2]; };
struct ib_uverbs_ioctl_hdr { __aligned_u64 words[3]; };
#define RDMA_VERBS_IOCTL _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)
enum { UVERBS_ATTR_F_MANDATORY = 1, UVERBS_ATTR_F_VALID_OUTPUT = 2 };
enum { UVERBS_ATTR_UHW_IN = 0x1000, UVERBS_ATTR_UHW_OUT };
enum { T_OBJECT_BOX = 1, T_OBJECT_BELL, ACME_OBJECT_GLOBAL = 0x1000 };
enum { T_METHOD_MAKE, T_METHOD_BREAK, };
enum { T_METHOD_RING };
enum { ACME_METHOD_BLINK = 0x1000 };
enum {
	T_ATTR_MAKE_HANDLE, T_ATTR_MAKE_SIZE, T_ATTR_MAKE_WEIGHT, T_ATTR_MAKE_TEXT, T_ATTR_MAKE_CHOICE,
	T_ATTR_MAKE_LIST, T_ATTR_MAKE_FILE, T_ATTR_MAKE_RESULT,
};
enum { T_ATTR_BREAK_HANDLE };
enum { T_ATTR_RING_BELL };
enum { ACME_ATTR_MAKE_COLOUR = 0x1002 };
struct t_size { __u32 low, high; };
