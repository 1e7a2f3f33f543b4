//! What each move of the cloud does.

use super::game::{EQUAL, Game, INTERVAL, OTHER, PROGRAM, SETTLING};
use super::moves::Move;

impl Game {
    /// Makes a move.
    pub(super) fn make(&mut self, m: Move) {
        let few = 1 + self.random(4);
        match m {
            Move::Forward => self.forward(30),
            Move::Lose => {
                let packet = self.packet();
                self.judge(packet);
            }
            Move::LoseMany => self.lose_many(),
            Move::Jitter => self.jitter_until = self.now + 60,
            Move::Undigested => self.undigested_until = self.now + 10,
            Move::HoldLog => self.hold_until = self.now + 60,
            Move::Restart => {
                self.wait(40);
                self.restart();
            }
            Move::Bypass => (0..few).for_each(|_| self.bypass()),
            Move::BypassUndigested => {
                self.undigested_until = self.now + 1;
                (0..few).for_each(|_| self.bypass());
            }
            Move::JudgeTwice => {
                let packet = self.packet();
                self.judge(packet);
                self.arrive(Some(packet));
                self.judge(packet);
                self.bypass();
            }
            Move::Modify => self.modify(),
            Move::ModifyAmongLosses => {
                self.lose_many();
                self.modify();
            }
            Move::ModifyAmongUndigested => {
                self.undigested_until = self.now + 1;
                self.honest();
                self.wait(2);
                self.modify();
            }
            Move::Replay => {
                let packet = self.packet();
                self.judge(packet);
                self.arrive(Some(packet));
                self.forward(100);
                self.treason += 1;
                self.arrive(Some(packet));
            }
            Move::OtherProgram => {
                self.load(OTHER);
                self.honest();
                self.forward(2 * INTERVAL);
                self.load(PROGRAM);
            }
            Move::OtherProgramForAMoment => {
                self.load(OTHER);
                self.honest();
                self.load(PROGRAM);
            }
            Move::Unload => {
                self.record.replacements += 1;
                self.record.programs[0] = [0; 32];
                self.honest();
                self.record.programs[0] = PROGRAM;
            }
            Move::ShortHeaders => {
                self.record.header_bytes = 34;
                self.is_other_judge = true;
                self.forward(2 * INTERVAL);
                self.record.header_bytes = 128;
            }
            Move::BypassAndReplug => {
                (0..few).for_each(|_| self.bypass());
                self.wait(20);
                self.replug(0);
            }
            Move::ReplugAndBypass => {
                self.wait(20);
                self.treason += few;
                self.replug(few);
            }
            Move::Rotate => self.rotate(),
            Move::RotateAndModify => {
                self.rotate();
                for _ in 0..3 {
                    self.forward(INTERVAL);
                    self.modify();
                }
            }
            Move::RotateAndJudgeTwice => {
                self.rotate();
                let (judged, skipped) = (self.packet(), self.packet());
                self.judge(judged);
                self.arrive(Some(judged));
                self.arrive(Some(skipped));
                self.treason += 1;
                // The P4 VM's digest of the second verdict has the new key.
                self.forward(SETTLING + 2 * INTERVAL);
                self.judge(judged);
            }
            Move::RotateAndCut => {
                self.rotate();
                self.poll();
                self.hold_until = self.now + SETTLING + 3 * INTERVAL;
                (0..few).for_each(|_| self.bypass());
                self.forward(SETTLING + 2 * INTERVAL);
                self.held.clear();
            }
            Move::RestartAndBypass => {
                self.wait(40);
                (0..few).for_each(|_| self.bypass());
                self.restart();
            }
            Move::ReplayRecord | Move::ForgeRecord => {
                self.poll();
                if let Some((epoch, counter, mut bytes)) = self.held.back().cloned() {
                    let change = if m == Move::ForgeRecord { 1 } else { 0 };
                    bytes[100] ^= change;
                    self.open(epoch, counter, &bytes);
                }
                self.bypass();
            }
            Move::StopLog => {
                self.hold_until = u64::MAX;
                (0..few).for_each(|_| self.bypass());
            }
            Move::Detach => self.detach(),
            Move::Equal => self.equal(40),
            Move::ModifyAndDetach => {
                (0..few).for_each(|_| self.modify());
                self.forward(2 * INTERVAL);
                self.detach();
            }
            Move::ModifyAndCoverMore => {
                (0..few).for_each(|_| self.modify());
                self.forward(2 * INTERVAL);
                self.record.header_bytes = 256;
                self.forward(2 * INTERVAL);
                self.record.header_bytes = 128;
            }
            Move::BypassAmongEqual => {
                self.equal(10 * few);
                self.bypass();
                self.equal(40);
            }
            Move::SwapAmongEqual => {
                let packet = self.packet();
                self.judge(packet);
                self.treason += 1;
                self.arrive(Some(EQUAL));
                self.equal(40);
            }
            Move::ModifyAndLoseMany => {
                (0..few).for_each(|_| self.modify());
                self.forward(INTERVAL);
                self.lose_many();
            }
            Move::Delay => {
                let packet = self.packet();
                self.judge(packet);
                self.forward(250);
                self.late += 1;
                self.arrive(Some(packet));
            }
        }
        self.forward(10);
    }

    /// Milliseconds in which packets that equal each other are judged and arrive.
    fn equal(&mut self, ms: u64) {
        for _ in 0..ms {
            self.judge(EQUAL);
            self.arrive(Some(EQUAL));
            self.wait(1);
        }
    }

    fn detach(&mut self) {
        let header_bytes = std::mem::take(&mut self.record.header_bytes);
        self.wait(INTERVAL);
        self.record.header_bytes = header_bytes;
    }

    fn lose_many(&mut self) {
        for _ in 0..150 {
            let packet = self.packet();
            self.judge(packet);
        }
    }
}
