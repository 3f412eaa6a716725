/** Runs rounds of faults under traffic, takes a quiet look after each of them, and then checks the whole history. */
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../support/eventually.ts'
import { BROKER_MACHINES, ETCD_MACHINES, makeMachines, removeMachines, unmountDisk } from './arena/arena.ts'
import { startBrokerNodes } from './arena/broker-nodes.ts'
import { startEtcdNodes } from './arena/etcd-nodes.ts'
import { type Arena, applyFault } from './arena/faults.ts'
import { Chance } from './chance.ts'
import { checkHistory } from './checker/check-history.ts'
import type { QuietLook } from './checker/history.ts'
import type { Violation } from './checker/violations.ts'
import type { Member } from './member.ts'
import { Operator } from './operator.ts'
import { type FaultKind, type PlannedFault, type PlannedRound, faultText, planRounds } from './plan-rounds.ts'
import { Recorder, countCalls } from './recorder.ts'
import { Traffic } from './traffic.ts'

const SEATS = 6
const CALM_MS = 500
const RECOVER_MS = 60_000
const AGREE_MS = 10_000

export interface RoundsInit {
  readonly rounds: number
  readonly seed: number
  /** An empty folder, which this function does not remove. */
  readonly folder: string
  /** A module that each broker loads first, and that breaks it. */
  readonly preload?: string
  /**
   * Whether the run ends at the first safety violation. A late recovery does not count, because a busy machine can
   * cause one.
   */
  readonly untilBroken?: boolean
  /** How long the brokers and members may take to agree again, in milliseconds; one minute by default. */
  readonly recoverMs?: number
  readonly say: (text: string) => void
}

export interface RoundsResult {
  readonly rounds: number
  readonly faults: Readonly<Partial<Record<FaultKind, number>>>
  /** The number of calls by kind and outcome. */
  readonly calls: Readonly<Record<string, number>>
  readonly observations: number
  /** For each round, the time from the end of its last fault until all brokers and members agreed again. */
  readonly recoveryMs: readonly number[]
  readonly violations: readonly Violation[]
}

/** Runs the rounds. The caller must be in its own network namespace. */
export async function runRounds(init: RoundsInit): Promise<RoundsResult> {
  const { rounds, seed, folder, preload, untilBroken = false, recoverMs = RECOVER_MS, say } = init
  const chance = new Chance(seed)
  await makeMachines([...ETCD_MACHINES, ...BROKER_MACHINES])
  const etcd = await startEtcdNodes(folder)
  const brokers = await startBrokerNodes({ folder, storeFlags: etcd.storeFlags, preload })
  const recorder = new Recorder()
  const operator = new Operator(brokers.nodes[0]?.state ?? '', recorder)
  const traffic = new Traffic({ operator, recorder, chance: chance.branch(), seats: SEATS })
  const faults: Partial<Record<FaultKind, number>> = {}
  const recoveryMs: number[] = []
  const stuck: Violation[] = []
  let violations: Violation[] = []
  let done = 0
  let known = 0
  for (const [i, round] of planRounds(rounds, chance.branch()).entries()) {
    say(`round ${i + 1}: ${round.map(faultText).join('; ')}`)
    traffic.start()
    await sleep(CALM_MS)
    await applyRound({ etcd, brokers }, round)
    const mendedMs = performance.now()
    for (const { kind } of round) faults[kind] = (faults[kind] ?? 0) + 1
    stuck.push(...(await problemsOf([etcd.healthy(recoverMs), brokers.ready(recoverMs)])))
    await sleep(CALM_MS)
    await traffic.stop()
    stuck.push(...(await problemsOf([traffic.finishEndings(recoverMs)])))
    stuck.push(...(await problemsOf(traffic.members.map((member) => comesBack(member, recoverMs)))))
    recorder.look(await quietLook(operator, traffic, Math.min(AGREE_MS, recoverMs)))
    recoveryMs.push(Math.round(performance.now() - mendedMs))
    violations = [...stuck, ...checkHistory(recorder)]
    done += 1
    say(
      `  all of one mind after ${recoveryMs.at(-1)} ms, ${recorder.calls.length} calls, ${violations.length} violations`,
    )
    for (const { rule, text } of violations.slice(known)) say(`  ${rule}: ${text}`)
    known = violations.length
    if (untilBroken && violations.some(({ rule }) => rule !== 'recovery')) break
  }
  await traffic.close()
  await removeArena({ etcd, brokers })
  const { calls, observations } = recorder
  return { rounds: done, faults, calls: countCalls(calls), observations: observations.length, recoveryMs, violations }
}

async function removeArena({ etcd, brokers }: Arena): Promise<void> {
  const nodes = [...etcd.nodes, ...brokers.nodes]
  await Promise.all(nodes.map(({ program }) => program.kill()))
  for (const { disk } of nodes) await unmountDisk(disk)
  await removeMachines(nodes.map(({ machine }) => machine))
}

async function applyRound(arena: Arena, round: PlannedRound): Promise<void> {
  await Promise.all(
    round.map(async (fault: PlannedFault) => {
      await sleep(fault.atMs)
      const mend = await applyFault(arena, fault)
      await sleep(fault.lastsMs)
      await mend()
    }),
  )
}

async function problemsOf(all: readonly Promise<void>[]): Promise<Violation[]> {
  const results = await Promise.allSettled(all)
  return results.flatMap((one) => (one.status === 'rejected' ? [{ rule: 'recovery', text: String(one.reason) }] : []))
}

async function comesBack(member: Member, withinMs: number): Promise<void> {
  const end = performance.now() + withinMs
  const say = 'a member is live'
  await eventually(() => member.isLive, { say, deadlineMs: withinMs }).catch((error: unknown) => {
    throw new Error(`${String(error)}\n${member.said()}`)
  })
  if (!(await member.settled(Math.max(1, Math.ceil(end - performance.now())))))
    throw new Error(`not settled\n${member.said()}`)
}

/** Returns the store and the watchers once all members have what they want, or their state at the deadline. */
async function quietLook(operator: Operator, traffic: Traffic, withinMs: number): Promise<Omit<QuietLook, 'at'>> {
  const { members } = traffic
  const take = async (): Promise<Omit<QuietLook, 'at'>> => {
    const store = await operator.look()
    const watchers = members.map((member) => {
      return { watcher: member.watcher, epoch: member.replica.epoch ?? '', records: member.state() }
    })
    return { ...store, watchers }
  }
  let last = await take()
  for (const end = performance.now() + withinMs; performance.now() < end && !isAgreed(last);) {
    await sleep(100)
    last = await take()
  }
  return last
}

function isAgreed({ records, watchers }: Omit<QuietLook, 'at'>): boolean {
  return watchers.every((one) => {
    if (one.records.size !== records.size) return false
    return [...records].every(([key, { revision }]) => one.records.get(key)?.revision === revision)
  })
}
