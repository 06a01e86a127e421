//! The tokens of a rate, and how the sandboxes of a tenant share them.
//!
//! A bucket fills with time up to the burst, and a request takes a token out. The tenant's buckets are in the
//! file that the supervisors share, so tokens are never made twice. A supervisor takes one token at a time,
//! and more when it has used up the last ones within a moment ([`LEASE`]): then a look into the file is one
//! request's in dozens. What it has not used by then, it puts back. A supervisor that ends keeps what it
//! had taken from everybody for no longer than the bucket takes to fill.

use std::time::Duration;

use crate::pace::Pace;

/// How long tokens that were taken may be used.
pub(super) const LEASE: Duration = Duration::from_millis(100);

/// Bytes of a bucket in the file.
pub(super) const BUCKET: usize = 16;

/// The tokens of a rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    tokens: f64,
    /// When that was counted; a bucket that nobody has used is full.
    filled: Option<Duration>,
}

impl Bucket {
    pub(super) fn read(bytes: [u8; BUCKET]) -> Self {
        let [tokens, filled] = [0, 8].map(|at| {
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
            u64::from_ne_bytes(word.copied().unwrap_or_default())
        });
        let filled = (filled > 0).then(|| Duration::from_nanos(filled));
        Self { tokens: f64::from_bits(tokens), filled }
    }

    pub(super) fn bytes(self) -> [u8; BUCKET] {
        let filled = self.filled.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        let mut bytes = [0; BUCKET];
        let words = self.tokens.to_bits().to_ne_bytes().into_iter().chain(filled.to_ne_bytes());
        bytes.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Takes up to so many tokens out.
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 nobody counts")]
    pub(super) fn take(&mut self, pace: &Pace, now: Duration, most: u64) -> u64 {
        let (per_s, burst) = (pace.per_s as f64, pace.burst as f64);
        // Of a clock that has begun anew, nothing has passed.
        let since = self.filled.map(|at| now.saturating_sub(at).as_secs_f64());
        let tokens = since.map_or(burst, |since| self.tokens.max(0.0) + since * per_s);
        // A number that is none is no token.
        self.tokens = if tokens.is_finite() { tokens.min(burst) } else { 0.0 };
        self.filled = Some(now);
        let mut taken = 0;
        while taken < most && self.tokens >= 1.0 {
            self.tokens -= 1.0;
            taken += 1;
        }
        taken
    }

    /// How long it takes until there is a token.
    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 nobody counts")]
    fn next(&self, pace: &Pace) -> Duration {
        let seconds = (1.0 - self.tokens).max(0.0) / pace.per_s.max(1) as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(LEASE)
    }

    #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 nobody counts")]
    fn put_back(&mut self, tokens: u64) {
        self.tokens += tokens as f64;
    }
}

/// Tokens that a supervisor has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    tokens: u64,
    /// How many were taken last.
    size: u64,
    /// Until when they may be used; without tokens, until when there are none.
    until: Duration,
    /// The rate by which they were taken: those of a tenant that was cold are none of the tenant that is hot.
    pace: Option<Pace>,
}

impl Lease {
    /// Whether a request may go by these tokens; none when the bucket must be asked.
    pub(super) fn goes(&mut self, pace: &Pace, now: Duration) -> Option<bool> {
        if now >= self.until || self.pace != Some(*pace) {
            return None;
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Some(true)
            }
            None if self.size == 0 => Some(false),
            None => None,
        }
    }

    /// Takes new tokens: twice as many as last time, if those were used up in their time.
    pub(super) fn renew(&mut self, bucket: &mut Bucket, pace: &Pace, now: Duration) {
        bucket.put_back(self.tokens);
        let used_up = self.tokens == 0 && now < self.until && self.pace == Some(*pace);
        // No more than come in that time, and a small part of the burst.
        let most = (pace.per_s / 10).min(pace.burst / 8).max(1);
        let wanted = if used_up { self.size.saturating_mul(2).clamp(1, most) } else { 1 };
        self.tokens = bucket.take(pace, now, wanted);
        self.size = self.tokens;
        self.pace = Some(*pace);
        self.until = now + if self.tokens == 0 { bucket.next(pace).min(LEASE) } else { LEASE };
    }
}
