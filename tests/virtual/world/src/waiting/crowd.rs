//! The processes of a world of waiters: each can be killed and started again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_core::{LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim};

use super::board::{Board, Who};
use super::contender::Contender;
use super::plan::Plan;
use crate::ability::Ability;
use crate::dice::Dice;
use crate::history::History;
use crate::oracle::Violation;
use crate::plan::Class;
use crate::process::Process;

/// A world of waiters, and what its tasks share. Clones are the same world.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    /// The world.
    pub(crate) sim: Sim,
    /// The draws.
    pub(crate) dice: Dice,
    /// What the world is like.
    pub(crate) plan: Plan,
    /// The nodes.
    pub(crate) nodes: Vec<MemoryNode>,
    /// What happened.
    pub(crate) history: History,
    /// The waiters and the holders.
    pub(crate) board: Board,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    members: Vec<Member>,
    wrong: Vec<Violation>,
    /// The tasks that are at work, by client.
    working: Vec<usize>,
    tasks: usize,
    is_over: bool,
}

/// A process as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The runtime of its manager.
    pub(crate) process: Process,
    /// Its manager, and which one it is.
    pub(crate) manager: LockManager,
    /// Its identity on the board.
    pub(crate) who: Who,
    /// Whether it was killed and has not started again.
    pub(crate) is_dead: bool,
}

impl Crowd {
    /// A world without processes.
    pub(crate) fn new(
        sim: &Sim,
        dice: &Dice,
        plan: &Plan,
        nodes: &[MemoryNode],
        seed: u64,
    ) -> Self {
        Self {
            sim: sim.clone(),
            dice: dice.clone(),
            plan: plan.clone(),
            nodes: nodes.to_vec(),
            history: History::new(),
            board: Board::new(seed, plan),
            shared: Arc::default(),
        }
    }

    /// Starts a process at this place, with a client and a manager of its own.
    pub(crate) fn start(&self, place: usize) {
        let client = self.sim.client(0);
        let process = Process::new(&self.sim, &client);
        let Some(manager) = self.manager(&process) else { return };
        let who = Who { place, client: client.id(), manager: 0 };
        let member = Member { process: process.clone(), manager, who, is_dead: false };
        let mut shared = self.lock();
        match shared.members.get_mut(place) {
            Some(before) => *before = member,
            None => shared.members.push(member),
        }
        for _ in 0..self.plan.tasks {
            shared.tasks += 1;
            shared.working.push(client.id());
            let contender = Contender::new(self, place, client.id());
            let task = process.clone().run_task(shared.tasks, contender.run());
            client.spawn(Box::pin(task));
        }
    }

    /// Kills the process at this place, if it is alive.
    pub(crate) fn kill(&self, place: usize) -> Option<Member> {
        let member = {
            let mut shared = self.lock();
            let member = shared.members.get_mut(place).filter(|member| !member.is_dead)?;
            member.is_dead = true;
            member.clone()
        };
        let client = member.who.client;
        member.process.client().kill();
        self.lock().working.retain(|other| *other != client);
        self.note(format!("process {place} is killed, client {client}"));
        Some(member)
    }

    /// The process at a place, as it is now.
    pub(crate) fn member(&self, place: usize) -> Member {
        self.lock().members[place].clone()
    }

    /// Gives the process at this place another manager, and returns the one before.
    pub(crate) fn renew(&self, place: usize) -> Option<LockManager> {
        let process = self.member(place).process;
        let manager = self.manager(&process)?;
        let mut shared = self.lock();
        let member = &mut shared.members[place];
        member.who.manager += 1;
        Some(std::mem::replace(&mut member.manager, manager))
    }

    /// A task is done.
    pub(crate) fn done(&self, client: usize) {
        let mut shared = self.lock();
        if let Some(place) = shared.working.iter().position(|other| *other == client) {
            shared.working.swap_remove(place);
        }
    }

    /// How many tasks are at work.
    pub(crate) fn working(&self) -> usize {
        self.lock().working.len()
    }

    /// Whether nodes fail in this world.
    pub(crate) fn nodes_fail(&self) -> bool {
        self.plan.class == Class::Gate
    }

    /// Whether tasks stop.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Tasks stop after their next lock.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.board.is_over(self.sim.elapsed());
    }

    /// Something must not be as it is.
    pub(crate) fn wrong(&self, what: impl Into<String>) {
        let violation = Violation::other(&self.sim, what);
        self.lock().wrong.push(violation);
    }

    /// All that was wrong, once.
    pub(crate) fn take_wrong(&self) -> Vec<Violation> {
        std::mem::take(&mut self.lock().wrong)
    }

    /// Something that helps the reader of a history.
    pub(crate) fn note(&self, note: impl Into<String>) {
        self.history.note(self.sim.elapsed(), 0, note);
    }

    /// Managers know their runtime, and that the world.
    pub(crate) fn forget(&self) {
        self.lock().members.clear();
    }

    fn manager(&self, process: &Process) -> Option<LockManager> {
        let other = *self.dice.pick(&[Ability::Watch, Ability::Nothing]);
        let used = if self.dice.percent(self.plan.others) { other } else { Ability::Queue };
        let nodes = self.nodes.iter().map(|node| used.of(node.seen_by(process.client())));
        let builder = LockManager::builder(nodes).runtime(process.clone()).ttl(self.plan.ttl);
        let built = builder.build();
        if let Err(error) = &built {
            self.wrong(format!("no manager: {error}"));
        }
        built.ok()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
