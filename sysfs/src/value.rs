//! The recorded contents of a sysfs file.

use std::borrow::Cow;

use serde::Deserialize;
use serde::Serialize;

/// What a read of an attribute gave.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Text, its newline included.
    Text(String),
    /// Bytes that are no text: the header of a PCI function's configuration space.
    Hex {
        /// Two digits a byte.
        #[serde(with = "hex")]
        hex: Vec<u8>,
    },
    /// The read failed, as that of `speed` does on a link that is down.
    Failed {
        /// With this errno.
        errno: i32,
    },
    /// It exists and was not read: where it is served from the host, it is read when it is asked
    /// for.
    Unread(()),
}

impl Value {
    /// The text without the white space around it.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.trim()),
            _ => None,
        }
    }

    /// What a read gives.
    ///
    /// # Errors
    /// The recorded errno; EIO for what was never read.
    pub fn read(&self) -> Result<Cow<'_, [u8]>, i32> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text.as_bytes())),
            Self::Hex { hex } => Ok(Cow::Borrowed(hex)),
            Self::Failed { errno } => Err(*errno),
            Self::Unread(()) => Err(libc::EIO),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Self::Text(text),
            Ok(text) => Self::Hex { hex: text.into_bytes() },
            Err(error) => Self::Hex { hex: error.into_bytes() },
        }
    }
}

mod hex {
    use std::fmt::Write as _;

    use serde::Deserialize;
    use serde::Deserializer;
    use serde::Serializer;
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        bytes.ok_or_else(|| Error::custom("hex digits, two a byte, belong here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_json() {
        for value in [
            Value::Text("0x15b3\n".to_owned()),
            Value::Hex { hex: vec![0xb3, 0x15, 0] },
            Value::Failed { errno: libc::EINVAL },
            Value::Unread(()),
        ] {
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value, "{json}");
        }
        assert!(serde_json::from_str::<Value>(r#"{"hex":"b31"}"#).is_err());
    }
}
