//! The processes of a world of waiters: each can be killed and started again.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_core::{LockManager, Runtime};

use super::board::{Board, Who};
use super::contender;
use super::plan::Habits;
use crate::history::AttemptId;
use crate::plan::Class;
use crate::process::Process;
use crate::run::{Scene, manager};
use crate::world::lock;

/// A world of waiters, and what its tasks share. Clones are the same world.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    scene: Arc<Scene>,
    pub(crate) habits: Habits,
    pub(super) board: Arc<Mutex<Board>>,
    members: Arc<Mutex<Vec<Member>>>,
    dead: Arc<Mutex<Vec<Process>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) process: Process,
    pub(crate) manager: LockManager,
    pub(crate) who: Who,
    is_dead: bool,
}

impl Deref for Crowd {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl Crowd {
    pub(crate) fn new(scene: Arc<Scene>, habits: Habits) -> Self {
        let board = Arc::new(Mutex::new(Board::new(&habits, Arc::clone(&scene.broken))));
        Self { scene, habits, board, members: Arc::default(), dead: Arc::default() }
    }

    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// Starts the process at this place, or another one in the place of one that is dead.
    pub(crate) fn start(&self, place: usize) {
        let is_first = lock(&self.members).len() <= place;
        let process = match is_first {
            true => self.processes[place].clone(),
            false => Process::new(&self.sim, self.sim.client(0)),
        };
        let client = process.client();
        let Some(manager) = manager(self, &process) else { return self.wrong("no manager") };
        let who = Who { place, client: client.id(), manager: 0 };
        let member = Member { process: process.clone(), manager, who, is_dead: false };
        let mut members = lock(&self.members);
        match members.get_mut(place) {
            Some(before) => *before = member,
            None => members.push(member),
        }
        drop(members);
        for number in 1..=self.plan.tasks {
            let contender = Box::pin(contender::run(self.clone(), place));
            client.spawn(Box::pin(process.clone().run_task(number, contender)));
        }
    }

    /// Kills the process at this place, unless it is dead.
    pub(crate) fn kill(&self, place: usize) -> bool {
        let (process, client) = match lock(&self.members).get_mut(place) {
            Some(member) if !member.is_dead => {
                member.is_dead = true;
                (member.process.clone(), member.who.client)
            }
            _ => return false,
        };
        process.client().kill();
        lock(&self.dead).push(process);
        self.count("process killed");
        self.note(format!("process {place} is killed, client {client}"));
        self.board().killed(self.sim.elapsed(), client);
        true
    }

    /// What the processes that were killed have begun.
    pub(crate) fn drawn_by_the_dead(&self) -> HashSet<AttemptId> {
        lock(&self.dead).iter().flat_map(Process::all_drawn).collect()
    }

    pub(crate) fn member(&self, place: usize) -> Member {
        lock(&self.members)[place].clone()
    }

    /// Gives the process at this place another manager, and returns the one before.
    pub(crate) fn renew(&self, place: usize) -> Option<LockManager> {
        let manager = manager(self, &self.member(place).process)?;
        let member = &mut lock(&self.members)[place];
        member.who.manager += 1;
        Some(std::mem::replace(&mut member.manager, manager))
    }

    pub(crate) fn nodes_fail(&self) -> bool {
        self.plan.class == Class::Gate
    }

    /// Tasks stop after their next lock.
    pub(crate) fn is_over(&self) -> bool {
        self.sim.elapsed() >= self.plan.chaos
    }
}
