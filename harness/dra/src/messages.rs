//! The messages between kubelet and driver: the kubelet's `dra/v1/api.proto` and `v1beta1`, which are alike, and
//! `pluginregistration/v1/api.proto`.

use std::collections::HashMap;

use prost::Message;

/// `NodePrepareResourcesRequest` and `NodeUnprepareResourcesRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claims {
    #[prost(message, repeated, tag = "1")]
    pub(crate) claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Claim {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

/// `NodePrepareResourcesResponse`: by the claims' uids.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AllPrepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, OnePrepared>,
}

/// `NodePrepareResourceResponse`: devices, or an error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OnePrepared {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Prepared>,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

/// `Device`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Prepared {
    #[prost(string, repeated, tag = "1")]
    pub(crate) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(crate) pool_name: String,
    #[prost(string, tag = "3")]
    pub(crate) device_name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) cdi_device_ids: Vec<String>,
}

/// `NodeUnprepareResourcesResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AllUnprepared {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) claims: HashMap<String, OneUnprepared>,
}

/// `NodeUnprepareResourceResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct OneUnprepared {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}

/// `InfoRequest` and `RegistrationStatusResponse`, which have no fields.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Nothing {}

/// `PluginInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) supported_versions: Vec<String>,
}

/// `RegistrationStatus`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(crate) plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}
