//! W2 and the figures of a tight loop: processes that want one lock all the time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_memory::{Operation, Sim};

use super::processes::{Process, Quirk, ROUND_TRIP, Scene};
use crate::world::{MS, SECOND, slow};

/// One hold: by which process and task, from when to when.
#[derive(Clone, Copy, Debug)]
struct Hold {
    process: usize,
    from: Duration,
    until: Duration,
}

/// Tasks that lock, hold and release, again and again.
pub(crate) struct Contest {
    pub(crate) scene: Scene,
    pub(crate) processes: Vec<Process>,
    hold: Duration,
    holds: Arc<Mutex<Vec<Hold>>>,
}

impl Contest {
    pub(crate) fn new(seed: u64, hold: Duration) -> Self {
        Self::on(Scene::with(5, Sim::shuffled(seed), Quirk::default()), hold)
    }

    pub(crate) fn on(scene: Scene, hold: Duration) -> Self {
        Self { scene, processes: Vec::new(), hold, holds: Arc::default() }
    }

    /// A process joins, with so many tasks.
    pub(crate) fn join(&mut self, tasks: usize) {
        let process = self.scene.process();
        self.run(process, tasks);
    }

    /// The same with this process.
    pub(crate) fn run(&mut self, process: Process, tasks: usize) {
        let number = self.processes.len();
        for _ in 0..tasks {
            let (ours, holds, hold) = (process.clone(), Arc::clone(&self.holds), self.hold);
            let sim = self.scene.sim.clone();
            process.spawn(async move {
                loop {
                    let guard = ours.lock("r").await.unwrap();
                    let from = sim.elapsed();
                    ours.client.sleep(hold).await;
                    let until = sim.elapsed();
                    holds.lock().unwrap().push(Hold { process: number, from, until });
                    guard.release().await.unwrap();
                }
            });
        }
        self.processes.push(process);
    }

    /// The processes in the order in which they are next.
    pub(crate) fn by_last_hold(&self) -> Vec<usize> {
        let holds = self.holds.lock().unwrap();
        let last = |process: &usize| {
            holds.iter().filter(|hold| hold.process == *process).map(|hold| hold.from).max()
        };
        let mut all: Vec<_> = (0..self.processes.len()).collect();
        all.sort_by_key(last);
        all
    }

    /// The figures of the next so much time.
    pub(crate) fn figures(&self, time: Duration) -> Figures {
        self.holds.lock().unwrap().clear();
        self.scene.forget_sent();
        self.scene.advance(time);
        let mut holds = self.holds.lock().unwrap().clone();
        holds.sort_by_key(|hold| hold.from);
        let pairs = || holds.windows(2).map(|pair| (pair[0], pair[1]));
        let mut gaps: Vec<_> = pairs().map(|(one, next)| next.from - one.until).collect();
        gaps.sort();
        let to_another = pairs().filter(|(one, next)| one.process != next.process).count();
        let of = |process| holds.iter().filter(|hold| hold.process == process).count();
        let shares = (0..self.processes.len()).map(of);
        let fair = holds.len() as f64 / self.processes.len() as f64;
        Figures {
            holds: holds.len(),
            shares: shares.map(|share| share as f64 / fair).collect(),
            to_another: to_another as f64 / gaps.len() as f64,
            median_gap: gaps[gaps.len() / 2],
            longest_gap: gaps[gaps.len() - 1],
            sent: self.scene.sent().len() as f64 / holds.len() as f64,
            acquires: self.scene.count(Operation::Acquire) as f64 / holds.len() as f64,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Figures {
    holds: usize,
    /// The share of each process, as a part of its fair share.
    pub(crate) shares: Vec<f64>,
    /// Which part of the releases another process followed.
    to_another: f64,
    median_gap: Duration,
    pub(crate) longest_gap: Duration,
    /// Requests for each hold.
    pub(crate) sent: f64,
    pub(crate) acquires: f64,
}

impl Figures {
    /// The smallest share of a process.
    pub(crate) fn least(&self) -> f64 {
        self.shares.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

#[test]
fn w2_eight_processes_share() {
    for (seed, tasks) in [(1, 1), (2, 1), (3, 3), (4, 3)] {
        let mut contest = Contest::new(seed, MS);
        (0..8).for_each(|_| contest.join(tasks));
        let figures = contest.figures(SECOND);
        let story = format!("seed {seed}, {tasks} tasks: {figures:?}");
        assert!(figures.least() >= 0.5, "{story}");
        assert!(figures.to_another >= 0.9, "{story}");
        // The release, the push, and an acquire.
        assert_eq!(figures.median_gap, 2 * ROUND_TRIP, "{story}");
        assert!(figures.holds > 450, "{story}");
    }
}

#[test]
fn w2_a_process_that_is_farther_from_the_nodes_has_half_of_its_share() {
    let mut contest = Contest::new(1, MS);
    (0..7).for_each(|_| contest.join(1));
    let far = contest.scene.process();
    contest.scene.add_rule(.., slow(Duration::from_micros(2_500)).client(&far.client));
    contest.run(far, 1);
    let figures = contest.figures(2 * SECOND);
    assert!(figures.shares[7] >= 0.5, "{figures:?}");
}
