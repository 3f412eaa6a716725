/** The faults that a round can apply. Each fault returns the function that ends it. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, rmSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import type { PlannedFault } from '../plan-rounds.ts'
import { BROKER_MACHINES, CALLERS, ETCD_MACHINES, cut, mend, setLink } from './arena.ts'
import type { BrokerNode, BrokerNodes } from './broker-nodes.ts'
import type { EtcdNodes, Node } from './etcd-nodes.ts'

export interface Arena {
  readonly etcd: EtcdNodes
  readonly brokers: BrokerNodes
}

const SPARE_BYTES = 1 << 20

type Mend = () => Promise<void> | void

/** Applies a fault, and returns the function that ends it. */
export async function applyFault({ etcd, brokers }: Arena, { kind, target, amount }: PlannedFault): Promise<Mend> {
  const broker = brokers.nodes[target] as BrokerNode
  const member = etcd.nodes[target] as Node
  const others = etcd.nodes.filter((one) => one !== member)
  switch (kind) {
    case 'broker killed':
      return killed([broker])
    case 'all brokers killed':
      return killed(brokers.nodes)
    case 'broker stops for a while':
      return stopped(broker)
    case 'etcd member killed':
      return killed([member])
    case 'etcd leader killed':
      return killed([etcd.nodes[(await etcd.leader()) ?? target] as Node])
    case 'etcd majority killed':
      return killed(others)
    case 'etcd member stops for a while':
      return stopped(member)
    case 'broker cut from one etcd member':
      return cutOff(broker, [ETCD_MACHINES[amount % 3]?.address ?? ''])
    case 'broker cut from etcd':
      return cutOff(
        broker,
        ETCD_MACHINES.map(({ address }) => address),
      )
    case 'broker cut from members':
      return cutOff(broker, [CALLERS])
    case 'brokers cut from each other':
      return cutOff(
        broker,
        BROKER_MACHINES.flatMap((one) => (one === broker.machine ? [] : one.address)),
      )
    case 'etcd member cut from the others':
      return cutOff(
        member,
        others.map(({ machine }) => machine.address),
      )
    case 'etcd leader cut from the others': {
      const leader = etcd.nodes[(await etcd.leader()) ?? target] as Node
      return cutOff(
        leader,
        etcd.nodes.flatMap((one) => (one === leader ? [] : one.machine.address)),
      )
    }
    case 'link of a broker down':
      return linkDown(broker)
    case 'link of an etcd member down':
      return linkDown(member)
    case 'slow disk of an etcd member':
      return slowDisks([member], amount)
    case 'slow disks of etcd':
      return slowDisks(etcd.nodes, amount)
    case 'full disk of an etcd member':
      return fullDisks([member])
    case 'full disks of etcd':
      return fullDisks(etcd.nodes)
    case 'full disk of a broker':
      return fullDisks([broker])
    case 'clock of a broker jumps':
      broker.setClock(amount)
      return () => broker.setClock(0)
  }
}

async function killed(nodes: readonly Node[]): Promise<Mend> {
  await Promise.all(nodes.map(({ program }) => program.kill()))
  return () => nodes.forEach(({ program }) => program.start())
}

function stopped({ program }: Node): Mend {
  const { pid } = program
  if (pid === undefined) return () => undefined
  process.kill(pid, 'SIGSTOP')
  // Another fault may have killed the process meanwhile.
  return () => {
    if (program.pid === pid) process.kill(pid, 'SIGCONT')
  }
}

async function cutOff({ machine }: Node, from: readonly string[]): Promise<Mend> {
  await cut(machine, from)
  return () => mend(machine)
}

async function linkDown({ machine }: Node): Promise<Mend> {
  await setLink(machine, 'down')
  return () => setLink(machine, 'up')
}

/** Delays each sync to the disk. */
function slowDisks(nodes: readonly Node[], delayMs: number): Mend {
  const tracers = nodes.flatMap(({ program: { pid } }) => (pid === undefined ? [] : delaySyncs(pid, delayMs)))
  return async () => {
    await Promise.all(tracers.map(endTracer))
  }
}

function delaySyncs(pid: number, delayMs: number): ChildProcess {
  const inject = `inject=fdatasync,fsync:delay_enter=${delayMs * 1000}`
  const args = ['-f', '-q', '-p', String(pid), '-o', '/dev/null', '-e', 'trace=fdatasync,fsync', '-e', inject]
  return spawn('setpriv', ['--pdeathsig', 'KILL', 'strace', ...args], { stdio: 'ignore' })
}

async function endTracer(tracer: ChildProcess): Promise<void> {
  if (tracer.exitCode === 127) throw new Error('there is no strace: install the package strace')
  if (tracer.exitCode !== null || tracer.signalCode !== null) return
  const gone = once(tracer, 'exit')
  tracer.kill('SIGTERM')
  await gone
}

/** Fills the disks. When there is space again, it restarts each process that died of the full disk. */
function fullDisks(nodes: readonly Node[]): Mend {
  const fillers = nodes.flatMap(({ disk }) => [join(disk, 'filler'), join(disk, 'filler-2')])
  for (const { disk } of nodes) fill(disk)
  return () => {
    for (const filler of fillers) rmSync(filler, { force: true })
    for (const { program } of nodes) program.start()
  }
}

/** Fills the rest of the disk in small steps, because a running process takes some of the space at the same time. */
function fill(disk: string): void {
  const { bavail, bsize } = statfsSync(disk)
  const most = bavail * bsize - SPARE_BYTES
  if (most > 0) execFileSync('fallocate', ['-l', String(most), join(disk, 'filler')])
  try {
    for (;;) appendFileSync(join(disk, 'filler-2'), Buffer.alloc(4096))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  }
}
