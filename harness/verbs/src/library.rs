//! The machine's libibverbs.

use std::ffi::CStr;
use std::ffi::c_void;

use crate::Error;
use crate::ffi;

/// Of every version since 2005.
const NAME: &CStr = c"libibverbs.so.1";

/// The library's functions. It is never unloaded: providers have threads and exit handlers.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) get_device_list: ffi::GetDeviceList,
    pub(super) free_device_list: ffi::FreeDeviceList,
    pub(super) get_device_name: ffi::GetDeviceName,
    pub(super) open_device: ffi::OpenDevice,
    pub(super) close_device: ffi::CloseDevice,
    pub(super) query_device: ffi::QueryDevice,
    pub(super) query_port: ffi::QueryPort,
    pub(super) query_gid: ffi::QueryGid,
    pub(super) alloc_pd: ffi::AllocPd,
    pub(super) dealloc_pd: ffi::DeallocPd,
    pub(super) reg_mr: ffi::RegMr,
    pub(super) dereg_mr: ffi::DeregMr,
    pub(super) create_comp_channel: ffi::CreateCompChannel,
    pub(super) destroy_comp_channel: ffi::DestroyCompChannel,
    pub(super) get_cq_event: ffi::GetCqEvent,
    pub(super) ack_cq_events: ffi::AckCqEvents,
    pub(super) create_cq: ffi::CreateCq,
    pub(super) destroy_cq: ffi::DestroyCq,
    pub(super) create_qp: ffi::CreateQp,
    pub(super) modify_qp: ffi::ModifyQp,
    pub(super) destroy_qp: ffi::DestroyQp,
}

/// A function of the library under its declared type.
macro_rules! symbol {
    ($library:expr, $name:literal, $type:ty) => {{
        let address = symbol($library, $name)?;
        // SAFETY: the address is that of the function of this name, and the type is its declaration
        // in infiniband/verbs.h.
        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
    }};
}

impl Library {
    pub(super) fn load() -> Result<Self, Error> {
        let library = open()?;
        Ok(Self {
            get_device_list: symbol!(library, c"ibv_get_device_list", ffi::GetDeviceList),
            free_device_list: symbol!(library, c"ibv_free_device_list", ffi::FreeDeviceList),
            get_device_name: symbol!(library, c"ibv_get_device_name", ffi::GetDeviceName),
            open_device: symbol!(library, c"ibv_open_device", ffi::OpenDevice),
            close_device: symbol!(library, c"ibv_close_device", ffi::CloseDevice),
            query_device: symbol!(library, c"ibv_query_device", ffi::QueryDevice),
            query_port: symbol!(library, c"ibv_query_port", ffi::QueryPort),
            query_gid: symbol!(library, c"ibv_query_gid", ffi::QueryGid),
            alloc_pd: symbol!(library, c"ibv_alloc_pd", ffi::AllocPd),
            dealloc_pd: symbol!(library, c"ibv_dealloc_pd", ffi::DeallocPd),
            reg_mr: symbol!(library, c"ibv_reg_mr", ffi::RegMr),
            dereg_mr: symbol!(library, c"ibv_dereg_mr", ffi::DeregMr),
            create_comp_channel: symbol!(
                library,
                c"ibv_create_comp_channel",
                ffi::CreateCompChannel
            ),
            destroy_comp_channel: symbol!(
                library,
                c"ibv_destroy_comp_channel",
                ffi::DestroyCompChannel
            ),
            get_cq_event: symbol!(library, c"ibv_get_cq_event", ffi::GetCqEvent),
            ack_cq_events: symbol!(library, c"ibv_ack_cq_events", ffi::AckCqEvents),
            create_cq: symbol!(library, c"ibv_create_cq", ffi::CreateCq),
            destroy_cq: symbol!(library, c"ibv_destroy_cq", ffi::DestroyCq),
            create_qp: symbol!(library, c"ibv_create_qp", ffi::CreateQp),
            modify_qp: symbol!(library, c"ibv_modify_qp", ffi::ModifyQp),
            destroy_qp: symbol!(library, c"ibv_destroy_qp", ffi::DestroyQp),
        })
    }
}

/// A program without a dynamic linker has none for others either.
#[cfg(target_feature = "crt-static")]
fn open() -> Result<*mut c_void, Error> {
    Err(Error::Static)
}

#[cfg(not(target_feature = "crt-static"))]
fn open() -> Result<*mut c_void, Error> {
    // SAFETY: the name is a C string; the library's constructors are as trusted as the library.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() { Err(Error::Load(reason())) } else { Ok(library) }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, Error> {
    // SAFETY: the library is open, and the name a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(Error::Load(reason())) } else { Ok(address) }
}

fn reason() -> String {
    // SAFETY: takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return NAME.to_string_lossy().into_owned();
    }
    // SAFETY: a C string that is valid until the next call of this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
