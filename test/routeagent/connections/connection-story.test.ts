/** What a node reports about its open connections over time. All drivers are fakes. */
import t from 'tap'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import type { OpenConnections } from '../../../model/member-status.ts'
import { eventually } from '../../support/eventually.ts'
import { loopRuns } from '../support/loop-runs.ts'
import { Machine } from '../support/machine.ts'

const exactly = (count: number): OpenConnections => ({ count, atLeast: false })

/** Jumps until it holds, and gives the time that has passed. */
async function until(machine: Machine, holds: () => boolean): Promise<number> {
  let passedMs = 0
  const look = (): boolean => {
    machine.clock.jump(30_000)
    passedMs += 30_000
    return holds()
  }
  await eventually(look)
  return passedMs
}

t.test('counted once a minute, told where it differs', async (t) => {
  const machine = new Machine(t)
  const connections = new FakeConnections()
  machine.connections = connections
  const reported = (): OpenConnections | undefined => machine.api.get('RouteAgent', 'worker')?.status?.openConnections
  const reports = (want: OpenConnections | undefined): Promise<unknown> =>
    eventually(() => JSON.stringify(reported()) === JSON.stringify(want), { say: `tells ${JSON.stringify(want)}` })
  const minute = async (): Promise<void> => {
    const { scans } = connections
    // The jump ends all waits of the loop, but not the time after which every change is reported.
    const wake = (): boolean => {
      machine.clock.jump(1000)
      return connections.scans > scans
    }
    await eventually(wake, { say: 'counted again' })
  }
  const open = (count: number): (() => void)[] =>
    Array.from({ length: count }, () => connections.open('10.42.1.5', '244.1.0.7'))

  const running = machine.start(t)
  await eventually(async () => (await loopRuns(machine.metrics, 'connections')) > 0)
  t.equal(connections.scans, 0, 'before there is a plan nobody knows what counts')
  const first = open(12)
  machine.join()
  await machine.ready()
  await reports(exactly(12))
  t.match(await machine.metrics.text(), /^sealane_routeagent_open_connections\{.*\} 12$/m)

  const heartbeat = (): string | undefined => machine.api.get('RouteAgent', 'worker')?.status?.heartbeatTime
  t.match(heartbeat(), /^\d{4}-/)

  open(3)
  await minute()
  await eventually(async () => /open_connections\{.*\} 15$/m.test(await machine.metrics.text()))
  t.strictSame(reported(), exactly(12), 'about as many')
  open(8)
  await minute()
  await reports(exactly(23))
  const before = heartbeat()
  const passedMs = await until(machine, () => heartbeat() !== before)
  t.ok(passedMs >= 120_000, `renewed while nothing changes, but only after minutes: ${passedMs} ms`)
  for (const close of first) close()

  connections.failure = new KernelError('EPERM', 'conntrack -L -f ipv4', 'not permitted')
  await minute()
  await reports(undefined)
  t.notOk(Object.hasOwn(machine.api.get('RouteAgent', 'worker')?.status ?? {}, 'heartbeatTime'), 'it says nothing')
  await minute()
  const warned = machine.logger.messages('warn').filter((message) => message.includes('open connections'))
  t.strictSame(warned, ['open connections cannot be counted'], 'said once')
  connections.failure = undefined
  await minute()
  await reports(exactly(11))
  t.same(machine.status.notReady(), [], 'nothing depends on it')
  await running.stop()
})
