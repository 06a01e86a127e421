#include <linux/types.h>
struct acme_make {
	__aligned_u64 addr;
	union { __u32 a; __aligned_u64 b; } either;
#ifdef __KERNEL__
	void *own;
#endif
};
