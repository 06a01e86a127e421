//! Work requests by which the driver changes memory keys (UMR), on a queue pair of its own.

use super::Device;
use super::bits::Field;
use super::complete::syndrome;
use super::layout::mkc;
use super::request::Request;

/// `MLX5_OPCODE_UMR`.
const OPCODE: u8 = 0x25;
/// The key is in the place of immediate data. `mlx5_wqe_umr_ctrl_seg` follows, and says what changes; then the
/// key's new context.
const KEY: Field = Field::new(12 * 8, 32);
const MASK: Field = Field::new(24 * 8, 64);
const CONTEXT: usize = 64;
/// `MLX5_MKEY_MASK_PD`, `_FREE`, and from `_LR` on the rights in the order of the context.
const PD: u64 = 1 << 7;
const FREE: u64 = 1 << 29;
const LOG_RIGHTS: u32 = 17;
const RIGHTS: u64 = 0x1f << LOG_RIGHTS;

impl Device {
    /// Changes the rights of a key, its protection domain, and whether the key is free: as much as the device
    /// says that it can. Gives the status that the work request ends with.
    pub(super) fn change_key(&mut self, request: &Request) -> u8 {
        let (number, mask) = (KEY.word(request.bytes()), MASK.get(request.bytes()));
        let context = request.bytes().get(CONTEXT..CONTEXT * 2);
        let (OPCODE, Some(context)) = (request.opcode(), context) else {
            return syndrome::OPERATION;
        };
        let pd = mkc::PD.word(context);
        if mask & !(PD | FREE | RIGHTS) != 0 || mask & PD != 0 && !self.pds.has(pd) {
            return syndrome::OPERATION;
        }
        let variant = number & 0xff;
        let known = self.keys.get_mut(&(number >> 8));
        let Some(key) = known.filter(|key| u32::from(key.variant) == variant) else {
            return syndrome::OPERATION;
        };
        if mask & PD != 0 {
            key.region.pd = pd;
            mkc::PD.copy(context, &mut key.context);
        }
        if mask & FREE != 0 {
            key.valid = !mkc::FREE.is_set(context);
            mkc::FREE.copy(context, &mut key.context);
        }
        let chosen = u8::try_from(mask >> LOG_RIGHTS & 0x1f).unwrap_or(0);
        let rights = u8::try_from(mkc::RIGHTS.get(context)).unwrap_or(0);
        key.region.permissions = key.region.permissions & !chosen | rights & chosen;
        mkc::RIGHTS.set(&mut key.context, key.region.permissions.into());
        syndrome::OK
    }
}
