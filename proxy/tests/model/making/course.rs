//! The course of a making, and what guests do meanwhile.

use super::At;
use super::Beside;
use super::CODE;
use super::Defence;
use super::Due;
use super::Making;
use super::Move;
use super::NEW;
use super::OVER;
use super::RO;
use super::RW;
use super::Said;
use super::Whose;
use crate::explore::Actor;
use crate::explore::Model;

impl Making {
    fn has(&self, defence: Defence) -> bool {
        self.without != Some(defence)
    }

    fn list(&self) -> &'static [Due] {
        if self.over { OVER } else { NEW }
    }

    /// Whether the new thread is known as a stub.
    fn is_known(&self) -> bool {
        matches!(self.at, At::Known | At::Going | At::Idle | At::Looked | At::Bound)
    }

    fn next(&mut self, from: At, file: Whose) -> Result<At, String> {
        let is_false = self.lied && self.has(Defence::Asked);
        let is_sought = self.sought && self.has(Defence::Sought);
        let is_spoilt = self.has(Defence::LastLook) && self.window != [Whose::Ours; 3];
        Ok(match from {
            At::Trapped => At::Into(Due::MapCode),
            At::Into(due) => At::Entered(due, false),
            // The process is ended.
            At::Entered(_, true) if self.has(Defence::EntryLook) => At::Over,
            At::Entered(Due::MapCode, guests) => {
                let made = self.put(CODE, if guests { Whose::Guests } else { file })?;
                self.left(Due::MapCode, made)
            }
            At::Entered(due, guests) => {
                self.steered = due == Due::Clone && (guests || !self.has(Defence::Fresh));
                self.left(due, true)
            }
            At::Born => At::Runs(0),
            // SIGSEGV.
            At::Runs(_) if self.window[CODE] == Whose::Nobodys => At::Gone,
            At::Runs(place) if place == self.list().len() => At::Shows,
            At::Runs(place) => At::Asks(place),
            At::Asks(_) | At::Shows if is_false => At::Over,
            At::Asks(place) => self.asked(place, file)?,
            At::Shows if is_sought => At::Over,
            At::Shows => At::Known,
            At::Known => At::Going,
            At::Going => At::Idle,
            At::Idle if is_spoilt => At::Over,
            At::Idle => At::Looked,
            At::Looked => self.bound()?,
            At::Bound => At::Bound,
            At::Gone | At::Over => At::Over,
        })
    }

    /// The maker is stopped at the exit of a call, which did what it should, or not.
    fn left(&self, due: Due, made: bool) -> At {
        match due {
            Due::MapCode if made || !self.has(Defence::ExitLook) => At::Into(Due::Close),
            Due::Close => At::Into(Due::Clone),
            Due::Clone if made => At::Born,
            _ => At::Over,
        }
    }

    /// The kernel makes a call of the list.
    fn asked(&mut self, place: usize, file: Whose) -> Result<At, String> {
        let is_swapped = self.window[CODE] == Whose::Guests;
        if place == usize::from(self.has(Defence::FilesAfter))
            && (!self.own || self.strayed && !is_swapped)
        {
            return Err("the frame's files are put into a table of the guest's".to_owned());
        }
        let made = match self.list()[place] {
            Due::MapRo => self.put(RO, file)?,
            Due::MapRw => self.put(RW, file)?,
            Due::Unmap => self.unmap()?,
            due => {
                self.own |= due == Due::Unshare && self.has(Defence::Unshared);
                true
            }
        };
        Ok(if made { At::Runs(place + 1) } else { self.in_the_way() })
    }

    /// The guest's filter answers the call that is due.
    fn answered(&mut self, said: Said) -> At {
        match (self.at, said) {
            (At::Entered(due, _), Said::Errno | Said::Zero) => self.left(due, false),
            // The trap is answered, too: where that is, the code has no orders yet.
            (At::Runs(place), _) if place == self.list().len() => At::Gone,
            (At::Runs(place), Said::Zero) => {
                self.lied = true;
                At::Runs(place + 1)
            }
            (At::Runs(place), Said::Errno) => match self.list()[place] {
                // EEXIST, perhaps.
                Due::MapRo | Due::MapRw => self.in_the_way(),
                _ => At::Over,
            },
            (At::Runs(_), Said::End) => At::Gone,
            _ => At::Over,
        }
    }

    /// Something is where the frame belongs.
    fn in_the_way(&mut self) -> At {
        let is_beside = self.beside != Beside::Away && self.has(Defence::NobodyBeside);
        if self.over || is_beside || !self.leftovers() {
            return At::Over;
        }
        (self.over, self.lied) = (true, false);
        At::Runs(0)
    }

    /// Whether the frame's place holds nothing but what makings have not finished.
    fn leftovers(&self) -> bool {
        let is_empty = self.window[RO..] == [Whose::Nobodys; 2] && self.has(Defence::NotEmpty);
        !is_empty
            && self.window[RO..].iter().all(|whose| match whose {
                Whose::Nobodys => true,
                Whose::Ours => !self.is_known(),
                Whose::Besides => self.beside != Beside::Bound,
                Whose::Guests => false,
            })
    }

    /// The device's file is given.
    fn bound(&self) -> Result<At, String> {
        let what = match self {
            Self { own: false, .. } => "the device is in the guest's table",
            Self { strayed: true, .. } => "the device is in a table that another thread shares",
            _ if self.window != [Whose::Ours; 3] => "the device is given, and not all is ours",
            _ => return Ok(At::Bound),
        };
        Err(what.to_owned())
    }

    fn change(&mut self, place: usize, to: Whose) -> Result<(), String> {
        let others = if place == CODE { Whose::Ours } else { Whose::Besides };
        let is_ours = self.at == At::Bound && to != Whose::Ours;
        if is_ours || self.beside == Beside::Bound && to != others {
            return Err(format!("place {place} changes under a stub that has the device"));
        }
        self.window[place] = to;
        Ok(())
    }

    fn unmap(&mut self) -> Result<bool, String> {
        self.change(RO, Whose::Nobodys)?;
        self.change(RW, Whose::Nobodys)?;
        Ok(true)
    }

    /// mmap(2), and whether what belongs there is there then.
    fn put(&mut self, place: usize, whose: Whose) -> Result<bool, String> {
        if self.window[place] != Whose::Nobodys && self.has(Defence::NoReplace) {
            return Ok(place == CODE && self.window[CODE] == Whose::Ours);
        }
        self.change(place, whose)?;
        Ok(true)
    }

    /// The other process's making. What a guest does to it is what a guest does to this one.
    fn besides(&mut self) -> Result<Beside, String> {
        let is_beside = self.at != At::Trapped && self.has(Defence::NobodyBeside);
        let [code, ro, rw] = self.window;
        Ok(match self.beside {
            Beside::Away => Beside::Begun,
            Beside::Over => {
                self.unmap()?;
                Beside::Begun
            }
            Beside::Begun if code == Whose::Nobodys => {
                self.change(CODE, Whose::Ours)?;
                Beside::Begun
            }
            Beside::Begun if code == Whose::Guests => Beside::Away,
            Beside::Begun if ro == Whose::Nobodys => {
                self.change(RO, Whose::Besides)?;
                Beside::HalfMapped
            }
            Beside::HalfMapped if rw == Whose::Nobodys => {
                self.change(RW, Whose::Besides)?;
                // The last look.
                if (code, ro) == (Whose::Ours, Whose::Besides) {
                    Beside::Bound
                } else {
                    Beside::Away
                }
            }
            Beside::Begun | Beside::HalfMapped if self.leftovers() && !is_beside => Beside::Over,
            Beside::Begun | Beside::HalfMapped | Beside::Bound => Beside::Away,
        })
    }

    /// Whether the guest's code can run in the new thread now.
    fn strays(&self) -> bool {
        let runs = matches!(self.at, At::Runs(_));
        (runs || matches!(self.at, At::Going | At::Idle | At::Bound))
            && (self.window[CODE] == Whose::Guests
                || self.steered
                || self.traced
                || !self.has(Defence::Blocked)
                || runs && !self.has(Defence::SealedText))
    }
}

