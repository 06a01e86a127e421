//! `verbgate sysfs serve`: a mount until a signal.

use std::fs::File;
use std::sync::Arc;

use anyhow::anyhow;
use nix::mount::MntFlags;
use nix::mount::umount2;
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;
use verbgate_sysfs::AllGids;
use verbgate_sysfs::record::Detail;
use verbgate_sysfs::record::record;
use verbgate_sysfs::serve;
use verbgate_sysfs::serve::State;

use super::args::MaterialiseArgs;

/// Serves; the exit code is 0 however it was ended.
pub(super) fn run(args: &MaterialiseArgs) -> Result<u8, anyhow::Error> {
    let place = super::place(&args.host);
    // Before any thread, so that all of them leave the signals to the one that waits for them.
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().map_err(|e| anyhow!("cannot block signals: {e}"))?;
    let state = if let Some(file) = &args.host.snapshot {
        let snapshot = super::load(file)?;
        let grant = super::grant(&snapshot, &args.grant)?;
        State::recorded(&snapshot, grant, Arc::new(AllGids))
    } else {
        // For the names in the options alone.
        let grant = super::grant(&record(&place, Detail::Names)?, &args.grant)?;
        let root =
            File::open(&place).map_err(|e| anyhow!("cannot open {}: {e}", place.display()))?;
        State::live(root.into(), grant, Arc::new(AllGids))?
    };
    let mut mounted = serve::mount(Arc::new(state), &args.dir).map_err(|e| {
        anyhow!(
            "cannot mount FUSE on {}: {e}; the path must be a directory, and /dev/fuse (module \
             fuse) and root or fusermount3 are needed",
            args.dir.display()
        )
    })?;
    // The way of a caller who mounted through fusermount3(1).
    let unmount = mounted.unmounter();
    let dir = args.dir.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.wait().is_err() {
            return;
        }
        // Lazily, because somebody may be looking; for them, what is open fails from now on.
        let detached = umount2(&dir, MntFlags::MNT_DETACH).is_ok();
        if let Some(error) = (!detached).then(unmount).and_then(Result::err) {
            log::error!("cannot unmount {}: {error}", dir.display());
        }
        std::process::exit(0);
    })?;
    mounted.run().map_err(|e| anyhow!("cannot serve {}: {e}", args.dir.display()))?;
    Ok(0)
}
