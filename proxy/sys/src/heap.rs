//! A heap of which no thread keeps much for itself.

use std::alloc::GlobalAlloc;
use std::alloc::Layout;
use std::alloc::System;

/// The system's allocator, asked for few sizes only.
///
/// The GNU C library keeps up to seven freed blocks of each size for each thread (`glibc.malloc.tcache_count`, its
/// manual's "Memory Allocation Tunables"), in 64 sizes up to 1,032 bytes: 236 KiB a thread when all are full, which
/// takes hours of guests. A supervisor has a thread for each guest that waits, so its memory would grow for as
/// long. In five sizes, a thread keeps 7 KiB at most, and these are full within seconds. mallopt(3) has no setting
/// for this, and the variable `GLIBC_TUNABLES` is read when a program starts: the supervisor of `verbgate run` is
/// forked.
///
/// A program asks for it by `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FewSizes;

/// The C library's own word before each block.
const HEAD: usize = 8;
const SMALLEST: usize = 32 - HEAD;
/// The largest size of which a thread gets blocks that it keeps.
const LARGEST: usize = 512 - HEAD;
/// The least size of which no thread keeps blocks.
const SHARED: usize = 1032 + 1;

/// The size that is asked for instead: a power of two with the C library's word, or one of which no thread keeps
/// blocks.
const fn rounded(size: usize) -> usize {
    if size <= SMALLEST {
        SMALLEST
    } else if size <= LARGEST {
        (size + HEAD).next_power_of_two() - HEAD
    } else if size < SHARED {
        SHARED
    } else {
        size
    }
}

/// The layout that is asked for instead.
const fn instead(layout: Layout) -> Layout {
    match Layout::from_size_align(rounded(layout.size()), layout.align()) {
        Ok(rounded) => rounded,
        // Too large for any heap, and passed on to be refused there.
        Err(_) => layout,
    }
}

// SAFETY: every block comes from the system's allocator and goes back there with the layout with which it came,
// for `instead` depends on the layout alone; its size is never less than the caller's.
unsafe impl GlobalAlloc for FewSizes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's size is not 0, so the rounded one is not.
        unsafe { System.alloc(instead(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(instead(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block was allocated with `instead` of the same layout.
        unsafe { System.dealloc(block, instead(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old, size) = (instead(layout), rounded(size));
        if old.size() == size {
            return block;
        }
        // SAFETY: the block was allocated with `old`, and the new size is not 0, for the caller's is not.
        unsafe { System.realloc(block, old, size) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_thread_keeps_blocks_of_five_sizes() {
        let sizes: BTreeSet<usize> =
            (1..=4096).map(rounded).filter(|size| *size < SHARED).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [24, 56, 120, 248, 504]);
    }

    /// What the calling thread has freed of blocks of every size, and keeps for itself: mallinfo(3) counts that as
    /// used.
    #[cfg(target_env = "gnu")]
    fn kept_of(heap: &impl GlobalAlloc) -> usize {
        // SAFETY: a count, taken under the allocator's own locks.
        let used = || unsafe { libc::mallinfo2() }.uordblks;
        let mut blocks = Vec::with_capacity(16 * LARGEST);
        let before = used();
        for size in (8..SHARED).step_by(16) {
            let layout = Layout::from_size_align(size, 8).unwrap();
            for _ in 0..8 {
                // SAFETY: the size is not 0.
                blocks.push((unsafe { heap.alloc(layout) }, layout));
            }
        }
        for (block, layout) in blocks.drain(..) {
            // SAFETY: allocated above with this layout.
            unsafe { heap.dealloc(block, layout) };
        }
        used().saturating_sub(before)
    }

    /// The C library itself is asked: its caches are what the sizes are made for.
    #[cfg(target_env = "gnu")]
    #[test]
    fn a_thread_keeps_little() {
        let of_all_sizes = std::thread::spawn(|| kept_of(&System)).join().unwrap();
        let of_few_sizes = std::thread::spawn(|| kept_of(&FewSizes)).join().unwrap();
        assert!(of_all_sizes > 200 << 10, "the C library keeps {of_all_sizes} bytes of all sizes");
        assert!(of_few_sizes < 8 << 10, "a thread keeps {of_few_sizes} bytes");
    }

    #[test]
    fn no_block_is_smaller_than_asked_for() {
        for size in (1..=4096).chain([1 << 20, isize::MAX as usize]) {
            assert!(rounded(size) >= size, "{size}: {}", rounded(size));
            assert_eq!(rounded(rounded(size)), rounded(size), "{size}");
        }
    }

    #[test]
    fn bytes_stay_when_a_block_grows_and_shrinks() {
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 13).collect();
        for (from, to) in
            [(1, 24), (24, 25), (100, 600), (600, 1030), (1030, 5000), (5000, 500), (500, 3)]
        {
            // SAFETY: the sizes are not 0, the block is of `from` bytes, then of `to`, and freed as such.
            #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one block's life")]
            unsafe {
                let block = FewSizes.alloc(layout(from));
                block.copy_from_nonoverlapping(bytes.as_ptr(), from);
                let block = FewSizes.realloc(block, layout(from), to);
                let seen = std::slice::from_raw_parts(block, from.min(to));
                assert_eq!(seen, &bytes[..from.min(to)], "{from} → {to}");
                FewSizes.dealloc(block, layout(to));
            }
        }
    }
}
