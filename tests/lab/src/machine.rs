//! QEMU's command line. The parameters work without KVM; read the comments before you change one.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::kernel::BootFiles;
use crate::recipe::Arch;

/// A virtual machine to start.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) arch: Arch,
    pub(crate) boot: &'a BootFiles,
    pub(crate) root: &'a Path,
    pub(crate) control: &'a Path,
    pub(crate) share: Option<PathBuf>,
    pub(crate) console_log: &'a Path,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
    /// The host's clock rate, for the guest's time-stamp counter.
    pub(crate) tsc_khz: Option<u64>,
    pub(crate) interactive: bool,
    /// The arguments of NICs, and of memory that they can reach.
    pub(crate) nics: Vec<String>,
}

impl Machine<'_> {
    /// The arguments for the QEMU of the processor ([`program`]).
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
        // Every device that is left out is boot time saved under emulation.
        let (machine, cpu) = match self.arch {
            // The emulator copies byte by byte where a processor claims fast string operations, and walks a
            // fifth level of page tables for each address that it translates.
            Arch::Amd64 => ("q35,sata=off,smbus=off,usb=off,vmport=off", "max,-erms,-fsrm,-la57"),
            // The architecture's own cipher for pointer authentication takes half of the time.
            Arch::Arm64 => ("virt,gic-version=3", "max,pauth-impdef=on"),
        };
        add("-machine", machine.into());
        add("-accel", "tcg,thread=multi".into());
        add("-cpu", cpu.into());
        add("-smp", self.cpus.to_string());
        add("-m", format!("{}M", self.memory_mib));
        add("-kernel", text(&self.boot.kernel));
        add("-initrd", text(&self.boot.initramfs));
        add("-append", self.kernel_command_line());
        add("-serial", format!("file:{}", escaped(self.console_log)));
        // The discarded copy of the image is what makes runs independent of each other.
        add(
            "-drive",
            format!("if=none,id=root,format=raw,snapshot=on,file={}", escaped(self.root)),
        );
        add("-device", "virtio-blk-pci,drive=root,serial=lab-root".into());
        if let Some(modules) = &self.boot.modules {
            add(
                "-drive",
                format!("if=none,id=modules,format=raw,readonly=on,file={}", escaped(modules)),
            );
            add("-device", "virtio-blk-pci,drive=modules,serial=lab-modules".into());
        }
        add("-fsdev", share("control", self.control));
        add("-device", "virtio-9p-pci,fsdev=control,mount_tag=lab-control".into());
        if let Some(folder) = &self.share {
            add("-fsdev", share("share", folder));
            add("-device", "virtio-9p-pci,fsdev=share,mount_tag=lab-share".into());
        }
        add("-device", "virtio-rng-pci".into());
        add("-device", "virtio-serial-pci".into());
        // Ctrl-C in a shell is for the guest; in a run the terminal sends it to everybody.
        add("-chardev", "stdio,id=output,signal=off".into());
        let port = if self.interactive {
            "virtconsole,chardev=output"
        } else {
            "virtserialport,chardev=output,name=lab.output"
        };
        add("-device", port.into());
        add("-display", "none".into());
        add("-monitor", "none".into());
        if self.arch == Arch::Amd64 {
            add("-parallel", "none".into());
            add("-vga", "none".into());
        }
        for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            args.push(flag.to_owned());
        }
        args.extend(self.nics.iter().cloned());
        args
    }

    fn kernel_command_line(&self) -> String {
        let mut words = vec![
            match self.arch {
                // On a busy machine the emulated timer is late, and the kernel would take it for broken.
                Arch::Amd64 => "console=ttyS0 no_timer_check".to_owned(),
                Arch::Arm64 => "console=ttyAMA0".to_owned(),
            },
            "loglevel=4".into(),
            "panic=-1".into(),
            "mitigations=off".into(),
        ];
        if let (Arch::Amd64, Some(khz)) = (self.arch, self.tsc_khz) {
            // Without these 6.12 and 7.2 can hang while they calibrate, and time runs oddly.
            words.push(format!("tsc_early_khz={khz}"));
            words.push("tsc=reliable".into());
            // The kernel then clears and copies pages by loops, which the emulator runs faster.
            words.push("clearcpuid=rep_good".into());
        }
        words.join(" ")
    }
}

/// The QEMU that emulates a processor.
pub(crate) const fn program(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "qemu-system-x86_64",
        Arch::Arm64 => "qemu-system-aarch64",
    }
}

fn share(id: &str, folder: &Path) -> String {
    format!("local,id={id},security_model=none,multidevs=remap,path={}", escaped(folder))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A path as a value in a QEMU option, where a comma must be doubled.
fn escaped(path: &Path) -> String {
    text(path).replace(',', ",,")
}

/// The clock rate of the host's CPUs.
pub(crate) fn host_khz() -> Option<u64> {
    parse_khz(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The first `cpu MHz : 2445.404` of a cpuinfo, in kHz.
fn parse_khz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|l| l.starts_with("cpu MHz"))?;
    let (mhz, fraction) = line.split_once(':')?.1.trim().split_once('.')?;
    let khz: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some(mhz.parse::<u64>().ok()? * 1000 + khz.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(interactive: bool, share: Option<PathBuf>) -> String {
        let boot = BootFiles {
            kernel: "/c/vmlinuz".into(),
            initramfs: "/c/initramfs".into(),
            modules: Some("/c/m.ext4".into()),
        };
        let machine = Machine {
            arch: Arch::Amd64,
            boot: &boot,
            root: Path::new("/c/a,b/root.ext4"),
            control: Path::new("/t/control"),
            share,
            console_log: Path::new("/t/console.log"),
            memory_mib: 512,
            cpus: 2,
            tsc_khz: Some(2_445_404),
            interactive,
            nics: Vec::new(),
        };
        machine.arguments().join(" ")
    }

    #[test]
    fn the_clock_is_given_and_kvm_is_not_used() {
        let line = arguments(false, None);
        assert!(line.contains("tsc_early_khz=2445404 tsc=reliable"), "{line}");
        assert!(line.contains("-accel tcg,thread=multi") && !line.contains("kvm"), "{line}");
        assert!(!line.contains("lab-share"), "{line}");
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let line = arguments(false, Some("/x,y".into()));
        assert!(line.contains("snapshot=on,file=/c/a,,b/root.ext4"), "{line}");
        assert!(line.contains("path=/x,,y") && line.contains("mount_tag=lab-share"), "{line}");
    }

    #[test]
    fn a_shell_has_a_terminal() {
        assert!(arguments(true, None).contains("virtconsole,chardev=output"));
        assert!(arguments(false, None).contains("virtserialport,chardev=output,name=lab.output"));
    }

    #[test]
    fn megahertz_become_kilohertz() {
        assert_eq!(parse_khz("processor\t: 0\ncpu MHz\t\t: 2445.404\n"), Some(2_445_404));
        assert_eq!(parse_khz("cpu MHz\t\t: 3000.5\n"), Some(3_000_500));
        assert_eq!(parse_khz("model name : x\n"), None);
    }
}
