/** Calls to the clusterset IPs of service `web` from the worker of datapath.ts and from its pod, and their results. */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import type { Netns } from '../../support/netns.ts'
import { TALKER, call } from './datapath.ts'

export const VIP = '245.0.0.7'
/** The ports of the backends. */
export const PORTS = [
  { name: 'http', protocol: 'TCP', port: 8080 },
  { name: 'udp', protocol: 'UDP', port: 8080 },
] as const
/** The ports of the service. */
export const IMPORT_PORTS = [
  { name: 'http', protocol: 'TCP', port: 80 },
  { name: 'udp', protocol: 'UDP', port: 80 },
] as const

/** Makes this many calls, one after the other, and returns what call() returns. */
type Caller = (kind: 'tcp' | 'udp', count: number, port?: number) => Promise<string[]>

export interface Callers {
  readonly fromPod: Caller
  readonly fromNode: Caller
}

export function callersOf(address: string, pod: Netns): Callers {
  const from =
    (ns: Netns | undefined): Caller =>
    (kind, count, port = 80) =>
      call(ns, kind, { address, port, count })
  return { fromPod: from(pod), fromNode: from(undefined) }
}

/** The backends that answered. */
export const backends = (answers: readonly string[]): Set<string> => new Set(answers.map((a) => a.split(' ')[0] ?? ''))

/** The source addresses that the backends saw. */
export const sources = (answers: readonly string[]): Set<string> => new Set(answers.map((a) => a.split(' ')[1] ?? ''))

/** Checks that calls are refused while the service has no backend. */
export async function refusals(t: Test, { fromPod, fromNode }: Callers): Promise<void> {
  t.strictSame(await fromPod('tcp', 1), ['ECONNREFUSED'], 'no backend: a pod is refused')
  t.strictSame(await fromNode('tcp', 1), ['ECONNREFUSED'], 'no backend: the node is refused')
  t.strictSame(await fromPod('udp', 1), ['ECONNREFUSED'], 'no backend, UDP')
  t.strictSame(await fromNode('udp', 1), ['ECONNREFUSED'], 'no backend, UDP, from the node')
  t.strictSame(await fromPod('tcp', 1, 81), ['EHOSTUNREACH'], 'a port that nobody has')
  t.strictSame(await fromNode('tcp', 1, 81), ['EHOSTUNREACH'], 'a port that nobody has, from the node')
}

export interface HeldConnection {
  /** Sends a line and returns the answer to it. */
  ask(): Promise<string>
  end(): void
}

/** One TCP connection to port 80 that stays open. */
export function holdConnection(ns: Netns, address: string): HeldConnection {
  const args = ['netns', 'exec', ns.name, process.execPath, TALKER, 'hold', address, '80']
  const child = spawn('ip', args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    async ask() {
      child.stdin.write('hello\n')
      const line = await lines.next()
      return String(line.value)
    },
    end: () => child.kill(),
  }
}

/** The segment sizes of the open connections, seen from the far side. */
export async function segmentsOf(far: Netns): Promise<number[]> {
  const sockets = await far.exec('ss', ['-tinH', 'state', 'established'])
  return [...sockets.matchAll(/ mss:(\d+)/g)].map((match) => Number(match[1]))
}
