/**
 * A broker in a process of its own under one of the benchmark's floods. Tests check which members it serves meanwhile,
 * and how much memory it takes.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { spawnServing } from '../../cli/run-cli.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type RawBroker, type RawIdentity, openChannel } from './raw-channel.ts'
import { rawJoin } from './raw-join.ts'
import { RawPublish } from './raw-publish.ts'
import { sayingRecord } from './raw-records.ts'
import { RawWatch } from './raw-watch.ts'

const FLOOD_MS = 1500
const CLIENT = join(import.meta.dirname, '../../../bench/flood/client.ts')
/** Far more than any machine needs; without limits the broker took 2,000. bench:flood measures the real use. */
const MAX_MB = 1000

export interface FloodedBroker extends RawBroker {
  readonly members: Readonly<Record<'milano' | 'paris' | 'attacker', RawIdentity>>
  residentMb(): number
}

/** A broker process with three members, which ends with the test. */
export async function floodedBroker(t: Test): Promise<FloodedBroker> {
  const state = temporaryFolder(t)
  const [address = '', status = ''] = [await freePort(), await freePort()].map((port) => `127.0.0.1:${port}`)
  const child = spawnServing(t, [
    ...['broker', 'serve', '--state', state, '--clusterset', 'demo', '--log-level', 'error'],
    ...['--listen', address, '--advertise', address, '--status-listen', status],
  ])
  const ready = async (): Promise<boolean> => (await fetch(`http://${status}/readyz`)).ok
  await eventually(ready, { deadlineMs: 30_000, say: 'the broker is ready' })
  const broker = { address, state }
  const [milano, paris, attacker] = [
    await rawJoin(broker, 'milano'),
    await rawJoin(broker, 'paris'),
    await rawJoin(broker, 'attacker'),
  ]
  const residentMb = (): number => {
    const text = readFileSync(`/proc/${child.pid}/status`, 'utf8')
    return Number(/VmRSS:\s+(\d+)/.exec(text)?.[1]) / 1000
  }
  return { ...broker, members: { milano, paris, attacker }, residentMb }
}

/** The body of a row: while the named flood runs, changes still arrive and a member that reconnects is let in. */
export function underFlood(flood: string, broker: FloodedBroker): (t: Test) => Promise<void> {
  return async (t) => {
    const { milano, paris, attacker } = broker.members
    const channels = [openChannel(broker, milano), openChannel(broker, paris)] as const
    t.teardown(() => channels.forEach((channel) => channel.close()))
    let text = ''
    new RawWatch(channels[1], ({ message }) => {
      for (const event of message?.$case === 'batch' ? message.value.events : []) {
        const said = Buffer.from(event).toString('latin1')
        if (said.includes('honest')) text = said
      }
    })
    const publish = await new RawPublish(channels[0]).open()
    const { address, state } = broker
    const what = { flood, broker: { address, state }, member: attacker, ms: 20_000, connections: 400 }
    const flooding = spawn(process.execPath, [CLIENT, JSON.stringify(what)], { stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(flooding, 'close')
    await once(flooding.stdout, 'data')
    const end = performance.now() + FLOOD_MS
    let most = 0
    try {
      for (let i = 1; performance.now() < end || i <= 5; i += 1) {
        publish.sendPut(sayingRecord('honest', `number ${flood} ${i} `))
        await eventually(() => text.includes(`number ${flood} ${i} `), {
          deadlineMs: 15_000,
          say: `change ${i} arrives`,
        })
        most = Math.max(most, broker.residentMb())
      }
      await letIn(broker, paris)
      t.equal(flooding.exitCode, null, 'the flood goes on')
    } finally {
      flooding.kill('SIGKILL')
      await ended
    }
    t.equal(publish.status, undefined, 'the honest stream goes on')
    t.ok(most < MAX_MB, `the broker holds ${Math.round(most)} MB`)
  }
}

/** Connects with the retries of a client that is not let in at once. */
async function letIn(broker: RawBroker, member: RawIdentity): Promise<void> {
  const seen = new Set<string | undefined>()
  const once = async (): Promise<boolean> => {
    const channel = openChannel(broker, member)
    try {
      const watch = new RawWatch(channel, ({ message }) => seen.add(message?.$case))
      await eventually(() => seen.has('synced') || watch.status !== undefined, { deadlineMs: 10_000 })
      return seen.has('synced')
    } finally {
      channel.close()
    }
  }
  await eventually(once, { deadlineMs: 30_000, say: 'a member that comes anew is let in' })
}
