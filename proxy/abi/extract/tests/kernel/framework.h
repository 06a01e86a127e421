/* A framework of the shape that the extraction relies on, and no more. */
enum uverbs_attr_type {
	UVERBS_ATTR_TYPE_NA, UVERBS_ATTR_TYPE_PTR_IN, UVERBS_ATTR_TYPE_PTR_OUT, UVERBS_ATTR_TYPE_IDR,
	UVERBS_ATTR_TYPE_FD, UVERBS_ATTR_TYPE_RAW_FD, UVERBS_ATTR_TYPE_ENUM_IN, UVERBS_ATTR_TYPE_IDRS_ARRAY,
};
enum uverbs_obj_access { UVERBS_ACCESS_READ, UVERBS_ACCESS_WRITE, UVERBS_ACCESS_NEW, UVERBS_ACCESS_DESTROY };
struct uverbs_attr_spec {
	u8 type, mandatory, is_udata, zero_trailing, alloc_and_copy;
	union {
		struct { u16 len, min_len; } ptr;
		struct { u16 obj_type; u8 access; } obj;
		struct { u8 num_elems; } enum_def;
	} u;
	union {
		struct { const struct uverbs_attr_spec *ids; } enum_def;
		struct { u16 obj_type, min_len, max_len; u8 access; } objs_arr;
	} u2;
};
struct uverbs_attr_def { u16 id; struct uverbs_attr_spec attr; };
enum uapi_definition_kind { UAPI_DEF_WRITE };
enum uapi_definition_scope { UAPI_SCOPE_OBJECT };
struct uapi_definition {
	u8 kind;
	struct { u16 command_num, req_size, resp_size; u8 is_ex, has_udata, has_resp; } write;
	void *func_write;
};
#define DECLARE_UVERBS_WRITE(n, f, d, ...) { .write = { .command_num = n }, .func_write = f, d, }, ##__VA_ARGS__
#define DECLARE_UVERBS_WRITE_EX(n, f, d, ...) \
	{ .write = { .command_num = n, .is_ex = 1 }, .func_write = f, d, }, ##__VA_ARGS__
#define UVERBS_ATTR_SIZE(low, high) .u.ptr.min_len = low, .u.ptr.len = high
#define UVERBS_ATTR_TYPE(type) UVERBS_ATTR_SIZE(sizeof(type), sizeof(type))
#define UVERBS_ATTR_STRUCT(type, last) .zero_trailing = 1, UVERBS_ATTR_SIZE(offsetofend(type, last), sizeof(type))
#define UVERBS_ATTR_MIN_SIZE(low) UVERBS_ATTR_SIZE(low, USHRT_MAX)
#define UVERBS_ATTR_NO_DATA() UVERBS_ATTR_SIZE(0, 0)
#define UA_ALLOC_AND_COPY .alloc_and_copy = 1
#define UA_MANDATORY .mandatory = 1
#define UA_OPTIONAL .mandatory = 0
#define T_ATTR(i, ...) (&(const struct uverbs_attr_def){ .id = i, .attr = { __VA_ARGS__ } })
#define UVERBS_ATTR_PTR_IN(i, t, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_PTR_IN, t, __VA_ARGS__)
#define UVERBS_ATTR_PTR_OUT(i, t, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_PTR_OUT, t, __VA_ARGS__)
#define UVERBS_ATTR_CONST_IN(i, t, ...) UVERBS_ATTR_PTR_IN(i, UVERBS_ATTR_TYPE(u64), __VA_ARGS__)
#define UVERBS_ATTR_IDR(i, o, a, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_IDR, .u.obj = { o, a }, __VA_ARGS__)
#define UVERBS_ATTR_FD(i, o, a, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_FD, .u.obj = { o, a }, __VA_ARGS__)
#define UVERBS_ATTR_RAW_FD(i, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_RAW_FD, __VA_ARGS__)
#define UVERBS_ATTR_IDRS_ARR(i, o, a, low, high, ...) \
	T_ATTR(i, .type = UVERBS_ATTR_TYPE_IDRS_ARRAY, .u2.objs_arr = { o, low, high, a }, __VA_ARGS__)
#define UVERBS_ATTR_ENUM_IN(i, e, ...) T_ATTR(i, .type = UVERBS_ATTR_TYPE_ENUM_IN, .u2.enum_def.ids = e, \
	.u.enum_def.num_elems = ARRAY_SIZE(e), __VA_ARGS__)
#define UVERBS_ATTR_UHW() \
	UVERBS_ATTR_PTR_IN(UVERBS_ATTR_UHW_IN, UVERBS_ATTR_MIN_SIZE(0), UA_OPTIONAL, .is_udata = 1), \
	UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_UHW_OUT, UVERBS_ATTR_MIN_SIZE(0), UA_OPTIONAL, .is_udata = 1)
