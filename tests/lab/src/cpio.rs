//! The `newc` archive that the kernel unpacks as its initial root. Written here because a writer
//! is shorter than running cpio(1), and can make a device node without root.
//!
//! Source: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::io;

const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive in the making. Folders must be added before what is in them.
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    next_inode: u32,
}

impl Cpio {
    /// Adds a regular file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | mode, (0, 0), content)
    }

    /// Adds a folder.
    pub(crate) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, FOLDER | 0o755, (0, 0), &[])
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(name, CHARACTER_DEVICE | 0o600, (major, minor), &[])
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        self.next_inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let too_big = |_| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{name} is too big for an initramfs"),
            )
        };
        let size = u32::try_from(content.len()).map_err(too_big)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_big)?;
        let inode = self.next_inode;
        self.next_inode += 1;
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_reads_it() {
        let mut cpio = Cpio::default();
        cpio.file("init", 0o755, b"hello").unwrap();
        let bytes = cpio.finish().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with("07070100000000000081ed"), "{text}");
        // Header 110, name 5, padded to 116; content 5, padded to 124.
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(text.contains("TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }
}