impl Model for Making {
    type Step = Move;

    fn steps(&self) -> Vec<(Actor, Move)> {
        use Defence::*;
        let mut steps = Vec::new();
        if self.at == At::Over {
            return vec![(Actor::Free, Move::Again)];
        }
        if self.at != At::Bound && (self.at != At::Gone || self.has(EndSeen)) {
            steps.push((Actor::Fair(0), Move::Next(self.at)));
        }
        let mut may = |is: bool, one: Move| steps.extend(is.then_some((Actor::Free, one)));
        let is_swappable = match self.at {
            At::Entered(due, guests) => due == Due::MapCode && !guests,
            At::Asks(_) => self.strayed,
            _ => false,
        };
        may(is_swappable, Move::Swap);
        may(matches!(self.at, At::Into(_)), Move::Elsewhere);
        let is_filtered = match self.at {
            At::Entered(_, guests) => !guests,
            at => matches!(at, At::Runs(_) | At::Going),
        };
        for said in [Said::Errno, Said::Zero, Said::End] {
            may(is_filtered, Move::Answer(said));
        }
        let is_new = self.at == At::Trapped;
        let is_let = matches!(self.without, Some(MapAsked | Untagged | OneAbi));
        for place in [CODE, RO, RW] {
            may(is_new && self.window[place] == Whose::Nobodys, Move::Segment(place));
            may(is_let && self.window[place] != Whose::Guests, Move::Map(place));
        }
        for halves in [1, 2] {
            may(is_new && self.window == [Whose::Nobodys; 3], Move::Inherit(halves));
        }
        may(!self.has(SealedFile) && self.window[CODE] == Whose::Ours, Move::WriteCode);
        let is_refused = self.is_known() && self.has(AttachAsked);
        may(!self.sought && !is_refused, Move::Ask);
        may(self.sought, Move::Attach);
        may(self.strays() && (!self.strayed || self.at == At::Bound), Move::Stray);
        let is_taken = matches!(self.without, Some(TakeAsked | OneAbi));
        may(is_taken && self.at == At::Bound, Move::Take);
        may(self.beside != Beside::Bound, Move::Beside);
        steps
    }

