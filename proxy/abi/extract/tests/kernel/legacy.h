#include <linux/types.h>
enum { T_CMD_MAKE = 3, T_EX_CMD_MAKE };
struct t_make {
	__aligned_u64 response;
	__u32 handle;
	__u8 name[3], reserved;
	__aligned_u64 driver_data[];
};
struct t_make_resp { __u32 handle; };
struct t_make_ex { __u32 mask, handle; __aligned_u64 more; };
