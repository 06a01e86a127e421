//! A kernel's source as small as can be: a framework of the names that the extraction knows, one
//! object of the core's with a driver's additions, and two legacy commands.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A source on disk.
pub(crate) struct Kernel(TempDir);

impl Kernel {
    /// The source, of a version such as `9.1.4`.
    pub(crate) fn new(version: &str) -> Self {
        let kernel = Self(tempfile::tempdir().unwrap());
        let mut numbers = version.split('.');
        let mut makefile = String::from("# A kernel.\n");
        for name in ["VERSION", "PATCHLEVEL", "SUBLEVEL"] {
            makefile += &format!("{name} = {}\n", numbers.next().unwrap());
        }
        kernel.write("Makefile", &makefile);
        for (path, text) in FILES {
            kernel.write(path, text);
        }
        kernel
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes a file; the text must be there.
    pub(crate) fn replace(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path().join(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from}");
        self.write(path, &text.replace(from, to));
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

const FILES: &[(&str, &str)] = &[
    ("include/rdma/uverbs_ioctl.h", include_str!("framework.h")),
    ("include/uapi/rdma/ib_user_ioctl_cmds.h", include_str!("commands.h")),
    ("include/uapi/rdma/ib_user_verbs.h", include_str!("legacy.h")),
    ("include/uapi/rdma/acme-abi.h", include_str!("acme-abi.h")),
    ("drivers/infiniband/core/box.c", include_str!("box.c")),
    ("drivers/infiniband/core/uverbs_cmd.c", include_str!("uverbs_cmd.c")),
    ("drivers/infiniband/hw/acme/main.c", include_str!("acme.c")),
];
