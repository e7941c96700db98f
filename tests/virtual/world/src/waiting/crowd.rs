//! The processes of a world of waiters: each can be killed and started again.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_core::{LockManager, Runtime};

use super::board::{Board, Who};
use super::contender;
use super::plan::Plan;
use crate::history::AttemptId;
use crate::plan::{Ability, Class};
use crate::process::Process;
use crate::world::{World, lock};

/// A world of waiters, and what its tasks share. Clones are the same world.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    world: World,
    pub(crate) plan: Plan,
    pub(super) board: Arc<Mutex<Board>>,
    pub(super) shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    members: Vec<Member>,
    working: Vec<usize>,
    tasks: usize,
    is_over: bool,
    pub(super) forgot: bool, // Whether a node lost locks, so that there may be two holders.
    pub(super) dead: HashSet<AttemptId>, // What the processes that were killed have begun.
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) process: Process,
    pub(crate) manager: LockManager,
    pub(crate) who: Who,
    is_dead: bool,
}

impl Deref for Crowd {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Crowd {
    pub(crate) fn new(world: World, plan: Plan, seed: u64) -> Self {
        let board = Arc::new(Mutex::new(Board::new(seed, &plan)));
        Self { world, board, plan, shared: Arc::default() }
    }

    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    pub(crate) fn start(&self, place: usize) {
        let client = self.sim.client(0);
        let process = Process::new(&self.sim, client.clone());
        let Some(manager) = self.manager(&process) else { return };
        let who = Who { place, client: client.id(), manager: 0 };
        let member = Member { process: process.clone(), manager, who, is_dead: false };
        let mut shared = lock(&self.shared);
        match shared.members.get_mut(place) {
            Some(before) => *before = member,
            None => shared.members.push(member),
        }
        for _ in 0..self.plan.tasks {
            shared.tasks += 1;
            shared.working.push(client.id());
            let contender = Box::pin(contender::run(self.clone(), place, client.id()));
            client.spawn(Box::pin(process.clone().run_task(shared.tasks, contender)));
        }
    }

    pub(crate) fn kill(&self, place: usize) -> Option<Member> {
        let member = {
            let mut shared = lock(&self.shared);
            let member = shared.members.get_mut(place).filter(|member| !member.is_dead)?;
            member.is_dead = true;
            member.clone()
        };
        let client = member.who.client;
        member.process.client().kill();
        lock(&self.shared).working.retain(|other| *other != client);
        self.note(format!("process {place} is killed, client {client}"));
        Some(member)
    }

    pub(crate) fn member(&self, place: usize) -> Member {
        lock(&self.shared).members[place].clone()
    }

    /// Gives the process at this place another manager, and returns the one before.
    pub(crate) fn renew(&self, place: usize) -> Option<LockManager> {
        let manager = self.manager(&self.member(place).process)?;
        let member = &mut lock(&self.shared).members[place];
        member.who.manager += 1;
        Some(std::mem::replace(&mut member.manager, manager))
    }

    pub(crate) fn done(&self, client: usize) {
        let working = &mut lock(&self.shared).working;
        if let Some(place) = working.iter().position(|other| *other == client) {
            working.swap_remove(place);
        }
    }

    pub(crate) fn working(&self) -> usize {
        lock(&self.shared).working.len()
    }

    pub(crate) fn nodes_fail(&self) -> bool {
        self.plan.class == Class::Gate
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.shared).is_over
    }

    /// Tasks stop after their next lock.
    pub(crate) fn end(&self) {
        lock(&self.shared).is_over = true;
        self.board().is_over(self.sim.elapsed());
    }

    /// Managers know their runtime, and that the world.
    pub(crate) fn forget(&self) {
        lock(&self.shared).members.clear();
    }

    fn manager(&self, process: &Process) -> Option<LockManager> {
        let other = *self.dice.pick(&[Ability::Watch, Ability::Nothing]);
        let used = if self.dice.percent(self.plan.others) { other } else { Ability::Queue };
        let nodes = self.nodes.iter().map(|node| used.of(node.seen_by(process.client())));
        let built = LockManager::builder(nodes).runtime(process.clone()).ttl(self.plan.ttl).build();
        built.map_err(|error| self.wrong(format!("no manager: {error}"))).ok()
    }
}
