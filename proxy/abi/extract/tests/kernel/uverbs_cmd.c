#define UAPI_DEF_WRITE_UDATA_IO(req, resp) .write.has_resp = 1, .write.has_udata = 1, \
	.write.req_size = sizeof(req), .write.resp_size = sizeof(resp)
#define UAPI_DEF_WRITE_I_EX(req, last) .write.req_size = offsetofend(req, last)
const struct uapi_definition table[] = {
	DECLARE_UVERBS_OBJECT(
		T_OBJECT_BOX,
		DECLARE_UVERBS_WRITE(T_CMD_MAKE, t_make, UAPI_DEF_WRITE_UDATA_IO(struct t_make, struct t_make_resp),
				     UAPI_DEF_METHOD_NEEDS_FN(make_box)),
		DECLARE_UVERBS_WRITE_EX(T_EX_CMD_MAKE, t_make_ex, UAPI_DEF_WRITE_I_EX(struct t_make_ex, handle)),
		UAPI_DEF_OBJ_NEEDS_FN(all_of_them)),
};
