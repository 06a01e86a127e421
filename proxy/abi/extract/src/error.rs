//! What can be wrong with a kernel's source.

use std::io;
use std::path::PathBuf;

/// Why the ABI cannot be read from a kernel's source.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what the texts name")]
pub enum Error {
    /// The folder holds no kernel.
    #[error("{} holds no kernel's source: name the folder that has the kernel's Makefile", path.display())]
    NoTree { path: PathBuf, source: io::Error },
    /// The version cannot be read.
    #[error("{} does not say {key}: is this the kernel's own Makefile?", path.display())]
    NoVersion { path: PathBuf, key: String },
    /// A file or folder cannot be read.
    #[error("cannot read {}: is the kernel's source complete?", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A macro declares something in a way that is new.
    #[error(
        "{place}: the extraction does not know {name}: teach proxy/abi/extract/src what the macro means"
    )]
    UnknownMacro { name: String, place: String },
    /// A file outside of the folders of the core and of drivers.
    #[error(
        "{place}: whose declaration is this? Teach `provider` in proxy/abi/extract/src/tree.rs the folder"
    )]
    NoOwner { place: String },
    /// A macro has fewer arguments than it had.
    #[error(
        "{place}: {name} has fewer arguments than the extraction knows: teach proxy/abi/extract/src the new form"
    )]
    Arguments { name: String, place: String },
    /// A line of a structure is no field.
    #[error(
        "{what}: the extraction does not understand the field `{line}`: teach proxy/abi/extract/src/layout.rs"
    )]
    Field { what: String, line: String },
    /// Something of the framework's header is gone.
    #[error(
        "{file} does not define {name}: teach proxy/abi/extract/src/extract.rs where the kernel has moved that to"
    )]
    Missing { file: String, name: String },
    /// A method is in no object, or an attribute is added to a method that no object has.
    #[error("{place}: no object lists the method {name}")]
    NoObject { name: String, place: String },
    /// An object of a method is declared nowhere.
    #[error("{place}: the object {name} is declared nowhere")]
    NoDeclaration { name: String, place: String },
    /// Two declarations that should be one.
    #[error("{name} is declared twice: {first} and {second}")]
    Twice { name: String, first: String, second: String },
    /// There is no compiler.
    #[error("cannot run cc: install the package gcc")]
    NoCompiler(#[source] io::Error),
    /// The compiler does not understand a declaration.
    #[error("the compiler does not understand {what}: {message}")]
    Compile { what: String, message: String },
    /// The compiler does not understand the headers.
    #[error("the compiler does not understand the kernel's headers:\n{0}")]
    Headers(String),
    /// The program printed something else than numbers.
    #[error("the compiled program printed {got} numbers, not {wanted}")]
    Numbers { wanted: usize, got: usize },
    /// A size or id that the wire has no room for.
    #[error("{value} is too large for an id or a size of the ABI")]
    TooLarge { value: u64 },
    /// Scratch files.
    #[error("cannot write a scratch file: is the folder for temporary files full?")]
    Scratch(#[source] io::Error),
    /// Nothing to merge.
    #[error("no kernel is named: give at least one")]
    NoKernel,
    /// Two sources of one series.
    #[error("two of the kernels are {series}: name each series once")]
    SameKernel { series: String },
    /// One name with two meanings.
    #[error(
        "{name} has another {key} than in Linux {before}: no union of both kernels is right, so the tables need an entry for each"
    )]
    OtherMeaning { name: String, key: String, before: String },
    /// JSON.
    #[error("cannot write JSON")]
    Json(#[source] serde_json::Error),
}