    fn take(&mut self, step: Move) -> Result<(), String> {
        let is_bound = self.at == At::Bound;
        match step {
            Move::Next(from) => self.at = self.next(from, Whose::Ours)?,
            Move::Swap => self.at = self.next(self.at, Whose::Guests)?,
            Move::Elsewhere => {
                if let At::Into(due) = self.at {
                    self.at = At::Entered(due, true);
                }
            }
            Move::Answer(said) => self.at = self.answered(said),
            Move::Segment(place) | Move::Map(place) => self.change(place, Whose::Guests)?,
            Move::Inherit(halves) => {
                self.window[CODE] = Whose::Ours;
                self.window[RO..=halves].fill(Whose::Besides);
            }
            Move::WriteCode => self.change(CODE, Whose::Guests)?,
            Move::Ask => self.sought = true,
            Move::Attach => {
                self.sought = false;
                self.traced |= match self.at {
                    At::Going | At::Idle | At::Looked | At::Bound => true,
                    At::Born | At::Runs(_) | At::Asks(_) | At::Shows | At::Known => {
                        !self.has(Defence::Traced)
                    }
                    _ => false,
                };
            }
            Move::Stray if is_bound => {
                return Err("the guest's code runs in a stub that has the device".to_owned());
            }
            Move::Stray => self.strayed = true,
            Move::Take => return Err("a guest takes the device out of a stub's table".to_owned()),
            Move::Beside => self.beside = self.besides()?,
            Move::Again => {
                let Self { without, window: [code, frame @ ..], beside, .. } = *self;
                let [ro, rw] =
                    frame.map(|one| if one == Whose::Ours { Whose::Besides } else { one });
                *self = Self { without, window: [code, ro, rw], beside, ..Self::default() };
            }
        }
        match self.traced && self.at == At::Bound {
            true => Err("a guest traces a stub that has the device".to_owned()),
            false => Ok(()),
        }
    }

    fn waits(&self) -> bool {
        !matches!(self.at, At::Bound | At::Over)
    }

    fn show(&self) -> String {
        format!("{self:?}")
    }
}
