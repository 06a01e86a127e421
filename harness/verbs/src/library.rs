//! The machine's libibverbs, librdmacm and libefa.

use std::ffi::CStr;
use std::ffi::c_void;

use crate::Error;
use crate::ffi;
use crate::ffi::cm;
use crate::ffi::extended;

/// Of every version since 2005.
const NAME: &CStr = c"libibverbs.so.1";
/// Likewise.
const CM_NAME: &CStr = c"librdmacm.so.1";
/// Since rdma-core 22.
const EFA_NAME: &CStr = c"libefa.so.1";

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
    /// Since rdma-core 34.
    pub(super) reg_dmabuf_mr: Option<ffi::RegDmabufMr>,
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
    pub(super) create_ah: ffi::CreateAh,
    pub(super) destroy_ah: ffi::DestroyAh,
}

/// A function of the library under its declared type.
macro_rules! symbol {
    ($library:expr, $name:literal, $type:ty) => {{
        let address = symbol($library, $name)?;
        // SAFETY: the address is that of the function of this name, and the type is its declaration
        // in infiniband/verbs.h, infiniband/efadv.h or rdma/rdma_cma.h.
        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
    }};
}

impl Library {
    pub(super) fn load() -> Result<Self, Error> {
        let library = open(NAME)?;
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
            reg_dmabuf_mr: known(library, c"ibv_reg_dmabuf_mr").map(|address| {
                // SAFETY: as of `symbol!`.
                unsafe { std::mem::transmute::<*mut c_void, ffi::RegDmabufMr>(address) }
            }),
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
            create_ah: symbol!(library, c"ibv_create_ah", ffi::CreateAh),
            destroy_ah: symbol!(library, c"ibv_destroy_ah", ffi::DestroyAh),
        })
    }
}

/// What makes queue pairs of SRD, which only EFA's own library does.
#[derive(Debug)]
pub(super) struct EfaLibrary {
    pub(super) create_qp: extended::CreateEfaQp,
    /// Of libibverbs, since rdma-core 27.
    pub(super) to_extended: extended::ToExtended,
}

impl EfaLibrary {
    pub(super) fn load() -> Result<Self, Error> {
        let find = || {
            let (verbs, efa) = (open(NAME)?, open(EFA_NAME)?);
            Ok(Self {
                create_qp: symbol!(efa, c"efadv_create_qp_ex", extended::CreateEfaQp),
                to_extended: symbol!(verbs, c"ibv_qp_to_qp_ex", extended::ToExtended),
            })
        };
        find().map_err(|error| match error {
            Error::Load(reason) => Error::LoadProvider { library: "libefa", reason },
            other => other,
        })
    }
}

/// librdmacm's functions. It is never unloaded either: its destructor would close what is in use.
#[derive(Debug)]
pub(super) struct CmLibrary {
    pub(super) create_event_channel: cm::CreateEventChannel,
    pub(super) destroy_event_channel: cm::DestroyEventChannel,
    pub(super) get_cm_event: cm::GetCmEvent,
    pub(super) ack_cm_event: cm::AckCmEvent,
    pub(super) create_id: cm::CreateId,
    pub(super) destroy_id: cm::OfId,
    pub(super) bind_addr: cm::BindAddr,
    pub(super) listen: cm::OfIdAndNumber,
    pub(super) resolve_addr: cm::ResolveAddr,
    pub(super) resolve_route: cm::OfIdAndNumber,
    pub(super) connect: cm::Connect,
    pub(super) accept: cm::Connect,
    pub(super) establish: cm::OfId,
    pub(super) init_qp_attr: cm::InitQpAttr,
    pub(super) set_option: cm::SetOption,
    pub(super) get_src_port: cm::GetSrcPort,
}

impl CmLibrary {
    pub(super) fn load() -> Result<Self, Error> {
        Self::find().map_err(|error| match error {
            Error::Load(reason) => Error::LoadCm(reason),
            other => other,
        })
    }

    fn find() -> Result<Self, Error> {
        let library = open(CM_NAME)?;
        Ok(Self {
            create_event_channel: symbol!(
                library,
                c"rdma_create_event_channel",
                cm::CreateEventChannel
            ),
            destroy_event_channel: symbol!(
                library,
                c"rdma_destroy_event_channel",
                cm::DestroyEventChannel
            ),
            get_cm_event: symbol!(library, c"rdma_get_cm_event", cm::GetCmEvent),
            ack_cm_event: symbol!(library, c"rdma_ack_cm_event", cm::AckCmEvent),
            create_id: symbol!(library, c"rdma_create_id", cm::CreateId),
            destroy_id: symbol!(library, c"rdma_destroy_id", cm::OfId),
            bind_addr: symbol!(library, c"rdma_bind_addr", cm::BindAddr),
            listen: symbol!(library, c"rdma_listen", cm::OfIdAndNumber),
            resolve_addr: symbol!(library, c"rdma_resolve_addr", cm::ResolveAddr),
            resolve_route: symbol!(library, c"rdma_resolve_route", cm::OfIdAndNumber),
            connect: symbol!(library, c"rdma_connect", cm::Connect),
            accept: symbol!(library, c"rdma_accept", cm::Connect),
            establish: symbol!(library, c"rdma_establish", cm::OfId),
            init_qp_attr: symbol!(library, c"rdma_init_qp_attr", cm::InitQpAttr),
            set_option: symbol!(library, c"rdma_set_option", cm::SetOption),
            get_src_port: symbol!(library, c"rdma_get_src_port", cm::GetSrcPort),
        })
    }
}

/// A program without a dynamic linker has none for others either.
#[cfg(target_feature = "crt-static")]
fn open(_: &CStr) -> Result<*mut c_void, Error> {
    Err(Error::Static)
}

#[cfg(not(target_feature = "crt-static"))]
fn open(name: &CStr) -> Result<*mut c_void, Error> {
    // SAFETY: the name is a C string; the library's constructors are as trusted as the library.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() { Err(Error::Load(reason())) } else { Ok(library) }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, Error> {
    known(library, name).ok_or_else(|| Error::Load(reason()))
}

fn known(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library is open, and the name a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn reason() -> String {
    // SAFETY: takes nothing.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: a C string that is valid until the next call of this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
